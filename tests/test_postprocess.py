"""Mask logits -> the mask at the video's size: a smooth edge, and holes filled up to an area."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from sam2track.postprocess import FILLED_LOGIT, fill_holes, mask_at_video_size

examples = settings(deadline=None, max_examples=100)


def disc(side: int, radius: float, centre: float | None = None) -> NDArray[np.float32]:
    """(side, side): logits of a disc, its edge where they cross zero."""
    y, x = np.mgrid[:side, :side] + 0.5
    middle = side / 2 if centre is None else centre
    return (radius - np.hypot(y - middle, x - middle)).astype(np.float32)


# -- at video size ----------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("size", [(480, 854), (100, 37), (31, 256), (64, 64), (1, 1), (1, 300), (721, 1283)])
@pytest.mark.parametrize("side", [64, 256])
def test_mask_is_what_torch_says_after_bilinear_resizing(side: int, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(side * size[1])
    logits = (disc(side, side / 3) + rng.normal(scale=3, size=(side, side))).astype(np.float32)
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(logits)[None, None], size, mode="bilinear", align_corners=False
    )[0, 0].numpy()
    mask = mask_at_video_size(logits, size)
    assert (mask.shape, mask.dtype) == (size, bool)
    sure = np.abs(resized) > 0.02  # OpenCV's weights have fewer digits
    assert sure.mean() > 0.9
    np.testing.assert_array_equal(mask[sure], resized[sure] > 0)


def test_mask_of_the_logits_size_is_their_sign() -> None:
    logits = np.array([[-1, 0, 1e-6], [0.1, -1e-6, 1024]], np.float32)
    np.testing.assert_array_equal(mask_at_video_size(logits, (2, 3)), [[False, False, True], [True, False, True]])


def test_edge_is_smooth_and_not_a_staircase_of_logit_pixels() -> None:
    """A disc of 16 logits' radius, 16 times as large: the logits are resized first, and cut at zero then."""
    mask = mask_at_video_size(disc(64, 16), (1024, 1024))
    exact = disc(1024, 256) > 0
    assert (mask != exact).sum() / exact.sum() < 0.003
    staircase = np.kron(disc(64, 16) > 0, np.ones((16, 16), bool))
    assert (staircase != exact).sum() / exact.sum() > 0.02
    rows = np.flatnonzero(mask.any(axis=1))
    widths = mask[rows[0] : rows[0] + 64].sum(axis=1)
    assert len(np.unique(widths)) > 48, "nearly every row has a width of its own"


@examples
@given(st.integers(1, 40), st.integers(1, 40))
def test_nothing_stays_nothing_and_everything_stays_everything(height: int, width: int) -> None:
    absent = np.full((16, 16), -1024, np.float32)
    assert not mask_at_video_size(absent, (height, width)).any()
    assert mask_at_video_size(-absent, (height, width)).all()


def test_mask_is_not_shifted() -> None:
    logits = np.full((64, 64), -5, np.float32)
    logits[:32, :16] = 5
    mask = mask_at_video_size(logits, (640, 1280))
    expected = np.zeros((640, 1280), bool)
    expected[:320, :320] = True
    wrong = np.argwhere(mask != expected)
    assert len(wrong) < 60  # the corner is rounded, no more
    assert (np.abs(wrong - 320) <= 20).all()


def test_read_only_logits_are_taken() -> None:
    logits = disc(16, 4)
    expected = mask_at_video_size(logits, (40, 50)), fill_holes(logits, 8)
    logits.flags.writeable = False
    np.testing.assert_array_equal(mask_at_video_size(logits, (40, 50)), expected[0])
    np.testing.assert_array_equal(fill_holes(logits, 8), expected[1])


# -- holes ------------------------------------------------------------------------------------------------------------


def with_holes(*holes: list[tuple[int, int]]) -> NDArray[np.float32]:
    """(24, 24): foreground everywhere but in the holes."""
    logits = np.full((24, 24), 3, np.float32)
    for hole in holes:
        for y, x in hole:
            logits[y, x] = -2 - y / 100
    return logits


def line(row: int, length: int) -> list[tuple[int, int]]:
    return [(row, 2 + k) for k in range(length)]


@pytest.mark.parametrize("max_area", range(1, 11))
def test_holes_are_filled_exactly_up_to_the_area(max_area: int) -> None:
    holes = [line(2 * length, length) for length in range(1, 11)]
    logits = with_holes(*holes)
    filled = fill_holes(logits, max_area)
    for length, hole in enumerate(holes, start=1):
        for y, x in hole:
            assert filled[y, x] == (np.float32(FILLED_LOGIT) if length <= max_area else logits[y, x])
    np.testing.assert_array_equal(filled[logits > 0], logits[logits > 0])
    assert filled.dtype == np.float32


def test_holes_that_touch_at_a_corner_are_one() -> None:
    diagonal = [(5, 5), (6, 6), (7, 7), (8, 6)]
    logits = with_holes(diagonal)
    np.testing.assert_array_equal(fill_holes(logits, 3), logits)
    assert (fill_holes(logits, 4) > 0).all()


def test_hole_in_the_corner_of_the_picture_counts_as_one() -> None:
    assert (fill_holes(with_holes([(0, 0), (0, 1)], [(23, 23)]), 2) > 0).all()


def test_foreground_islands_are_left_alone() -> None:
    logits = -with_holes([(4, 4)], line(8, 3))
    np.testing.assert_array_equal(fill_holes(logits, 8), logits)


def test_logit_of_zero_is_background() -> None:
    logits = with_holes()
    logits[9, 9] = 0
    assert fill_holes(logits, 1)[9, 9] == np.float32(FILLED_LOGIT)


def test_input_is_left_alone() -> None:
    logits = with_holes(line(4, 3))
    before = logits.copy()
    filled = fill_holes(logits, 8)
    assert filled is not logits
    np.testing.assert_array_equal(logits, before)


def test_area_of_zero_fills_nothing() -> None:
    logits = with_holes([(4, 4)])
    np.testing.assert_array_equal(fill_holes(logits, 0), logits)


@pytest.mark.parametrize("side", [8, 24, 256])
def test_absent_object_is_not_filled_into_something(side: int) -> None:
    absent = np.full((side, side), -1024, np.float32)
    np.testing.assert_array_equal(fill_holes(absent, 8), absent)


def test_absent_object_is_not_filled_into_something_by_a_large_area_either() -> None:
    absent = np.full((24, 24), -1024, np.float32)
    np.testing.assert_array_equal(fill_holes(absent, 24 * 24), absent)


@examples
@given(hnp.arrays(np.int8, (12, 12), elements=st.sampled_from([-1, -1, 1, 1, 1])), st.integers(0, 60))
def test_holes_are_those_of_a_flood_fill(signs: NDArray[np.int8], max_area: int) -> None:
    signs[6, 6] = 1  # something is there
    logits = signs.astype(np.float32)
    expected = logits.copy()
    for hole in flood_fill(logits <= 0):
        if len(hole) <= max_area:
            for place in hole:
                expected[place] = FILLED_LOGIT
    np.testing.assert_array_equal(fill_holes(logits, max_area), expected)


def flood_fill(mask: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
    """The pixels of every 8-connected component."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    components = []
    while left:
        component, edge = [], [left.pop()]
        while edge:
            y, x = edge.pop()
            component.append((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            edge += near
        components.append(component)
    return components
