"""Region similarity J, contour accuracy F and their decay, as the DAVIS benchmark defines them.

Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object Segmentation", CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sam2track.types import BoolArray

CONTOUR_TOLERANCE = 0.008  # of the frame's diagonal


def region_similarity(mask: BoolArray, truth: BoolArray) -> float:
    """J: intersection over union of two (height, width) masks; 1 if both are empty."""
    union = np.count_nonzero(mask | truth)
    return 1.0 if union == 0 else float(np.count_nonzero(mask & truth) / union)


def contour_accuracy(mask: BoolArray, truth: BoolArray, *, tolerance: float = CONTOUR_TOLERANCE) -> float:
    """F: harmonic mean of precision and recall of the contour; 1 if neither mask has one.

    A pixel of one contour is right if the other contour comes within `tolerance` of the frame's diagonal.
    """
    import cv2

    found, wanted = _contour(mask), _contour(truth)
    n_found, n_wanted = np.count_nonzero(found), np.count_nonzero(wanted)
    if n_found == 0 or n_wanted == 0:
        return float(n_found == n_wanted)
    near = _disk(int(np.ceil(tolerance * np.hypot(*mask.shape))))
    near_found, near_wanted = (cv2.dilate(contour.astype(np.uint8), near) > 0 for contour in (found, wanted))
    precision = np.count_nonzero(found & near_wanted) / n_found
    recall = np.count_nonzero(wanted & near_found) / n_wanted
    return 0.0 if precision + recall == 0 else float(2 * precision * recall / (precision + recall))


def decay(values: Sequence[float]) -> float:
    """By how much a score over the frames falls from the first quarter to the last; quarters share their ends."""
    edges = np.round(np.linspace(0, len(values) - 1, 5) + 1e-10).astype(int)
    first, last = values[edges[0] : edges[1] + 1], values[edges[3] : edges[4] + 1]
    return float(np.mean(first) - np.mean(last))


def _contour(mask: BoolArray) -> BoolArray:
    """Pixels that differ from the pixel right of them, below them, or below and right."""
    contour = np.zeros_like(mask)
    contour[:, :-1] |= mask[:, :-1] ^ mask[:, 1:]
    contour[:-1] |= mask[:-1] ^ mask[1:]
    contour[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return contour


def _disk(radius: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return np.asarray(y**2 + x**2 <= radius**2, np.uint8)
