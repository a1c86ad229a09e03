"""Objects cut out of the video and put on a plain colour -> a video file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sam2track.matte import MatteOptions, union_alpha
from sam2track.outputs.video_file import VideoFileWriter
from sam2track.types import FrameResult, RgbArray, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

# Further outside than that the picture is black. Encoders work in blocks of up to 16 pixels, and editors that scale
# mix neighbouring pixels, so that next to the edge the picture's own colours must go on.
_MARGIN = 16


class CutoutWriter(VideoFileWriter):
    """H.264 video of all objects together on a plain colour."""

    has_soft_edges = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        background: tuple[int, int, int] = (0, 0, 0),
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the file; see `VideoFileWriter`.

        Args:
            path: The output: .mp4, .mov or .mkv.
            info: The video that the frames come from.
            background: RGB, 0 to 255 each.
            matte: What is done to masks before they are written; by default nothing.
            overwrite: Whether an existing file may be replaced; the source never is.
        """
        super().__init__(path, info, matte=matte, overwrite=overwrite)
        self._background = np.array(background, np.uint8)

    def _picture(self, frame: VideoFrame, result: FrameResult) -> RgbArray:
        return composited(frame.rgb, union_alpha(frame, result, self._matte, np.uint8), self._background)


def composited(rgb: RgbArray, alpha: NDArray[np.uint8], background: NDArray[np.uint8]) -> RgbArray:
    """(h, w, 3) uint8: the picture where alpha (h, w) is 255, the background (3,) where it is 0."""
    import cv2

    weight = cv2.merge([alpha.astype(np.float32) / 255] * 3)
    plain = np.broadcast_to(background.astype(np.float32), rgb.shape)
    return np.rint(plain + weight * (rgb - plain)).astype(np.uint8)


def with_alpha(rgb: RgbArray, alpha: NDArray[np.uint8]) -> RgbArray:
    """(h, w, 4) uint8: straight alpha, the colours not multiplied with it, and black well outside."""
    import cv2

    near = cv2.dilate(alpha, np.ones((2 * _MARGIN + 1, 2 * _MARGIN + 1), np.uint8)) > 0
    rgba = np.zeros((*alpha.shape, 4), np.uint8)
    cv2.copyTo(np.dstack([rgb, alpha]), near.view(np.uint8), rgba)
    return rgba
