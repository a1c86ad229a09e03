"""What is remembered of one object, and what of it a frame may see. Pure Python: indices and references.

The bank is bounded by construction: recent frames beyond the reach of the next frame are forgotten;
only prompted frames stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from sam2track.spec import MAX_OBJECT_POINTERS
from sam2track.types import FloatArray, MaskOutcome, SpatialMemory


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One remembered frame of one object.

    Attributes:
        frame_idx: The frame.
        spatial: Its spatial memory; None if it is known to be seen by its pointer only.
        object_pointer: (C,) float32.
        outcome: What the user was shown; a correction of this frame starts from its logits.
    """

    frame_idx: int
    spatial: SpatialMemory | None
    object_pointer: FloatArray
    outcome: MaskOutcome


@dataclass(frozen=True, slots=True)
class VisibleSpatial:
    """A spatial memory that a frame sees, and its row of the temporal position table."""

    entry: MemoryEntry
    spatial: SpatialMemory
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
        max_conditioning_frames: How many prompted frames a frame attends to; None for all.
        min_iou: Frames without the object, or with a lower predicted IoU, are not shown to others; None
            shows all.
    """

    def __init__(
        self, memory_frames: int, *, max_conditioning_frames: int | None = None, min_iou: float | None = None
    ) -> None:
        self.memory_frames = memory_frames
        self.max_conditioning_frames = max_conditioning_frames
        self.min_iou = min_iou
        self.conditioning: dict[int, MemoryEntry] = {}
        self.recent: dict[int, MemoryEntry] = {}

    def remember(self, entry: MemoryEntry, *, conditioning: bool) -> None:
        """Adds a frame; a conditioning (prompted) frame replaces a recent one of the same index."""
        if conditioning:
            self.recent.pop(entry.frame_idx, None)
            self.conditioning[entry.frame_idx] = entry
            return
        self.put_back(entry)
        reach = max(self.memory_frames, MAX_OBJECT_POINTERS)  # for this frame too: it may be corrected
        kept = {idx for idx in self.recent if abs(idx - entry.frame_idx) < reach}
        if self.min_iou is not None:  # these may be wanted from further away
            kept.update(list(self._reliable())[-(self.memory_frames - 1) :])
        self.recent = {idx: known for idx, known in self.recent.items() if idx in kept}

    def put_back(self, entry: MemoryEntry) -> None:
        """Adds a recent frame without forgetting those that are far from it."""
        self.recent.pop(entry.frame_idx, None)  # the order is that of remembering
        self.recent[entry.frame_idx] = entry

    def forget(self, frame_idx: int) -> None:
        """Forgets a frame, prompted or recent, if it is known."""
        self.conditioning.pop(frame_idx, None)
        self.recent.pop(frame_idx, None)

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
        limit = self.max_conditioning_frames
        if fixed_shapes:
            limit = self.memory_frames if limit is None else min(limit, self.memory_frames)
        prompted, others = self._select_conditioning(frame_idx, sign, limit)
        # A prompted frame beyond the limit is still a frame like any other to those right after it.
        recent = {**self._reliable(), **others}
        spatial = self._recent_memories(recent, frame_idx, sign)
        conditioning = [
            VisibleSpatial(entry, entry.spatial, self.memory_frames - 1) for entry in prompted if entry.spatial
        ]
        pointers = self._recent_pointers(recent, frame_idx, sign, max_pointers)
        prompted_pointers = self._conditioning_pointers(prompted, frame_idx, sign)
        if fixed_shapes:
            spatial = spatial[: self.memory_frames - len(conditioning)]
            pointers = pointers[: MAX_OBJECT_POINTERS - len(prompted_pointers)]
        return VisibleMemory((*spatial, *conditioning), (*pointers, *prompted_pointers), max_pointers)

    def _select_conditioning(
        self, frame_idx: int, sign: int, limit: int | None
    ) -> tuple[list[MemoryEntry], dict[int, MemoryEntry]]:
        """The prompted frames that count as such, nearest first, and the others by index.

        All of them, or the earliest and the nearest others. Of two equally near the one behind comes first.
        """

        def distance(idx: int) -> tuple[int, int]:
            return abs(idx - frame_idx), sign * (idx - frame_idx)

        nearest = sorted(self.conditioning, key=distance)
        if limit is not None and len(nearest) > limit:
            first = min(nearest)
            rest = [idx for idx in nearest if idx != first][: limit - 1]
            nearest = sorted([first, *rest], key=distance)
        others = {idx: entry for idx, entry in self.conditioning.items() if idx not in nearest}
        return [self.conditioning[idx] for idx in nearest], others

    def is_reliable(self, object_score: float, predicted_iou: float) -> bool:
        """Whether a tracked frame of these scores is shown to others."""
        return self.min_iou is None or (object_score > 0 and predicted_iou >= self.min_iou)

    def _reliable(self) -> dict[int, MemoryEntry]:
        return {
            idx: entry
            for idx, entry in self.recent.items()
            if self.is_reliable(entry.outcome.object_score, entry.outcome.predicted_iou)
        }

    def _recent_memories(self, recent: dict[int, MemoryEntry], frame_idx: int, sign: int) -> list[VisibleSpatial]:
        """The frames 1 to 6 back BY INDEX, not the last six stored: a missing one is skipped.

        Only where doubtful frames are kept out are they the six nearest that are left.
        """
        back = [k for k in sorted(sign * (frame_idx - idx) for idx in recent) if k > 0]
        rows = list(enumerate(back)) if self.min_iou is not None else [(k - 1, k) for k in back]
        return [
            VisibleSpatial(entry, entry.spatial, temporal_row=row)
            for row, k in rows
            if row < self.memory_frames - 1 and (entry := recent[frame_idx - sign * k]).spatial
        ]

    @staticmethod
    def _conditioning_pointers(prompted: list[MemoryEntry], frame_idx: int, sign: int) -> list[VisiblePointer]:
        """Only prompted frames that lie behind: the object does not point out of the future."""
        behind = [(sign * (frame_idx - entry.frame_idx), entry) for entry in prompted]
        behind.sort(key=lambda item: item[0])
        return [VisiblePointer(entry, frames_back) for frames_back, entry in behind if frames_back >= 0]

    @staticmethod
    def _recent_pointers(
        recent: dict[int, MemoryEntry], frame_idx: int, sign: int, max_pointers: int
    ) -> list[VisiblePointer]:
        return [
            VisiblePointer(entry, frames_back=k)
            for k in range(1, max_pointers)
            if (entry := recent.get(frame_idx - sign * k)) is not None
        ]


def max_object_pointers(num_frames: int | None) -> int:
    """How many pointers time differences are normalised for: a short clip has fewer, a stream has no length."""
    return MAX_OBJECT_POINTERS if num_frames is None else min(num_frames, MAX_OBJECT_POINTERS)
