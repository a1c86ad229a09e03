"""From a tracked object to what is written: each step against its definition, and all off against the mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from sam2track.errors import OptionsError
from sam2track.matte import MatteOptions, object_alpha, union_alpha, written_mask
from sam2track.postprocess import resize_logits
from sam2track.types import FrameResult, ObjectResult, VideoFrame

Mask = NDArray[np.bool_]


def found(
    logits: NDArray[np.floating[Any]], size: tuple[int, int] | None = None, mask: Mask | None = None
) -> ObjectResult:
    """An object whose mask is where its logits, resized, are above 0."""
    logits = logits.astype(np.float32)
    if mask is None:
        mask = resize_logits(logits, size or (logits.shape[0], logits.shape[1])) > 0
    return ObjectResult(mask=mask, object_score=3.0, predicted_iou=0.9, mask_logits=logits)


def of_mask(mask: Mask) -> ObjectResult:
    return found(np.where(mask, 8.0, -8.0), mask=mask)


def blobs(seed: int, size: tuple[int, int] = (16, 24)) -> NDArray[np.floating[Any]]:
    """Smooth random logits with several parts and holes."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 3, (5, 6)).astype(np.float32)
    return resize_logits(coarse, size) + rng.normal(0, 0.5, size)


masks = hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12)))


def parts(mask: Mask, corners: bool) -> list[set[tuple[int, int]]]:
    """Connected parts, by flood fill; over corners or over sides only."""
    steps = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (corners or dy == 0 or dx == 0)]
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found_parts = []
    while left:
        part, todo = set(), [left.pop()]
        while todo:
            y, x = todo.pop()
            part.add((y, x))
            for near in ((y + dy, x + dx) for dy, dx in steps):
                if near in left:
                    left.remove(near)
                    todo.append(near)
        found_parts.append(part)
    return found_parts


# ---- all off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_all_off_is_exactly_the_mask(seed: int) -> None:
    one = found(blobs(seed), (90, 130))
    assert written_mask(one, MatteOptions()) is one.mask
    assert np.array_equal(one.mask, resize_logits(one.mask_logits, (90, 130)) > 0)
    for kind, top in ((np.uint8, 255), (np.uint16, 65535)):
        alpha = object_alpha(one, MatteOptions(), kind)
        assert alpha.dtype == kind and np.array_equal(alpha, one.mask.astype(kind) * top)


# ---- parts and holes -------------------------------------------------------------------------------


@given(masks, st.integers(0, 12), st.booleans())
def test_parts_are_those_of_a_flood_fill(mask: Mask, min_area: int, largest: bool) -> None:
    kept = written_mask(of_mask(mask), MatteOptions(min_area=min_area, largest=largest))
    expected = [part for part in parts(mask, corners=True) if len(part) >= min_area]
    if largest and expected:
        biggest = max(map(len, expected))
        assert kept.sum() == biggest, "one of the largest, whole"
        expected = [part for part in expected if len(part) == biggest and kept[next(iter(part))]]
    wanted = np.zeros_like(mask)
    for pixel in (pixel for part in expected for pixel in part):
        wanted[pixel] = True
    assert np.array_equal(kept, wanted)


@given(masks, st.integers(1, 12))
def test_holes_are_those_of_a_flood_fill(mask: Mask, max_area: int) -> None:
    filled = written_mask(of_mask(mask), MatteOptions(fill_holes=max_area))
    height, width = mask.shape
    wanted = mask.copy()
    for hole in parts(~mask, corners=False):
        touches = any(y in (0, height - 1) or x in (0, width - 1) for y, x in hole)
        if len(hole) <= max_area and not touches:
            for pixel in hole:
                wanted[pixel] = True
    assert np.array_equal(filled, wanted)


def test_the_mask_itself_is_never_changed() -> None:
    one = found(blobs(1), (64, 96))
    before = one.mask.copy(), one.mask_logits.copy()
    options = MatteOptions(soft=True, feather=2, grow=3, fill_holes=50, min_area=20, largest=True)
    object_alpha(one, options, np.uint8)
    written_mask(one, options)
    assert np.array_equal(one.mask, before[0]) and np.array_equal(one.mask_logits, before[1])


# ---- soft edges ------------------------------------------------------------------------------------


