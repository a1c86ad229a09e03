"""Undo, clearing, corrections that are to be forgotten, backwards, doubt and events, with a fake model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import (
    CENTRE,
    S,
    assert_all_same,
    assert_same,
    bank_of,
    black,
    differs,
    fake_graphs,
    fake_model,
    numbered,
    picture,
    pictures,
    start,
    temporal_rows,
)

from sam2track.errors import FrameError, PromptError, TrackerStateError, UnknownObjectError
from sam2track.options import TrackingOptions
from sam2track.postprocess import resize_logits
from sam2track.prompts import mask_prompt_output
from sam2track.tracker import Tracker
from sam2track.types import TrackEvent, VideoFrame

# -- undo and clear -----------------------------------------------------------------------------------------------


def test_undo_gives_back_the_answer_before_without_running_a_graph() -> None:
    tracker, graphs = start()
    answers = [tracker.add_prompt(picture(0), points=[point]) for point in ((30, 6), (3, 3))]
    graphs.forget_calls()
    undone = tracker.undo()
    assert undone is not None
    assert_same(undone, answers[0])
    assert graphs.names == []
    tracker.undo()
    assert tracker.undo() is None
    assert tracker.object_ids == (), "an object without prompts does not exist"


def test_tracking_after_undo_equals_tracking_without_the_prompt() -> None:
    tracker, _ = start()
    tracker.add_prompt(picture(0), points=[(3, 3)])
    tracker.undo()
    expected, _ = start()
    assert_all_same(tracker.track(pictures(8)), expected.track(pictures(8)))


def test_next_prompt_after_undo_adds_to_what_is_left() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(0), points=[(3, 3)])
    tracker.undo()
    again = tracker.add_prompt(picture(0), points=[(40, 4)], labels=[0])
    decoded = graphs.of("decode")[-1]
    np.testing.assert_array_equal(decoded["prompt"].labels, [1, 0])
    expected, _ = start()
    assert_same(again, expected.add_prompt(picture(0), points=[(40, 4)], labels=[0]))


def test_undone_correction_leaves_the_tracked_result_and_what_follows_from_it() -> None:
    tracker, graphs = start()
    tracked = list(tracker.track(pictures(6)))
    tracker.add_prompt(picture(5), points=[(3, 3)])
    tracker.add_prompt(picture(5), points=[(40, 4)], labels=[0])
    graphs.forget_calls()
    tracker.undo()
    undone = tracker.undo()
    assert undone is not None
    assert_same(undone, tracked[5].objects[1])
    assert graphs.names == []
    expected, _ = start()
    list(expected.track(pictures(6)))
    assert_all_same(tracker.track(pictures(12)[6:]), expected.track(pictures(12)[6:]))


def test_undo_works_after_the_memory_was_encoded_and_on_a_frame_given_again() -> None:
    tracker, _ = start()
    first = tracker.add_prompt(picture(0), points=[(30, 6)])
    tracker.add_prompt(picture(0), points=[(3, 3)])
    list(tracker.track(pictures(3)))
    with pytest.raises(TrackerStateError, match="give it again"):
        tracker.undo(frame_idx=0)
    undone = tracker.undo(picture(0), frame_idx=0)
    assert undone is not None
    assert_same(undone, first)
    expected, _ = start()
    expected.add_prompt(picture(0), points=[(30, 6)])
    list(expected.track(pictures(3)))
    for target in (tracker, expected):
        target.step(VideoFrame(picture(0), 0))
    memories = [bank_of(target).conditioning[0].spatial for target in (tracker, expected)]
    assert memories[0] is not None and memories[1] is not None
    # The logits are brought to the input's size by another route: bilinear instead of the fake's repetition.
    assert memories[0].tokens.shape == memories[1].tokens.shape


def test_undone_mask_prompt_is_remembered_as_it_was_given() -> None:
    mask = np.zeros((S, S), bool)
    mask[4:20, 7:25] = True
    tracker, graphs = start()
    tracker.add_prompt(picture(1), mask=mask, frame_idx=1)
    tracker.add_prompt(picture(1), points=[(3, 3)], frame_idx=1)
    tracker.undo()
    tracker.step(VideoFrame(picture(2), 2))
    remembered = graphs.of("encode_memory")[-2]["prediction"].high_res_logits[0, 0]
    np.testing.assert_array_equal(remembered, resize_logits(mask_prompt_output(mask).mask_logits, (S, S)))


def test_cleared_frame_is_as_before_its_prompts() -> None:
    tracker, _ = start()
    tracked = list(tracker.track(pictures(6)))
    for point in ((3, 3), (40, 4)):
        tracker.add_prompt(picture(5), points=[point])
    cleared = tracker.clear_frame(5)
    assert cleared is not None
    assert_same(cleared, tracked[5].objects[1])
    assert set(bank_of(tracker).conditioning) == {0}
    assert tracker.clear_frame(0) is None
    assert tracker.object_ids == ()


def test_clearing_one_of_two_prompted_frames_keeps_the_object() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(4), points=[CENTRE], frame_idx=4)
    list(tracker.track(pictures(6)))
    assert tracker.clear_frame(4) is None, "it was passed over, not tracked"
    assert tracker.object_ids == (1,)
    graphs.forget_calls()
    tracker.add_prompt(picture(4), points=[CENTRE], frame_idx=4)
    assert not graphs.of("attend"), "with nothing known there it is a first prompt again"


@pytest.mark.parametrize("call", [lambda t: t.undo(object_id=2), lambda t: t.clear_frame(0, object_id=2)])
def test_undo_and_clear_of_an_unknown_object_are_key_errors(call: Any) -> None:
    tracker, _ = start()
    with pytest.raises(UnknownObjectError, match="ids are"):
        call(tracker)


def test_undo_and_clear_without_a_prompt_there_say_where_prompts_are() -> None:
    tracker, _ = start()
    list(tracker.track(pictures(3)))
    with pytest.raises(TrackerStateError, match=r"prompts on \[0\]"):
        tracker.undo()
    with pytest.raises(TrackerStateError, match=r"prompts on \[0\]"):
        tracker.clear_frame(2)


# -- corrections that are forgotten -------------------------------------------------------------------------------


def test_forgotten_correction_is_used_until_its_frame_is_tracked_again() -> None:
    tracker, graphs = start(options=TrackingOptions(keep_corrections=False))
    before = list(tracker.track(pictures(6)))
    tracker.add_prompt(picture(5), points=[(3, 3)])
    tracker.step(VideoFrame(picture(6), 6))
    assert graphs.of("encode_memory")[-2]["binarize"] is True
    assert set(bank_of(tracker).conditioning) == {0}
    assert temporal_rows(graphs.of("attend")[-1]["memory"]).count(6) == 1
    again = tracker.step(VideoFrame(picture(5), 5))
    assert_same(again.objects[1], before[5].objects[1])
    graphs.forget_calls()
    tracker.add_prompt(picture(5), points=[(40, 4)])
    np.testing.assert_array_equal(graphs.of("decode")[0]["prompt"].labels, [1])


def test_first_prompts_are_kept_even_if_corrections_are_not() -> None:
    tracker, _ = start(options=TrackingOptions(keep_corrections=False))
    tracker.add_prompt(picture(3), points=[CENTRE], frame_idx=3)
    list(tracker.track(pictures(6)))
    assert set(bank_of(tracker).conditioning) == {0, 3}


# -- backwards ----------------------------------------------------------------------------------------------------


def test_backwards_equals_forwards_on_reversed_frames() -> None:
    count = 20
    forward, backward = (Tracker(fake_model(), num_frames=count) for _ in range(2))
    forward.add_prompt(picture(0), points=[CENTRE])
    backward.add_prompt(VideoFrame(picture(0), count - 1), points=[CENTRE])
    ahead = list(forward.track(pictures(count)))
    behind = list(backward.track(pictures(count), reverse=True))
    assert [result.frame_idx for result in behind] == list(range(count - 1, -1, -1))
    for left, right in zip(ahead, behind, strict=True):
        assert_same(left.objects[1], right.objects[1])


def test_backwards_arrays_need_a_number_to_start_from() -> None:
    tracker, _ = start()
    with pytest.raises(TrackerStateError, match="num_frames"):
        tracker.step(picture(0), reverse=True)


def test_correction_of_a_frame_tracked_backwards_looks_at_the_frames_after_it() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    tracker.add_prompt(VideoFrame(picture(12), 12), points=[CENTRE])
    list(tracker.track(reversed(numbered(range(13))), reverse=True))
    tracker.add_prompt(VideoFrame(picture(8), 8), points=[(3, 3)])
    assert temporal_rows(graphs.of("attend")[-1]["memory"]) == [0, 1, 2, 6]  # 9, 10, 11, and the prompted one


# -- some of the objects ------------------------------------------------------------------------------------------


def test_only_the_wanted_objects_are_tracked_and_the_others_do_not_notice() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(0), points=[(3, 3)], object_id="b")
    graphs.forget_calls()
    some = [tracker.step(frame, object_ids=["b"]) for frame in numbered(range(4))]
    assert all(list(result.objects) == ["b"] for result in some)
    assert len(graphs.of("attend")) == 3
    expected, _ = start()
    assert_all_same(tracker.track(numbered(range(4))), expected.track(numbered(range(4))))


def test_unknown_wanted_object_is_a_key_error() -> None:
    tracker, _ = start()
    with pytest.raises(UnknownObjectError):
        tracker.step(picture(0), object_ids=[1, 2])


# -- doubt --------------------------------------------------------------------------------------------------------


def test_lost_and_found_are_told_once_each() -> None:
    tracker, _ = start()
    shown = [picture(0), picture(1), black(), black(), picture(2), picture(3)]
    results = list(tracker.track(shown))
    assert [result.events for result in results] == [
        (),
        (),
        (TrackEvent("lost", 1),),
        (),
        (TrackEvent("found", 1),),
        (),
    ]
    assert [result.objects[1].present for result in results] == [True, True, False, False, True, True]


def test_masks_of_low_predicted_iou_are_reported_empty_and_nothing_else_changes() -> None:
    plain, _ = start()
    results = list(plain.track(pictures(8)))
    ious = sorted(result.objects[1].predicted_iou for result in results)
    limit = (ious[3] + ious[4]) / 2
    choosy, _ = start(options=TrackingOptions(report_min_iou=limit))
    for left, right in zip(results, choosy.track(pictures(8)), strict=True):
        before, after = left.objects[1], right.objects[1]
        np.testing.assert_array_equal(before.mask_logits, after.mask_logits)
        assert after.present is (before.predicted_iou >= limit)
        np.testing.assert_array_equal(after.mask, before.mask if after.present else np.zeros_like(before.mask))


def test_frames_of_low_predicted_iou_stay_out_of_the_memory() -> None:
    plain, _ = start()
    results = list(plain.track(pictures(12)))
    limit = float(np.median([result.objects[1].predicted_iou for result in results]))
    choosy, graphs = start(options=TrackingOptions(memory_min_iou=limit))
    list(choosy.track(pictures(12)))
    doubtful = sum(entry.outcome.predicted_iou < limit for entry in bank_of(choosy).recent.values())
    assert 0 < doubtful < len(bank_of(choosy).recent)
    assert len(temporal_rows(graphs.of("attend")[-1]["memory"])) < 7


# -- borders ------------------------------------------------------------------------------------------------------


def test_object_id_that_cannot_be_hashed_is_refused() -> None:
    tracker = Tracker(fake_model())
    with pytest.raises(PromptError, match="hashable"):
        tracker.add_prompt(picture(0), points=[CENTRE], object_id=[1])


def test_frame_beyond_the_known_length_is_refused() -> None:
    tracker = Tracker(fake_model(), num_frames=5)
    with pytest.raises(FrameError, match="has 5 frames"):
        tracker.add_prompt(VideoFrame(picture(5), 5), points=[CENTRE])
    assert differs(
        tracker.add_prompt(VideoFrame(picture(4), 4), points=[CENTRE]),
        tracker.add_prompt(VideoFrame(picture(3), 3), points=[CENTRE]),
    )
