"""A whole clip: prompts anywhere, both directions, results in any order, and only what changed is run again."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from sam2track.clip_records import ObjectRecord, ObjectState
from sam2track.clip_state import ClipIdentity, read_state, thumbnail, write_state
from sam2track.errors import FrameError, PromptError, TrackerStateError
from sam2track.frame_source import ArrayFrames, FrameSource
from sam2track.image_sequence import ImageSequence, is_image_sequence, open_images
from sam2track.models import Model
from sam2track.object_track import ObjectTrack
from sam2track.options import TrackingOptions
from sam2track.postprocess import object_result
from sam2track.preprocess import prepare_frame
from sam2track.read_ahead import read_ahead
from sam2track.recall import recall
from sam2track.tracker import Tracker, is_index
from sam2track.types import FrameResult, ObjectId, ObjectResult, RgbArray, TrackEvent, VideoFrame
from sam2track.video import Video, open_video

ClipSource: TypeAlias = str | os.PathLike[str] | Video | ImageSequence | Sequence[RgbArray]
Direction: TypeAlias = Literal["forward", "backward", "both"]


class Clip:
    """A whole clip with its prompts and results.

    Prompts may be given on any frame in any order, each answered at once; `track` then runs what is due. A
    new prompt makes the frames after it due forward and those before it due backward; nothing else is run
    again. A prompted frame keeps its answer.

    Of each frame and object the mask's logits are kept, in float16 (8 KB with the built-in model, 32 KB at
    an input of 512, 128 KB at 1024), and what memory attention needs is made anew from them: a prompt on a
    frame that was tracked already encodes up to seven frames before it answers, the next on the same frame
    none.

    Args:
        model: From `sam2track.load`.
        source: A path (of a video, or of pictures as in `open_images`), what `open_video` or `open_images` gave, or
            frames in memory: (height, width, 3) uint8 RGB each.
        options: What may be set about tracking.
        start: The first frame to track (in point).
        stop: The frame to stop before (out point); None for the end.

    Raises:
        VideoError: The source cannot be read.
        FrameError: There is no frame from `start` to `stop`.

    Example:
        clip = Clip(sam2track.load("nano"), "video.mp4")
        clip.add_prompt([(412, 230)], frame_idx=40)
        for result in clip.track("both"):
            result.frame_idx, result.objects[1].mask
        clip.result(12).objects[1].mask
    """

    def __init__(
        self,
        model: Model,
        source: ClipSource,
        options: TrackingOptions | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.source = _frame_source(source)
        self.model = model
        self.options = TrackingOptions() if options is None else options
        num_frames = self.source.num_frames
        stop = num_frames if stop is None else stop
        if not is_index(start) or not is_index(stop) or not start < stop <= num_frames:
            raise FrameError(
                f"got the range from frame {start!r} to before frame {stop!r}; expected a part of the clip, "
                f"which has {num_frames} frames, numbered from 0"
            )
        self.frames = range(start, stop)
        self.tracker = Tracker(model, self.options, num_frames=num_frames)
        self.states: dict[ObjectId, ObjectState] = {}
        self._frame: VideoFrame | None = None  # the one asked for last
        self._thumbnails: dict[int, npt.NDArray[np.uint8]] = {}  # of prompted frames, to know them again
        self._times: dict[int, tuple[int | None, Fraction | None]] = {}
        self._size: tuple[int, int] | None = None

    @property
    def object_ids(self) -> tuple[ObjectId, ...]:
        """The ids of all objects, in the order in which they were added."""
        return self.tracker.object_ids

    # -- prompts --------------------------------------------------------------------------------------------

    def add_prompt(
        self,
        points: npt.ArrayLike | None = None,
        *,
        labels: npt.ArrayLike | None = None,
        box: Sequence[float] | npt.NDArray[np.generic] | None = None,
        mask: npt.ArrayLike | None = None,
        object_id: ObjectId = 1,
        frame_idx: int | None = None,
        time_s: float | None = None,
    ) -> ObjectResult:
        """Says where an object is on one frame, and returns its mask there at once.

        Args:
            points: As for `Tracker.add_prompt`, like the following.
            labels: One a point.
            box: (x0, y0, x1, y1).
            mask: (height, width).
            object_id: Any hashable id; a new one adds an object.
            frame_idx: The frame; by default the first one of the range.
            time_s: Instead of `frame_idx`: seconds from the first frame of the source.

        Raises:
            PromptError: The prompt cannot be used, or lies outside the range; nothing has changed.
        """
        idx = self._prompted_idx(frame_idx, time_s)
        frame = self._frame_at(idx)
        if object_id in self.object_ids:
            self._recall(object_id, idx)
        self.tracker.add_prompt(frame, points, labels=labels, box=box, mask=mask, object_id=object_id)
        self._thumbnails.setdefault(idx, thumbnail(frame.rgb))
        state = self.states.setdefault(object_id, ObjectState())
        return self._changed(object_id, state, idx)

    def undo(self, *, object_id: ObjectId = 1, frame_idx: int) -> ObjectResult | None:
        """Takes back the latest prompt of an object on one frame; see `Tracker.undo`."""
        self.tracker.track_of(object_id)
        self.tracker.undo(self._frame_at(self._prompted_idx(frame_idx, None)), object_id=object_id)
        return self._unprompted(object_id, frame_idx)

    def clear_frame(self, frame_idx: int, *, object_id: ObjectId = 1) -> ObjectResult | None:
        """Takes back all prompts of an object on one frame; see `Tracker.clear_frame`."""
        frame_idx = self._prompted_idx(frame_idx, None)
        self.tracker.clear_frame(frame_idx, object_id=object_id)
        return self._unprompted(object_id, frame_idx)

    def remove(self, object_id: ObjectId) -> None:
        """Forgets one object and its results; the others are not affected.

        Raises:
            UnknownObjectError: There is no such object.
        """
        self.tracker.remove(object_id)
        del self.states[object_id]

    def _unprompted(self, object_id: ObjectId, frame_idx: int) -> ObjectResult | None:
        if object_id not in self.object_ids:  # that was its last prompt
            del self.states[object_id]
            return None
        state, track = self.states[object_id], self.tracker.track_of(object_id)
        if track.known(frame_idx) is None:
            state.records.pop(frame_idx, None)
            state.note_changed(frame_idx)
            self._drop_orphans(track, state)
            return None
        return self._changed(object_id, state, frame_idx)

    def _drop_orphans(self, track: ObjectTrack, state: ObjectState) -> None:
        """Results that came from a prompt which is there no more, and that no other prompt leads to."""
        first, last = min(track.answers), max(track.answers)
        for idx in list(state.records):
            reverse = track.tracked.reverse_at(idx)
            if (idx < first and reverse is False) or (idx > last and reverse is True):
                del state.records[idx]
                track.forget(idx)
        state.forward_from = None if state.forward_from is None else max(state.forward_from, first)
        state.backward_from = None if state.backward_from is None else min(state.backward_from, last)

    def _changed(self, object_id: ObjectId, state: ObjectState, frame_idx: int) -> ObjectResult:
        record = self._record(object_id, frame_idx)
        state.records[frame_idx] = record
        state.note_changed(frame_idx)
        return self._shown(record)

    def _record(self, object_id: ObjectId, frame_idx: int) -> ObjectRecord:
        known = self.tracker.track_of(object_id).known(frame_idx)
        if known is None:
            raise TrackerStateError(f"object {object_id!r} is not known on frame {frame_idx}")
        return ObjectRecord.of(*known)

    def _prompted_idx(self, frame_idx: int | None, time_s: float | None) -> int:
        if frame_idx is not None and time_s is not None:
            raise PromptError(f"got frame_idx {frame_idx} and time_s {time_s}; give one of them")
        if time_s is not None:
            if not isinstance(time_s, (int, float)) or isinstance(time_s, bool):
                raise PromptError(f"got time_s {time_s!r}; expected seconds from the first frame")
            frame_idx = self.source.frame_at(time_s)
        if frame_idx is None:
            frame_idx = self.frames[0]
        if not is_index(frame_idx) or frame_idx not in self.frames:
            raise PromptError(
                f"got a prompt on frame {frame_idx!r}; expected one from {self.frames[0]} to {self.frames[-1]}"
            )
        return int(frame_idx)

    # -- tracking -------------------------------------------------------------------------------------------

    def track(self, direction: Direction = "forward") -> Iterator[FrameResult]:
        """Tracks what is due. **Lazy: nothing runs until the result is iterated.**

        Each object goes forward from its earliest new prompt to the end of the range, or backward from its
        latest new prompt to the beginning, or both: forward, then backward from its earliest new prompt.
        Closing the iterator stops; the next call goes on from there. A prompt given meanwhile takes its
        object out of this pass; call `track` again.

        Args:
            direction: "forward", "backward" or "both".

        Yields:
            One result a frame that was run, with all that is known on it. Nothing if nothing is due.

        Raises:
            TrackerStateError: There is no prompt at all.
        """
        passes = _passes(direction)
        if not self.states:
            raise TrackerStateError("there is no object to track; call add_prompt first")
        if direction == "both":
            for state in self.states.values():
                if state.forward_from is not None and state.backward_from is not None:
                    state.backward_from = min(state.forward_from, state.backward_from)
        return (result for reverse in passes for result in self._pass(reverse=reverse))

    def due(self, direction: Direction = "forward") -> int:
        """How many frames `track` would run, for a progress bar."""
        return sum(len(self._due(reverse=reverse)) for reverse in _passes(direction))

    def _due(self, *, reverse: bool) -> range:
        """The frames of a pass, in display order."""
        starts = [state.backward_from if reverse else state.forward_from for state in self.states.values()]
        known = [start for start in starts if start is not None]
        if not known:
            return range(0)
        return range(self.frames[0], max(known) + 1) if reverse else range(min(known), self.frames[-1] + 1)

    def _pass(self, *, reverse: bool) -> Iterator[FrameResult]:
        due = self._due(reverse=reverse)
        if not due:
            return
        with closing(self._frames_of(due, reverse=reverse)) as frames:
            yield from self._tracked(frames, reverse=reverse)

    def _frames_of(self, due: range, *, reverse: bool) -> Generator[VideoFrame, None, None]:
        """The frames of a pass, decoded and preprocessed beside inference where there is something to decode."""
        frames = self.source.frames(due.start, due.stop, reverse=reverse)
        if isinstance(self.source, ArrayFrames):
            yield from frames
        else:
            yield from read_ahead(prepare_frame(frame, self.model.constants) for frame in frames)

    def _tracked(self, frames: Iterable[VideoFrame], *, reverse: bool) -> Iterator[FrameResult]:
        tracked_before: set[ObjectId] = set()
        for frame in frames:
            idx = frame.frame_idx
            active = [object_id for object_id, state in self.states.items() if state.is_next(idx, reverse=reverse)]
            for object_id in active:
                if object_id not in tracked_before:
                    self._recall(object_id, idx, reverse=reverse)
            tracked_before = set(active)
            if not active:
                continue
            _, events = self.tracker.advance(frame, reverse=reverse, object_ids=active)
            self._note_time(frame)
            for object_id in active:
                state = self.states[object_id]
                state.records[idx] = self._record(object_id, idx)
                state.note_tracked(idx, self.frames, reverse=reverse)
            yield self._result(idx, events)

    def _recall(self, object_id: ObjectId, frame_idx: int, *, reverse: bool | None = None) -> None:
        track, records = self.tracker.track_of(object_id), self.states[object_id].records
        recall(track, records, frame_idx, reverse=reverse, source=self.source, encode=self.tracker.encode)

    # -- saving ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes prompts and results into one file, from which `restore` goes on.

        Args:
            path: The file; `.sam2clip` is a good ending.
            overwrite: Whether an existing file may be replaced.

        Raises:
            OutputExistsError: It exists and `overwrite` is False.
            OutputError: It cannot be written, is what the frames come from, or an object's id is neither a number
                nor a string.
        """
        tracks = {object_id: self.tracker.track_of(object_id) for object_id in self.object_ids}
        identity = ClipIdentity(
            model_name=self.model.name,
            model_sha256=self.model.bundle.sha256,
            width=self.frame_size[1],
            height=self.frame_size[0],
            num_frames=self.source.num_frames,
            start=self.frames.start,
            stop=self.frames.stop,
            options=self.options,
        )
        write_state(
            path,
            identity,
            tracks,
            self.states,
            times=self._times,
            thumbnails=self._thumbnails,
            sources=self._files(),
            overwrite=overwrite,
        )

    def _files(self) -> list[Path]:
        """What the frames come from, which nothing may replace."""
        if isinstance(self.source, (Video, ImageSequence)):
            info = self.source.info
            return [info.path, *(info.path / name for name in info.files)]
        return []

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        model: Model,
        source: ClipSource,
    ) -> Clip:
        """A clip as it was saved.

        Args:
            path: What `save` wrote.
            model: The model that it was made with.
            source: The same frames.

        Raises:
            ClipStateError: The file cannot be read, or was made with another model or other frames: their
                size and number are compared, and the pictures of prompted frames.
        """
        state = read_state(path)
        identity = state.identity
        identity.check_model(model.name, model.bundle.sha256, path)
        state.check_sizes(model.constants, path)
        clip = cls(model, source, identity.options)
        identity.check_source(clip.frame_size, clip.source.num_frames, path)
        clip.frames = identity.frames
        for idx in state.thumbnails:
            state.check_picture(clip.source.frame(idx), path)
        clip._times.update(state.times)
        clip._thumbnails.update(state.thumbnails)
        for object_id, saved in state.objects.items():
            track = clip.tracker.adopt(object_id, clip.frame_size)
            track.answers, track.tracked_before = saved.answers, saved.tracked_before
            for idx, reverse in saved.tracked.items():
                track.tracked.note(idx, reverse=reverse)
            clip.states[object_id] = saved.state
        return clip

    # -- results --------------------------------------------------------------------------------------------

    def result(self, frame_idx: int) -> FrameResult:
        """What is known on one frame, tracked or prompted; no object if nothing is. Events come with `track` only.

        Raises:
            FrameError: The frame is outside the range.
        """
        if not is_index(frame_idx) or frame_idx not in self.frames:
            raise FrameError(
                f"got frame {frame_idx!r}; expected one from {self.frames[0]} to {self.frames[-1]}: the clip's range"
            )
        return self._result(frame_idx)

    def results(self) -> Iterator[FrameResult]:
        """What is known, in display order, of each frame on which anything is."""
        known = {idx for state in self.states.values() for idx in state.records}
        return (self._result(idx) for idx in sorted(known))

    def _result(self, frame_idx: int, events: tuple[TrackEvent, ...] = ()) -> FrameResult:
        objects = {
            object_id: self._shown(record)
            for object_id, state in self.states.items()
            if (record := state.records.get(frame_idx)) is not None
        }
        pts, time_base = self._times.get(frame_idx, (None, None))
        return FrameResult(frame_idx, objects, pts, time_base, events)

    def _shown(self, record: ObjectRecord) -> ObjectResult:
        return object_result(record.outcome, self.frame_size, self.options)

    @property
    def frame_size(self) -> tuple[int, int]:
        """(height, width) of the frames."""
        if self._size is None:
            height, width = self._frame_at(self.frames[0]).rgb.shape[:2]
            self._size = (height, width)
        return self._size

    def _frame_at(self, frame_idx: int) -> VideoFrame:
        """One frame; the one asked for last is at hand."""
        if self._frame is None or self._frame.frame_idx != frame_idx:
            self._frame = self.source.frame(frame_idx)
        self._note_time(self._frame)
        return self._frame

    def _note_time(self, frame: VideoFrame) -> None:
        self._times[frame.frame_idx] = (frame.pts, frame.time_base)


def _passes(direction: Direction) -> list[bool]:
    """Whether each pass of a direction goes backwards."""
    if direction not in get_args(Direction):
        raise PromptError(f"got the direction {direction!r}; expected one of {', '.join(get_args(Direction))}")
    return {"forward": [False], "backward": [True], "both": [False, True]}[direction]


def _frame_source(source: ClipSource) -> FrameSource:
    if isinstance(source, (Video, ImageSequence)):
        return source
    if isinstance(source, (str, os.PathLike)):
        return open_images(source) if is_image_sequence(source) else open_video(source)
    if isinstance(source, (Sequence, np.ndarray)) and not isinstance(source, bytes):
        return ArrayFrames(cast("Sequence[RgbArray]", source))
    raise FrameError(
        f"got {type(source).__name__} as a source; expected a path, an opened video, or a list of frames: frames "
        "that come once, from a generator or a live source, go to Tracker.track"
    )
