"""Mask logits -> what the user sees. Nothing here ever reaches the memory."""

from __future__ import annotations

import numpy as np

from sam2track.options import TrackingOptions
from sam2track.types import BoolArray, FloatArray, MaskOutcome, ObjectResult

FILLED_LOGIT = 0.1  # just above the threshold, as the reference fills holes


def object_result(outcome: MaskOutcome, frame_size: tuple[int, int], options: TrackingOptions) -> ObjectResult:
    """What the user is shown of one object on one frame of (height, width) pixels."""
    logits = fill_holes(outcome.mask_logits, options.fill_holes) if options.fill_holes else outcome.mask_logits
    mask = mask_at_video_size(logits, frame_size)
    if _is_doubtful(outcome, options):
        mask = np.zeros_like(mask)
    read_only = outcome.mask_logits.view()  # the memory holds the same numbers
    read_only.flags.writeable = False
    return ObjectResult(mask, outcome.object_score, outcome.predicted_iou, read_only, is_present(outcome, options))


def is_present(outcome: MaskOutcome, options: TrackingOptions) -> bool:
    """Whether the user is told that the object is there."""
    return outcome.object_score > 0 and not _is_doubtful(outcome, options)


def _is_doubtful(outcome: MaskOutcome, options: TrackingOptions) -> bool:
    return options.report_min_iou is not None and outcome.predicted_iou < options.report_min_iou


def mask_at_video_size(mask_logits: FloatArray, frame_size: tuple[int, int]) -> BoolArray:
    """Resizes logits bilinearly and thresholds at 0: the edge is smooth, not a staircase.

    Args:
        mask_logits: (height, width) float32, any size.
        frame_size: (height, width) of the frame.

    Returns:
        (height, width) bool.
    """
    return np.asarray(resize_logits(mask_logits, frame_size) > 0)


def resize_logits(mask_logits: FloatArray, size: tuple[int, int]) -> FloatArray:
    """Bilinear interpolation with pixel centres aligned, as the references do; size is (height, width)."""
    import cv2

    height, width = size
    return np.asarray(cv2.resize(mask_logits, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)


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
