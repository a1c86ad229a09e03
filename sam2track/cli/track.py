"""`sam2track VIDEO --click x,y`: the main job."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sam2track.cli.prompts import Coordinates, ObjectPrompt, collect_prompts
from sam2track.errors import OutputError, OutputExistsError, PromptError

if TYPE_CHECKING:
    from sam2track.models import Model
    from sam2track.outputs import MaskWriter, SidecarModel, SidecarPrompt
    from sam2track.tracker import Tracker
    from sam2track.types import FrameResult, VideoFrame
    from sam2track.video import Video, VideoInfo

SIDECAR_START = b'{"schema_version"'

Format = Literal["overlay", "png"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What was done, for `--json`."""

    output: str
    sidecar: str
    frames: int
    seconds: float
    frames_per_second: float
    provider: str


@click.command(no_args_is_help=False)
@click.argument("video", metavar="VIDEO", type=click.Path(path_type=Path))
@click.option("--click", "clicks", multiple=True, type=Coordinates(2), help="A point inside the object. Repeatable.")
@click.option("--not", "nots", multiple=True, type=Coordinates(2), help="A point outside the object. Repeatable.")
@click.option("--box", "boxes", multiple=True, type=Coordinates(4), help="A box around the object.")
@click.option("--frame", "prompt_frame", type=click.IntRange(min=0), default=0, show_default=True,
              help="The frame that the prompts are about; tracking starts there.")  # fmt: skip
