"""The loop, on fake graphs: what is called with what, in which order, and what the user gets to see.

One test or more for each numbered rule of the reference; every one of these rules, got wrong, would still give
plausible masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import (
    ABSENT_LOGIT,
    BOX,
    CENTRE,
    HEIGHT,
    LOW,
    MEMORY_FRAMES,
    POINTER_ROWS,
    SPATIAL_ROWS,
    WIDTH,
    S,
    assert_all_same,
    assert_same,
    attention,
    bank_of,
    black,
    differs,
    fake_graphs,
    fake_model,
    frames_seen,
    memory_entry,
    numbered,
    padded,
    picture,
    pictures,
    pointers_seen,
    repeated,
    spatial_blocks,
    start,
    temporal_rows,
)
from numpy.typing import NDArray

import sam2track.tracker
from sam2track.graphs import _pad_points
from sam2track.memory_bank import MemoryBank
from sam2track.memory_tokens import normalized_differences
from sam2track.options import TrackingOptions
from sam2track.postprocess import resize_logits
from sam2track.preprocess import frame_to_pixel_values
from sam2track.tracker import Tracker
from sam2track.types import FrameResult, MemoryTokens, VideoFrame

# -- the rules of the reference -------------------------------------------------------------------------------------


def test_rule_01_first_prompt_takes_the_no_memory_features_and_no_attention() -> None:
    tracker, graphs = start()
    assert graphs.names == ["encode_image", "decode"]
    assert graphs.of("decode")[0]["conditioned"] is graphs.of("encode_image")[0].result.feats2_no_mem
    assert graphs.of("decode")[0]["mask_logits"] is None
    # Memory or not: a frame that was never tracked has no say from it.
    list(tracker.track(pictures(3)))
    graphs.forget_calls()
    tracker.add_prompt(picture(9), points=[CENTRE], frame_idx=9)
    assert graphs.names == ["encode_image", "decode"]
    assert graphs.of("decode")[0]["conditioned"] is graphs.of("encode_image")[0].result.feats2_no_mem


def test_rule_01_holds_for_each_object_alone() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(3)))
    graphs.forget_calls()
    tracker.add_prompt(picture(2), points=[CENTRE], object_id=2)  # tracked already, but not for object 2
    assert graphs.names == ["decode"]


def test_rule_02_memory_encoder_sees_the_raw_features_of_the_same_frame() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(4)))
    images, memories, attended = (graphs.of(name) for name in ("encode_image", "encode_memory", "attend"))
    assert len(images) == len(memories) == 4
    for image, memory in zip(images, memories, strict=True):
        assert memory["features"] is image.result
    for decoded, conditioned, image in zip(graphs.of("decode")[1:], attended, images[1:], strict=True):
        assert decoded["conditioned"] is conditioned.result
        assert decoded["features"] is conditioned["features"] is image.result


def test_rule_03_mask_for_memory_is_binarised_on_prompted_frames_only() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(3)))
    tracker.add_prompt(picture(2), points=[(3, 3)])  # a correction is a prompt too
    tracker.add_prompt(picture(8), box=BOX, object_id=2, frame_idx=8)
    tracker.add_prompt(picture(9), mask=picture(9)[..., 0] > 100, object_id=3, frame_idx=9)
    tracker.step(VideoFrame(picture(10), 10))
    flags = [call["binarize"] for call in graphs.of("encode_memory")]
    assert flags == [True, False, False, True, True, True, False, False, False]


def test_rule_03_memory_encoder_gets_the_very_prediction_of_the_decoder() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(4)))
    for decoded, memory in zip(graphs.of("decode"), graphs.of("encode_memory"), strict=True):
        assert memory["prediction"] is decoded.result


def test_rule_04_absent_object_is_remembered_and_user_sees_empty_mask() -> None:
    tracker, graphs = start()
    results = list(tracker.track([picture(0), picture(1), black(), picture(3), picture(4)]))
    absent = results[2].objects[1]
    assert absent.mask.shape == (HEIGHT, WIDTH)
    assert not absent.mask.any()
    assert absent.object_score <= 0
    assert (absent.mask_logits == ABSENT_LOGIT).all()
    remembered = graphs.of("encode_memory")[2]
    assert remembered["prediction"].outcome.object_score <= 0
    frame_3 = graphs.of("attend")[2]
    assert frames_seen(frame_3, graphs) == [2, 1, 0]
    assert temporal_rows(frame_3["memory"]) == [0, 1, 6]
    assert pointers_seen(frame_3, graphs) == [2, 1, 0]
    assert results[3].objects[1].mask.any()
    assert results[3].objects[1].object_score > 0


def test_rule_04_object_may_be_away_for_long_and_come_back() -> None:
    tracker, _ = start(options=TrackingOptions(fill_holes=8))
    results = list(tracker.track([picture(0), *[black()] * 50, picture(3)]))
    assert not any(result.objects[1].mask.any() for result in results[1:-1])
    assert results[-1].objects[1].mask.any()


def test_rule_05_recent_memories_are_chosen_by_index_and_missing_ones_skipped() -> None:
    tracker, graphs = start()
    order = [0, 1, 2, 3, 6, 7, 8]
    list(tracker.track(numbered(order)))
    last = graphs.of("attend")[-1]
    assert [order[position] for position in frames_seen(last, graphs)] == [7, 6, 3, 2, 0]
    assert temporal_rows(last["memory"]) == [0, 1, 4, 5, 6]


def test_rule_05_never_more_than_six_recent_memories() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(12)))
    last = graphs.of("attend")[-1]
    assert frames_seen(last, graphs) == [10, 9, 8, 7, 6, 5, 0]
    assert temporal_rows(last["memory"]) == [0, 1, 2, 3, 4, 5, 6]


def test_rule_05_prompted_frames_have_the_last_temporal_row_even_in_the_future() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(20), points=[CENTRE], frame_idx=20)
    list(tracker.track(pictures(3)))
    last = graphs.of("attend")[-1]  # memory encoder: 0, 20, 1
    assert frames_seen(last, graphs) == [2, 0, 1]
    assert temporal_rows(last["memory"]) == [0, 6, 6]


def test_rule_06_pointers_of_past_prompts_and_fifteen_recent_frames() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(30), points=[CENTRE], frame_idx=30)
    list(tracker.track(pictures(20)))
    pointers = pointers_seen(graphs.of("attend")[-1], graphs)  # decoder: 0, 30, then 1, 2, ...
    assert [0, 30, *range(1, 20)][pointers[-1]] == 0
    assert [[0, 30, *range(1, 20)][position] for position in pointers] == [*range(18, 3, -1), 0]
    times = graphs.of("encode_pointer_times")[-1]["normalized_diffs"]
    np.testing.assert_array_equal(times, np.array([*range(1, 16), 19], np.float32) / np.float32(15))


def test_rule_06_pointer_tokens_share_their_time() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(5)))
    memory = graphs.of("attend")[-1]["memory"]
    expected = np.repeat(graphs.of("encode_pointer_times")[-1].result, POINTER_ROWS, axis=0)
    np.testing.assert_array_equal(memory.position[-memory.pointer_rows :, 0], expected)


def test_rule_06_backwards_the_sign_flips_and_memories_come_from_the_next_frames() -> None:
    bank = MemoryBank(MEMORY_FRAMES)
    for frame_idx in (10, 40):
        bank.remember(memory_entry(frame_idx), conditioning=True)
    for frame_idx in range(39, 30, -1):
        bank.remember(memory_entry(frame_idx), conditioning=False)
    visible = bank.visible(30, reverse=True)
    assert [(seen.entry.frame_idx, seen.temporal_row) for seen in visible.spatial] == [
        *[(30 + k, k - 1) for k in range(1, 7)],
        *[(40, 6), (10, 6)],
    ]
    assert [seen.entry.frame_idx for seen in visible.pointers] == [*range(31, 40), 40]
    differences = normalized_differences(visible.pointers, visible.max_pointers)
    np.testing.assert_array_equal(differences, np.arange(1, 11, dtype=np.float32) / np.float32(15))


@pytest.mark.parametrize(("num_frames", "divisor"), [(None, 15), (2, 1), (5, 4), (15, 14), (16, 15), (400, 15)])
def test_rule_07_short_clip_is_normalised_by_its_own_length(num_frames: int | None, divisor: int) -> None:
    tracker, graphs = start(num_frames=num_frames)
    list(tracker.track(pictures(min(num_frames or 30, 30))))
    seen = graphs.of("encode_pointer_times")
    for frame_idx, call in enumerate(seen, start=1):
        recent = [k for k in range(1, frame_idx) if k <= divisor]
        expected = np.array([*recent, frame_idx], np.float32) / np.float32(divisor)
        np.testing.assert_array_equal(call["normalized_diffs"], expected)


def test_rule_08_memories_are_kept_as_encoded_not_rounded_to_bfloat16() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(3)))
    last = graphs.of("attend")[-1]
    blocks = spatial_blocks(last["memory"].tokens, last["memory"])
    for block, memory in zip(blocks, (graphs.of("encode_memory")[i] for i in (1, 0)), strict=True):
        np.testing.assert_array_equal(block, memory.result.tokens)
        bits = block.view(np.uint32)
        assert (bits & 0xFFFF).any(), "these numbers would not show rounding"


def test_rule_09_holes_are_filled_in_the_returned_mask_only() -> None:
    frames = [with_hole(picture(number)) for number in range(4)]
    plain, filled = fake_model(), fake_model()
    results = []
    for model, fill_holes in ((plain, 0), (filled, 4)):
        tracker = Tracker(model, TrackingOptions(fill_holes=fill_holes))
        tracker.add_prompt(frames[0], box=(0, 0, WIDTH, HEIGHT))
        results.append(list(tracker.track(frames)))
    for raw, clean in zip(*results, strict=True):
        raw_object, clean_object = raw.objects[1], clean.objects[1]
        assert clean_object.mask.sum() > raw_object.mask.sum()
        assert clean_object.mask[raw_object.mask].all()
        np.testing.assert_array_equal(raw_object.mask_logits, clean_object.mask_logits)
    raw_calls, clean_calls = fake_graphs(plain).calls, fake_graphs(filled).calls
    assert fake_graphs(plain).names == fake_graphs(filled).names
    for raw_call, clean_call in zip(raw_calls, clean_calls, strict=True):
        if raw_call.name == "encode_memory":
            np.testing.assert_array_equal(
                raw_call["prediction"].high_res_logits, clean_call["prediction"].high_res_logits
            )


def with_hole(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A bright picture with a dark hole of one logit pixel in its middle."""
    bright = np.full_like(frame, 200) - frame // 8
    y, x = HEIGHT // LOW * 4, WIDTH // LOW * 4
    bright[y : y + HEIGHT // LOW, x : x + WIDTH // LOW] = 0
    return bright


def test_rule_10_objects_share_image_features_and_nothing_else() -> None:
    alone, _ = start()
    together, graphs = start()
    together.add_prompt(picture(0), points=[(5, 5)], object_id=2)
    expected = list(alone.track(pictures(25)))
    results = list(together.track(pictures(25)))
    assert_all_same(expected, results)
    assert all(differs(result.objects[1], result.objects[2]) for result in results)
    assert len(graphs.of("encode_image")) == 25


def test_rule_10_adding_and_removing_others_leaves_an_object_alone() -> None:
    alone, _ = start()
    expected = list(alone.track(pictures(24)))
    busy, _ = start()
    results = []
    for frame_idx, frame in enumerate(pictures(24)):
        if frame_idx == 3:
            busy.add_prompt(frame, points=[(40, 20)], object_id="late", frame_idx=3)
        if frame_idx == 7:
            busy.add_prompt(frame, box=BOX, object_id="box", frame_idx=7)
        if frame_idx == 9:
            busy.remove("late")
        if frame_idx == 12:
            busy.add_prompt(frame, points=[(8, 8)], object_id="late", frame_idx=12)
        if frame_idx == 15:
            busy.add_prompt(frame, mask=frame[..., 0] > 100, object_id="mask", frame_idx=15)
        results.append(busy.step(frame))
    assert_all_same(expected, results)
    assert tuple(results[-1].objects) == (1, "box", "late", "mask")


def test_rule_11_decoder_gets_the_real_points_and_nothing_else() -> None:
    """It chooses between one mask and three by their number, so padding must never look like a point."""
    tracker, graphs = start()
    tracker.add_prompt(picture(0), box=BOX, object_id=2)
    tracker.add_prompt(picture(0), points=[CENTRE, (3, 3)], labels=[1, 0], object_id=3)
    list(tracker.track(pictures(2)))
    labels = [call["prompt"].labels.tolist() for call in graphs.of("decode")]
    assert labels == [[1], [2, 3], [1, 0], [], [], []]


@pytest.mark.parametrize("room", [None, 5])
@pytest.mark.parametrize("count", range(5))
def test_rule_11_padding_points_have_the_label_that_never_counts(count: int, room: int | None) -> None:
    tracker, graphs = start()
    if count:
        tracker.add_prompt(picture(1), points=[(k + 1, k + 2) for k in range(count)], frame_idx=1)
    else:
        tracker.step(picture(0))
        tracker.step(picture(1))
    prompt = graphs.of("decode")[-1]["prompt"]
    points, labels = _pad_points(prompt, "points" if room is None else room)
    total = room or max(count, 1)
    assert (points.shape, points.dtype, labels.shape, labels.dtype) == (
        *((1, 1, total, 2), np.float32),
        *((1, 1, total), np.int32),
    )
    np.testing.assert_array_equal(points[0, 0, :count], prompt.points)
    np.testing.assert_array_equal(labels[0, 0, :count], prompt.labels)
    assert (labels[0, 0, count:] == -1).all()


def test_rule_12_picture_and_points_are_squashed_by_the_same_two_factors() -> None:
    tracker, graphs = start(click=(WIDTH / 4, HEIGHT / 2))
    tracker.step(picture(0))
    tracker.step(picture(1))
    constants = fake_model().constants
    for number, call in enumerate(graphs.of("encode_image")):
        np.testing.assert_array_equal(call["pixel_values"], frame_to_pixel_values(picture(number), constants))
    np.testing.assert_array_equal(graphs.of("decode")[0]["prompt"].points, [[S / 4, S / 2]])


def test_rule_13_mask_prompt_is_the_output_itself() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[6:18, 12:36] = True
    preview = tracker.add_prompt(picture(0), mask=mask)
    wrong = np.argwhere(preview.mask != mask)  # the logits are coarse, which rounds the corners
    assert len(wrong) <= 12
    assert {
        (y in range(5, 9) or y in range(15, 19)) and (x in range(10, 18) or x in range(30, 38)) for y, x in wrong
    } == {True}
    assert preview.object_score == 10
    assert preview.predicted_iou == 1
    results = list(tracker.track(pictures(2)))
    assert_same(results[0].objects[1], preview)
    remembered = graphs.of("encode_memory")[0]
    expected = np.zeros((S, S), bool)
    expected[8:24, 8:24] = True
    logits = remembered["prediction"].high_res_logits[0, 0]
    np.testing.assert_array_equal(logits, resize_logits(preview.mask_logits, (S, S)))
    assert ((logits > 0) != expected).sum() <= 12, "the corners"


def test_rule_13_mask_prompt_still_runs_the_decoder_for_the_pointer() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    mask = np.zeros((S, S), bool)
    mask[3:21, 7:26] = True
    tracker.add_prompt(picture(0), mask=mask)
    assert graphs.names == ["encode_image", "decode"]
    decoded = graphs.of("decode")[0]
    assert decoded["conditioned"] is graphs.of("encode_image")[0].result.feats2, "raw, without the no-memory embedding"
    assert decoded["prompt"].labels.size == 0
    list(tracker.track(pictures(2)))
    downsample = model.constants.mask_prompt_downsample
    assert downsample is not None
    for row, column in np.ndindex(LOW, LOW):
        block = mask[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        expected = (block * np.array(downsample.weight)).sum() + downsample.bias
        np.testing.assert_allclose(decoded["mask_logits"][row, column], expected, rtol=1e-6)
    assert pointers_seen(graphs.of("attend")[0], graphs) == [0]


def test_rule_14_correction_uses_memory_and_the_previous_logits_clamped() -> None:
    tracker, graphs = start()
    tracked = list(tracker.track([picture(0), picture(1), black()]))[-1].objects[1]
    assert (tracked.mask_logits == ABSENT_LOGIT).all()
    graphs.forget_calls()
    preview = tracker.add_prompt(black(), points=[CENTRE])
    assert graphs.names == ["encode_pointer_times", "attend", "decode"]
    assert temporal_rows(graphs.of("attend")[0]["memory"]) == [0, 6]
    decoded = graphs.of("decode")[0]
    assert decoded["conditioned"] is graphs.of("attend")[0].result
    np.testing.assert_array_equal(decoded["mask_logits"], np.full((LOW, LOW), -32, np.float32))
    np.testing.assert_array_equal(preview.mask_logits, decoded.result.outcome.mask_logits)


def test_rule_14_logits_within_the_limit_are_fed_back_as_they_are() -> None:
    tracker, graphs = start()
    tracked = list(tracker.track(pictures(4)))[-1].objects[1]
    assert np.abs(tracked.mask_logits).max() < 32
    tracker.add_prompt(picture(3), points=[(3, 3)])
    np.testing.assert_array_equal(graphs.of("decode")[-1]["mask_logits"], tracked.mask_logits)


def test_rule_14_correction_sticks_and_propagates() -> None:
    tracker, graphs = start()
    before = list(tracker.track(pictures(9)))
    tracker.step(VideoFrame(picture(4), 4))  # back to frame 4
    preview = tracker.add_prompt(picture(4), points=[(3, 3)])
    graphs.forget_calls()
    again = [tracker.step(VideoFrame(picture(number), number)) for number in range(4, 9)]
    assert_same(again[0].objects[1], preview)
    assert all(differs(new.objects[1], old.objects[1]) for new, old in zip(again, before[4:], strict=True))
    correction, *others = graphs.of("encode_memory")
    assert correction["binarize"] is True
    assert [call["binarize"] for call in others] == [False] * 4
    assert len(graphs.of("attend")) == 4, "frame 4 is not run again"
    first = graphs.of("attend")[0]["memory"]
    assert 6 in temporal_rows(first)[:-1] or temporal_rows(first).count(6) == 2


def test_rule_14_any_tracked_frame_can_be_corrected_without_going_back_to_it() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(9)))
    tracker.add_prompt(picture(4), points=[(3, 3)], frame_idx=4)
    last = graphs.of("attend")[-1]["memory"]
    assert temporal_rows(last) == [0, 1, 2, 6]
    assert graphs.of("decode")[-1]["conditioned"] is graphs.of("attend")[-1].result
    fourth = graphs.of("decode")[4].result.outcome.mask_logits
    np.testing.assert_array_equal(graphs.of("decode")[-1]["mask_logits"], fourth)


