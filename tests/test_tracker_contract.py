"""What a tracker promises its users, on fake graphs: results, frame numbers, memory, errors."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fakes import (
    BOX,
    CENTRE,
    HEIGHT,
    POINTER_TIME_SCALE,
    WIDTH,
    FakeGraphs,
    S,
    assert_all_same,
    assert_same,
    bank_of,
    fake_graphs,
    fake_model,
    picture,
    pictures,
    pointers_seen,
    start,
    temporal_rows,
)
from numpy.typing import NDArray

from sam2track.errors import FrameError, PromptError, Sam2TrackError, TrackerStateError, UnknownObjectError
from sam2track.tracker import Tracker
from sam2track.types import FloatArray, FrameResult, VideoFrame

# -- properties -------------------------------------------------------------------------------------------------------


def test_step_by_step_equals_track() -> None:
    tracked, _ = start()
    stepped, _ = start()
    assert_all_same(tracked.track(pictures(20)), [stepped.step(frame) for frame in pictures(20)])


def test_tracking_in_parts_equals_tracking_at_once() -> None:
    whole, _ = start()
    parts, _ = start()
    expected = list(whole.track(pictures(20)))
    results = [*parts.track(pictures(20)[:7]), *parts.track(pictures(20)[7:])]
    assert_all_same(expected, results)


def test_reset_is_as_good_as_a_new_tracker() -> None:
    def run(tracker: Tracker) -> list[FrameResult]:
        tracker.add_prompt(picture(0), points=[CENTRE])
        return list(tracker.track(pictures(20)))

    used = Tracker(fake_model())
    used.add_prompt(picture(50, height=31, width=17), box=(2, 2, 15, 15), object_id="other", frame_idx=3)
    used.step(VideoFrame(picture(51, height=31, width=17), 4))
    used.step(VideoFrame(picture(52, height=31, width=17), 0))
    used.reset()
    assert used.object_ids == ()
    with pytest.raises(TrackerStateError):
        used.step(picture(0))
    assert_all_same(run(used), run(Tracker(fake_model())))


def test_ids_are_any_hashable_and_keep_their_order() -> None:
    ids: list[Hashable] = ["cat", (1, 2), None, frozenset({3}), 2.5, -7, b"x"]
    tracker = Tracker(fake_model())
    for number, object_id in enumerate(ids):
        tracker.add_prompt(picture(0), points=[(5 + 5 * number, 12)], object_id=object_id)
    result = tracker.step(picture(0))
    assert tracker.object_ids == tuple(ids) == tuple(result.objects)


def test_permuting_ids_permutes_the_results() -> None:
    clicks = {"a": (8, 8), "b": (24, 12), "c": (40, 18)}

    def run(order: Iterable[str], names: dict[str, str]) -> list[FrameResult]:
        tracker = Tracker(fake_model())
        for name in order:
            tracker.add_prompt(picture(0), points=[clicks[name]], object_id=names[name])
        return list(tracker.track(pictures(9)))

    expected = run("abc", {"a": "a", "b": "b", "c": "c"})
    renamed = run("cab", {"a": "b", "b": "c", "c": "a"})
    for left, right in zip(expected, renamed, strict=True):
        for old, new in (("a", "b"), ("b", "c"), ("c", "a")):
            assert_same(left.objects[old], right.objects[new])


def test_removed_object_is_forgotten_and_its_id_is_free() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(0), points=[(5, 5)], object_id=2)
    list(tracker.track(pictures(4)))
    tracker.remove(1)
    assert tracker.object_ids == (2,)
    assert tuple(tracker.step(picture(4)).objects) == (2,)
    graphs.forget_calls()
    again = tracker.add_prompt(picture(4), points=[CENTRE], object_id=1)
    fresh = Tracker(fake_model())
    assert_same(again, fresh.add_prompt(picture(4), points=[CENTRE], object_id=1))
    assert graphs.of("decode")[0]["mask_logits"] is None
    assert tracker.object_ids == (2, 1)


def test_object_removed_before_the_tracker_moves_on_is_not_remembered() -> None:
    tracker, graphs = start()
    tracker.add_prompt(picture(0), points=[(5, 5)], object_id=2)
    tracker.remove(2)
    tracker.step(picture(0))
    assert len(graphs.of("encode_memory")) == 1
    with pytest.raises(UnknownObjectError):
        tracker.remove(2)


def test_objects_can_come_and_go_while_track_runs() -> None:
    tracker, _ = start()
    ids = []
    for result in tracker.track(pictures(6)):
        ids.append(tuple(result.objects))
        if result.frame_idx == 1:
            tracker.add_prompt(picture(1), points=[(5, 5)], object_id=2)
        if result.frame_idx == 3:
            tracker.remove(1)
    assert ids == [(1,), (1,), (1, 2), (1, 2), (2,), (2,)]


def test_track_is_lazy_and_takes_one_frame_at_a_time() -> None:
    taken: list[int] = []

    def source() -> Iterator[NDArray[np.uint8]]:
        for number in range(100):
            taken.append(number)
            yield picture(number)

    tracker, graphs = start()
    results = tracker.track(source())
    assert (taken, len(graphs.calls)) == ([], 2)
    assert next(results).frame_idx == 0
    assert next(results).frame_idx == 1
    assert taken == [0, 1]


def test_track_can_be_closed_and_gone_on_with() -> None:
    whole, _ = start()
    expected = list(whole.track(pictures(9)))
    tracker, _ = start()
    results = tracker.track(pictures(9))
    begun = [next(results), next(results), next(results)]
    results.close()  # type: ignore[attr-defined]
    assert list(results) == []
    assert_all_same(expected, [*begun, *tracker.track(pictures(9)[3:])])


class QuickGraphs(FakeGraphs):
    """Arrays of the right size, new ones every time, and no arithmetic: for long runs."""

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        return _fresh(self.template["decode"])

    def encode_image(self, *args: Any, **kwargs: Any) -> Any:
        return _fresh(self.template["encode_image"])

    def encode_memory(self, *args: Any, **kwargs: Any) -> Any:
        return _fresh(self.template["encode_memory"])

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        return self.template["attend"].copy()

    def encode_pointer_times(self, normalized_diffs: FloatArray) -> FloatArray:
        return normalized_diffs[:, None] * POINTER_TIME_SCALE

    template: dict[str, Any]


def _fresh(value: Any) -> Any:
    arrays = {name: getattr(value, name) for name in value.__slots__}
    return replace(value, **{name: array.copy() for name, array in arrays.items() if isinstance(array, np.ndarray)})


def test_memory_does_not_grow_between_frame_500_and_10_000() -> None:
    model = fake_model()
    tracker, graphs, frame = Tracker(model), fake_graphs(model), picture(0, height=S, width=S)
    tracker.add_prompt(frame, points=[(9, 9)])
    list(tracker.track([frame] * 2))
    quick = QuickGraphs()
    quick.template = {call.name: call.result for call in graphs.calls}
    tracker._graphs = tracker.track_of(1)._graphs = quick
    bank = bank_of(tracker)

    def step(times: int) -> int:
        return max(len(tracker.step(frame).objects) * (len(bank.recent) + len(bank.conditioning)) for _ in range(times))

    assert step(500) <= 1 + 16
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert step(9500) <= 1 + 16
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2**20
    assert len(tracker.track_of(1).answers) == 1


# -- frame numbers ----------------------------------------------------------------------------------------------------


def test_arrays_are_numbered_on_from_the_frame_stepped_last() -> None:
    tracker, _ = start()
    assert [result.frame_idx for result in tracker.track(pictures(3))] == [0, 1, 2]
    assert tracker.step(VideoFrame(picture(7), 7)).frame_idx == 7
    assert tracker.step(picture(8)).frame_idx == 8
    assert [result.frame_idx for result in tracker.track([picture(9), VideoFrame(picture(2), 2), picture(3)])] == [
        *(9, 2, 3)
    ]


def test_prompt_without_a_number_means_the_frame_stepped_last_or_the_first() -> None:
    tracker, _ = start()
    list(tracker.track(pictures(5)))
    tracker.add_prompt(picture(4), points=[(3, 3)])
    tracker.step(picture(5))
    assert set(bank_of(tracker).conditioning) == {0, 4}


def test_video_frame_brings_its_own_number_for_prompts() -> None:
    tracker = Tracker(fake_model())
    tracker.add_prompt(VideoFrame(picture(3), 3), points=[CENTRE])
    tracker.add_prompt(VideoFrame(picture(6), 6), points=[CENTRE], frame_idx=6)
    with pytest.raises(FrameError, match=r"frame_idx 2 .*index is 3"):
        tracker.add_prompt(VideoFrame(picture(3), 3), points=[CENTRE], frame_idx=2)
    tracker.step(VideoFrame(picture(2), 2))
    assert set(bank_of(tracker).conditioning) == {3, 6}


def test_prompts_on_later_frames_are_kept_until_tracking_gets_there() -> None:
    tracker, graphs = start()
    seventh = tracker.add_prompt(picture(7), points=[CENTRE], frame_idx=7)
    fourth = tracker.add_prompt(picture(4), box=BOX, object_id=2, frame_idx=4)
    results = list(tracker.track(pictures(9)))
    assert_same(results[7].objects[1], seventh)
    assert_same(results[4].objects[2], fourth)
    assert all(tuple(result.objects) == (1, 2) for result in results)
    flags = [call["binarize"] for call in graphs.of("encode_memory")]
    assert flags.count(True) == 3
    assert flags.count(False) == 2 * 9 - 3


def test_object_is_found_on_frames_before_its_prompt_too() -> None:
    model = fake_model()
    tracker, graphs = Tracker(model), fake_graphs(model)
    tracker.add_prompt(picture(7), points=[CENTRE], frame_idx=7)
    list(tracker.track(pictures(2)))
    first = graphs.of("attend")[0]["memory"]
    assert temporal_rows(first) == [6]
    assert first.pointer_rows == 0, "a prompt in the future lends its memory, not its pointer"
    assert pointers_seen(graphs.of("attend")[1], graphs) == [1]


def test_times_are_carried_over() -> None:
    tracker, _ = start()
    result = tracker.step(VideoFrame(picture(0), 0, pts=1001, time_base=Fraction(1, 30000)))
    assert (result.pts, result.time_base) == (1001, Fraction(1, 30000))
    plain = tracker.step(picture(1))
    assert (plain.pts, plain.time_base) == (None, None)


def test_numpy_integers_are_frame_numbers() -> None:
    tracker = Tracker(fake_model())
    preview = tracker.add_prompt(picture(3), points=[CENTRE], frame_idx=np.int64(3))  # type: ignore[arg-type]
    assert_same(tracker.step(VideoFrame(picture(3), 3)).objects[1], preview)


def test_stepping_a_frame_again_gives_the_same_masks() -> None:
    tracker, _ = start()
    last = list(tracker.track(pictures(25)))[-1]
    again = tracker.step(VideoFrame(picture(24), 24))
    assert_same(again.objects[1], last.objects[1])


# -- errors -----------------------------------------------------------------------------------------------------------


def test_tracking_before_any_prompt_is_an_error() -> None:
    tracker = Tracker(fake_model())
    with pytest.raises(TrackerStateError, match="add_prompt"):
        tracker.step(picture(0))
    with pytest.raises(TrackerStateError, match="add_prompt"):
        next(tracker.track(pictures(1)))
    tracker.add_prompt(picture(0), points=[CENTRE])
    tracker.remove(1)
    with pytest.raises(TrackerStateError):
        tracker.step(picture(0))


BAD_FRAMES: dict[str, Any] = {
    "float": np.zeros((HEIGHT, WIDTH, 3), np.float32),
    "16-bit": np.zeros((HEIGHT, WIDTH, 3), np.uint16),
    "bool": np.zeros((HEIGHT, WIDTH, 3), bool),
    "grey": np.zeros((HEIGHT, WIDTH), np.uint8),
    "rgba": np.zeros((HEIGHT, WIDTH, 4), np.uint8),
    "planar": np.zeros((3, HEIGHT, WIDTH), np.uint8),
    "empty": np.zeros((0, WIDTH, 3), np.uint8),
    "list": [[[0, 0, 0]]],
    "nothing": None,
    "text": "frame.png",
    "another size": np.zeros((HEIGHT + 1, WIDTH, 3), np.uint8),
    "turned": np.zeros((WIDTH, HEIGHT, 3), np.uint8),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
def test_bad_frame_is_an_error_that_says_what_it_got_and_changes_nothing(kind: str) -> None:
    whole, _ = start()
    expected = list(whole.track(pictures(4)))
    tracker, graphs = start()
    begun = list(tracker.track(pictures(2)))
    count = len(graphs.calls)
    for use in (
        lambda frame: tracker.step(frame),
        lambda frame: tracker.step(VideoFrame(frame, 2)),
        lambda frame: tracker.add_prompt(frame, points=[CENTRE]),
        lambda frame: tracker.add_prompt(frame, points=[CENTRE], object_id=2, frame_idx=9),
    ):
        with pytest.raises(FrameError) as caught:
            use(BAD_FRAMES[kind])
        shape = getattr(BAD_FRAMES[kind], "shape", None)
        message = str(caught.value)
        assert (str(shape) if shape and len(shape) == 3 and shape[2] == 3 and shape[0] else "expected") in message or (
            str(shape[:2]) in message
        )
    assert len(graphs.calls) == count
    assert_all_same(expected, [*begun, *tracker.track(pictures(4)[2:])])


def test_negative_frame_number_is_an_error() -> None:
    tracker, _ = start()
    with pytest.raises(FrameError, match=r"-1.*0 or more"):
        tracker.step(VideoFrame(picture(1), -1))
    with pytest.raises(FrameError, match=r"-3.*0 or more"):
        tracker.add_prompt(picture(1), points=[CENTRE], frame_idx=-3)
    assert tracker.step(picture(0)).frame_idx == 0


@pytest.mark.parametrize("frame_idx", [1.5, float("nan"), "3", (0,)])
def test_frame_number_that_is_no_integer_is_an_error(frame_idx: Any) -> None:
    tracker, _ = start()
    with pytest.raises(FrameError):
        tracker.add_prompt(picture(1), points=[CENTRE], frame_idx=frame_idx)
    with pytest.raises(FrameError):
        tracker.step(VideoFrame(picture(1), frame_idx))


def test_another_picture_under_the_same_number_is_an_error() -> None:
    tracker, _ = start()
    with pytest.raises(FrameError, match="frame 0 is not the picture"):
        tracker.add_prompt(picture(1), points=[CENTRE])
    list(tracker.track(pictures(3)))
    with pytest.raises(FrameError, match="frame 2 is not the picture"):
        tracker.add_prompt(picture(3), points=[CENTRE])
    with pytest.raises(FrameError, match="frame 2 is not the picture"):
        tracker.step(VideoFrame(picture(3), 2))
    assert tracker.step(picture(3)).frame_idx == 3


def test_stepping_another_picture_under_the_number_of_the_prompted_one_is_an_error() -> None:
    """The likeliest slip: a click on frame 40, given without its number, and then the clip from frame 0 on."""
    tracker = Tracker(fake_model())
    tracker.add_prompt(picture(40), points=[CENTRE])
    with pytest.raises(FrameError, match="frame 0 is not the picture"):
        tracker.step(picture(0))


def test_unknown_object_is_a_key_error_that_names_the_ids() -> None:
    tracker, _ = start()
    with pytest.raises(UnknownObjectError, match=r"there is no object 'dog'; the ids are \[1\]"):
        tracker.remove("dog")
    with pytest.raises(KeyError):
        tracker.remove(2)
    assert tracker.object_ids == (1,)


@pytest.mark.parametrize(("takes_mask_logits", "mask_prompts"), [(False, False), (False, True), (True, False)])
def test_mask_for_a_bundle_that_takes_none_is_an_error(takes_mask_logits: bool, mask_prompts: bool) -> None:
    """It needs both: a decoder with an input for logits, and the kernel that makes them of a mask."""
    model = fake_model(takes_mask_logits=takes_mask_logits, mask_prompts=mask_prompts)
    tracker = Tracker(model)
    with pytest.raises(PromptError, match="takes no mask"):
        tracker.add_prompt(picture(0), mask=np.ones((HEIGHT, WIDTH), bool))
    assert tracker.object_ids == ()
    assert fake_graphs(model).of("decode") == []
    tracker.add_prompt(picture(0), points=[CENTRE])


BAD_PROMPTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "outside": {"points": [(WIDTH, 3)]},
    "nan": {"points": [(np.nan, 3)]},
    "label": {"points": [(3, 3)], "labels": [4]},
    "no points": {"points": []},
    "lengths": {"points": [(3, 3)], "labels": [1, 1]},
    "empty mask": {"mask": np.zeros((HEIGHT, WIDTH), bool)},
    "mask and points": {"mask": np.ones((HEIGHT, WIDTH), bool), "points": [(3, 3)]},
}


@pytest.mark.parametrize("kind", BAD_PROMPTS)
@pytest.mark.parametrize("place", [{}, {"object_id": 2}, {"frame_idx": 9}, {"object_id": 2, "frame_idx": 9}])
def test_failed_prompt_changes_nothing(kind: str, place: dict[str, Any]) -> None:
    whole, _ = start()
    expected = list(whole.track(pictures(6)))
    tracker, graphs = start()
    begun = list(tracker.track(pictures(3)))
    count = len(graphs.calls)
    frame = picture(place.get("frame_idx", 2))
    with pytest.raises(PromptError):
        tracker.add_prompt(frame, **BAD_PROMPTS[kind], **place)
    assert len(graphs.calls) == count
    assert tracker.object_ids == (1,)
    assert_all_same(expected, [*begun, *tracker.track(pictures(6)[3:])])


def test_only_negative_points_on_a_new_object_are_an_error_and_change_nothing() -> None:
    tracker, graphs = start()
    with pytest.raises(PromptError, match="inside"):
        tracker.add_prompt(picture(0), points=[CENTRE], labels=[0], object_id=2)
    assert tracker.object_ids == (1,)
    assert len(graphs.of("decode")) == 1


def test_failed_first_prompt_does_not_fix_the_frame_size() -> None:
    tracker = Tracker(fake_model())
    with pytest.raises(PromptError):
        tracker.add_prompt(picture(0, height=10, width=10), points=[(99, 99)])
    tracker.add_prompt(picture(0), points=[CENTRE])


@pytest.mark.parametrize("graph", ["encode_image", "decode", "encode_memory", "attend", "encode_pointer_times"])
def test_tracker_goes_on_after_a_graph_failed(graph: str) -> None:
    """At the prompt, at the correction, and on a frame between two objects: try again and nothing is lost."""

    def attempt(graphs: FakeGraphs, call: Callable[[], Any], *, fail: bool) -> Any:
        if fail:
            graphs.fail_next = graph
            try:
                result = call()
            except ArithmeticError:
                assert graphs.fail_next is None
            else:
                graphs.fail_next = None
                return result
        return call()

    def run(*, fail: bool) -> list[FrameResult]:
        model = fake_model()
        tracker, graphs = Tracker(model), fake_graphs(model)
        for object_id, point in ((1, CENTRE), (2, (5, 5))):
            attempt(
                graphs,
                lambda i=object_id, p=point: tracker.add_prompt(picture(0), points=[p], object_id=i),  # type: ignore[misc]
                fail=fail,
            )
        results = [attempt(graphs, lambda f=frame: tracker.step(f), fail=fail) for frame in pictures(4)]  # type: ignore[misc]
        attempt(graphs, lambda: tracker.add_prompt(picture(3), points=[(7, 7)]), fail=fail)
        return [*results, *(attempt(graphs, lambda f=frame: tracker.step(f), fail=fail) for frame in pictures(9)[4:])]  # type: ignore[misc]

    for object_id in (1, 2):
        assert_all_same(run(fail=False), run(fail=True), object_id)


def test_failed_prompt_does_not_add_the_object() -> None:
    tracker, graphs = start()
    graphs.fail_next = "decode"
    with pytest.raises(ArithmeticError):
        tracker.add_prompt(picture(0), points=[(5, 5)], object_id=2)
    assert tracker.object_ids == (1,)
    assert tuple(tracker.step(picture(0)).objects) == (1,)


def test_every_error_is_the_package_s_own_and_a_builtin() -> None:
    tracker, _ = start()
    for use, builtin in (
        (lambda: tracker.add_prompt(picture(0)), ValueError),
        (lambda: tracker.step(None), ValueError),  # type: ignore[arg-type]
        (lambda: tracker.remove(5), KeyError),
        (lambda: Tracker(fake_model()).step(picture(0)), RuntimeError),
    ):
        with pytest.raises(Sam2TrackError) as caught:
            use()
        assert isinstance(caught.value, builtin)