@click.option("--object", "object_id", default="1", show_default=True, metavar="ID",
              help="The object's id. For several objects put the id before the numbers: --click 2:300,80.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="Output file, or folder for png. [default: VIDEO's name in the current folder]")  # fmt: skip
@click.option("--format", "output_format", type=click.Choice(["overlay", "png"]), default="overlay", show_default=True,
              help="A video with the masks drawn in, or one PNG mask a frame.")  # fmt: skip
@click.option("--model", default="nano", show_default=True, help="nano, or the folder of a bundle.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(0, 256), default=0, help="CPU threads; 0 lets ONNX Runtime decide.")
@click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
@click.option("--json", "as_json", is_flag=True, help="A summary as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="No progress bar, no messages but errors.")
def track(
    video: Path,
    clicks: tuple[tuple[str | None, tuple[float, float]], ...],
    nots: tuple[tuple[str | None, tuple[float, float]], ...],
    boxes: tuple[tuple[str | None, tuple[float, float, float, float]], ...],
    prompt_frame: int,
    object_id: str,
    output: Path | None,
    output_format: Format,
    model: str,
    device: Literal["auto", "cpu", "cuda"],
    threads: int,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Track objects through VIDEO and write an overlay video or masks, and a JSON file with the scores.

    Coordinates are pixels of the displayed frame, x to the right, y down, from the top left corner.

    \b
    Examples:
      sam2track video.mp4 --click 412,230
      sam2track video.mp4 --box 100,80,300,400 --not 300,80 -o cut.mp4
      sam2track video.mp4 --click 412,230 --click 2:90,310 --format png -o masks
    """
    from sam2track.models import load
    from sam2track.spec import MAX_OBJECT_POINTERS
    from sam2track.tracker import Tracker
    from sam2track.video import count_frames, open_video

    started = time.perf_counter()
    prompts = collect_prompts(clicks, nots, boxes, object_id)
    with ExitStack() as stack:
        source = stack.enter_context(open_video(video))
        _refuse_no_prompt(prompts, source.info)
        output, sidecar = _output_paths(video, output, output_format)
        _refuse_existing(sidecar, overwrite)
        opened = load(model, device=device, num_threads=threads)
        _check_prompts(prompts, source.info, opened)
        # The reference treats clips below 16 frames a little differently: look whether this is one.
        length = count_frames(video, MAX_OBJECT_POINTERS)
        tracker = Tracker(opened, num_frames=length if length < MAX_OBJECT_POINTERS else None)
        writers = [
            stack.enter_context(_mask_writer(output, output_format, source.info, len(prompts), overwrite)),
            stack.enter_context(_sidecar_writer(sidecar, source.info, opened, prompts, prompt_frame, overwrite)),
        ]
        frames = 0
        for frame, result in _with_progress(_results(source, tracker, prompts, prompt_frame), source.info, quiet):
            for writer in writers:
                writer.write(frame, result)
            frames += 1
        for writer in writers:  # the masks first: if they cannot be finished, the scores are not left alone
            writer.close()
    seconds = time.perf_counter() - started
    summary = Summary(str(output), str(sidecar), frames, round(seconds, 3), round(frames / seconds, 2), opened.provider)
    if as_json:
        click.echo(json.dumps(asdict(summary)))
    elif not quiet:
        click.echo(
            f"{frames} {'frame' if frames == 1 else 'frames'} in {seconds:.1f} s "
            f"({frames / seconds:.1f} a second, {opened.provider}): "
            f"{output}, scores in {sidecar}",
            err=True,
        )


def _refuse_no_prompt(prompts: dict[int | str, ObjectPrompt], info: VideoInfo) -> None:
    """Says how to give a prompt if there is none."""
    if not prompts:
        raise PromptError(
            f"no prompt: say where the object is. {info.path.name} is {info.width}x{info.height} pixels, so a click in "
            f"the middle of the first frame is: sam2track {info.path} --click {info.width // 2},{info.height // 2}"
        )


def _check_prompts(prompts: dict[int | str, ObjectPrompt], info: VideoInfo, model: Model) -> None:
    """Refuses bad prompts before any work, not when their frame is reached."""
    from sam2track.prompts import make_prompt, merge_prompts

    for prompt in prompts.values():
        arguments = prompt.arguments()
        merge_prompts(None, make_prompt((info.height, info.width), model.constants.image_size, **arguments))


def _results(
    source: Video, tracker: Tracker, prompts: dict[int | str, ObjectPrompt], prompt_frame: int
) -> Iterator[tuple[VideoFrame, FrameResult]]:
    """Every frame with its masks; frames before the prompted one have none."""
    from sam2track.types import FrameResult

    frame_idx = -1
    for frame in source:
        frame_idx = frame.frame_idx
        if frame_idx < prompt_frame:
            yield frame, FrameResult(frame_idx, {}, frame.pts, frame.time_base)
            continue
        if frame_idx == prompt_frame:
            for object_id, prompt in prompts.items():
                tracker.add_prompt(frame, object_id=object_id, **prompt.arguments())
        yield frame, tracker.step(frame)
    if frame_idx < prompt_frame:
        raise PromptError(f"got --frame {prompt_frame}, but the video has {frame_idx + 1} frames, numbered from 0")


def _with_progress(
    results: Iterator[tuple[VideoFrame, FrameResult]], info: VideoInfo, quiet: bool
) -> Iterator[tuple[VideoFrame, FrameResult]]:
    """A bar with frames a second on stderr; the header's count is a hint, so it may fall short or go over."""
    from tqdm import tqdm

    # disable=None: only where somebody can see it.
    bar = tqdm(
        results,
        total=info.frame_count,
        unit="frame",
        desc=info.path.name,
        disable=True if quiet or sys.stderr is None else None,
    )
    with bar:
        yield from bar


def _output_paths(video: Path, output: Path | None, output_format: Format) -> tuple[Path, Path]:
    """Where the masks and the sidecar go."""
    if output is None:
        output = Path(f"{video.stem}.overlay.mp4" if output_format == "overlay" else f"{video.stem}.masks")
    if output.name in ("", ".."):
        raise OutputError(f"got the output {str(output)!r}, which is no name; expected one such as cut.mp4, or masks")
    sidecar = output.with_suffix(".json") if output_format == "overlay" else output.with_name(f"{output.name}.json")
    if sidecar == output:
        raise OutputError(f"got the output {output}; .json is the scores' file, expected .mp4, .mov or .mkv")
    return output, sidecar


def _refuse_existing(sidecar: Path, overwrite: bool) -> None:
    if not os.path.lexists(sidecar):
        return
    if not overwrite:
        raise OutputExistsError(f"{sidecar} exists; choose another output with -o, or give --overwrite")
    start = SIDECAR_START
    with suppress(OSError), sidecar.open("rb") as file:
        start = file.read(len(SIDECAR_START))
    if start != SIDECAR_START:
        raise OutputExistsError(f"{sidecar} is no file of scores and will not be replaced; choose another output")


def _mask_writer(output: Path, output_format: Format, info: VideoInfo, objects: int, overwrite: bool) -> MaskWriter:
    from sam2track.outputs import OverlayWriter, PngWriter

    if output_format == "png":
        return PngWriter(output, indexed=objects > 1, overwrite=overwrite)
    return OverlayWriter(output, info, overwrite=overwrite)


def _sidecar_writer(
    sidecar: Path,
    info: VideoInfo,
    model: Model,
    prompts: dict[int | str, ObjectPrompt],
    prompt_frame: int,
    overwrite: bool,
) -> MaskWriter:
    from sam2track.outputs import SidecarModel, SidecarPrompt, SidecarWriter

    given: list[SidecarPrompt] = [
        SidecarPrompt(
            frame_idx=prompt_frame,
            object_id=object_id,
            points=tuple(prompt.points),
            labels=tuple(prompt.labels),
            box=prompt.box,
        )
        for object_id, prompt in prompts.items()
    ]
    described: SidecarModel = SidecarModel(name=model.name, sha256=model.bundle.sha256)
    return SidecarWriter(sidecar, info, model=described, prompts=given, overwrite=overwrite)