def test_rule_14_frame_tracked_again_does_not_start_from_its_earlier_logits() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(4)))
    list(tracker.track(numbered(range(4))))
    assert [call["mask_logits"] for call in graphs.of("decode")] == [None] * 7


def test_rule_14_correction_is_never_overwritten_by_stepping_again() -> None:
    tracker, _ = start()
    list(tracker.track(pictures(6)))
    preview = tracker.add_prompt(picture(5), points=[(3, 3)])
    for _ in range(3):
        results = list(tracker.track(numbered(range(9))))
        assert_same(results[5].objects[1], preview)
    assert set(bank_of(tracker).conditioning) == {0, 5}
    assert not set(bank_of(tracker).recent) & {0, 5}


def test_rule_14_correction_changes_later_frames_and_only_its_own_object() -> None:
    def run(*, corrected: bool) -> tuple[list[FrameResult], list[FrameResult]]:
        tracker, _ = start()
        tracker.add_prompt(picture(0), points=[(40, 4)], object_id=2)
        first = list(tracker.track(pictures(6)))
        if corrected:
            tracker.add_prompt(picture(5), points=[(3, 3)])
        return first, list(tracker.track(pictures(12)[6:]))

    first, later = run(corrected=True)
    expected_first, expected_later = run(corrected=False)
    for object_id in (1, 2):
        assert_all_same(first, expected_first, object_id)
    assert_all_same(later, expected_later, 2)
    assert all(differs(a.objects[1], b.objects[1]) for a, b in zip(later, expected_later, strict=True))


