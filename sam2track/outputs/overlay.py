"""Masks drawn over the video -> a video file to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.types import BoolArray, FrameResult, ObjectId, RgbArray, VideoFrame

if TYPE_CHECKING:
    from sam2track.outputs.encode import VideoEncoder
    from sam2track.video import VideoInfo

# RGB, told apart with any kind of colour vision (after Okabe and Ito), the least natural ones first.
PALETTE = (
    (204, 121, 167),  # reddish purple
    (86, 180, 233),  # sky blue
    (240, 228, 66),  # yellow
    (213, 94, 0),  # vermilion
    (0, 158, 115),  # bluish green
    (230, 159, 0),  # orange
    (0, 114, 178),  # blue
)
_FILL = 0.45  # how much of the colour, the rest is the picture
_CONTOUR_PER_SIDE = 1 / 270  # width of the contour against the frame's shorter side: 3 pixels at 720p


class OverlayWriter(AtomicWriter):
    """H.264 video with each object in a colour of its own: a translucent fill within a solid contour.

    The contour lies inside the mask, so that no pixel outside changes. Colours follow the order in which
    object ids first appear. Time, audio, size and colours: see `sam2track.outputs.encode`.
    """

    def __init__(self, path: str | os.PathLike[str], info: VideoInfo, *, overwrite: bool = False) -> None:
        """Prepare the file; it appears under its name when the writer is closed.

        Args:
            path: The output: .mp4, .mov or .mkv.
            info: The video that the frames come from.
            overwrite: Whether an existing file may be replaced; the source never is.

        Raises:
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: Another extension, the output is the source, or it cannot be written.
        """
        from sam2track.outputs.encode import VideoEncoder, container_format

        container = container_format(Path(path))
        super().__init__(PendingOutput(path, overwrite=overwrite, sources=[info.path]))
        self._encoder: VideoEncoder | None = None
        self._positions: dict[ObjectId, int] = {}
        with self._guarded("starting it"):
            self._encoder = VideoEncoder(self._pending.temporary, info, container)

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        picture = frame.rgb.copy()
        for object_id, found in result.objects.items():
            position = self._positions.setdefault(object_id, len(self._positions))
            draw_mask(picture, found.mask, PALETTE[position % len(PALETTE)])
        if self._encoder is not None:
            self._encoder.write(picture, frame)

    def _finish(self) -> None:
        if self._encoder is not None:
            self._encoder.finish()

    def _release(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()


def draw_mask(picture: RgbArray, mask: BoolArray, colour: tuple[int, int, int]) -> None:
    """Draw one mask into a picture, in place; pixels outside the mask stay as they are.

    Args:
        picture: (h, w, 3) uint8 RGB, writable and contiguous.
        mask: (h, w) bool.
        colour: RGB.
    """
    import cv2

    levels = np.ascontiguousarray(mask).view(np.uint8)
    x, y, width, height = cv2.boundingRect(levels)
    if width == 0:
        return
    thickness = max(1, round(min(mask.shape) * _CONTOUR_PER_SIDE))
    # With a margin, so that the erosion sees where the mask ends; the frame's own border is no contour.
    rows = slice(max(0, y - thickness), y + height + thickness)
    columns = slice(max(0, x - thickness), x + width + thickness)
    levels, region = levels[rows, columns], picture[rows, columns]
    filled = cv2.addWeighted(region, 1 - _FILL, np.full_like(region, colour), _FILL, 0)
    cv2.copyTo(filled, levels, region)
    reach = 2 * thickness + 1
    inner = cv2.erode(levels, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach)))
    region[levels > inner] = colour
