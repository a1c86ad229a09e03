"""The clips of a list -> what is to be done, what is done already, and doing the rest."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sam2track.cli.checks import check
from sam2track.cli.outputs import OutputRequest
from sam2track.cli.prompts import Moment
from sam2track.cli.run import Asked, Job, index_of, results, with_frames
from sam2track.cli.write import Written, write
from sam2track.errors import BatchError, OutputError, OutputExistsError, Sam2TrackError
from sam2track.outputs.formats import object_paths

if TYPE_CHECKING:
    from sam2track.batch_file import BatchEntry
    from sam2track.image_sequence import ImageSequence
    from sam2track.models import Model
    from sam2track.options import TrackingOptions
    from sam2track.outputs import Sidecar
    from sam2track.video import Video

log = logging.getLogger("sam2track")


@dataclass(frozen=True, slots=True)
class ClipReport:
    """What became of a clip; a line of the table, an item of `--json`."""

    video: str
    output: str
    state: Literal["done", "skipped", "failed"]
    frames: int | None = None
    seconds: float | None = None
    frames_per_second: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the masks and scores of a clip go."""

    entry: BatchEntry
    output: Path
    sidecar: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What all clips share."""

    model: Model
    options: TrackingOptions
    overwrite: bool
    quiet: bool


# -- what is to be done -------------------------------------------------------------------------------------------


def planned(list_file: Path, entries: tuple[BatchEntry, ...]) -> list[Plan]:
    """Where everything goes.

    Raises:
        BatchError: An entry's output has no possible name, or is another's output, or anything that is read.
    """
    plans: list[Plan] = []
    taken = {_place(list_file): "the list itself"}
    for number, entry in enumerate(entries):
        taken[_place(entry.video)] = f"the video of clips.{number}"
        if entry.prompt_file is not None:
            taken[_place(entry.prompt_file)] = f"the file of prompts of clips.{number}"
    for number, entry in enumerate(entries):
        try:
            output, sidecar = _request(entry, overwrite=True).paths(Path(entry.video).stem)
        except OutputError as error:
            raise BatchError(f"{list_file}: clips.{number}: {error}") from error
        for path in (output, sidecar):
            if (other := taken.get(_place(path))) is not None:
                raise BatchError(f"{list_file}: clips.{number}: the output {path} is {other}; give another one")
            taken[_place(path)] = f"an output of clips.{number}"
        plans.append(Plan(entry, output, sidecar))
    return plans


def _place(path: str | Path) -> str:
    return os.path.normcase(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def _request(entry: BatchEntry, *, overwrite: bool) -> OutputRequest:
    return OutputRequest(
        output=Path(entry.output or ""),
        output_format=entry.format,
        object_files=entry.object_files,
        background=entry.background,
        tolerance=entry.tolerance,
        overwrite=overwrite,
        **asdict(entry.matte),
    )


# -- doing it -----------------------------------------------------------------------------------------------------


def run(plans: list[Plan], settings: Settings) -> list[ClipReport]:
    """Does the clips in order; a failure is reported and does not end the others."""
    reports: list[ClipReport] = []
    try:
        for number, plan in enumerate(plans, 1):
            reports.append(_one(plan, settings, f"{number}/{len(plans)} "))
    except KeyboardInterrupt as interrupted:
        finished = sum(report.state != "failed" for report in reports)
        interrupted.args = (f"{finished} of {len(plans)} clips are done; the same command goes on from there",)
        raise
    return reports


def _one(plan: Plan, settings: Settings, title: str) -> ClipReport:
    video, output = plan.entry.video, str(plan.output)
    started = time.perf_counter()
    try:
        if not settings.overwrite and (done := _frames_done(plan, settings.model)):
            return ClipReport(video, output, "skipped", done)
        written = _tracked(plan, settings, title)
        if written.damage is not None:
            raise written.damage
    except Sam2TrackError as error:
        return ClipReport(video, output, "failed", reason=" ".join(str(error).split()))
    except Exception as error:  # a mistake of ours, on this clip, is no reason not to do the others
        log.exception("%s failed unexpectedly", video)
        return ClipReport(video, output, "failed", reason=f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - started
    return ClipReport(video, output, "done", written.frames, round(seconds, 3), round(written.frames / seconds, 2))


def _tracked(plan: Plan, settings: Settings, title: str) -> Written:
    from sam2track.open_source import open_source

    request = _request(plan.entry, overwrite=settings.overwrite)
    with ExitStack() as stack:
        source = open_source(plan.entry.video, stream=plan.entry.stream, rate=plan.entry.rate)
        stack.enter_context(source)
        job = _job(plan.entry, settings, source, title)
        writers = [
            stack.enter_context(request.mask_writer(plan.output, source.info, job)),
            stack.enter_context(request.sidecar_writer(plan.sidecar, source.info, job)),
        ]
        return write(stack.enter_context(closing(results(job, source))), writers)


def _job(entry: BatchEntry, settings: Settings, source: Video | ImageSequence, title: str) -> Job:
    start = index_of(Moment(entry.start, entry.start_s), source) or 0
    asked = [Asked(prompt, f"prompts.{number}") for number, prompt in enumerate(entry.prompts or ())]
    placed = with_frames(asked, source, start)
    job = Job(
        model=settings.model,
        options=settings.options,
        prompts=[asked.prompt for asked in placed],
        direction=entry.direction,
        start=start,
        stop=index_of(Moment(entry.stop, entry.stop_s), source),
        quiet=settings.quiet,
        title=title,
    )
    check(job, source, placed)
    return job


# -- what is done already -----------------------------------------------------------------------------------------


def _frames_done(plan: Plan, model: Model) -> int:
    """How many frames the outputs of an earlier run hold; 0 if there are none.

    An output has its name only when it is whole, and the scores come last.

    Raises:
        OutputExistsError: They are there, but not those of this entry; or only one of them is.
    """
    from pydantic import ValidationError

    from sam2track.outputs import Sidecar

    wanted = [*_outputs(plan), plan.sidecar]
    there = [path for path in wanted if os.path.lexists(path)]
    if not there or (there == [plan.output] and plan.output.is_dir() and not any(plan.output.iterdir())):
        return 0
    if there != wanted:
        raise OutputExistsError(f"{there[0]} exists alone, without the other files; move it, or give --overwrite")
    try:
        scores = Sidecar.model_validate_json(plan.sidecar.read_bytes())
    except (OSError, ValidationError) as error:
        raise OutputExistsError(f"{plan.sidecar} exists and is no file of scores; choose another output") from error
    if scores.incomplete is not None:
        raise OutputExistsError(
            f"{plan.output} ends before frame {scores.incomplete.frame_idx}, where {plan.entry.video} is damaged; "
            "repair it, and move the output or give --overwrite"
        )
    if difference := _difference(scores, plan.entry, model):
        raise OutputExistsError(f"{plan.output} exists, made with {difference}; move it, or give --overwrite")
    return len(scores.frames)


def _outputs(plan: Plan) -> list[Path]:
    """What the masks go into: one output, or one an object."""
    if not plan.entry.object_files:
        return [plan.output]
    ids = list(dict.fromkeys(prompt.object_id for prompt in plan.entry.prompts or ()))
    return list(object_paths(plan.output, ids).values())


def _difference(scores: Sidecar, entry: BatchEntry, model: Model) -> str | None:
    """What was other when the scores were written; None if nothing, as far as they tell."""
    video = Path(entry.video).absolute()
    if scores.source.name not in (video.name, video.parent.name):  # pictures are called after their folder
        return f"another video, {scores.source.name}"
    if scores.model.sha256 != model.bundle.sha256:
        return f"another model, {scores.model.name} ({scores.model.sha256[:12]})"
    given = entry.prompts or ()
    if len(scores.prompts) != len(given):
        return "other prompts"
    for was, now in zip(scores.prompts, given, strict=True):
        labels = now.labels if now.labels is not None else (1,) * len(now.points)
        same = (was.object_id, was.points, was.labels, was.box) == (now.object_id, now.points, labels, now.box)
        if not same or _name(was.mask) != _name(now.mask) or now.frame_idx not in (None, was.frame_idx):
            return "other prompts"
    if scores.matte != entry.matte:
        return "other edges"
    first, last = scores.frames[0].frame_idx, scores.frames[-1].frame_idx
    if entry.start not in (None, first) or entry.stop not in (None, last + 1):
        return f"another range, frames {first} to {last}"
    return None


def _name(mask: str | None) -> str | None:
    return None if mask is None else Path(mask).name