def test_rule_14_second_call_on_a_first_prompted_frame_starts_from_the_first() -> None:
    tracker, graphs = start()
    first = graphs.of("decode")[0].result.outcome.mask_logits
    tracker.add_prompt(picture(0), points=[(3, 3)], labels=[0])
    second = graphs.of("decode")[1]
    np.testing.assert_array_equal(second["mask_logits"], np.clip(first, -32, 32))
    assert second["prompt"].labels.tolist() == [1, 0]
    assert second["conditioned"] is graphs.of("encode_image")[0].result.feats2_no_mem
    tracker.add_prompt(picture(0), points=[(6, 6)])
    np.testing.assert_array_equal(
        graphs.of("decode")[2]["mask_logits"], np.clip(second.result.outcome.mask_logits, -32, 32)
    )


def test_rule_14_previous_logits_survive_a_visit_to_another_frame() -> None:
    tracker, graphs = start()
    first = graphs.of("decode")[0].result.outcome.mask_logits
    tracker.add_prompt(picture(9), points=[CENTRE], frame_idx=9)
    tracker.add_prompt(picture(0), points=[(3, 3)], frame_idx=0)
    np.testing.assert_array_equal(graphs.of("decode")[-1]["mask_logits"], np.clip(first, -32, 32))
    assert graphs.of("decode")[-1]["prompt"].labels.tolist() == [1, 1]


