"""`sam2track eval`: how good a model is on a data set with true masks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sam2track.cli.model_options import ModelRequest, model_options

if TYPE_CHECKING:
    from sam2track.evaluation.datasets import Layout, VideoSequence
    from sam2track.evaluation.protocol import Masks, PromptKind, SequenceScore

_SHEET_ROWS = 4


@click.command("eval")
@click.argument("root", type=click.Path(path_type=Path))
@click.option("--dataset", "layout", type=click.Choice(["davis", "davis2016", "davis2017", "mose", "sav"]),
              default="davis", show_default=True, help="How the folder is laid out.")  # fmt: skip
@click.option("--split", help="The list of sequences. [default: the only one, or val]")
@click.option("--prompt", "kind", type=click.Choice(["mask", "box", "click", "user"]), default="mask",
              show_default=True, help="What is said of an object on its first frame; user also corrects.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(0), default=3, show_default=True, help="Corrections of --prompt user.")
@model_options
@click.option("--sequence", "only", multiple=True, help="Only this sequence. Repeatable.")
@click.option("--sheet", type=click.Path(path_type=Path), help="A contact sheet of the worst sequences: .jpg or .png.")
@click.option("--overwrite", is_flag=True, help="Replace a contact sheet that exists.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of the table.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def evaluate(
    root: Path,
    layout: Layout,
    split: str | None,
    kind: PromptKind,
    rounds: int,
    only: tuple[str, ...],
    sheet: Path | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Track the objects of a data set from their first true masks and print J, F and J&F.

    ROOT is the data set's folder. The first and the last frame of a sequence are not scored, as the benchmarks
    demand. Means are over objects.

    \b
    Examples:
      sam2track eval DAVIS --split val
      sam2track eval DAVIS --dataset davis2016 --prompt click --sheet worst.jpg
    """
    from sam2track.errors import DatasetError, OutputExistsError
    from sam2track.evaluation.datasets import read_sequences

    sequences = read_sequences(root, layout, split)
    unknown = sorted(set(only) - {sequence.name for sequence in sequences})
    if unknown:
        raise DatasetError(f"there is no sequence {unknown[0]} in {root}")
    if sheet is not None and sheet.exists() and not overwrite:
        raise OutputExistsError(f"{sheet} exists; choose another output, or give --overwrite")
    opened = ModelRequest.take_from(given).load()
    found = _evaluated([one for one in sequences if not only or one.name in only], opened, kind, rounds, quiet)
    summary = _summary([score for score, _, _ in found], opened.name, kind)
    if sheet is not None:
        _write_sheet(found, sheet, overwrite)
    click.echo(json.dumps(summary) if as_json else _table(summary))


def _evaluated(
    sequences: list[VideoSequence], model: Any, kind: PromptKind, rounds: int, quiet: bool
) -> list[tuple[SequenceScore, VideoSequence, list[Masks]]]:
    from tqdm import tqdm

    from sam2track.evaluation.protocol import evaluate as evaluate_sequence

    found = []
    frames = sum(len(sequence.frames) for sequence in sequences)
    with tqdm(total=frames, unit="frame", disable=True if quiet or sys.stderr is None else None) as bar:
        for sequence in sequences:
            bar.set_description(sequence.name)
            score, masks = evaluate_sequence(model, sequence, kind, rounds=rounds)
            found.append((score, sequence, masks))
            bar.update(len(sequence.frames))
            worst = sorted(found, key=lambda item: item[0].j)[:_SHEET_ROWS]
            found = [item if item in worst else (item[0], item[1], []) for item in found]  # masks are large
    return found


def _summary(scores: list[SequenceScore], model: str, kind: PromptKind) -> dict[str, Any]:
    objects = [score for sequence in scores for score in sequence.objects]

    def mean(name: str) -> float:
        return float(sum(getattr(score, name) for score in objects)) / max(len(objects), 1)

    return {
        "model": model,
        "prompt": kind,
        "j_and_f": (mean("j") + mean("f")) / 2,
        "j": mean("j"),
        "f": mean("f"),
        "j_decay": mean("j_decay"),
        "f_decay": mean("f_decay"),
        "objects": len(objects),
        "frames_per_second": sum(score.frames_per_second for score in scores) / max(len(scores), 1),
        "sequences": [{**asdict(score), "j": score.j, "f": score.f} for score in scores],
    }


def _table(summary: dict[str, Any]) -> str:
    width = max(len("mean over objects"), *(len(row["name"]) for row in summary["sequences"]))
    lines = [f"{'sequence':{width}}  {'J&F':>6} {'J':>6} {'F':>6}  {'frames/s':>8}"]
    rows = [*summary["sequences"], {**summary, "name": "mean over objects"}]
    for row in rows:
        lines.append(
            f"{row['name']:{width}}  {(row['j'] + row['f']) / 2:6.3f} {row['j']:6.3f} {row['f']:6.3f}  "
            f"{row['frames_per_second']:8.1f}"
        )
    lines.append(f"decay: J {summary['j_decay']:.3f}, F {summary['f_decay']:.3f}; {summary['objects']} objects")
    return "\n".join(lines)


def _write_sheet(found: list[tuple[SequenceScore, VideoSequence, list[Masks]]], path: Path, overwrite: bool) -> None:
    from sam2track.evaluation.sheet import contact_sheet, write_sheet

    worst = sorted((item for item in found if item[2]), key=lambda item: item[0].j)
    entries = [(sequence, f"{score.name} J {score.j:.2f}", masks) for score, sequence, masks in worst]
    write_sheet(contact_sheet(entries), path, overwrite=overwrite)