def test_soft_alpha_is_the_stated_curve() -> None:
    logits = np.linspace(-6, 6, 49, dtype=np.float32)[None].repeat(3, axis=0)
    alpha = object_alpha(found(logits), MatteOptions(soft=True), np.uint16)[1] / 65535
    t = np.clip(0.5 + logits[1] / 4, 0, 1)
    assert np.abs(alpha - (3 * t**2 - 2 * t**3)).max() < 2 / 65535
    assert alpha[logits[1] <= -2].max() == 0 and alpha[logits[1] >= 2].min() == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_soft_alpha_cut_at_a_half_is_the_mask(seed: int, kind: type[np.uint8] | type[np.uint16]) -> None:
    one = found(blobs(seed), (97, 131))
    alpha: NDArray[Any] = object_alpha(one, MatteOptions(soft=True), kind)
    assert np.array_equal(alpha > np.iinfo(kind).max / 2, one.mask)
    assert ((alpha > 0) & (alpha < np.iinfo(kind).max)).sum() > 200, "there is an edge between"


def test_the_least_logit_decides_on_which_side_of_a_half_alpha_is() -> None:
    logits = np.array([[1e-7, -1e-7, 0.0, 1e-30, 3.0]], np.float32)
    for kind in (np.uint8, np.uint16):
        alpha: NDArray[Any] = object_alpha(found(logits), MatteOptions(soft=True), kind)
        assert (alpha[0] > np.iinfo(kind).max / 2).tolist() == [True, False, False, True, True]


def test_soft_alpha_has_no_stairs() -> None:
    """A slanted edge in coarse logits: its alpha follows the true edge, not the coarse pixels."""
    y, x = np.mgrid[:16, :16]
    logits = (x - 0.37 * y - 4) * 2.0  # eight video pixels each; two logits a coarse pixel
    one = found(logits, (128, 128))
    alpha = object_alpha(one, MatteOptions(soft=True), np.uint8).astype(float)
    rows = np.arange(24, 104)
    crossing = np.array([np.interp(127.5, alpha[row], np.arange(128)) for row in rows])
    expected = (4 + 0.37 * ((rows + 0.5) / 8 - 0.5) + 0.5) * 8 - 0.5
    assert np.abs(crossing - expected).max() < 0.1


def test_a_filled_hole_leaves_no_ring_and_a_removed_speck_no_haze() -> None:
    y, x = np.mgrid[:32, :32]
    logits = 12 - np.hypot(x - 12, y - 12) * 1.2
    logits = np.where(np.hypot(x - 12, y - 12) < 2, -3.0, logits)  # a hole
    logits = np.where(np.hypot(x - 28, y - 28) < 1.5, 3.0, np.maximum(logits, -20))  # a speck
    one = found(logits, (128, 128))
    assert len(parts(one.mask, corners=True)) == 2
    alpha = object_alpha(one, MatteOptions(soft=True, fill_holes=2000, largest=True), np.uint8)
    assert (alpha[34:66, 34:66] == 255).all()
    assert (alpha[90:, 90:] == 0).all()
    plain = object_alpha(one, MatteOptions(soft=True), np.uint8)
    assert plain[50, 50] < 40
    assert plain[90:, 90:].max() > 128
    far = np.hypot(*(np.mgrid[:128, :128] - 50)) > 30  # the outer edge stays as it was
    far[80:, 80:] = False
    assert np.array_equal(alpha[far], plain[far])


def test_an_empty_mask_has_no_alpha_whatever_its_logits_say() -> None:
    """As where the object is doubtful."""
    empty = np.zeros((40, 60), bool)
    one = found(np.full((10, 15), 5.0), mask=empty)
    for options in (MatteOptions(soft=True), MatteOptions(soft=True, feather=3, grow=5), MatteOptions(grow=4)):
        assert not object_alpha(one, options, np.uint8).any()
        assert not written_mask(one, options).any()


# ---- moving and blurring the edge ------------------------------------------------------------------


def distance_to(mask: Mask) -> NDArray[np.floating[Any]]:
    """Of each pixel to the nearest one of the mask."""
    y, x = np.mgrid[: mask.shape[0], : mask.shape[1]]
    places = np.argwhere(mask)
    return np.sqrt(((y[..., None] - places[:, 0]) ** 2 + (x[..., None] - places[:, 1]) ** 2).min(axis=-1))


