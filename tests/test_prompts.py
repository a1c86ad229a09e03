"""Clicks, boxes and masks in the frame's pixels -> the model's pixels; and everything that is not one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import fake_constants
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from sam2track.errors import PromptError, Sam2TrackError
from sam2track.prompts import (
    clamp_previous_logits,
    make_prompt,
    mask_prompt_input,
    mask_prompt_output,
    merge_prompts,
    triangle_filter,
)
from sam2track.types import Prompt

HEIGHT, WIDTH, S = 50, 200, 64
examples = settings(deadline=None, max_examples=150)


def make(**prompt: Any) -> Prompt:
    return make_prompt((HEIGHT, WIDTH), S, **prompt)


def to_model(points: Any) -> NDArray[np.float64]:
    return np.array(points, np.float64) * (S / WIDTH, S / HEIGHT)


def assert_points(prompt: Prompt, points: Any, labels: list[int]) -> None:
    assert prompt.mask is None
    assert (prompt.points.dtype, prompt.labels.dtype) == (np.float32, np.int32)
    assert prompt.points.shape == (len(labels), 2)
    np.testing.assert_allclose(prompt.points, to_model(points), rtol=1e-6)
    assert prompt.labels.tolist() == labels


# -- points -----------------------------------------------------------------------------------------------------------


def test_points_are_scaled_by_two_different_factors() -> None:
    prompt = make(points=[(100, 25), (0, 0), (199.5, 49.75)])
    np.testing.assert_allclose(prompt.points, [(32, 32), (0, 0), (63.84, 63.68)], rtol=1e-6)
    assert prompt.labels.tolist() == [1, 1, 1], "inside the object, unless it is said otherwise"


@pytest.mark.parametrize(
    "points",
    [
        [(10, 20), (30, 40)],
        [[10, 20], [30, 40]],
        ((10.0, 20.0), (30.0, 40.0)),
        np.array([(10, 20), (30, 40)], np.uint8),
        np.array([(10, 20), (30, 40)], np.float16),
        np.array([(20, 10), (40, 30)])[:, ::-1],
        [np.array([10, 20]), np.array([30, 40])],
        [(np.int64(10), np.float32(20)), (30, 40)],
    ],
)
def test_points_may_come_as_anything_like_an_array(points: Any) -> None:
    assert_points(make(points=points, labels=(1, 0)), [(10, 20), (30, 40)], [1, 0])


@pytest.mark.parametrize("labels", [[1, 0], (1, 0), np.array([1, 0], np.uint8), [True, False], [1.0, 0.0]])
def test_labels_may_come_as_anything_like_an_array(labels: Any) -> None:
    assert_points(make(points=[(10, 20), (30, 40)], labels=labels), [(10, 20), (30, 40)], [1, 0])


@examples
@given(
    st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    st.lists(st.tuples(*[st.floats(0, 1, exclude_max=True, width=32)] * 2), min_size=1, max_size=9),
    st.data(),
)
def test_points_inside_the_frame_are_inside_the_model_s_input(
    size: tuple[int, int], relative: list[tuple[float, float]], data: st.DataObject
) -> None:
    height, width = size
    points = np.array(relative) * (width, height)
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(points), max_size=len(points)))
    prompt = make_prompt(size, S, points=points, labels=labels)
    np.testing.assert_allclose(prompt.points, np.array(relative) * S, rtol=1e-5, atol=1e-5)
    assert prompt.labels.tolist() == labels
    assert (prompt.points >= 0).all()
    assert (prompt.points <= S).all()


# -- boxes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", [(20, 10, 120, 40), (120, 40, 20, 10), (120, 10, 20, 40), (20, 40, 120, 10)])
def test_box_is_two_corners_top_left_first_however_it_was_drawn(box: tuple[int, ...]) -> None:
    for given_as in (box, list(box), np.array(box), np.array(box, np.float32)):
        assert_points(make(box=given_as), [(20, 10), (120, 40)], [2, 3])


def test_box_comes_before_points_and_may_go_with_a_negative_click_alone() -> None:
    prompt = make(box=(20, 10, 120, 40), points=[(30, 20), (40, 30)], labels=[0, 1])
    assert_points(prompt, [(20, 10), (120, 40), (30, 20), (40, 30)], [2, 3, 0, 1])
    negative = make(box=(20, 10, 120, 40), points=[(30, 20)], labels=[0])
    assert_points(merge_prompts(None, negative), [(20, 10), (120, 40), (30, 20)], [2, 3, 0])


@pytest.mark.parametrize("box", [(-30, 10, 20, 40), (150, 10, 250, 40), (20, -5, 120, 55), (-10, -10, 210, 60)])
def test_box_partly_outside_is_taken_as_it_is(box: tuple[int, ...]) -> None:
    assert_points(make(box=box), [box[:2], box[2:]], [2, 3])


# -- masks ------------------------------------------------------------------------------------------------------------


def rectangle(height: int = S, width: int = S) -> NDArray[np.bool_]:
    mask = np.zeros((height, width), bool)
    mask[height // 4 : height // 2, width // 8 : width // 2] = True
    return mask


MASKS: dict[str, Any] = {
    "bool": rectangle(),
    "list": rectangle().tolist(),
    "0/1": rectangle().astype(np.uint8),
    "0/1 int64": rectangle().astype(np.int64),
    "0/1 float": rectangle().astype(np.float64),
    "0/255": rectangle().astype(np.uint8) * 255,
    "0/255 float": rectangle().astype(np.float32) * 255,
    "soft 8-bit": np.where(rectangle(), 140, 110).astype(np.uint8),
    "soft float": np.where(rectangle(), 0.6, 0.4),
    "not contiguous": np.asfortranarray(np.repeat(rectangle(), 2, axis=1))[:, ::2],
    "flipped": rectangle()[::-1].copy()[::-1],
}


@pytest.mark.parametrize("kind", MASKS)
def test_mask_may_be_of_any_type(kind: str) -> None:
    prompt = make(mask=MASKS[kind])
    assert prompt.mask is not None
    assert prompt.mask.dtype == bool
    np.testing.assert_array_equal(prompt.mask, rectangle())
    assert (prompt.points.shape, prompt.labels.shape) == ((0, 2), (0,))


@pytest.mark.parametrize("size", [(50, 200), (1080, 1920), (16, 16), (17, 93), (64, 640), (640, 64)])
def test_mask_of_another_size_is_squashed_to_the_model_s_input(size: tuple[int, int]) -> None:
    prompt = make(mask=rectangle(*size))
    assert prompt.mask is not None
    assert prompt.mask.shape == (S, S)
    wrong = np.argwhere(prompt.mask != rectangle())
    edge = np.abs(wrong[:, :1] - (S // 4, S // 2)).min(axis=1, initial=S) <= 2
    side = np.abs(wrong[:, 1:] - (S // 8, S // 2)).min(axis=1, initial=S) <= 2
    assert (edge | side).all(), "nothing but the edge may move, and by no more than a pixel or two"


@pytest.mark.torch
@pytest.mark.parametrize("size", [(540, 960), (100, 130), (40, 30)])
def test_mask_of_another_size_is_close_to_the_reference_s(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    y, x = np.mgrid[: size[0], : size[1]] / np.array(size)[:, None, None]
    mask = ((y - 0.5) ** 2 + (x - 0.4) ** 2 < 0.1) | ((y - 0.2) ** 2 + (x - 0.8) ** 2 < 0.01)
    image = torch.from_numpy(mask.astype(np.float32))[None, None]
    expected = torch.nn.functional.interpolate(image, (S, S), mode="bilinear", antialias=True)[0, 0].numpy() >= 0.5
    prompt = make(mask=mask)
    assert prompt.mask is not None
    assert (prompt.mask & expected).sum() / (prompt.mask | expected).sum() > 0.99


def test_mask_keeps_all_its_blobs() -> None:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[5:15, 10:50] = mask[30:45, 60:100] = mask[10:40, 150:190] = True
    prompt = make(mask=mask)
    assert prompt.mask is not None
    for y, x in ((10, 30), (37, 80), (25, 170)):
        assert prompt.mask[y * S // HEIGHT, x * S // WIDTH]
    assert prompt.mask.mean() == pytest.approx(mask.mean(), abs=0.02)


@pytest.mark.parametrize("values", [(1, 2, 3), (2, 3, 4), (5, 5, 5)])
def test_indexed_mask_does_not_pass_silently(values: tuple[int, int, int]) -> None:
    """Which object is meant? A mask that says 1, 2, 3 has three of them."""
    indexed = np.zeros((HEIGHT, WIDTH), np.uint8)
    for number, value in enumerate(values):
        indexed[10:40, 20 + 60 * number : 60 + 60 * number] = value
    with pytest.raises(PromptError, match=r"0/1 or 0/255.*labels == 3"):
        make(mask=indexed)


# -- prompts that cannot be used --------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
ONES = np.ones((HEIGHT, WIDTH))
BAD: list[tuple[str, dict[str, Any], str, str]] = [  # name, prompt, what it got, what is expected
    ("nothing", {}, "got no prompt", "at least one of points, box or mask"),
    ("right of the frame", {"points": [(1, 1), (200, 3)]}, r"\(200, 3\)", "0 <= x < 200 and 0 <= y < 50"),
    ("below the frame", {"points": [(3, 50)]}, r"\(3, 50\)", "0 <= x < 200 and 0 <= y < 50"),
    ("left of the frame", {"points": [(-0.5, 3)]}, r"\(-0.5, 3\)", "0 <= x"),
    ("above the frame", {"points": [(3, -1)]}, r"\(3, -1\)", "0 <= y"),
    ("swapped x and y", {"points": [(20, 120)]}, r"\(20, 120\)", "in pixels of the displayed frame"),
    ("nan", {"points": [(3, NAN)]}, "not finite in points", r"a list of \(x, y\)"),
    ("infinite", {"points": [(INF, 3)]}, "not finite in points", r"a list of \(x, y\)"),
    ("no points", {"points": []}, r"shape \(0,\)", r"\(n, 2\) with n >= 1"),
    ("no points, array", {"points": np.zeros((0, 2))}, r"shape \(0, 2\)", "n >= 1"),
    ("one point, bare", {"points": (3, 4)}, r"shape \(2,\)", r"\(n, 2\)"),
    ("three coordinates", {"points": [(3, 4, 1)]}, r"shape \(1, 3\)", r"\(n, 2\)"),
    ("nested too deep", {"points": [[(3, 4)]]}, r"shape \(1, 1, 2\)", r"\(n, 2\)"),
    ("ragged", {"points": [(3, 4), (5,)]}, r"got \[\(3, 4\), \(5,\)\] as points", r"a list of \(x, y\)"),
    ("text", {"points": "3,4"}, "got '3,4' as points", r"a list of \(x, y\)"),
    ("mapping", {"points": {1: 2}}, r"got \{1: 2\} as points", r"a list of \(x, y\)"),
    ("none inside", {"points": [(None, 3)]}, "points", r"a list of \(x, y\)"),
    ("unknown label", {"points": [(3, 4)], "labels": [4]}, "got the label 4", r"1 \(inside.*or 0 \(outside"),
    ("padding label", {"points": [(3, 4)], "labels": [-1]}, "got the label -1", "or 0"),
    ("box label", {"points": [(3, 4)], "labels": [2]}, "got the label 2", "or 0"),
    ("half a label", {"points": [(3, 4)], "labels": [0.5]}, "got the label 0.5", "or 0"),
    ("label nan", {"points": [(3, 4)], "labels": [NAN]}, "not finite in labels", "0 and 1"),
    ("label text", {"points": [(3, 4)], "labels": ["in"]}, r"\['in'\] as labels", "0 and 1"),
    ("too few labels", {"points": [(3, 4), (5, 6)], "labels": [1]}, r"shape \(1,\) for 2 points", "one label for each"),
    ("too many labels", {"points": [(3, 4)], "labels": [1, 1]}, r"shape \(2,\) for 1 points", "one label for each"),
    ("bare label", {"points": [(3, 4)], "labels": 1}, r"shape \(\) for 1 points", "one label for each"),
    ("labels alone", {"labels": [1]}, "got no prompt", "at least one of"),
    ("labels and box", {"box": (1, 1, 9, 9), "labels": [1]}, "labels without points", "one label for each point"),
    ("box nan", {"box": (1, 1, NAN, 9)}, "not finite in box", r"\(x0, y0, x1, y1\)"),
    ("box of three", {"box": (1, 1, 9)}, r"shape \(3,\)", "4 numbers: x0, y0, x1, y1"),
    ("two corners", {"box": ((1, 1), (9, 9))}, r"shape \(2, 2\)", "4 numbers: x0, y0, x1, y1"),
    ("box text", {"box": "box"}, "got 'box' as box", r"\(x0, y0, x1, y1\)"),
    ("box without width", {"box": (5, 1, 5, 9)}, r"\[5.0, 1.0, 5.0, 9.0\] is empty", "x0 != x1 and y0 != y1"),
    ("box without height", {"box": (1, 5, 9, 5)}, "is empty", "x0 != x1 and y0 != y1"),
    ("box left of it", {"box": (-9, 1, 0, 9)}, r"\[-9.0, 1.0, 0.0, 9.0\]", "outside the frame of 200x50"),
    ("box below it", {"box": (1, 50, 9, 60)}, r"\[1.0, 50.0, 9.0, 60.0\]", "outside the frame of 200x50"),
    ("empty mask", {"mask": np.zeros((HEIGHT, WIDTH), bool)}, "got an empty mask", "True, 1 or 255"),
    ("mask of zeros", {"mask": np.zeros((HEIGHT, WIDTH), np.uint8)}, "got an empty mask", "True, 1 or 255"),
    ("mask without pixels", {"mask": np.zeros((0, 5), bool)}, r"shape \(0, 5\)", r"\(height, width\), bool or 0/255"),
    (
        "mask in colour",
        {"mask": np.ones((9, 9, 3), np.uint8)},
        r"shape \(9, 9, 3\) and type uint8",
        r"\(height, width\)",
    ),
    ("mask nan", {"mask": ONES * NAN}, "not finite", "bool or 0/255"),
    ("mask complex", {"mask": ONES * 1j}, "type complex128", "bool or 0/255"),
    ("mask text", {"mask": "mask.png"}, r"shape \(\)", "bool or 0/255"),
    ("mask of objects", {"mask": [[None, True]]}, "type object", "bool or 0/255"),
    ("mask and points", {"mask": ONES, "points": [(3, 4)]}, "mask together with points", "a mask alone"),
    ("mask and box", {"mask": ONES, "box": (1, 1, 9, 9)}, "together", "a mask alone"),
    ("mask and labels", {"mask": ONES, "labels": [1]}, "together", "a mask alone"),
    ("a speck", {"mask": np.pad([[True]], (0, 999))}, "vanishes at the model's input size of 64", "too small"),
]


@pytest.mark.parametrize(("prompt", "got", "expected"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_prompt_says_what_it_got_and_what_is_expected(prompt: dict[str, Any], got: str, expected: str) -> None:
    with pytest.raises(PromptError, match=got) as caught:
        make(**prompt)
    caught.match(expected)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, Sam2TrackError)


def test_message_stays_short_for_much_garbage() -> None:
    with pytest.raises(PromptError) as caught:
        make(points="x" * 100_000)
    assert len(str(caught.value)) < 300


def assert_usable_or_a_prompt_error(**prompt: Any) -> None:
    try:
        made = make(**prompt)
    except PromptError as error:
        assert str(error)
        return
    assert made.points.shape == (len(made.labels), 2)
    assert np.isfinite(made.points).all()
    assert set(made.labels.tolist()) <= {0, 1, 2, 3}
    if made.mask is None:
        assert len(made.labels)
    else:
        assert made.mask.shape == (S, S)
        assert made.mask.any()


HUGE = 10**400  # no float is that large
number = st.one_of(
    st.integers(-9, 60), st.integers(), st.floats(), st.sampled_from([NAN, INF, 1e39, -1e300, HUGE]), st.booleans()
)
thing = st.one_of(
    number, st.none(), st.text(max_size=4), st.binary(max_size=4), st.complex_numbers(), st.builds(object), st.just({})
)
arrays = hnp.arrays(
    st.one_of(hnp.scalar_dtypes(), hnp.unicode_string_dtypes(max_len=3)), hnp.array_shapes(min_dims=0, min_side=0)
)
garbage = st.one_of(
    st.recursive(thing, lambda inner: st.lists(inner, max_size=4), max_leaves=12),
    st.lists(st.lists(number, min_size=2, max_size=2), max_size=4),
    arrays,
)
boxes = st.one_of(st.none(), garbage, st.lists(number, min_size=4, max_size=4))


@examples
@given(st.one_of(st.none(), garbage), st.one_of(st.none(), garbage), boxes)
@example([(3, 4)], None, None)
@example([(3, 4)], [HUGE], None)
@example([(HUGE, 4)], None, None)
@example(None, None, (1, 1, HUGE, 9))
@example(None, None, (1, 1, 1e300, 9))
@example(None, None, (1, 1, 1.7e308, 9))
@example(np.array([(1 + 2j, 3)]), None, None)
def test_garbage_for_points_and_boxes_is_a_prompt_error_and_nothing_else(points: Any, labels: Any, box: Any) -> None:
    assert_usable_or_a_prompt_error(points=points, labels=labels, box=box)


@examples
@given(garbage.filter(lambda mask: mask is not None))
@example(np.ones((3, 3)))
@example([[True, False], [True]])
@example([[HUGE]])
@example(np.full((2, 2), 1e300))
def test_garbage_for_a_mask_is_a_prompt_error_and_nothing_else(mask: Any) -> None:
    assert_usable_or_a_prompt_error(mask=mask)


# -- merging ----------------------------------------------------------------------------------------------------------


def test_points_add_up_in_the_order_in_which_they_came() -> None:
    first, second = make(points=[(10, 20)]), make(points=[(30, 40), (50, 10)], labels=[0, 1])
    assert_points(merge_prompts(first, second), [(10, 20), (30, 40), (50, 10)], [1, 0, 1])


def test_new_box_replaces_the_earlier_box_and_stays_in_front() -> None:
    first = make(box=(1, 2, 30, 40), points=[(5, 6)])
    second = make(box=(7, 8, 90, 45), points=[(9, 9)], labels=[0])
    assert_points(merge_prompts(first, second), [(7, 8), (90, 45), (5, 6), (9, 9)], [2, 3, 1, 0])


def test_earlier_box_stays_when_points_come() -> None:
    merged = merge_prompts(make(box=(1, 2, 30, 40)), make(points=[(9, 9)], labels=[0]))
    assert_points(merged, [(1, 2), (30, 40), (9, 9)], [2, 3, 0])


def test_box_goes_in_front_of_earlier_points() -> None:
    merged = merge_prompts(make(points=[(9, 9)]), make(box=(1, 2, 30, 40)))
    assert_points(merged, [(1, 2), (30, 40), (9, 9)], [2, 3, 1])


def test_mask_replaces_everything_and_is_replaced_by_everything() -> None:
    mask, points = make(mask=rectangle()), make(points=[(9, 9)])
    assert merge_prompts(points, mask) is mask
    assert merge_prompts(mask, points) is points
    other = make(mask=~rectangle())
    assert merge_prompts(mask, other) is other


def test_only_negative_points_are_an_error() -> None:
    negative = make(points=[(9, 9), (20, 20)], labels=[0, 0])
    with pytest.raises(
        PromptError, match=r"only points outside the object; add at least one point inside it, or a box"
    ):
        merge_prompts(None, negative)
    with pytest.raises(PromptError):
        merge_prompts(negative, negative)
    merged = merge_prompts(make(points=[(1, 1)]), negative)
    assert_points(merged, [(1, 1), (9, 9), (20, 20)], [1, 0, 0])


@examples
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 49), max_size=3)), min_size=1, max_size=5))
def test_merging_keeps_the_last_box_first_and_every_point(calls: list[tuple[bool, list[int]]]) -> None:
    merged, points, corners = None, [], []
    for number, (with_box, clicked) in enumerate(calls):
        if not with_box and not clicked:
            continue
        box = (number, number, number + 10, number + 10) if with_box else None
        prompt = make(points=[(at, at) for at in clicked] or None, box=box)
        merged = merge_prompts(merged, prompt)
        points += [(at, at) for at in clicked]
        corners = [(number, number), (number + 10, number + 10)] if with_box else corners
    if merged is not None:
        assert_points(merged, [*corners, *points], [2, 3][: len(corners)] + [1] * len(points))


# -- masks as logits --------------------------------------------------------------------------------------------------


def test_previous_logits_are_clamped_to_32_on_both_sides() -> None:
    logits = np.array([[-1024, -32.5, -32, -3.5], [0, 31.5, 32, 99]], np.float32)
    clamped = clamp_previous_logits(logits)
    np.testing.assert_array_equal(clamped, np.array([[-32, -32, -32, -3.5], [0, 31.5, 32, 32]], np.float32))
    assert clamped.dtype == np.float32
    assert logits[0, 0] == -1024, "the input is left alone"


def test_mask_prompt_is_the_output_of_plus_and_minus_ten() -> None:
    outcome = mask_prompt_output(rectangle())
    assert outcome.mask_logits.dtype == np.float32
    assert outcome.mask_logits.shape == (S // 4, S // 4)
    assert (outcome.object_score, outcome.predicted_iou) == (10, 1)
    assert outcome.mask_logits.max() == pytest.approx(10, abs=1e-5)
    assert outcome.mask_logits.min() == pytest.approx(-10, abs=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("size", [32, 64, 512])
def test_logits_of_a_mask_prompt_are_those_of_torch(size: int) -> None:
    torch = pytest.importorskip("torch")
    mask = np.random.default_rng(size).random((size, size)) < 0.4
    outcome = mask_prompt_output(mask)
    logits = torch.from_numpy(np.where(mask, np.float32(10), np.float32(-10)))[None, None]
    expected = torch.nn.functional.interpolate(
        logits, (size // 4, size // 4), mode="bilinear", antialias=True, align_corners=False
    )
    np.testing.assert_allclose(outcome.mask_logits, expected[0, 0].numpy(), atol=2e-5)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(480, 854), (40, 30), (24, 300), (64, 64)])
def test_mask_of_another_size_is_resized_as_torch_does(shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    y, x = np.mgrid[: shape[0], : shape[1]]
    mask = ((y / shape[0] - 0.5) ** 2 + (x / shape[1] - 0.4) ** 2 < 0.08) ^ ((x + y) % 17 == 0)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(mask.astype(np.float32))[None, None], (64, 64), mode="bilinear", antialias=True
    )
    found = make_prompt((480, 854), 64, mask=mask).mask
    assert found is not None
    unsure = np.abs(expected[0, 0].numpy() - 0.5) < 1e-5  # rounding decides
    np.testing.assert_array_equal(found[~unsure], (expected[0, 0].numpy() >= 0.5)[~unsure])
    assert unsure.mean() < 0.05


@pytest.mark.torch
def test_decoder_s_mask_input_is_the_learned_convolution_of_torch() -> None:
    torch = pytest.importorskip("torch")
    downsample = fake_constants().mask_prompt_downsample
    assert downsample is not None
    mask = np.random.default_rng(1).random((S, S)) < 0.5
    weight = torch.tensor(downsample.weight)[None, None]
    image = torch.from_numpy(mask.astype(np.float32))[None, None]
    expected = torch.nn.functional.conv2d(image, weight, torch.tensor([downsample.bias]), stride=4)
    found = mask_prompt_input(mask, downsample)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected[0, 0].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("source", "target"), [(64, 16), (512, 128), (60, 7), (9, 9), (7, 60)])
def test_triangle_filter_keeps_constants_and_is_symmetric(source: int, target: int) -> None:
    weight = triangle_filter(source, target)
    assert (weight.shape, weight.dtype) == ((target, source), np.float32)
    np.testing.assert_allclose(weight.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(weight, weight[::-1, ::-1], atol=1e-6)
