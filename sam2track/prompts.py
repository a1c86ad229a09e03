"""Prompts in the user's pixels -> what the mask decoder takes. Validates, merges, and turns masks into logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sam2track.errors import PromptError
from sam2track.spec import MaskPromptDownsample
from sam2track.types import BoolArray, FloatArray, LabelArray, MaskOutcome, Prompt

LABEL_OUTSIDE, LABEL_INSIDE, LABEL_BOX_TOP_LEFT, LABEL_BOX_BOTTOM_RIGHT = 0, 1, 2, 3
MASK_LOGIT = 10.0  # a mask prompt's pixels become +-10: sigmoid(10) is as good as 1
PREVIOUS_LOGIT_LIMIT = 32.0
LARGEST_COORDINATE = 1e9
NO_PROMPT = Prompt(np.zeros((0, 2), np.float32), np.zeros(0, np.int32))


def make_prompt(
    frame_size: tuple[int, int],
    image_size: int,
    *,
    points: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    box: Sequence[float] | npt.NDArray[np.generic] | None = None,
    mask: npt.ArrayLike | None = None,
) -> Prompt:
    """Validates a prompt in the frame's pixels and brings it to the model's.

    Args:
        frame_size: (height, width) of the frame.
        image_size: S, the side of the model's input.
        points: (n, 2), (x, y) in the frame's pixels.
        labels: (n,), 1 inside the object, 0 outside; all 1 by default.
        box: (x0, y0, x1, y1) in the frame's pixels; the corners may be swapped, and lie partly outside.
        mask: (height, width), bool or 0/255 or 0/1; resized if it has another size. Alone, without points or box.

    Raises:
        PromptError: Names what was got, what is expected and what to do.
    """
    if mask is not None:
        if points is not None or box is not None or labels is not None:
            raise PromptError("got a mask together with points or a box; give a mask alone: it is the answer itself")
        empty = np.zeros((0, 2), np.float32)
        return Prompt(empty, np.zeros(0, np.int32), _mask_prompt(mask, image_size))
    if points is None and box is None:
        raise PromptError("got no prompt; give at least one of points, box or mask")
    if labels is not None and points is None:
        raise PromptError("got labels without points; give one label for each point")
    coordinates, point_labels = _points(points, labels, frame_size)
    if box is not None:  # always before the points
        coordinates = np.concatenate([_box(box, frame_size), coordinates])
        corners = np.array([LABEL_BOX_TOP_LEFT, LABEL_BOX_BOTTOM_RIGHT], np.int32)
        point_labels = np.concatenate([corners, point_labels])
    height, width = frame_size
    scale = np.array([image_size / width, image_size / height], np.float64)
    return Prompt((coordinates * scale).astype(np.float32), point_labels)


def _points(
    points: npt.ArrayLike | None, labels: npt.ArrayLike | None, frame_size: tuple[int, int]
) -> tuple[npt.NDArray[np.float64], LabelArray]:
    if points is None:
        return np.zeros((0, 2)), np.zeros(0, np.int32)
    array = _numbers(points, "points", "a list of (x, y)")
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise PromptError(f"got points of shape {array.shape}; expected (n, 2) with n >= 1: a list of (x, y)")
    height, width = frame_size
    outside = ~((array >= 0) & (array < (width, height))).all(axis=1)
    if outside.any():
        x, y = array[outside][0]
        raise PromptError(
            f"the point ({x:g}, {y:g}) lies outside the frame; expected 0 <= x < {width} and 0 <= y < {height}, "
            "in pixels of the displayed frame"
        )
    return array, _labels(labels, len(array))


def _labels(labels: npt.ArrayLike | None, count: int) -> LabelArray:
    if labels is None:
        return np.full(count, LABEL_INSIDE, np.int32)
    array = _numbers(labels, "labels", "a list of 0 and 1")
    if array.shape != (count,):
        raise PromptError(f"got labels of shape {array.shape} for {count} points; expected one label for each point")
    unknown = array[~np.isin(array, (LABEL_OUTSIDE, LABEL_INSIDE))]
    if len(unknown):
        raise PromptError(f"got the label {unknown[0]:g}; expected 1 (inside the object) or 0 (outside)")
    return array.astype(np.int32)


def _box(box: Sequence[float] | npt.NDArray[np.generic], frame_size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Two corners, top-left first."""
    array = _numbers(box, "box", "(x0, y0, x1, y1)")
    if array.shape != (4,):
        raise PromptError(f"got a box of shape {array.shape}; expected 4 numbers: x0, y0, x1, y1")
    corners = np.sort(array.reshape(2, 2), axis=0)
    height, width = frame_size
    if (corners[0] == corners[1]).any():
        raise PromptError(f"the box {array.tolist()} is empty; expected x0 != x1 and y0 != y1")
    if (corners[1] <= 0).any() or (corners[0] >= (width, height)).any():
        raise PromptError(f"the box {array.tolist()} lies outside the frame of {width}x{height} pixels")
    return corners


