"""`sam2track info MODEL`: what a model is made of."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.argument("model", metavar="MODEL", default="nano")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(model: str, as_json: bool) -> None:
    """Verify MODEL (nano, or a bundle's folder) and show origin, sizes, graphs and provider.

    \b
    Example:
      sam2track info nano
    """
    described = _describe(model)
    if as_json:
        click.echo(json.dumps(described, indent=1))
        return
    for key, value in described.items():
        if key != "graphs":
            click.echo(f"{key:16} {value}")
    for graph, tensors in described["graphs"].items():
        click.echo(f"\n{graph}")
        for kind, names in tensors.items():
            for name, shape in names.items():
                click.echo(f"  {kind:8} {name:36} {shape}")


def _describe(model: str) -> dict[str, Any]:
    from sam2track.graphs import OnnxGraphs
    from sam2track.models import find_bundle

    bundle = find_bundle(model)
    manifest, constants = bundle.manifest, bundle.constants
    graphs = OnnxGraphs(bundle.graph_paths, constants)
    return {
        "name": bundle.name,
        "folder": str(bundle.folder),
        "sha256": bundle.sha256,
        "source": f"{manifest.source.checkpoint} {manifest.source.sha256}" if manifest else "unknown (no manifest)",
        "precision": manifest.precision if manifest else "unknown (no manifest)",
        "image_size": constants.image_size,
        "memory_frames": constants.memory_frames,
        "size_mb": round(sum(path.stat().st_size for path in bundle.graph_paths.values()) / 1e6, 2),
        "provider": graphs.provider,
        "graphs": graphs.signatures(),
    }
