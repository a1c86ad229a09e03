"""Prompts and a source -> frames with their results in display order, with a progress bar."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sam2track.cli.prompts import Moment
from sam2track.errors import FrameError, PromptError, VideoDecodeError

if TYPE_CHECKING:
    from sam2track.clip import Clip, Direction
    from sam2track.image_sequence import ImageSequence
    from sam2track.models import Model
    from sam2track.options import TrackingOptions
    from sam2track.prompt_file import PromptEntry
    from sam2track.stream import VideoStream
    from sam2track.types import FrameResult, ObjectId, VideoFrame
    from sam2track.video import Video

    Source: TypeAlias = Video | ImageSequence | VideoStream

_T = TypeVar("_T")

_PATIENCE_S = 1.0  # with a live source that says nothing
_AGAIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done with a source.

    Attributes:
        model: The model.
        options: Of the tracker.
        prompts: All with a `frame_idx`.
        direction: From the prompts.
        start: First frame to track.
        stop: The frame to stop before; None for the end.
        quiet: No progress bar.
        title: Before the bar's own text.
    """

    model: Model
    options: TrackingOptions
    prompts: list[PromptEntry]
    direction: Direction
    start: int
    stop: int | None
    quiet: bool
    title: str = ""

    @property
    def object_ids(self) -> list[int | str]:
        """All objects, in the order in which they are first prompted."""
        return list(dict.fromkeys(prompt.object_id for prompt in self.prompts))

    @property
    def prompted(self) -> list[int]:
        """The prompted frames, in order."""
        return sorted({prompt.frame_idx or 0 for prompt in self.prompts})


def index_of(moment: Moment | None, source: Source) -> int | None:
    """A moment's frame; None for none.

    Raises:
        PromptError: A time in a live source, or a picture that is none of the source's.
        FrameError: There is no such time in the video.
    """
    from sam2track.stream import VideoStream

    if moment is None:
        return None
    if moment.file is not None:
        if moment.file not in source.info.files:
            raise PromptError(f"got the picture {moment.file} as a frame; {source.info.path} has no frame of this name")
        return source.info.files.index(moment.file)
    if moment.time_s is None:
        return moment.frame_idx
    if isinstance(source, VideoStream):
        raise PromptError(f"got the time {moment.time_s} s; a live source has frame numbers only, from 0")
    return source.frame_at(moment.time_s)


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, and where it stands, for messages: `prompts.json: prompts.3`, or nothing for options."""

    prompt: PromptEntry
    where: str = ""

    @contextmanager
    def named(self) -> Iterator[None]:
        """Lets errors about the prompt say which one."""
        try:
            yield
        except (PromptError, FrameError) as error:
            raise type(error)(f"{self.where}: {error}" if self.where else str(error)) from error


def with_frames(prompts: Iterable[Asked], source: Source, start: int) -> list[Asked]:
    """Prompts by time or without a frame -> prompts by frame."""
    placed = []
    for asked in prompts:
        with asked.named():
            idx = index_of(Moment(asked.prompt.frame_idx, asked.prompt.time_s), source)
        update = {"frame_idx": start if idx is None else idx, "time_s": None}
        placed.append(Asked(asked.prompt.model_copy(update=update), asked.where))
    return placed


def open_live(source: str, stream: int) -> VideoStream:
    """Opens a live source so that Ctrl-C need not wait for it."""
    from sam2track.read_ahead import read_ahead
    from sam2track.stream import open_stream

    with closing(read_ahead((open_stream(source, stream=stream) for _ in range(1)), patience_s=_PATIENCE_S)) as opening:
        return next(opening)


def results(job: Job, source: Source) -> Generator[tuple[VideoFrame, FrameResult], None, None]:
    """Every frame of the range with its masks, in display order.

    One prompted frame and forward: frame by frame, in memory that does not grow. Otherwise the whole range is
    tracked first, and read once more.
    """
    from sam2track.preprocess import prepare_frame
    from sam2track.read_ahead import read_ahead
    from sam2track.stream import VideoStream

    if isinstance(source, VideoStream):  # in a thread because reading may wait long, and Ctrl-C must not
        with (
            _interrupt_ends() as ended,
            closing(read_ahead(source, ahead=1, ended=ended, patience_s=_PATIENCE_S)) as live,
        ):
            yield from _bar(_frame_by_frame(job, live, None), job, "live", None)
    elif job.direction == "forward" and len(job.prompted) == 1:
        constants = job.model.constants
        frames = read_ahead(prepare_frame(frame, constants) for frame in source.frames(job.start, job.stop))
        total = None if source.info.frame_count is None else min(job.stop or sys.maxsize, source.info.frame_count)
        total = None if total is None else max(total - job.start, 0)
        with closing(frames):
            tracked = _frame_by_frame(job, frames, _short_length(source))
            yield from _bar(tracked, job, source.info.path.name, total)
    else:
        yield from _whole(job, source)


def _frame_by_frame(
    job: Job, frames: Iterable[VideoFrame], num_frames: int | None
) -> Iterator[tuple[VideoFrame, FrameResult]]:
    """Frames before the prompted one have no masks."""
    from sam2track.tracker import Tracker
    from sam2track.types import FrameResult

    tracker = Tracker(job.model, job.options, num_frames=num_frames)
    [prompted] = job.prompted
    count = 0
    for frame in frames:
        idx = frame.frame_idx
        if job.stop is not None and idx >= job.stop:
            break
        count += 1
        if idx < prompted:
            yield frame, FrameResult(idx, {}, frame.pts, frame.time_base)
            continue
        if idx == prompted:
            for prompt in job.prompts:
                tracker.add_prompt(frame, object_id=prompt.object_id, **prompt.arguments())
        yield frame, tracker.step(frame)
    if not tracker.object_ids:
        raise PromptError(f"got a prompt on frame {prompted}, but there were {count} frames, numbered from {job.start}")


def _whole(job: Job, source: Video | ImageSequence) -> Iterator[tuple[VideoFrame, FrameResult]]:
    from sam2track.clip import Clip
    from sam2track.read_ahead import read_ahead

    stop = None if job.stop is None else min(job.stop, source.num_frames)  # the end may lie behind damage
    clip = Clip(job.model, source, job.options, start=job.start, stop=stop)
    for prompt in job.prompts:
        clip.add_prompt(object_id=prompt.object_id, frame_idx=prompt.frame_idx, **prompt.arguments())
    for _ in _bar(_up_to_damage(clip, job.direction), job, "tracking", clip.due(job.direction)):
        pass
    with closing(read_ahead(source.frames(job.start, job.stop))) as frames:
        for frame in _bar(frames, job, "writing", len(clip.frames)):
            yield frame, clip.result(frame.frame_idx)


def _up_to_damage(clip: Clip, direction: Direction) -> Iterator[FrameResult]:
    """Tracks what can be read; the damage is met again, and raised, when the frames are written."""
    with suppress(VideoDecodeError):
        yield from clip.track(direction)
        return
    if direction == "both":
        with suppress(VideoDecodeError):
            yield from clip.track("backward")


def _short_length(source: Video | ImageSequence) -> int | None:
    """The reference treats clips below 16 frames a little differently: look whether this is one."""
    from sam2track.spec import MAX_OBJECT_POINTERS
    from sam2track.video import Video, count_frames

    if isinstance(source, Video):
        length = count_frames(source.info.path, MAX_OBJECT_POINTERS, stream=source.info.stream)
    else:
        length = source.num_frames
    return length if length < MAX_OBJECT_POINTERS else None


def _bar(items: Iterable[_T], job: Job, name: str, total: int | None) -> Iterator[_T]:
    """A bar with frames a second on stderr; a header's count is a hint, so it may fall short or go over."""
    from tqdm import tqdm

    # disable=None: only where somebody can see it.
    disable = True if job.quiet or sys.stderr is None else None
    bar = tqdm(items, total=total, unit="frame", desc=job.title + name, disable=disable)
    with bar:
        yield from bar


