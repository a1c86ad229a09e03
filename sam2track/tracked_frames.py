"""Which frames of an object were tracked, and in which direction last."""

from __future__ import annotations


class TrackedFrames:
    """A set of frame indices with a direction each, kept as ranges: it does not grow with the video.

    Every second frame, or backwards, is one range too: one with another step.
    """

    def __init__(self) -> None:
        self.stretches: list[tuple[range, bool]] = []  # later ones hold where they overlap
        self._forgotten: set[int] = set()

    def reverse_at(self, frame_idx: int) -> bool | None:
        """Whether a frame was last tracked backwards; None if it was not tracked."""
        if frame_idx in self._forgotten:
            return None
        return next((reverse for stretch, reverse in reversed(self.stretches) if frame_idx in stretch), None)

    def note(self, frame_idx: int, *, reverse: bool) -> None:
        """A frame was tracked, or passed over because it was prompted."""
        known = self.reverse_at(frame_idx)
        self._forgotten.discard(frame_idx)
        if known == reverse:
            return
        if self.stretches and self.stretches[-1][1] == reverse:
            last = self.stretches[-1][0]
            step = last.step if len(last) > 1 else frame_idx - last[-1]
            if step != 0 and frame_idx == last[-1] + step:
                self.stretches[-1] = (range(last.start, frame_idx + step, step), reverse)
                return
        self.stretches.append((range(frame_idx, frame_idx + 1), reverse))

    def forget(self, frame_idx: int) -> None:
        """A frame has no result any more."""
        if self.reverse_at(frame_idx) is not None:
            self._forgotten.add(frame_idx)
