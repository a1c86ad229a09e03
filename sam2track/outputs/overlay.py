"""Masks drawn over the video -> a video file to look at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from sam2track.matte import MatteOptions, written_mask
from sam2track.outputs.video_file import VideoFileWriter
from sam2track.types import BoolArray, FrameResult, ObjectId, RgbArray, VideoFrame

if TYPE_CHECKING:
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


class OverlayWriter(VideoFileWriter):
    """H.264 video with each object in a colour of its own: a translucent fill within a solid contour.

    The contour lies inside the mask, so that no pixel outside changes. Colours follow the order in which
    object ids first appear. Time, audio, size and colours: see `sam2track.outputs.encode`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        super().__init__(path, info, matte=matte, overwrite=overwrite)
        self._positions: dict[ObjectId, int] = {}

    def _picture(self, frame: VideoFrame, result: FrameResult) -> RgbArray:
        picture: RgbArray = frame.rgb.copy()
        for object_id, found in result.objects.items():
            position = self._positions.setdefault(object_id, len(self._positions))
            draw_mask(picture, written_mask(found, self._matte), PALETTE[position % len(PALETTE)])
        return picture


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