@contextmanager
def _interrupt_ends() -> Iterator[threading.Event]:
    """Ctrl-C ends a live source as its end would; once more, after some seconds, it interrupts."""
    ended = threading.Event()
    again_from = [0.0]  # a second press that follows at once is impatience, not another wish

    def end(number: int, frame: FrameType | None) -> None:
        if not ended.is_set():
            ended.set()
            again_from[0] = time.monotonic() + _AGAIN_S
        elif time.monotonic() > again_from[0] and callable(before):
            before(number, frame)

    if threading.current_thread() is not threading.main_thread():  # elsewhere Python sets no handlers
        yield ended
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(slots=True)
class Absences:
    """On which frames an object was not there, as ranges in display order."""

    ranges: dict[ObjectId, list[list[int]]] = field(default_factory=dict)

    def note(self, result: FrameResult) -> None:
        """One more frame."""
        for object_id, found in result.objects.items():
            ranges = self.ranges.setdefault(object_id, [])
            if found.present:
                continue
            if ranges and ranges[-1][1] == result.frame_idx - 1:
                ranges[-1][1] = result.frame_idx
            else:
                ranges.append([result.frame_idx, result.frame_idx])

    def lines(self) -> list[str]:
        """One line an object that was missed."""
        lines = []
        for object_id, ranges in self.ranges.items():
            if not ranges:
                continue
            count = sum(last - first + 1 for first, last in ranges)
            shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges[:5])
            more = ", ..." if len(ranges) > 5 else ""
            lines.append(
                f"object {object_id}: not seen on {count} {'frame' if count == 1 else 'frames'} ({shown}{more})"
            )
        return lines
