"""Where the frames of a whole clip come from: a video file, or arrays that are in memory already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from sam2track.errors import FrameError, PromptError
from sam2track.types import RgbArray, VideoFrame


class FrameSource(Protocol):
    """Frames by number, as often as needed. `Video` is one."""

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        ...

    def frames(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[VideoFrame]:
        """Frames `start` to `stop - 1`, in display order or backwards, with their own numbers."""
        ...

    def frame(self, frame_idx: int) -> VideoFrame:
        """One frame."""
        ...

    def frame_at(self, time_s: float) -> int:
        """The index of the frame shown at a time, in seconds from the first frame."""
        ...


class ArrayFrames:
    """Frames in memory as a `FrameSource`.

    Args:
        frames: (height, width, 3) uint8 RGB each, all of one size.
    """

    def __init__(self, frames: Sequence[RgbArray]) -> None:
        if not len(frames):
            raise FrameError("got no frames; expected at least one (height, width, 3) uint8 array")
        self._frames = frames

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        return len(self._frames)

    def frames(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[VideoFrame]:
        """Frames `start` to `stop - 1`, in order or backwards."""
        indices = range(len(self._frames))[start:stop]
        return (self.frame(idx) for idx in (reversed(indices) if reverse else indices))

    def frame(self, frame_idx: int) -> VideoFrame:
        """One frame."""
        return VideoFrame(self._frames[frame_idx], frame_idx)

    def frame_at(self, time_s: float) -> int:
        """Arrays have no times."""
        raise PromptError(f"got the time {time_s} s, but arrays have no times; give a frame_idx")