@pytest.mark.parametrize("pixels", [1, 3, 8])
def test_grow_and_shrink_move_the_edge_by_a_disc(pixels: int) -> None:
    one = found(blobs(2), (48, 64))
    grown = written_mask(one, MatteOptions(grow=pixels))
    assert np.array_equal(grown, distance_to(one.mask) <= pixels)
    shrunk = written_mask(one, MatteOptions(shrink=pixels))
    assert np.array_equal(shrunk, distance_to(~one.mask) > pixels), "the frame's border is no edge"


def test_growing_far_is_still_round() -> None:
    mask = np.zeros((121, 121), bool)
    mask[60, 60] = True
    grown = written_mask(of_mask(mask), MatteOptions(grow=50))
    distance = distance_to(mask)
    assert grown[distance <= 47].all() and not grown[distance > 51].any()


@pytest.mark.parametrize("sigma", [1, 2, 7.5])
def test_feather_is_a_gaussian(sigma: float) -> None:
    mask = np.zeros((60, 100), bool)
    mask[:, :50] = True
    alpha = object_alpha(of_mask(mask), MatteOptions(feather=sigma), np.uint16) / 65535
    expected = [0.5 * math.erfc((x - 49.5) / sigma / math.sqrt(2)) for x in range(100)]
    assert np.abs(alpha - expected).max() < 0.01 / sigma, "sampled at pixels, cut off at 4 sigma"
    assert (alpha[:, 0] > 0.999).all(), "cut off by the frame, not by an edge"


@pytest.mark.parametrize(
    "options",
    [
        MatteOptions(soft=True),
        MatteOptions(soft=True, feather=1.5),
        MatteOptions(soft=True, grow=5, feather=2),
        MatteOptions(shrink=2, feather=3),
        MatteOptions(soft=True, shrink=2, largest=True),
    ],
    ids=str,
)
def test_where_in_the_frame_an_object_is_does_not_matter(options: MatteOptions) -> None:
    """Only a part of the frame is computed; here the same object twice."""
    y, x = np.mgrid[:20, :20]
    small = 6 - np.hypot(x - 9.3, y - 10.1) * 1.7
    frames = []
    for row, column in ((40, 30), (61, 77)):
        logits = np.full((120, 140), -20.0)
        logits[row : row + 20, column : column + 20] = np.maximum(small, -20)
        alpha = object_alpha(found(logits), options, np.uint8)
        frames.append(alpha[row - 30 : row + 50, column - 30 : column + 50])
    assert np.array_equal(*frames)
    assert frames[0].any()


def test_feathering_comes_after_growing() -> None:
    one = found(blobs(2), (48, 64))
    both = object_alpha(one, MatteOptions(grow=4, feather=2), np.uint8)
    grown = of_mask(written_mask(one, MatteOptions(grow=4)))
    assert np.array_equal(both, object_alpha(grown, MatteOptions(feather=2), np.uint8))


def test_soft_edges_move_whole() -> None:
    """Growing keeps their width."""
    logits = np.repeat((np.arange(64) - 30.0)[None], 32, axis=0)
    still = object_alpha(found(logits), MatteOptions(soft=True), np.uint8)[16]
    grown = object_alpha(found(logits), MatteOptions(soft=True, grow=5), np.uint8)[16]
    assert np.array_equal(grown[:-5], still[5:])


def test_several_objects_are_joined_by_the_largest_alpha() -> None:
    one, other = found(blobs(3), (40, 60)), found(blobs(4), (40, 60))
    frame = VideoFrame(np.zeros((40, 60, 3), np.uint8), 0)
    options = MatteOptions(soft=True)
    joined = union_alpha(frame, FrameResult(0, {1: one, "b": other}), options, np.uint8)
    each = [object_alpha(found_, options, np.uint8) for found_ in (one, other)]
    assert np.array_equal(joined, np.maximum(*each))
    assert not union_alpha(frame, FrameResult(0, {}), options, np.uint8).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grow": -1}, "grow -1"),
        ({"shrink": 1000}, "0 .off. to 256"),
        ({"feather": math.nan}, "feather nan"),
        ({"feather": -0.1}, "feather -0.1"),
        ({"fill_holes": -1}, "fill_holes -1"),
        ({"min_area": -5}, "min_area -5"),
        ({"grow": 1, "shrink": 1}, "give one of them"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        MatteOptions(**options)
