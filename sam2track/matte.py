"""A tracked object -> the mask or the soft alpha that is written, with the clean-up that editors expect.

The steps, each off by default, in this order, always in pixels of the video:

1. `largest`, `min_area`, `fill_holes` on the mask.
2. `soft`: alpha from the logits, enlarged bilinearly to the video's size. With t = clip(0.5 + logit / 4, 0, 1)
   alpha is 3t² - 2t³: 0 below a logit of -2, a half at 0, 1 above 2. It is at least a half on every
   pixel of the mask and below it on every other, so that cutting it at a half gives back the mask. Around holes that
   were filled and specks that were removed the edge goes with them, up to two logit pixels.
3. `grow` or `shrink`: the edge moves by a disc of that radius, soft or not.
4. `feather`: a Gaussian blur. The frame's border is not an edge: what is cut off by it stays opaque there.

With all of them off, what is written is exactly the tracker's mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import OptionsError
from sam2track.postprocess import resize_logits
from sam2track.types import BoolArray, FloatArray, FrameResult, ObjectResult, VideoFrame

_Kind = TypeVar("_Kind", np.uint8, np.float32)
Level = TypeVar("Level", np.uint8, np.uint16)

# The logits, on both sides of 0, between which soft alpha goes from 0 to 1. With the built-in model on the example clip
# (a logit pixel is 13 video pixels wide) the edge is 4 pixels wide then, and 0.1 % of the inside is not opaque; with
# 4.0 it is 8 pixels and 1.3 %.
SOFT_RANGE = 2.0
_FRINGE_LOGIT_PIXELS = 2
_MAX_PIXELS = 256  # of growing, shrinking and feathering
_DISC = 8  # larger discs are made of such steps: a sum of discs is a disc


@dataclass(frozen=True, slots=True, kw_only=True)
class MatteOptions:
    """What is done to a mask before it is written; `sam2track.matte` says how.

    Attributes:
        soft: A soft edge from the logits, instead of a hard one.
        feather: Standard deviation of a Gaussian blur, in pixels, 0 to 256.
        grow: Move the edge outwards by so many pixels, 0 to 256.
        shrink: Or inwards.
        fill_holes: Fill holes of at most so many pixels (those that do not touch the frame's border).
        min_area: Remove parts of fewer pixels.
        largest: Keep the largest part only.

    Parts hold together over corners as well, holes over sides only.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where it is part of a JSON document

    soft: bool = False
    feather: float = 0
    grow: int = 0
    shrink: int = 0
    fill_holes: int = 0
    min_area: int = 0
    largest: bool = False

    def __post_init__(self) -> None:
        for name in ("feather", "grow", "shrink"):
            if not 0 <= getattr(self, name) <= _MAX_PIXELS:
                raise OptionsError(f"got {name} {getattr(self, name)}; expected 0 (off) to {_MAX_PIXELS} pixels")
        for name in ("fill_holes", "min_area"):
            if getattr(self, name) < 0:
                raise OptionsError(f"got {name} {getattr(self, name)}; expected 0 (off) or more pixels")
        if self.grow and self.shrink:
            raise OptionsError(f"got grow {self.grow} and shrink {self.shrink}; give one of them")

    @property
    def has_soft_edge(self) -> bool:
        """Whether there is anything between inside and outside."""
        return self.soft or self.feather > 0


def written_mask(found: ObjectResult, options: MatteOptions) -> BoolArray:
    """The mask that is written: steps 1 and 3.

    Args:
        found: One object on one frame.
        options: `soft` and `feather` do not matter.

    Returns:
        (height, width) bool; `found.mask` itself if nothing is to be done.
    """
    mask = _cleaned(found.mask, options)
    if not (options.grow or options.shrink):
        return mask
    return _moved(mask.view(np.uint8), options).view(np.bool_)


def object_alpha(found: ObjectResult, options: MatteOptions, kind: type[Level]) -> NDArray[Level]:
    """The alpha of one object: all steps.

    Returns:
        (height, width) uint8 or uint16, as `kind` says; 0 outside, the largest value inside. 0 everywhere if the
        mask is empty.
    """
    top = np.iinfo(kind).max
    alpha = np.zeros(found.mask.shape, kind)
    mask = _cleaned(found.mask, options)
    if not options.has_soft_edge:
        alpha[written_mask(found, options)] = top
        return alpha
    logits = resize_logits(found.mask_logits, (mask.shape[0], mask.shape[1])) if options.soft else None
    window = _window(mask, logits, options)
    if window is None:
        return alpha
    levels = np.asarray(mask[window], np.float32)
    if logits is not None:
        scale = mask.shape[0] / found.mask_logits.shape[0], mask.shape[1] / found.mask_logits.shape[1]
        levels = _softened(mask[window], logits[window], math.ceil(_FRINGE_LOGIT_PIXELS * max(scale)))
    levels = _feathered(_moved(levels, options), options.feather)
    # A pixel of the mask has more than half of the levels, whatever is lost in rounding.
    alpha[window] = np.ceil(np.clip(levels, 0, 1) * top - 0.5)
    return alpha


def union_alpha(frame: VideoFrame, result: FrameResult, options: MatteOptions, kind: type[Level]) -> NDArray[Level]:
    """One alpha for all objects on a frame: the largest of theirs at each pixel.

    Returns:
        (height, width) uint8 or uint16, as `kind` says.
    """
    alpha = np.zeros(frame.rgb.shape[:2], kind)
    for found in result.objects.values():
        np.maximum(alpha, object_alpha(found, options, kind), out=alpha)
    return alpha


# -- step 1 -----------------------------------------------------------------------------------------------


def _cleaned(mask: BoolArray, options: MatteOptions) -> BoolArray:
    if not (options.largest or options.min_area > 1 or options.fill_holes):
        return mask
    window = _bounds(mask)
    if window is None:
        return mask
    before = part = mask[window]
    if options.largest or options.min_area > 1:
        part = _without_small_parts(part, options)
    if options.fill_holes:
        part = _without_small_holes(part, options.fill_holes)
    if part is before:
        return mask
    cleaned = np.zeros_like(mask)
    cleaned[window] = part
    return cleaned


def _without_small_parts(mask: BoolArray, options: MatteOptions) -> BoolArray:
    components, stats = _components(mask, 8)
    areas = stats[1:, 4]  # without component 0, the background
    if areas.size == 0:
        return mask
    keep = areas >= options.min_area
    if options.largest:
        keep &= np.arange(areas.size) == areas.argmax()
    return mask if keep.all() else np.asarray(np.concatenate([[False], keep])[components])


def _without_small_holes(mask: BoolArray, max_area: int) -> BoolArray:
    # A hole lies within the bounds of its mask, so whatever touches their border is none.
    components, stats = _components(~mask, 4)
    height, width = mask.shape
    x, y, w, h, area = stats.T
    fill = (area <= max_area) & (x > 0) & (y > 0) & (x + w < width) & (y + h < height)
    fill[0] = False  # the mask itself
    return np.asarray(mask | fill[components]) if fill.any() else mask


def _bounds(mask: BoolArray, margin: int = 0) -> tuple[slice, slice] | None:
    """Rows and columns of the smallest box around a mask, and a margin; None if it is empty."""
    import cv2

    x, y, width, height = cv2.boundingRect(np.ascontiguousarray(mask).view(np.uint8))
    if width == 0:
        return None
    return slice(max(0, y - margin), y + height + margin), slice(max(0, x - margin), x + width + margin)


def _components(mask: BoolArray, connectivity: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Component of each pixel, and (x, y, width, height, area) of each component."""
    import cv2

    levels = np.ascontiguousarray(mask).view(np.uint8)
    _, components, stats, _ = cv2.connectedComponentsWithStats(levels, connectivity=connectivity)
    return np.asarray(components, np.int32), np.asarray(stats, np.int32)


# -- steps 2 to 4 -----------------------------------------------------------------------------------------


def _window(mask: BoolArray, logits: FloatArray | None, options: MatteOptions) -> tuple[slice, slice] | None:
    """The part of the frame outside of which alpha is 0; None if all of it is."""
    if not mask.any():
        return None
    support = mask if logits is None else mask | (logits > -SOFT_RANGE)
    # Beyond four standard deviations a Gaussian is below one level of 8 bits, and cv2 cuts it off there.
    return _bounds(support, options.grow + math.ceil(4 * options.feather) + 1)


def _softened(mask: BoolArray, logits: FloatArray, fringe: int) -> FloatArray:
    """Step 2 on a part of the frame: (h, w) float32 in [0, 1]."""
    import cv2

    ramp = np.clip(0.5 + logits / (2 * SOFT_RANGE), 0, 1)
    ramp *= ramp * (3 - 2 * ramp)
    raw = logits > 0
    near = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * fringe + 1, 2 * fringe + 1))
    for changed, inside, level in ((mask & ~raw, mask, 1), (raw & ~mask, ~mask, 0)):
        if changed.any():
            ramp[cv2.dilate(changed.view(np.uint8), near).view(np.bool_) & inside] = level
    half = np.float32(0.5)
    # Strictly more than a half inside, where rounding would lose it.
    ramp = np.where(mask, np.maximum(ramp, np.nextafter(half, np.float32(1))), np.minimum(ramp, half))
    return np.asarray(ramp, np.float32)


def _moved(levels: NDArray[_Kind], options: MatteOptions) -> NDArray[_Kind]:
    """Step 3, on any kind of levels."""
    import cv2

    apply, radius = (cv2.dilate, options.grow) if options.grow else (cv2.erode, options.shrink)
    while radius > 0:
        step = min(radius, _DISC)
        rows, columns = np.ogrid[-step : step + 1, -step : step + 1]
        disc = (rows**2 + columns**2 <= step**2).astype(np.uint8)
        levels = np.asarray(apply(levels, disc), levels.dtype)
        radius -= step
    return levels


def _feathered(levels: FloatArray, sigma: float) -> FloatArray:
    """Step 4."""
    import cv2

    if sigma <= 0:
        return levels
    return np.asarray(cv2.GaussianBlur(levels, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE), np.float32)
