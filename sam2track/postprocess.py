"""Mask logits -> what the user sees. Nothing here ever reaches the memory."""

from __future__ import annotations

import numpy as np

from sam2track.types import BoolArray, FloatArray

FILLED_LOGIT = 0.1  # just above the threshold, as the reference fills holes


def mask_at_video_size(mask_logits: FloatArray, frame_size: tuple[int, int]) -> BoolArray:
    """Resizes logits bilinearly and thresholds at 0: the edge is smooth, not a staircase.

    Args:
        mask_logits: (height, width) float32, any size.
        frame_size: (height, width) of the frame.

    Returns:
        (height, width) bool.
    """
    import cv2

    height, width = frame_size
    return np.asarray(cv2.resize(mask_logits, (width, height), interpolation=cv2.INTER_LINEAR) > 0)


def fill_holes(mask_logits: FloatArray, max_area: int) -> FloatArray:
    """Fills background islands of at most `max_area` logit pixels (8-connected), as the official predictor does.

    Args:
        mask_logits: (height, width) float32.
        max_area: In pixels of the logits; 0 fills nothing.

    Returns:
        (height, width) float32; the input itself if there is nothing to fill.
    """
    import cv2

    background = (mask_logits <= 0).astype(np.uint8)
    _, components, stats, _ = cv2.connectedComponentsWithStats(background, connectivity=8)
    small = stats[:, cv2.CC_STAT_AREA] <= max_area
    small[0] = False  # component 0 is the foreground
    if not small.any() or background.all():
        return mask_logits
    return np.where(small[components], np.float32(FILLED_LOGIT), mask_logits)
