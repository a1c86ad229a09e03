"""What is remembered of one object, and what of it a frame may see. Pure Python: indices and references.

The bank is bounded by construction: recent frames beyond the reach of the next frame are forgotten;
only prompted frames stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sam2track.spec import MAX_OBJECT_POINTERS
from sam2track.types import FloatArray, MaskOutcome, SpatialMemory

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One remembered frame of one object.

    Attributes:
        frame_idx: The frame.
        spatial: Its spatial memory.
        object_pointer: (C,) float32.
        outcome: What the user was shown; a correction of this frame starts from its logits.
    """

    frame_idx: int
    spatial: SpatialMemory
    object_pointer: FloatArray
    outcome: MaskOutcome


@dataclass(frozen=True, slots=True)
class VisibleSpatial:
    """A spatial memory that a frame sees, and its row of the temporal position table."""

    entry: MemoryEntry
    temporal_row: int


@dataclass(frozen=True, slots=True)
class VisiblePointer:
    """An object pointer that a frame sees, and how many frames back it is (in tracking direction)."""

    entry: MemoryEntry
    frames_back: int


@dataclass(frozen=True, slots=True)
class VisibleMemory:
    """Everything of an object that one frame sees.

    Attributes:
        spatial: Spatial memories: recent frames, newest first, then prompted ones, nearest first.
        pointers: Object pointers, in the same order.
        max_pointers: What `frames_back` is normalised by (less one).
    """

    spatial: tuple[VisibleSpatial, ...]
    pointers: tuple[VisiblePointer, ...]
    max_pointers: int


class MemoryBank:
    """The memory of one object.

    Args:
        memory_frames: Temporal rows of the model: one for prompted frames, the others for recent ones.
    """

    def __init__(self, memory_frames: int) -> None:
        self.memory_frames = memory_frames
        self.conditioning: dict[int, MemoryEntry] = {}
        self.recent: dict[int, MemoryEntry] = {}

    def remember(self, entry: MemoryEntry, *, conditioning: bool) -> None:
        """Adds a frame; a conditioning (prompted) frame replaces a recent one of the same index."""
        if conditioning:
            self.recent.pop(entry.frame_idx, None)
            self.conditioning[entry.frame_idx] = entry
            return
        self.recent[entry.frame_idx] = entry
        reach = max(self.memory_frames, MAX_OBJECT_POINTERS)  # for this frame too: it may be corrected
        for frame_idx in [idx for idx in self.recent if abs(idx - entry.frame_idx) >= reach]:
            del self.recent[frame_idx]

    def entry(self, frame_idx: int) -> MemoryEntry | None:
        """What is remembered of a frame, if anything."""
        return self.conditioning.get(frame_idx) or self.recent.get(frame_idx)

    def visible(
        self,
        frame_idx: int,
        *,
        num_frames: int | None = None,
        reverse: bool = False,
        fixed_shapes: bool = False,
    ) -> VisibleMemory:
        """What a frame may see.

        Args:
            frame_idx: The frame about to be tracked.
            num_frames: Length of the clip if it is known.
            reverse: Whether time runs backwards.
            fixed_shapes: Give no more than graphs of fixed shapes have room for; the oldest recent frames
                are left out first.
        """
        sign = -1 if reverse else 1
        max_pointers = max_object_pointers(num_frames)
        spatial = self._recent_memories(frame_idx, sign)
        prompted = self._conditioning_memories(frame_idx)
        pointers = self._recent_pointers(frame_idx, sign, max_pointers)
        prompted_pointers = self._conditioning_pointers(frame_idx, sign)
        if fixed_shapes:
            spatial, prompted = _fit(spatial, prompted, self.memory_frames)
            pointers, prompted_pointers = _fit(pointers, prompted_pointers, MAX_OBJECT_POINTERS)
        return VisibleMemory((*spatial, *prompted), (*pointers, *prompted_pointers), max_pointers)

    def _conditioning_memories(self, frame_idx: int) -> list[VisibleSpatial]:
        """Every prompted frame, past or future, with the last temporal row; the nearest first."""
        nearest = sorted(self.conditioning.values(), key=lambda entry: abs(entry.frame_idx - frame_idx))
        return [VisibleSpatial(entry, self.memory_frames - 1) for entry in nearest]

    def _recent_memories(self, frame_idx: int, sign: int) -> list[VisibleSpatial]:
        """The frames 1 to 6 back BY INDEX, not the last six stored: a missing one is skipped."""
        back = range(1, self.memory_frames)
        return [
            VisibleSpatial(entry, temporal_row=k - 1)
            for k in back
            if (entry := self.recent.get(frame_idx - sign * k)) is not None
        ]

    def _conditioning_pointers(self, frame_idx: int, sign: int) -> list[VisiblePointer]:
        """Only prompted frames that lie behind: the object does not point out of the future."""
        behind = [(sign * (frame_idx - entry.frame_idx), entry) for entry in self.conditioning.values()]
        behind.sort(key=lambda item: item[0])
        return [VisiblePointer(entry, frames_back) for frames_back, entry in behind if frames_back >= 0]

    def _recent_pointers(self, frame_idx: int, sign: int, max_pointers: int) -> list[VisiblePointer]:
        return [
            VisiblePointer(entry, frames_back=k)
            for k in range(1, max_pointers)
            if (entry := self.recent.get(frame_idx - sign * k)) is not None
        ]


def _fit(recent: list[_T], prompted: list[_T], room: int) -> tuple[list[_T], list[_T]]:
    prompted = prompted[:room]
    return recent[: room - len(prompted)], prompted


def max_object_pointers(num_frames: int | None) -> int:
    """How many pointers time differences are normalised for: a short clip has fewer, a stream has no length."""
    return MAX_OBJECT_POINTERS if num_frames is None else min(num_frames, MAX_OBJECT_POINTERS)
