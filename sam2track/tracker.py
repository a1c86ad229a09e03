"""The loop: prompts and frames in, one result a frame out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sam2track.errors import FrameError, PromptError, TrackerStateError, UnknownObjectError
from sam2track.models import Model
from sam2track.object_track import EncodedFrame, ObjectTrack, on_frame
from sam2track.options import TrackingOptions
from sam2track.postprocess import is_present, object_result
from sam2track.preprocess import check_frame, frame_to_pixel_values
from sam2track.prompts import make_prompt
from sam2track.types import (
    FrameResult,
    MaskOutcome,
    ObjectId,
    ObjectResult,
    PreparedFrame,
    RgbArray,
    TrackEvent,
    VideoFrame,
)


class Tracker:
    """Tracks objects through the frames of one video.

    Give prompts with `add_prompt`, then the frames in order with `step` or `track`. Frames may come from
    anywhere and without end: memory does not grow with the number of frames. Not for use from several
    threads at once; several trackers may share one model.

    Args:
        model: From `sam2track.load`.
        options: What may be set about tracking.
        num_frames: Length of the clip, if it is known. It matters below 16 frames only: the reference
            normalises time differences of object pointers by the length of a short clip.

    Example:
        >>> import numpy as np, sam2track
        >>> tracker = sam2track.Tracker(sam2track.load("nano", device="cpu"))
        >>> frames = [np.zeros((120, 160, 3), np.uint8)] * 3
        >>> preview = tracker.add_prompt(frames[0], points=[(80, 60)])
        >>> [result.frame_idx for result in tracker.track(frames)]
        [0, 1, 2]
    """

    def __init__(self, model: Model, options: TrackingOptions | None = None, *, num_frames: int | None = None) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"got {model!r:.80} as the model; expected what sam2track.load returns")
        if options is not None and not isinstance(options, TrackingOptions):
            raise TypeError(f"got {options!r:.80} as the options; expected sam2track.TrackingOptions")
        if num_frames is not None and (not is_index(num_frames) or num_frames < 1):
            raise TrackerStateError(f"got num_frames {num_frames!r}; expected 1 or more, or None for a stream")
        self._constants = model.constants
        self._graphs = model.graphs
        self._options = TrackingOptions() if options is None else options
        self._num_frames = num_frames
        self.reset()

    @property
    def object_ids(self) -> tuple[ObjectId, ...]:
        """The ids of all objects, in the order in which they were added."""
        return tuple(self._objects)

    def reset(self) -> None:
        """Forgets everything: as good as a new tracker."""
        self._objects: dict[ObjectId, ObjectTrack] = {}
        self._encoded: EncodedFrame | None = None
        self._frame_size: tuple[int, int] | None = None
        self._last_idx: int | None = None
        self._present: dict[ObjectId, tuple[int, bool, bool]] = {}  # frame stepped last, reverse, present there

    def remove(self, object_id: ObjectId) -> None:
        """Forgets one object; the others are not affected, and its id is free again.

        Raises:
            UnknownObjectError: There is no such object.
        """
        self.track_of(object_id)
        del self._objects[object_id]
        self._present.pop(object_id, None)

    def track_of(self, object_id: ObjectId) -> ObjectTrack:
        """What is known of one object.

        Raises:
            UnknownObjectError: There is no such object.
        """
        try:
            return self._objects[object_id]
        except (KeyError, TypeError):  # a TypeError is an id that cannot be hashed
            raise UnknownObjectError(f"there is no object {object_id!r}; the ids are {list(self._objects)}") from None

    # -- prompts --------------------------------------------------------------------------------------------

    def add_prompt(
        self,
        frame: RgbArray | VideoFrame,
        points: npt.ArrayLike | None = None,
        *,
        labels: npt.ArrayLike | None = None,
        box: Sequence[float] | npt.NDArray[np.generic] | None = None,
        mask: npt.ArrayLike | None = None,
        object_id: ObjectId = 1,
        frame_idx: int | None = None,
    ) -> ObjectResult:
        """Says where an object is on one frame, and returns its mask there at once.

        Points add to those given before for the same object and frame; a new box replaces the earlier box,
        a mask replaces everything. The next prompt on the same frame runs the mask decoder alone. A prompt on
        a frame that was tracked already is a correction: it uses the memory and the previous mask, and it
        sticks (see `TrackingOptions.keep_corrections`).

        Args:
            frame: (height, width, 3) uint8 RGB, or a `VideoFrame`.
            points: (n, 2), (x, y) in pixels of the frame.
            labels: (n,), 1 inside the object, 0 outside; all 1 by default.
            box: (x0, y0, x1, y1) in pixels of the frame.
            mask: (height, width), bool or 0/255; it becomes the answer itself.
            object_id: Any hashable id; a new one adds an object.
            frame_idx: The frame's index. By default the frame's own if it is a `VideoFrame`, else the
                frame stepped last, or 0 before the first step.

        Returns:
            The object's mask and scores on this frame.

        Raises:
            PromptError: The prompt cannot be used; nothing has changed.
            FrameError: The frame cannot be used, or is not the one with this index.
            NonFiniteError: A graph returned NaN or infinity.
        """
        _check_hashable(object_id)
        video_frame = self._prompted_frame(frame, frame_idx)
        size = (video_frame.rgb.shape[0], video_frame.rgb.shape[1])
        prompt = make_prompt(size, self._constants.image_size, points=points, labels=labels, box=box, mask=mask)
        track = self._objects.get(object_id) or self._new_track()
        prompt = track.merged(video_frame.frame_idx, prompt)
        outcome = track.prompt(self._encode(video_frame), prompt)
        self._frame_size = size
        self._objects[object_id] = track
        return self._result(outcome)

    def undo(
        self,
        frame: RgbArray | VideoFrame | None = None,
        *,
        object_id: ObjectId = 1,
        frame_idx: int | None = None,
    ) -> ObjectResult | None:
        """Takes back the latest `add_prompt` of an object on one frame, without running a graph.

        Args:
            frame: The frame, as for `add_prompt`; not needed for the frame that was prompted or stepped last.
            object_id: The object. It is removed with its last prompt.
            frame_idx: As for `add_prompt`.

        Returns:
            What the object was on this frame before, or None if it was not known there.

        Raises:
            UnknownObjectError: There is no such object.
            TrackerStateError: It has no prompt on this frame, or the frame has to be given.
        """
        track = self.track_of(object_id)
        if frame is not None:
            encoded = self._encode(self._prompted_frame(frame, frame_idx))
        elif self._encoded is not None and frame_idx in (None, self._encoded.frame_idx):
            encoded = self._encoded
        else:
            raise TrackerStateError(f"frame {frame_idx} is not at hand any more; give it again: undo(frame)")
        outcome = track.undo(encoded)
        self._remove_without_prompts(object_id)
        return None if outcome is None else self._result(outcome)

    def clear_frame(self, frame_idx: int, *, object_id: ObjectId = 1) -> ObjectResult | None:
        """Takes back all prompts of an object on one frame.

        Returns:
            What the object was there when it was tracked, or None. It is removed with its last prompt.

        Raises:
            UnknownObjectError: There is no such object.
            TrackerStateError: It has no prompt on this frame.
        """
        track = self.track_of(object_id)
        if not is_index(frame_idx):
            raise FrameError(f"got frame_idx {frame_idx!r}; expected an integer, 0 or more")
        outcome = track.clear_frame(frame_idx)
        self._remove_without_prompts(object_id)
        return None if outcome is None else self._result(outcome)

    def _new_track(self) -> ObjectTrack:
        return ObjectTrack(self._graphs, self._constants, self._options, self._num_frames)

    def _remove_without_prompts(self, object_id: ObjectId) -> None:
        if not self._objects[object_id].is_prompted:
            self.remove(object_id)

    def _prompted_frame(self, frame: RgbArray | VideoFrame, frame_idx: int | None) -> VideoFrame:
        if isinstance(frame, VideoFrame):
            if frame_idx is not None and frame_idx != frame.frame_idx:
                raise FrameError(f"got frame_idx {frame_idx} with a frame whose own index is {frame.frame_idx}")
            return self._checked(frame)
        if frame_idx is None:
            frame_idx = 0 if self._last_idx is None else self._last_idx
        return self._checked(VideoFrame(frame, frame_idx))

    # -- tracking -------------------------------------------------------------------------------------------

    def track(self, frames: Iterable[RgbArray | VideoFrame], *, reverse: bool = False) -> Iterator[FrameResult]:
        """Tracks all objects through the frames. **Lazy: nothing runs until the result is iterated.**

        Args:
            frames: Arrays, numbered on from the frame stepped last (from 0 at first), or `VideoFrame`s with
                their own numbers. The prompted frames are among them.
            reverse: The frames come backwards: the memory of a frame are the frames after it.

        Yields:
            One result a frame. Closing the iterator ends the tracking; the tracker can go on later.

        Raises:
            TrackerStateError: There is no object to track.
            FrameError: A frame cannot be used.
            NonFiniteError: A graph returned NaN or infinity.
        """
        for frame in frames:
            yield self.step(frame, reverse=reverse)

    def step(
        self,
        frame: RgbArray | VideoFrame,
        *,
        reverse: bool = False,
        object_ids: Collection[ObjectId] | None = None,
    ) -> FrameResult:
        """Tracks objects on the next frame; see `track`.

        Args:
            frame: The frame, as for `track`.
            reverse: As for `track`.
            object_ids: Which objects; all by default. The others are as if this frame did not exist.
        """
        if not isinstance(frame, VideoFrame):
            frame = self._numbered(frame, reverse)
        outcomes, events = self.advance(frame, reverse=reverse, object_ids=object_ids)
        objects = {object_id: self._result(outcome) for object_id, outcome in outcomes.items()}
        return FrameResult(frame.frame_idx, objects, frame.pts, frame.time_base, events)

    def advance(
        self, frame: VideoFrame, *, reverse: bool, object_ids: Collection[ObjectId] | None
    ) -> tuple[dict[ObjectId, MaskOutcome], tuple[TrackEvent, ...]]:
        """What `step` does, without the masks at video size."""
        if not self._objects:
            raise TrackerStateError("there is no object to track; call add_prompt first")
        tracks = self._objects if object_ids is None else {wanted: self.track_of(wanted) for wanted in object_ids}
        frame = self._checked(frame)
        outcomes: dict[ObjectId, MaskOutcome] = {}
        for object_id, track in tracks.items():
            track.settle()
            if (prompted := track.prompted_outcome(frame.frame_idx)) is not None:
                outcomes[object_id] = prompted
                track.pass_over(frame.frame_idx, reverse=reverse)
        # A picture at hand is compared with this one even if there is nothing to track on it.
        at_hand = self._encoded is not None and self._encoded.frame_idx == frame.frame_idx
        if at_hand or len(outcomes) < len(tracks):
            encoded = self._encode(frame)
            for object_id, track in tracks.items():
                if object_id not in outcomes:
                    outcomes[object_id] = track.track(encoded, reverse=reverse)
        self._last_idx = frame.frame_idx
        outcomes = {object_id: outcomes[object_id] for object_id in tracks}
        return outcomes, self._events(frame.frame_idx, outcomes, reverse)

    def _numbered(self, rgb: RgbArray, reverse: bool) -> VideoFrame:
        """An array is the frame after the one stepped last."""
        if self._last_idx is not None:
            return VideoFrame(rgb, self._last_idx + (-1 if reverse else 1))
        if not reverse:
            return VideoFrame(rgb, 0)
        if self._num_frames is None:
            raise TrackerStateError(
                "got an array as the first frame backwards, and its number is not known; "
                "give VideoFrame(rgb, frame_idx), or Tracker(model, num_frames=...)"
            )
        return VideoFrame(rgb, self._num_frames - 1)

    def _events(self, frame_idx: int, outcomes: dict[ObjectId, MaskOutcome], reverse: bool) -> tuple[TrackEvent, ...]:
        """What has changed since the frame stepped before, if this one goes on from it."""
        events = []
        for object_id, outcome in outcomes.items():
            now = is_present(outcome, self._options)
            before_idx, before_reverse, before = self._present.get(object_id, (frame_idx, reverse, True))
            goes_on = before_reverse == reverse and (before_idx > frame_idx if reverse else before_idx < frame_idx)
            if goes_on and before != now:
                events.append(TrackEvent("found" if now else "lost", object_id))
            self._present[object_id] = (frame_idx, reverse, now)
        return tuple(events)

    # -- for clips ------------------------------------------------------------------------------------------

    def encode(self, frame: VideoFrame) -> EncodedFrame:
        """Image features of a frame; those of the frame asked for last are at hand."""
        return self._encode(self._checked(frame))

    def adopt(self, object_id: ObjectId, frame_size: tuple[int, int]) -> ObjectTrack:
        """Adds an object of which everything is known already, for frames of (height, width)."""
        self._frame_size = frame_size
        self._objects[object_id] = self._new_track()
        return self._objects[object_id]

    # -- frames ---------------------------------------------------------------------------------------------

    def _checked(self, frame: VideoFrame) -> VideoFrame:
        rgb, idx = check_frame(frame.rgb), frame.frame_idx
        if not is_index(idx):
            raise FrameError(f"got frame_idx {idx!r}; expected an integer, 0 or more")
        if self._num_frames is not None and idx >= self._num_frames:
            raise FrameError(f"got frame_idx {idx}; the clip has {self._num_frames} frames, numbered from 0")
        size = (rgb.shape[0], rgb.shape[1])
        if self._frame_size is not None and size != self._frame_size:
            raise FrameError(
                f"frame {idx} has (height, width) {size}; the frames before have {self._frame_size}. "
                "Resize the frames to one size, or use another tracker"
            )
        return frame

    def _encode(self, frame: VideoFrame) -> EncodedFrame:
        """Image features of a frame: computed once for all objects and all clicks on it."""
        prepared = frame.pixel_values if isinstance(frame, PreparedFrame) else None
        pixel_values = frame_to_pixel_values(frame.rgb, self._constants) if prepared is None else prepared
        if self._encoded is not None and self._encoded.frame_idx == frame.frame_idx:
            if not np.array_equal(self._encoded.pixel_values, pixel_values):
                raise FrameError(
                    f"frame {frame.frame_idx} is not the picture that was given with this index before; "
                    "give each picture its own frame_idx, and track from the first frame on"
                )
            return self._encoded
        with on_frame(frame.frame_idx):
            features = self._graphs.encode_image(pixel_values)
        self._encoded = EncodedFrame(frame.frame_idx, pixel_values, features)
        return self._encoded

    def _result(self, outcome: MaskOutcome) -> ObjectResult:
        if self._frame_size is None:
            raise TrackerStateError("there is no frame yet; call add_prompt first")
        return object_result(outcome, self._frame_size, self._options)


def is_index(value: object) -> bool:
    """Whether a value can number a frame: a whole number, 0 or more, NumPy's included."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def _check_hashable(object_id: ObjectId) -> None:
    try:
        hash(object_id)
    except TypeError:
        raise PromptError(f"got the object id {object_id!r:.80}; expected something hashable, as a string") from None
