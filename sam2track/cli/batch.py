"""`sam2track batch LIST`: many clips with one model, going on after a failure and from where it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sam2track.cli.batch_run import ClipReport, Settings, planned, run
from sam2track.cli.model_options import MemoryRequest, ModelRequest, memory_options, model_options


@click.command()
@click.argument("list_file", metavar="LIST", type=click.Path(path_type=Path))
@model_options
@memory_options
@click.option("--overwrite", is_flag=True, help="Do everything again, and replace outputs that exist.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="No progress bars, no table.")
@click.pass_context
def batch(ctx: click.Context, /, list_file: Path, overwrite: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Track the clips of LIST, a JSON file, with one model.

    docs/batch.md describes the file, docs/batch.schema.json is its JSON schema. Clips that are done already are
    skipped: their output and their file of scores are there, from the same prompts and model. A clip that fails does
    not end the others. Exits with 0 if all are done, 1 if any failed, 2 if the list cannot be used.

    \b
    Example:
      sam2track batch clips.json
    where clips.json is
      {"clips": [{"video": "a.mp4", "prompts": [{"points": [[412, 230]]}]},
                 {"video": "b.mp4", "prompt_file": "b.json", "format": "png"}]}
    """
    from sam2track.batch_file import read_batch
    from sam2track.concealment import noticing

    plans = planned(list_file, read_batch(list_file))
    with noticing():
        memory = MemoryRequest.take_from(given).options()
        model = ModelRequest.take_from(given).load()
        reports = run(plans, Settings(model, memory, overwrite, quiet))
    states = [report.state for report in reports]
    if as_json:
        counts = {state: states.count(state) for state in ("done", "skipped", "failed")}
        click.echo(json.dumps({**counts, "clips": [asdict(report) for report in reports]}))
    elif not quiet:
        click.echo("\n".join(_table(reports)), err=True)
    ctx.exit(1 if "failed" in states else 0)


def _table(reports: list[ClipReport]) -> list[str]:
    rows = [f"{'':8}{'frames':>8}{'a second':>10}"]
    for report in reports:
        frames = "-" if report.frames is None else report.frames
        speed = "-" if report.frames_per_second is None else f"{report.frames_per_second:.1f}"
        rows.append(f"{report.state:8}{frames:>8}{speed:>10}  {report.video}: {report.reason or report.output}")
    states = [report.state for report in reports]
    return [*rows, ", ".join(f"{states.count(state)} {state}" for state in ("done", "skipped", "failed"))]