def _numbers(values: npt.ArrayLike, name: str, expected: str) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "buif":
        raise PromptError(f"got {values!r:.80} as {name}; expected {expected}")
    array = array.astype(np.float64)
    if not (np.abs(array) < LARGEST_COORDINATE).all():
        raise PromptError(f"got a number that is not finite in {name}, or beyond 1e9; expected {expected}")
    return array


def _mask_prompt(mask: npt.ArrayLike, image_size: int) -> BoolArray:
    """(S, S) bool; another size is resized antialiased and cut at one half, as the reference does."""
    try:
        array = np.asarray(mask)
    except (TypeError, ValueError):
        raise PromptError(f"got {mask!r:.80} as a mask; expected (height, width), bool or 0/255") from None
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "buif":
        raise PromptError(
            f"got a mask of shape {array.shape} and type {array.dtype}; expected (height, width), bool or 0/255"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise PromptError("got a mask with values that are not finite; expected bool or 0/255")
    largest = array.max()
    if 1 < largest <= 127:
        raise PromptError(
            f"got a mask whose largest value is {largest:g}; expected bool, 0/1 or 0/255: of a picture of labels "
            "give one label, as labels == 3"
        )
    solid = (array > (127 if largest > 1 else 0.5)).astype(np.float32)
    if not solid.any():
        raise PromptError("got an empty mask; expected at least one pixel of the object: True, 1 or 255")
    if solid.shape != (image_size, image_size):
        rows, columns = (triangle_filter(length, image_size) for length in solid.shape)
        solid = rows @ solid @ columns.T
    inside = solid >= 0.5
    if not inside.any():
        raise PromptError(
            f"the mask vanishes at the model's input size of {image_size} pixels; the object is too small"
        )
    return inside


def merge_prompts(earlier: Prompt | None, new: Prompt, *, refines: bool = False) -> Prompt:
    """One object's prompts on one frame: points add up, a new box or mask replaces the earlier one.

    Raises:
        PromptError: Together they say only where the object is not.
    """
    if earlier is None or earlier.mask is not None or new.mask is not None:
        merged = new
    else:
        old_corner, new_corner = (prompt.labels >= LABEL_BOX_TOP_LEFT for prompt in (earlier, new))
        box = new if new_corner.any() else earlier
        box_corner = new_corner if new_corner.any() else old_corner
        merged = Prompt(
            np.concatenate([box.points[box_corner], earlier.points[~old_corner], new.points[~new_corner]]),
            np.concatenate([box.labels[box_corner], earlier.labels[~old_corner], new.labels[~new_corner]]),
        )
    if not refines and merged.mask is None and (merged.labels == LABEL_OUTSIDE).all():
        raise PromptError("got only points outside the object; add at least one point inside it, or a box")
    return merged


def clamp_previous_logits(mask_logits: FloatArray) -> FloatArray:
    """Earlier logits as the decoder's mask input, clamped as in the reference."""
    return np.clip(mask_logits, -PREVIOUS_LOGIT_LIMIT, PREVIOUS_LOGIT_LIMIT)


def mask_prompt_input(mask: BoolArray, downsample: MaskPromptDownsample) -> FloatArray:
    """The decoder's mask input for a mask prompt: the learned 4x4 convolution of stride 4.

    Args:
        mask: (S, S) bool.
        downsample: The model's kernel.

    Returns:
        (S / 4, S / 4) float32.
    """
    side = mask.shape[0] // 4
    blocks = mask.reshape(side, 4, side, 4).astype(np.float32)
    kernel = np.array(downsample.weight, np.float32)
    convolved: FloatArray = np.einsum("yixj,ij->yx", blocks, kernel) + np.float32(downsample.bias)
    return convolved


def mask_prompt_output(mask: BoolArray) -> MaskOutcome:
    """A mask prompt as if the decoder had said it: logits of +-10, present, of perfect quality.

    Args:
        mask: (S, S) bool, not empty.

    Returns:
        The outcome, with logits (S / 4, S / 4). As in the official predictor the memory is made from these,
        not from the finer mask.
    """
    logits = np.where(mask, np.float32(MASK_LOGIT), np.float32(-MASK_LOGIT))
    shrink = triangle_filter(mask.shape[0], mask.shape[0] // 4)
    return MaskOutcome(shrink @ logits @ shrink.T, predicted_iou=1.0, object_score=MASK_LOGIT)


def triangle_filter(source: int, target: int) -> FloatArray:
    """Antialiased linear resizing of one axis, as torch and Pillow do it: (target, source) float32."""
    scale = source / target
    centre = (np.arange(target) + 0.5) * scale
    distance = np.abs(np.arange(source) + 0.5 - centre[:, None]) / max(scale, 1.0)
    weight = np.clip(1 - distance, 0, None)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), np.float32)