def test_rule_14_a_bundle_that_takes_no_logits_is_given_none() -> None:
    tracker, graphs = start(model=fake_model(takes_mask_logits=False))
    tracker.add_prompt(picture(0), points=[(3, 3)])
    list(tracker.track(pictures(3)))
    tracker.add_prompt(picture(2), points=[(3, 3)])
    assert [call["mask_logits"] for call in graphs.of("decode")] == [None] * 5


@pytest.mark.parametrize("tracked_frames", [1, 5])
def test_rule_14_one_negative_click_corrects_a_tracked_frame(tracked_frames: int) -> None:
    tracker, graphs = start()
    last = list(tracker.track(pictures(1 + tracked_frames)))[-1].objects[1]
    preview = tracker.add_prompt(picture(tracked_frames), points=[CENTRE], labels=[0])
    assert graphs.of("decode")[-1]["prompt"].labels.tolist() == [0]
    assert preview.mask.sum() < last.mask.sum()


def test_rule_14_one_negative_click_refines_a_mask_prompt() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    mask = picture(0)[..., 0] > 100
    given = tracker.add_prompt(picture(0), mask=mask)
    tracker.add_prompt(picture(0), points=[CENTRE], labels=[0])
    refined = graphs.of("decode")[-1]
    assert refined["prompt"].labels.tolist() == [0]
    np.testing.assert_array_equal(refined["mask_logits"], given.mask_logits)


