"""The loop: prompts and frames in, one result a frame out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sam2track.errors import FrameError, PromptError, TrackerStateError, UnknownObjectError
from sam2track.memory_bank import MemoryBank, MemoryEntry
from sam2track.memory_tokens import pack_memory
from sam2track.models import Model
from sam2track.postprocess import fill_holes, mask_at_video_size
from sam2track.preprocess import check_frame, frame_to_pixel_values
from sam2track.prompts import (
    NO_PROMPT,
    clamp_previous_logits,
    make_prompt,
    mask_prompt_input,
    mask_prompt_output,
    merge_prompts,
)
from sam2track.types import (
    FloatArray,
    FrameResult,
    ImageFeatures,
    MaskOutcome,
    MaskPrediction,
    ObjectId,
    ObjectResult,
    Prompt,
    RgbArray,
    VideoFrame,
)


@dataclass(slots=True)
class _TrackedObject:
    """Everything the tracker keeps of one object; objects share nothing but image features."""

    bank: MemoryBank
    prompts: dict[int, Prompt] = field(default_factory=dict)
    tracked: list[range] = field(default_factory=list)  # stretches of frames tracked, one more only after a jump

    def was_tracked(self, frame_idx: int) -> bool:
        return any(frame_idx in stretch for stretch in self.tracked)

    def note_tracked(self, frame_idx: int) -> None:
        if self.was_tracked(frame_idx):
            return
        if self.tracked:
            # Every second frame, or backwards, is one stretch as well: a range with another step.
            last = self.tracked[-1]
            step = last.step if len(last) > 1 else frame_idx - last[-1]
            between = range(last[-1] + step, frame_idx, step)
            reaches = frame_idx in range(last[-1] + step, frame_idx + step, step)
            # A prompted frame is passed over without being tracked, and does not end a stretch.
            if reaches and all(idx in self.bank.conditioning for idx in between):
                self.tracked[-1] = range(last.start, frame_idx + step, step)
                return
        self.tracked.append(range(frame_idx, frame_idx + 1))


@dataclass(frozen=True, slots=True)
class _EncodedFrame:
    """The frame whose features are at hand, and what was prompted on it but is not in the memory yet.

    Encoding that memory waits until the tracker moves on, so that each further click runs the decoder alone.
    """

    frame_idx: int
    pixel_values: FloatArray
    features: ImageFeatures
    to_remember: dict[ObjectId, MaskPrediction] = field(default_factory=dict)


class Tracker:
    """Tracks objects through the frames of one video.

    Give prompts with `add_prompt`, then the frames in order with `step` or `track`. Frames may come from
    anywhere and without end: memory does not grow with the number of frames. Not for use from several
    threads at once; several trackers may share one model.

    Args:
        model: From `sam2track.load`.
        num_frames: Length of the clip, if it is known. It matters below 16 frames only: the reference
            normalises time differences of object pointers by the length of a short clip.
        fill_holes: Fill holes of at most so many logit pixels in the masks that are returned (the
            official predictor's default is 8). 0 returns exactly what logits > 0 says.

    Example:
        >>> import numpy as np, sam2track
        >>> tracker = sam2track.Tracker(sam2track.load("nano", device="cpu"))
        >>> frames = [np.zeros((120, 160, 3), np.uint8)] * 3
        >>> preview = tracker.add_prompt(frames[0], points=[(80, 60)])
        >>> [result.frame_idx for result in tracker.track(frames)]
        [0, 1, 2]
    """

    def __init__(self, model: Model, *, num_frames: int | None = None, fill_holes: int = 0) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"got {model!r:.80} as the model; expected what sam2track.load returns")
        if num_frames is not None and num_frames < 1:
            raise TrackerStateError(f"got num_frames {num_frames}; expected 1 or more, or None for a stream")
        if fill_holes < 0:
            raise TrackerStateError(f"got fill_holes {fill_holes}; expected 0 (off) or more logit pixels")
        self._constants = model.constants
        self._graphs = model.graphs
        self._temporal_encoding = np.array(self._constants.memory_temporal_positional_encoding, np.float32)
        self._num_frames = num_frames
        self._fill_holes = fill_holes
        self.reset()

    @property
    def object_ids(self) -> tuple[ObjectId, ...]:
        """The ids of all objects, in the order in which they were added."""
        return tuple(self._objects)

    def reset(self) -> None:
        """Forgets everything: as good as a new tracker."""
        self._objects: dict[ObjectId, _TrackedObject] = {}
        self._encoded: _EncodedFrame | None = None
        self._frame_size: tuple[int, int] | None = None
        self._last_idx: int | None = None

    def remove(self, object_id: ObjectId) -> None:
        """Forgets one object; the others are not affected, and its id is free again.

        Raises:
            UnknownObjectError: There is no such object.
        """
        if object_id not in self._objects:
            raise UnknownObjectError(f"there is no object {object_id!r}; the ids are {list(self._objects)}")
        del self._objects[object_id]
        if self._encoded is not None:
            self._encoded.to_remember.pop(object_id, None)

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
        a mask replaces everything. A prompt on a frame that was tracked already is a correction: it uses
        the memory and the previous mask, and it sticks.

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
        video_frame = self._prompted_frame(frame, frame_idx)
        idx, size = video_frame.frame_idx, video_frame.rgb.shape[:2]
        prompt = make_prompt(
            (size[0], size[1]), self._constants.image_size, points=points, labels=labels, box=box, mask=mask
        )
        known = self._objects.get(object_id)
        tracked_object = known or _TrackedObject(MemoryBank(self._constants.memory_frames))
        earlier = tracked_object.prompts.get(idx)
        refines = earlier is not None or tracked_object.was_tracked(idx)
        prompt = merge_prompts(earlier, prompt, refines=refines)
        encoded = self._encode(video_frame)
        initial = not tracked_object.was_tracked(idx)
        previous = self._previous_logits(tracked_object, object_id, encoded)
        prediction = self._segment(tracked_object, encoded, prompt, initial=initial, previous_logits=previous)
        self._frame_size = (size[0], size[1])
        self._objects[object_id] = tracked_object
        tracked_object.prompts[idx] = prompt
        encoded.to_remember[object_id] = prediction
        return self._result(prediction.outcome)

    def _prompted_frame(self, frame: RgbArray | VideoFrame, frame_idx: int | None) -> VideoFrame:
        if isinstance(frame, VideoFrame):
            if frame_idx is not None and frame_idx != frame.frame_idx:
                raise FrameError(f"got frame_idx {frame_idx} with a frame whose own index is {frame.frame_idx}")
            return self._checked(frame)
        if frame_idx is None:
            frame_idx = 0 if self._last_idx is None else self._last_idx
        return self._checked(VideoFrame(frame, frame_idx))

    def _previous_logits(
        self, tracked_object: _TrackedObject, object_id: ObjectId, encoded: _EncodedFrame
    ) -> FloatArray | None:
        """What this frame's mask was before this prompt, to start from it."""
        if not self._graphs.takes_mask_logits:
            return None
        waiting = encoded.to_remember.get(object_id)
        entry = tracked_object.bank.entry(encoded.frame_idx)
        outcome = waiting.outcome if waiting is not None else entry.outcome if entry is not None else None
        return None if outcome is None else clamp_previous_logits(outcome.mask_logits)

    # -- tracking -------------------------------------------------------------------------------------------

    def track(self, frames: Iterable[RgbArray | VideoFrame]) -> Iterator[FrameResult]:
        """Tracks all objects through the frames. **Lazy: nothing runs until the result is iterated.**

        Args:
            frames: Arrays, numbered on from the frame stepped last (from 0 at first), or `VideoFrame`s with
                their own numbers. The prompted frames are among them.

        Yields:
            One result a frame. Closing the iterator ends the tracking; the tracker can go on later.

        Raises:
            TrackerStateError: There is no object to track.
            FrameError: A frame cannot be used.
            NonFiniteError: A graph returned NaN or infinity.
        """
        for frame in frames:
            yield self.step(frame)

    def step(self, frame: RgbArray | VideoFrame) -> FrameResult:
        """Tracks all objects on the next frame; see `track`."""
        if not self._objects:
            raise TrackerStateError("there is no object to track; call add_prompt first")
        if not isinstance(frame, VideoFrame):
            frame = VideoFrame(frame, 0 if self._last_idx is None else self._last_idx + 1)
        frame = self._checked(frame)
        self._remember_prompted()
        outcomes = self._prompted_outcomes(frame.frame_idx)
        # A picture at hand is compared with this one even if there is nothing to track on it.
        at_hand = self._encoded is not None and self._encoded.frame_idx == frame.frame_idx
        if at_hand or len(outcomes) < len(self._objects):
            encoded = self._encode(frame)
            for object_id, tracked_object in self._objects.items():
                if object_id not in outcomes:
                    outcomes[object_id] = self._track_object(tracked_object, encoded)
        self._last_idx = frame.frame_idx
        objects = {object_id: self._result(outcomes[object_id]) for object_id in self._objects}
        return FrameResult(frame.frame_idx, objects, frame.pts, frame.time_base)

    def _prompted_outcomes(self, frame_idx: int) -> dict[ObjectId, MaskOutcome]:
        """What is settled already: a prompted frame keeps the answer to its prompt."""
        return {
            object_id: entry.outcome
            for object_id, tracked_object in self._objects.items()
            if (entry := tracked_object.bank.conditioning.get(frame_idx)) is not None
        }

    def _track_object(self, tracked_object: _TrackedObject, encoded: _EncodedFrame) -> MaskOutcome:
        prediction = self._segment(tracked_object, encoded, NO_PROMPT, initial=False)
        self._remember(tracked_object, encoded, prediction, conditioning=False)
        tracked_object.note_tracked(encoded.frame_idx)
        return prediction.outcome

    def _segment(
        self,
        tracked_object: _TrackedObject,
        encoded: _EncodedFrame,
        prompt: Prompt,
        *,
        initial: bool,
        previous_logits: FloatArray | None = None,
    ) -> MaskPrediction:
        """One object on one frame: condition on the memory (unless there is none yet), then decode."""
        features = encoded.features
        if prompt.mask is not None:
            return self._mask_as_output(features, prompt)
        conditioned = features.feats2_no_mem if initial else self._attend(tracked_object, encoded)
        return self._graphs.decode(features, conditioned, prompt, previous_logits)

    def _attend(self, tracked_object: _TrackedObject, encoded: _EncodedFrame) -> FloatArray:
        visible = tracked_object.bank.visible(
            encoded.frame_idx, num_frames=self._num_frames, fixed_shapes=self._graphs.fixed_memory
        )
        memory = pack_memory(visible, self._temporal_encoding, self._graphs.encode_pointer_times)
        return self._graphs.attend(encoded.features, memory)

    def _mask_as_output(self, features: ImageFeatures, prompt: Prompt) -> MaskPrediction:
        """A mask prompt is the output itself; the decoder still runs on it, for the object pointer."""
        downsample = self._constants.mask_prompt_downsample
        if prompt.mask is None or downsample is None or not self._graphs.takes_mask_logits:
            raise PromptError("this bundle takes no mask prompt; give points or a box, or build the bundle anew")
        pointer = self._graphs.decode(
            features, features.feats2, NO_PROMPT, mask_prompt_input(prompt.mask, downsample)
        ).object_pointer
        outcome, high_res_logits = mask_prompt_output(prompt.mask)
        return MaskPrediction(outcome, high_res_logits, pointer)

    # -- memory ---------------------------------------------------------------------------------------------

    def _remember(
        self,
        tracked_object: _TrackedObject,
        encoded: _EncodedFrame,
        prediction: MaskPrediction,
        *,
        conditioning: bool,
    ) -> None:
        """The memory sees the raw features, and a hard mask on prompted frames. Absent frames count too."""
        spatial = self._graphs.encode_memory(encoded.features, prediction, binarize=conditioning)
        entry = MemoryEntry(encoded.frame_idx, spatial, prediction.object_pointer, prediction.outcome)
        tracked_object.bank.remember(entry, conditioning=conditioning)

    def _remember_prompted(self) -> None:
        if self._encoded is None:
            return
        waiting = self._encoded.to_remember
        for object_id in list(waiting):
            self._remember(self._objects[object_id], self._encoded, waiting[object_id], conditioning=True)
            del waiting[object_id]

    # -- frames ---------------------------------------------------------------------------------------------

    def _checked(self, frame: VideoFrame) -> VideoFrame:
        rgb = check_frame(frame.rgb)
        if not isinstance(frame.frame_idx, (int, np.integer)) or frame.frame_idx < 0:
            raise FrameError(f"got frame_idx {frame.frame_idx!r}; expected an integer, 0 or more")
        size = (rgb.shape[0], rgb.shape[1])
        if self._frame_size is not None and size != self._frame_size:
            raise FrameError(
                f"frame {frame.frame_idx} has (height, width) {size}; the frames before have {self._frame_size}. "
                "Resize the frames to one size, or use another tracker"
            )
        return frame

    def _encode(self, frame: VideoFrame) -> _EncodedFrame:
        """Image features of a frame: computed once for all objects and all clicks on it."""
        pixel_values = frame_to_pixel_values(frame.rgb, self._constants)
        if self._encoded is not None and self._encoded.frame_idx == frame.frame_idx:
            if not np.array_equal(self._encoded.pixel_values, pixel_values):
                raise FrameError(
                    f"frame {frame.frame_idx} is not the picture that was given with this index before; "
                    "give each picture its own frame_idx, and track from the first frame on"
                )
            return self._encoded
        self._remember_prompted()
        self._encoded = _EncodedFrame(frame.frame_idx, pixel_values, self._graphs.encode_image(pixel_values))
        return self._encoded

    def _result(self, outcome: MaskOutcome) -> ObjectResult:
        """At video size, for the user. Filling holes happens here, after the memory was made."""
        if self._frame_size is None:
            raise TrackerStateError("there is no frame yet; call add_prompt first")
        logits = fill_holes(outcome.mask_logits, self._fill_holes) if self._fill_holes else outcome.mask_logits
        mask = mask_at_video_size(logits, self._frame_size)
        return ObjectResult(mask, outcome.object_score, outcome.predicted_iou, outcome.mask_logits)
