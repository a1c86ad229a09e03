"""`sam2track VIDEO --click x,y`: the main job."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sam2track.cli.checks import check
from sam2track.cli.help import GroupedCommand
from sam2track.cli.model_options import (
    MEMORY_FIELDS,
    MODEL_FIELDS,
    MemoryRequest,
    ModelRequest,
    memory_options,
    model_options,
)
from sam2track.cli.outputs import HEADINGS, TABLES, OutputRequest, name_of, output_options
from sam2track.cli.prompts import Coordinates, Moment, MomentType, RateType, collect_prompts
from sam2track.cli.run import Asked, Job, index_of, open_live, results, with_frames
from sam2track.cli.write import write
from sam2track.errors import PromptError

if TYPE_CHECKING:
    from sam2track.cli.run import Source
    from sam2track.models import Model
    from sam2track.options import TrackingOptions
    from sam2track.types import VideoInfo

_HEADINGS = {
    "What to track": ("clicks", "nots", "boxes", "masks", "prompt_file", "moment", "object_id"),
    "Which frames": ("direction", "start", "stop", "stream", "rate"),
    **HEADINGS,
    "Model": (*MODEL_FIELDS, *MEMORY_FIELDS),
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What was done, for `--json`."""

    outputs: list[str]
    sidecar: str
    frames: int
    seconds: float
    frames_per_second: float
    provider: str
    not_seen: list[dict[str, Any]]
    incomplete: str | None


@click.command(cls=GroupedCommand, headings=_HEADINGS, tables=TABLES, no_args_is_help=False)
@click.argument("source", metavar="VIDEO", type=click.Path(path_type=str))
@click.option("--click", "clicks", multiple=True, type=Coordinates(2), help="A point inside the object. Repeatable.")
@click.option("--not", "nots", multiple=True, type=Coordinates(2), help="A point outside the object. Repeatable.")
@click.option("--box", "boxes", multiple=True, type=Coordinates(4), help="A box around the object.")
@click.option("--mask", "masks", multiple=True, metavar="PNG", help="A picture of the object's mask, white on black.")
@click.option("--prompts", "prompt_file", type=click.Path(path_type=Path), metavar="JSON",
              help="Prompts for many frames and objects; docs/prompts.schema.json describes the file.")  # fmt: skip
@click.option("--frame", "moment", type=MomentType(),
              help="The frame of the prompts: 40, 1.6s, or its picture's name. [default: the first]")  # fmt: skip
@click.option("--object", "object_id", default="1", show_default=True, metavar="ID",
              help="The object's id. For several objects put the id before the numbers: --click 2:300,80.")  # fmt: skip
@click.option("--backward", "direction", flag_value="backward", help="Track back from the prompted frame.")
@click.option("--both", "direction", flag_value="both", help="Track to the end, and back from the prompted frame.")
@click.option("--start", type=MomentType(), help="In point: the first frame to track, or its time.")
@click.option("--stop", type=MomentType(), help="Out point: the frame to stop before, or its time.")
@click.option("--stream", type=click.IntRange(0), default=0, show_default=True,
              help="Which video stream to track; `sam2track info VIDEO` lists them.")  # fmt: skip
