"""A mask -> closed polygons along the edges of its pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sam2track.types import BoolArray


def mask_polygons(mask: BoolArray, tolerance: float = 0) -> list[NDArray[np.float32]]:
    """The outlines of a mask and of its holes, to be filled by the even-odd rule.

    Points are (x, y) in pixels from the frame's top left corner, so that pixel (0, 0) is the square from (0, 0) to
    (1, 1). Without simplification a pixel's centre lies inside exactly if the pixel is in the mask, and an outline
    runs along the edges of pixels but for inner corners, which it cuts by half a pixel.

    Args:
        mask: (height, width) bool.
        tolerance: How far a simplified outline may lie from the exact one, in pixels; 0 simplifies nothing. From 0.8 on
            the stairs of slanted edges become straight lines.

    Returns:
        (n, 2) float32 each, n >= 3, not closed by a repeated point; none if the mask is empty.
    """
    import cv2

    x, y, width, height = cv2.boundingRect(np.ascontiguousarray(mask).view(np.uint8))
    if width == 0:
        return []
    # On a grid of half pixels: pixels lie at odd places, their edges and corners at even ones, which dilation fills.
    # A contour through the outermost filled places then runs along the edges, not through the pixels' centres.
    grid = np.zeros((2 * height + 1, 2 * width + 1), np.uint8)
    grid[1::2, 1::2] = mask[y : y + height, x : x + width]
    outlines, _ = cv2.findContours(cv2.dilate(grid, np.ones((3, 3), np.uint8)), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    polygons = []
    for outline in outlines:
        simple = cv2.approxPolyDP(outline, 2 * tolerance, closed=True) if tolerance else outline
        points = simple if len(simple) >= 3 else outline  # else too small to be simplified
        polygons.append((points[:, 0] / 2 + (x, y)).astype(np.float32))
    return polygons