def test_rule_15_box_comes_before_all_other_points() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    tracker.add_prompt(picture(0), points=[(40, 12), (3, 3)], labels=[1, 0])
    tracker.add_prompt(picture(0), box=(30, 20, 10, 4))
    tracker.add_prompt(picture(0), points=[(20, 20)])
    prompt = graphs.of("decode")[-1]["prompt"]
    assert prompt.labels.tolist() == [2, 3, 1, 0, 1]
    x, y = S / WIDTH, S / HEIGHT
    expected = [(10 * x, 4 * y), (30 * x, 20 * y), (40 * x, 12 * y), (3 * x, 3 * y), (20 * x, 20 * y)]
    np.testing.assert_allclose(prompt.points, expected, rtol=1e-6)


def test_rule_16_attention_is_given_exactly_the_visible_rows() -> None:
    for model in (fake_model(), fake_model(fixed_memory=True)):
        tracker, graphs = start(model=model)
        list(tracker.track(pictures(20)))
        for frame_idx, call in enumerate(graphs.of("attend"), start=1):
            spatial, pointers = min(frame_idx, MEMORY_FRAMES), min(frame_idx, 16)
            memory = call["memory"]
            assert memory.pointer_rows == pointers * POINTER_ROWS
            assert len(memory.tokens) == spatial * SPATIAL_ROWS + pointers * POINTER_ROWS


