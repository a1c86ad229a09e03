"""Stored picture -> displayed picture: the display matrix that cameras write, and what it asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sam2track.types import RgbArray


def read_display_matrix(matrix: Sequence[int]) -> tuple[int, bool] | None:
    """Read what a display matrix asks for.

    Args:
        matrix: The nine numbers of FFmpeg's display matrix, row by row. The first two of row one are where
            one step to the right ends up, those of row two where one step down does (y grows downwards).

    Returns:
        (rotation, mirrored): degrees counter-clockwise (0, 90, 180 or 270), and whether the picture is
        mirrored left to right before it is rotated. None if the angle is not a multiple of 90 degrees.
    """
    a, b, _, c, d = (float(value) for value in matrix[:5])
    mirrored = a * d - b * c < 0
    if mirrored:
        a, b = -a, -b
    degrees = math.degrees(math.atan2(-b, a))
    turns = round(degrees / 90)
    if abs(degrees - 90 * turns) > 1:
        return None
    return 90 * (turns % 4), mirrored


def turn(rgb: RgbArray, rotation: int, mirrored: bool) -> RgbArray:
    """Mirror, then rotate counter-clockwise.

    Args:
        rgb: (h, w, 3) uint8 as stored.
        rotation: 0, 90, 180 or 270 degrees counter-clockwise.
        mirrored: Mirror left to right first.

    Returns:
        (h, w, 3) or (w, h, 3) uint8 as displayed, C-contiguous; `rgb` itself if there is nothing to do.
    """
    if rotation or mirrored:
        import cv2  # ten times as fast as NumPy's strided copy: half a millisecond a 720p frame

        if mirrored:
            rgb = np.asarray(cv2.flip(rgb, 1), dtype=np.uint8)
        if rotation:
            code = {
                90: cv2.ROTATE_90_COUNTERCLOCKWISE,
                180: cv2.ROTATE_180,
                270: cv2.ROTATE_90_CLOCKWISE,
            }[rotation]
            rgb = np.asarray(cv2.rotate(rgb, code), dtype=np.uint8)
    return np.ascontiguousarray(rgb)
