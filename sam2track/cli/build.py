"""`sam2track build CHECKPOINT`: a checkpoint becomes a bundle."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the new bundle.")
@click.option("--precision", type=click.Choice(["fp16", "fp32"]), default="fp16", show_default=True,
              help="fp16 for GPUs, fp32 for CPUs.")  # fmt: skip
@click.option("--size", type=int, help="Input size in pixels, a multiple of 32. [default: the checkpoint's]")
@click.option("--name", help="Name of the model. [default: the folder's]")
@click.option("--overwrite", is_flag=True, help="Replace a bundle that exists.")
def build(checkpoint: Path, output: Path, precision: str, size: int | None, name: str | None, overwrite: bool) -> None:
    """Build the five graphs of CHECKPOINT, a folder with config.json and model.safetensors.

    The layout is that of transformers' Sam2VideoModel. PyTorch is not needed.

    \b
    Example:
      sam2track build sam2.1-hiera-tiny -o tiny-512 --precision fp32 --size 512
    """
    from tqdm import tqdm

    from sam2track.errors import CheckpointError
    from sam2track.spec import GRAPH_NAMES, GraphName

    try:
        from sam2track.build.bundle import build_bundle
        from sam2track.build.checkpoint import read_checkpoint
        from sam2track.build.writer import Precision
    except ImportError as error:
        raise CheckpointError(f'building needs {error.name}: pip install "sam2track[build]"') from None

    parts = read_checkpoint(checkpoint, image_size=size)
    with tqdm(total=len(GRAPH_NAMES), unit="graph", disable=True if sys.stderr is None else None) as bar:

        def show(graph: GraphName) -> None:
            bar.set_description(graph)
            bar.update()

        manifest = build_bundle(parts, output, Precision(precision), name=name, overwrite=overwrite, progress=show)
    size_mb = sum(file.size for file in manifest.files.values()) / 1e6
    click.echo(f"{output}: {manifest.name}, {precision}, {size_mb:.1f} MB", err=True)