def test_rule_16_padding_that_is_masked_out_changes_nothing_and_other_padding_does() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(21)))
    for frame_idx, call in enumerate(graphs.of("attend"), start=1):
        exact = call.result
        features, memory = call["features"], call["memory"]
        filled, key_mask = padded(memory)
        np.testing.assert_allclose(attention(features, filled, key_mask), exact, rtol=1e-5, atol=1e-6)
        if frame_idx < 16:
            assert np.abs(attention(features, filled) - exact).max() > 1e-3, "zero rows receive attention"
            assert np.abs(attention(features, repeated(memory)) - exact).max() > 1e-4, "repeated rows reweight"
        else:  # full: nothing is left to pad
            np.testing.assert_array_equal(attention(features, repeated(memory)), exact)


def test_rule_16_fixed_and_free_shapes_track_alike_while_there_is_room() -> None:
    free, _ = start()
    fixed, _ = start(model=fake_model(fixed_memory=True))
    assert_all_same(free.track(pictures(20)), fixed.track(pictures(20)))


@pytest.mark.parametrize(
    ("fixed_memory", "limit", "spatial", "pointers"),
    [
        (True, None, 7, 16),
        (False, None, 4 + 25, 8 + 25),
        (True, 4, 3 + 4, 12 + 4),
        (False, 4, 4 + 4, 12 + 4),  # of the others four are among the fifteen frames before
    ],
)
def test_rule_17_the_number_of_prompted_frames_is_limited_as_said_and_by_fixed_shapes(
    fixed_memory: bool, limit: int | None, spatial: int, pointers: int
) -> None:
    options = TrackingOptions(max_conditioning_frames=limit)
    tracker, graphs = start(model=fake_model(fixed_memory=fixed_memory), options=options)
    for frame_idx in range(2, 50, 2):
        tracker.add_prompt(picture(frame_idx), points=[CENTRE], frame_idx=frame_idx)
    list(tracker.track(pictures(52)))
    last: MemoryTokens = graphs.of("attend")[-1]["memory"]  # the fake refuses more rows than there is room for
    assert len(last.tokens) == spatial * SPATIAL_ROWS + pointers * POINTER_ROWS


