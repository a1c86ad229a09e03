"""`sam2track info`: what a model is made of, or what a video holds."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("subject", metavar="MODEL|VIDEO", default="nano")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(subject: str, as_json: bool) -> None:
    """Verify MODEL (nano, or a bundle's folder) and show origin, sizes, graphs and provider; or show what VIDEO holds.

    \b
    Examples:
      sam2track info nano
      sam2track info video.mp4
    """
    described = _describe_video(Path(subject)) if Path(subject).is_file() else _describe(subject)
    if as_json:
        click.echo(json.dumps(described, indent=1))
        return
    for key, value in described.items():
        if key == "streams":
            for stream in value:
                click.echo(
                    f"{'stream':16} " + " ".join(str(part) for part in stream.values() if part not in (None, ""))
                )
        elif key != "graphs":
            click.echo(f"{key:16} {value}")
    for graph, tensors in described.get("graphs", {}).items():
        click.echo(f"\n{graph}")
        for kind, names in tensors.items():
            for name, shape in names.items():
                click.echo(f"  {kind:8} {name:36} {shape}")


def _describe_video(path: Path) -> dict[str, Any]:
    """Of the first stream; one line a stream that `--stream` can choose."""
    from sam2track.video import list_streams, open_video

    found = open_video(path).info
    return {
        "path": str(path),
        "width": found.width,
        "height": found.height,
        "average_rate": _fraction(found.average_rate),
        "time_base": _fraction(found.time_base),
        "header_frames": found.frame_count,
        "rotation": found.rotation,
        "mirrored": found.mirrored,
        "pixel_aspect": _fraction(found.sample_aspect_ratio),
        "audio": found.has_audio,
        "streams": [
            {
                "stream": stream.stream,
                "codec": stream.codec,
                "size": f"{stream.width}x{stream.height}",
                "average_rate": _fraction(stream.average_rate),
                "title": stream.title,
            }
            for stream in list_streams(path)
        ],
    }


def _fraction(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


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
