"""A frame in the user's pixels -> the vision encoder's input: squashed, antialiased, normalised, RGB."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from fakes import fake_constants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sam2track.errors import FrameError
from sam2track.preprocess import check_frame, frame_to_pixel_values, resize_frame

CONSTANTS = fake_constants().model_copy(update={"image_size": 96})
S = 96
MEAN, STD = np.array(CONSTANTS.image_mean), np.array(CONSTANTS.image_std)

# Mean absolute difference in grey levels (of 255) to an antialiased triangle filter, on the hardest frame there
# is: white noise. Measured: 1.0 to 1.1 where the frame shrinks by 4 or more; plain linear interpolation: 38.
NOISE_TOLERANCE = 1.3
# On a frame as smooth as a video's. Measured: 0.3 to 0.5; plain linear interpolation: 2 to 7.
SMOOTH_TOLERANCE = 0.6


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def smooth(height: int, width: int) -> NDArray[np.uint8]:
    blurred = cv2.GaussianBlur(noise(height, width), (0, 0), 3)
    return np.asarray(cv2.normalize(blurred, None, 0, 255, cv2.NORM_MINMAX), np.uint8)  # type: ignore[call-overload]


def grey_levels(pixel_values: NDArray[np.float32]) -> NDArray[np.float64]:
    """(S, S, 3): what the encoder's input says in the frame's own values."""
    return np.asarray((pixel_values[0].transpose(1, 2, 0) * STD + MEAN) * 255)


def antialiased(rgb: NDArray[np.uint8], size: int) -> NDArray[np.float32]:
    """As Pillow and torchvision shrink, and so both references."""
    torch = pytest.importorskip("torch")
    image = torch.from_numpy(np.ascontiguousarray(rgb)).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(image, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return np.asarray(small[0].permute(1, 2, 0).numpy(), np.float32)


@pytest.mark.parametrize("size", [(48, 200), (200, 48), (96, 96), (1, 1), (1, 7), (3, 500), (33, 61), (97, 95)])
def test_shape_and_type_whatever_the_frame_s_size(size: tuple[int, int]) -> None:
    pixel_values = frame_to_pixel_values(noise(*size), CONSTANTS)
    assert pixel_values.shape == (1, 3, S, S)
    assert pixel_values.dtype == np.float32
    assert pixel_values.flags.c_contiguous
    assert np.isfinite(pixel_values).all()


def test_values_are_normalised_by_mean_and_standard_deviation_in_the_order_red_green_blue() -> None:
    frame = np.empty((10, 20, 3), np.uint8)
    frame[:] = (255, 128, 0)
    pixel_values = frame_to_pixel_values(frame, CONSTANTS)
    expected = (np.array([255, 128, 0]) / 255 - MEAN) / STD
    np.testing.assert_allclose(pixel_values[0], np.broadcast_to(expected[:, None, None], (3, S, S)), rtol=1e-5)
    assert pixel_values[0, 0].mean() > pixel_values[0, 1].mean() > pixel_values[0, 2].mean()


@given(st.tuples(*[st.integers(0, 255)] * 3), st.tuples(st.integers(1, 300), st.integers(1, 300)))
@settings(deadline=None, max_examples=50)
def test_plain_colour_stays_exactly_that_colour(colour: tuple[int, int, int], size: tuple[int, int]) -> None:
    frame = np.full((*size, 3), colour, np.uint8)
    np.testing.assert_array_equal(resize_frame(frame, S), np.broadcast_to(colour, (S, S, 3)))


def test_frame_of_the_model_s_size_is_not_resampled() -> None:
    frame = noise(S, S)
    np.testing.assert_array_equal(resize_frame(frame, S), frame)
    np.testing.assert_allclose(grey_levels(frame_to_pixel_values(frame, CONSTANTS)), frame, atol=1e-3)


@pytest.mark.parametrize("size", [(60, 240), (240, 60), (480, 960), (30, 20)])
def test_frame_is_squashed_not_letterboxed(size: tuple[int, int]) -> None:
    """Each corner of the frame is a corner of the input, and each half is a half."""
    height, width = size
    frame = np.zeros((height, width, 3), np.uint8)
    frame[: height // 2, : width // 2] = (200, 0, 0)
    frame[: height // 2, width // 2 :] = (0, 200, 0)
    frame[height // 2 :, : width // 2] = (0, 0, 200)
    frame[height // 2 :, width // 2 :] = (200, 200, 200)
    square = resize_frame(frame, S)
    edge = S // 2 - 4
    for rows in (slice(0, edge), slice(-edge, None)):
        for columns in (slice(0, edge), slice(-edge, None)):
            colour = frame[0 if rows.start == 0 else -1, 0 if columns.start == 0 else -1]
            np.testing.assert_array_equal(square[rows, columns], np.broadcast_to(colour, (edge, edge, 3)))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("frame", "size", "tolerance"),
    [
        (noise(1080, 1920), 240, NOISE_TOLERANCE),
        (noise(400, 700), 96, NOISE_TOLERANCE),
        (smooth(400, 700), 96, SMOOTH_TOLERANCE),
        (smooth(180, 320), 96, SMOOTH_TOLERANCE),
        (smooth(40, 300), 96, SMOOTH_TOLERANCE),
    ],
    ids=[
        "noise, 4.5 and 8 times",
        "noise, 4.2 and 7.3 times",
        "smooth, 4.2 and 7.3 times",
        "smooth, 2",
        "one way only",
    ],
)
def test_large_frame_is_shrunk_as_the_references_shrink_it(
    frame: NDArray[np.uint8], size: int, tolerance: float
) -> None:
    expected = antialiased(frame, size)
    constants = CONSTANTS.model_copy(update={"image_size": size})
    found = grey_levels(frame_to_pixel_values(frame, constants))
    assert np.abs(found - expected).mean() < tolerance
    assert abs((found - expected).mean()) < 0.2, "no brighter and no darker"
    plain = cv2.resize(frame, (size, size), interpolation=cv2.INTER_LINEAR)
    assert np.abs(plain - expected).mean() > 2 * tolerance, "this frame would not show a missing antialias filter"


@pytest.mark.torch
def test_small_frame_is_grown_as_the_references_grow_it() -> None:
    frame = noise(40, 60)
    found = grey_levels(frame_to_pixel_values(frame, CONSTANTS))
    assert np.abs(found - antialiased(frame, S)).max() < 1


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda array: array[:, ::-1], id="mirrored"),
        pytest.param(lambda array: array[..., ::-1], id="BGR seen as RGB"),
        pytest.param(lambda array: array[::-1, ::-1, ::-1], id="all axes flipped"),
        pytest.param(lambda array: array[3:-5, 7:-2], id="cropped"),
        pytest.param(lambda array: array[::2, ::3], id="every other pixel"),
        pytest.param(lambda array: array.transpose(1, 0, 2), id="turned"),
        pytest.param(np.asfortranarray, id="Fortran order"),
        pytest.param(lambda array: np.concatenate([array, array], axis=2)[..., :3], id="three of six channels"),
        pytest.param(lambda array: np.broadcast_to(array[:1, :1], array.shape), id="one pixel broadcast"),
    ],
)
@pytest.mark.parametrize("size", [(20, 31), (150, 230)])
def test_views_give_the_same_as_their_copies(view: Any, size: tuple[int, int]) -> None:
    frame = view(noise(*size))
    before = frame.copy()
    expected = frame_to_pixel_values(np.ascontiguousarray(frame), CONSTANTS)
    np.testing.assert_array_equal(frame_to_pixel_values(frame, CONSTANTS), expected)
    np.testing.assert_array_equal(frame, before)


@pytest.mark.parametrize("size", [(20, 31), (96, 96), (150, 230)])
def test_read_only_frame_is_taken_and_left_alone(size: tuple[int, int]) -> None:
    frame = noise(*size)
    expected = frame_to_pixel_values(frame.copy(), CONSTANTS)
    frame.flags.writeable = False
    np.testing.assert_array_equal(frame_to_pixel_values(frame, CONSTANTS), expected)
    writeable = noise(*size)
    frame_to_pixel_values(writeable, CONSTANTS)
    np.testing.assert_array_equal(writeable, frame)


def test_check_frame_returns_the_frame_itself() -> None:
    for frame in (noise(1, 1), noise(5, 3)[::-1]):
        assert check_frame(frame) is frame


@pytest.mark.parametrize(
    ("frame", "got"),
    [
        (np.zeros((4, 5, 3)), r"shape \(4, 5, 3\) and type float64"),
        (np.zeros((4, 5, 3), np.int8), "type int8"),
        (np.zeros((4, 5), np.uint8), r"shape \(4, 5\)"),
        (np.zeros((4, 5, 1), np.uint8), r"shape \(4, 5, 1\)"),
        (np.zeros((4, 5, 4), np.uint8), r"shape \(4, 5, 4\)"),
        (np.zeros((3, 4, 5), np.uint8), r"shape \(3, 4, 5\)"),
        (np.zeros((1, 4, 5, 3), np.uint8), r"shape \(1, 4, 5, 3\)"),
        (np.zeros((0, 5, 3), np.uint8), r"shape \(0, 5, 3\)"),
        (np.zeros((4, 0, 3), np.uint8), r"shape \(4, 0, 3\)"),
        ([[[1, 2, 3]]], "got a list"),
        (None, "got a NoneType"),
        ("frame.png", "got a str"),
    ],
)
def test_bad_frame_says_what_it_got_and_what_is_expected(frame: Any, got: str) -> None:
    with pytest.raises(FrameError, match=got) as caught:
        check_frame(frame)
    caught.match(r"expected (a numpy array )?\(height, width, 3\) uint8, RGB")
    assert isinstance(caught.value, ValueError)