@click.option(
    "--rate", type=RateType(), help="Pictures a second of an image sequence, such as 30000/1001. [default: 24]"
)
@output_options
@model_options
@memory_options
@click.option("--json", "as_json", is_flag=True, help="A summary as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="No progress bar, no messages but errors.")
def track(**given: Any) -> None:
    """Track objects through VIDEO and write their masks in one of many formats, and a JSON file with the scores.

    Coordinates are pixels of the displayed frame, x to the right, y down, from the top left corner. VIDEO is a
    file; a folder of pictures, the first of them, or a pattern such as shot.%04d.png; or a live source: a device
    such as /dev/video0, or a URL. Ctrl-C ends a live source.

    \b
    Examples:
      sam2track video.mp4 --click 412,230
      sam2track video.mp4 --click 412,230 --frame 40 --both
      sam2track video.mp4 --box 100,80,300,400 --not 300,80 --start 2s --stop 8s -o cut.mp4
      sam2track video.mp4 --click 412,230 --click 2:90,310 --format png -o masks
      sam2track shot.1001.png --rate 24 --click 412,230 --format png -o masks
      sam2track video.mp4 --click 412,230 --soft --format prores4444 -o cut.mov
      sam2track rtsp://camera/stream --click 412,230 --stop 500
    """
    output = OutputRequest.take_from(given)
    model, memory = ModelRequest.take_from(given), MemoryRequest.take_from(given)
    _track(_Arguments(**given), output, model, memory)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The command line, as the options above describe it."""

    source: str
    clicks: tuple[tuple[str | None, tuple[float, float]], ...]
    nots: tuple[tuple[str | None, tuple[float, float]], ...]
    boxes: tuple[tuple[str | None, tuple[float, float, float, float]], ...]
    masks: tuple[str, ...]
    prompt_file: Path | None
    moment: Moment | None
    object_id: str
    direction: Literal["backward", "both"] | None
    start: Moment | None
    stop: Moment | None
    stream: int
    rate: Fraction | None
    as_json: bool
    quiet: bool


def _track(given: _Arguments, request: OutputRequest, model: ModelRequest, memory: MemoryRequest) -> None:
    from sam2track.concealment import noticing

    started = time.perf_counter()
    with ExitStack() as stack:
        stack.enter_context(noticing())
        source = _opened(given)
        stack.enter_context(source)
        prompts = _prompts(given, source)
        _refuse_no_prompt(prompts, given.source, source.info)
        output, sidecar = request.paths(name_of(source.info))
        job = _job(given, prompts, source, model.load(), memory.options())
        writers = [
            stack.enter_context(request.mask_writer(output, source.info, job)),
            stack.enter_context(request.sidecar_writer(sidecar, source.info, job)),
        ]
        written = write(stack.enter_context(closing(results(job, source))), writers)
    seconds = time.perf_counter() - started
    summary = Summary(
        outputs=[str(path) for path in request.outputs(output, job)],
        sidecar=str(sidecar),
        frames=written.frames,
        seconds=round(seconds, 3),
        frames_per_second=round(written.frames / seconds, 2),
        provider=job.model.provider,
        not_seen=[{"object_id": object_id, "frames": ranges} for object_id, ranges in written.absences.ranges.items()],
        incomplete=None if written.damage is None else str(written.damage),
    )
    if given.as_json:
        click.echo(json.dumps(asdict(summary)))
    elif not given.quiet:
        click.echo("\n".join([_told(summary), *written.absences.lines()]), err=True)
    if written.damage is not None:
        raise written.damage


def _told(summary: Summary) -> str:
    return (
        f"{summary.frames} {'frame' if summary.frames == 1 else 'frames'} in {summary.seconds:.1f} s "
        f"({summary.frames_per_second:.1f} a second, {summary.provider}): "
        f"{', '.join(summary.outputs)}, scores in {summary.sidecar}"
    )


def _prompts(given: _Arguments, source: Source) -> list[Asked]:
    moment = given.moment
    if moment is not None and moment.file is not None:
        moment = Moment(index_of(moment, source))
    collected = collect_prompts(
        given.clicks, given.nots, given.boxes, given.masks, default_id=given.object_id, moment=moment
    )
    asked = [Asked(prompt) for prompt in collected]
    if given.prompt_file is not None:
        from sam2track.prompt_file import read_prompts

        entries = enumerate(read_prompts(given.prompt_file))
        asked += [Asked(entry, f"{given.prompt_file}: prompts.{number}") for number, entry in entries]
    return asked


def _opened(given: _Arguments) -> Source:
    from sam2track.open_source import open_source
    from sam2track.stream import is_stream

    if not is_stream(given.source):
        return open_source(given.source, stream=given.stream, rate=given.rate)
    if given.rate is not None:
        raise PromptError(f"got --rate with {given.source}; a live source has times of its own, only pictures need one")
    return open_live(given.source, given.stream)


def _refuse_no_prompt(prompts: list[Asked], source: str, info: VideoInfo) -> None:
    """Says how to give a prompt if there is none."""
    if not prompts:
        raise PromptError(
            f"no prompt: say where the object is. {info.path.name} is {info.width}x{info.height} pixels, so a click in "
            f"the middle of the first frame is: sam2track {source} --click {info.width // 2},{info.height // 2}"
        )


def _job(given: _Arguments, prompts: list[Asked], source: Source, model: Model, options: TrackingOptions) -> Job:
    """Everything checked before any work."""
    start, stop = index_of(given.start, source) or 0, index_of(given.stop, source)
    placed = with_frames(prompts, source, start)
    job = Job(
        model=model,
        options=options,
        prompts=[asked.prompt for asked in placed],
        direction=given.direction or "forward",
        start=start,
        stop=stop,
        quiet=given.quiet,
    )
    check(job, source, placed)
    return job