# -- what runs when ---------------------------------------------------------------------------------------------------


def test_vision_encoder_runs_once_a_frame_for_any_number_of_objects() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    for object_id in range(5):
        tracker.add_prompt(picture(0), points=[(5 + 8 * object_id, 12)], object_id=object_id)
    assert graphs.names == ["encode_image", *["decode"] * 5]
    list(tracker.track(pictures(6)))
    assert len(graphs.of("encode_image")) == 6
    assert len(graphs.of("decode")) == len(graphs.of("encode_memory")) == 30
    assert len(graphs.of("attend")) == 25


def test_another_click_runs_the_decoder_only_until_the_tracker_moves_on() -> None:
    tracker, graphs = start()
    for x in (5, 9, 13):
        tracker.add_prompt(picture(0), points=[(x, 9)])
    assert graphs.names == ["encode_image", *["decode"] * 4]
    tracker.step(picture(0))
    assert graphs.names == ["encode_image", *["decode"] * 4, "encode_memory"], "the last answer is remembered, once"
    assert graphs.of("encode_memory")[0]["prediction"] is graphs.of("decode")[-1].result
    graphs.forget_calls()
    tracker.step(picture(1))
    assert graphs.names == ["encode_image", "encode_pointer_times", "attend", "decode", "encode_memory"]
    graphs.forget_calls()
    tracker.add_prompt(picture(1), points=[(3, 3)])
    assert "encode_image" not in graphs.names
    assert "encode_memory" not in graphs.names


def test_object_on_the_frame_at_hand_does_not_run_the_vision_encoder() -> None:
    tracker, graphs = start()
    list(tracker.track(pictures(3)))
    graphs.forget_calls()
    tracker.add_prompt(picture(2), points=[CENTRE], object_id=2)
    tracker.add_prompt(picture(2).copy(), box=BOX, object_id=3)
    assert graphs.names == ["decode", "decode"]


def test_prompted_frame_is_not_run_again() -> None:
    tracker, graphs = start()
    preview = tracker.add_prompt(picture(2), points=[CENTRE], frame_idx=2)
    graphs.forget_calls()
    results = list(tracker.track(pictures(3)))
    assert_same(results[2].objects[1], preview)
    assert len(graphs.of("encode_image")) == len(graphs.of("attend")) == 1, "frame 1 alone is new"


def resized_frames(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with every frame that is resized."""
    seen: list[int] = []
    original = frame_to_pixel_values

    def count(rgb: NDArray[np.uint8], constants: Any) -> Any:
        seen.append(1)
        return original(rgb, constants)

    monkeypatch.setattr(sam2track.tracker, "frame_to_pixel_values", count)
    return seen


def test_frame_is_resized_once_for_any_number_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, _ = start()
    tracker.add_prompt(picture(0), points=[(5, 5)], object_id=2)
    tracker.add_prompt(picture(0), points=[(9, 9)], object_id=3)
    tracker.step(picture(0))
    resized = resized_frames(monkeypatch)
    tracker.step(picture(1))
    assert len(resized) == 1
