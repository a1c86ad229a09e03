"""What a clip keeps of its objects: one record a frame, and what is due."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sam2track.types import FloatArray, MaskOutcome


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """What a clip keeps of one object on one frame: enough to show it and to remember it again.

    Attributes:
        mask_logits: (4F, 4F) float16.
        predicted_iou: As in `MaskOutcome`.
        object_score: As in `MaskOutcome`.
        object_pointer: (C,) float32.
    """

    mask_logits: npt.NDArray[np.float16]
    predicted_iou: float
    object_score: float
    object_pointer: FloatArray

    @staticmethod
    def of(outcome: MaskOutcome, object_pointer: FloatArray) -> ObjectRecord:
        """A record of an outcome."""
        limit = np.finfo(np.float16).max
        logits = np.clip(outcome.mask_logits, -limit, limit).astype(np.float16)
        return ObjectRecord(logits, outcome.predicted_iou, outcome.object_score, object_pointer)

    @property
    def outcome(self) -> MaskOutcome:
        """What was recorded, to within the rounding of float16."""
        return MaskOutcome(self.mask_logits.astype(np.float32), self.predicted_iou, self.object_score)


@dataclass(slots=True)
class ObjectState:
    """The results of one object, and from which frame on they are out of date in either direction."""

    records: dict[int, ObjectRecord] = field(default_factory=dict)
    forward_from: int | None = None
    backward_from: int | None = None

    def is_next(self, frame_idx: int, *, reverse: bool) -> bool:
        """Whether this frame is the one to track next."""
        return frame_idx == (self.backward_from if reverse else self.forward_from)

    def note_tracked(self, frame_idx: int, frames: range, *, reverse: bool) -> None:
        """A frame was tracked: the next one is due, if there is one in the range."""
        following = frame_idx - 1 if reverse else frame_idx + 1
        due = following if following in frames else None
        if reverse:
            self.backward_from = due
        else:
            self.forward_from = due

    def note_changed(self, frame_idx: int) -> None:
        """What was said of a frame has changed: both ways from it everything may change."""
        self.forward_from = frame_idx if self.forward_from is None else min(self.forward_from, frame_idx)
        self.backward_from = frame_idx if self.backward_from is None else max(self.backward_from, frame_idx)
