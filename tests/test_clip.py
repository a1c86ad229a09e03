"""Whole clips with a fake model: directions, ranges, what is run again, saving and restoring."""

from __future__ import annotations

import json
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import BOX, CENTRE, HEIGHT, WIDTH, S, black, fake_graphs, fake_model, frames_seen, picture, pictures, start

from sam2track.clip import Clip
from sam2track.errors import (
    ClipStateError,
    FrameError,
    OptionsError,
    OutputError,
    OutputExistsError,
    PromptError,
    TrackerStateError,
    UnknownObjectError,
)
from sam2track.models import Model, load
from sam2track.options import TrackingOptions
from sam2track.tracker import Tracker
from sam2track.types import FrameResult, ObjectResult, VideoFrame

COUNT = 40


@pytest.fixture(autouse=True)
def sha256(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake bundle has no files."""
    monkeypatch.setattr("sam2track.models.Bundle.sha256", "f" * 64)


def clip_of(count: int = COUNT, *, model: Model | None = None, **arguments: Any) -> Clip:
    return Clip(model or fake_model(), pictures(count), **arguments)


def assert_close(first: ObjectResult, second: ObjectResult, *, tolerance: float = 0.0) -> None:
    """Equal to within float16, in which a clip keeps logits, and what follows from that."""
    np.testing.assert_allclose(first.mask_logits, second.mask_logits, rtol=2**-10, atol=2**-10 + tolerance)
    assert first.object_score == pytest.approx(second.object_score, abs=1e-6 + tolerance)


def assert_identical(first: FrameResult, second: FrameResult) -> None:
    assert (first.frame_idx, first.pts, list(first.objects)) == (second.frame_idx, second.pts, list(second.objects))
    for object_id, result in first.objects.items():
        np.testing.assert_array_equal(result.mask, second.objects[object_id].mask)
        np.testing.assert_array_equal(result.mask_logits, second.objects[object_id].mask_logits)


def encoded(model: Model) -> int:
    return len(fake_graphs(model).of("encode_image"))


# -- directions and ranges ----------------------------------------------------------------------------------------


def test_forward_equals_the_tracker() -> None:
    clip, (tracker, _) = clip_of(), start(num_frames=COUNT)
    clip.add_prompt([CENTRE])
    for ours, theirs in zip(clip.track(), tracker.track(pictures(COUNT)), strict=True):
        assert ours.frame_idx == theirs.frame_idx
        assert_close(ours.objects[1], theirs.objects[1])


def test_backward_equals_the_tracker_and_has_the_source_s_numbers() -> None:
    clip = clip_of()
    clip.add_prompt([CENTRE], frame_idx=COUNT - 1)
    tracker = Tracker(fake_model(), num_frames=COUNT)
    tracker.add_prompt(VideoFrame(picture(COUNT - 1), COUNT - 1), points=[CENTRE])
    theirs = list(tracker.track(reversed(pictures(COUNT)), reverse=True))
    ours = list(clip.track("backward"))
    assert [result.frame_idx for result in ours] == list(range(COUNT - 1, -1, -1))
    for left, right in zip(ours, theirs, strict=True):
        assert_close(left.objects[1], right.objects[1])


def test_both_goes_forward_then_backward_and_the_way_back_sees_the_frames_ahead() -> None:
    model = fake_model()
    clip = clip_of(30, model=model)
    clip.add_prompt([CENTRE], frame_idx=20)
    order = [result.frame_idx for result in clip.track("both")]
    assert order == [*range(20, 30), *range(20, -1, -1)]
    expected = Tracker(fake_model(), num_frames=30)
    expected.add_prompt(VideoFrame(picture(20), 20), points=[CENTRE])
    for idx in range(20, 30):
        expected.step(VideoFrame(picture(idx), idx))
    back = [expected.step(VideoFrame(picture(idx), idx), reverse=True) for idx in range(20, -1, -1)]
    for result in back:
        assert_close(clip.result(result.frame_idx).objects[1], result.objects[1], tolerance=2e-3)


def test_way_back_after_a_long_way_ahead_remembers_the_frames_next_to_the_prompt() -> None:
    model = fake_model()
    clip = clip_of(60, model=model)
    clip.add_prompt([CENTRE], frame_idx=20)
    list(clip.track("forward"))
    before = encoded(model)
    backward = clip.track("backward")
    assert next(backward).frame_idx == 20
    assert next(backward).frame_idx == 19
    graphs = fake_graphs(model)
    last = graphs.of("attend")[-1]["memory"]
    assert len(last.tokens) - last.pointer_rows == 6 * 4, "20, and 21 to 25 of the way ahead"
    assert encoded(model) - before == 6 + 1, "21 to 26 once more, and 19"


def test_results_in_display_order_whatever_the_order_of_tracking() -> None:
    clip = clip_of(12)
    clip.add_prompt([CENTRE], frame_idx=6)
    list(clip.track("both"))
    assert [result.frame_idx for result in clip.results()] == list(range(12))
    assert clip.result(3).objects[1].mask.shape == (HEIGHT, WIDTH)


def test_range_limits_prompts_tracking_and_results() -> None:
    clip = clip_of(start=5, stop=15)
    clip.add_prompt([CENTRE])
    assert [result.frame_idx for result in clip.track("both")] == [*range(5, 15), 5]
    for idx in (4, 15):
        with pytest.raises(PromptError, match="from 5 to 14"):
            clip.add_prompt([CENTRE], frame_idx=idx)
        with pytest.raises(FrameError, match="from 5 to 14"):
            clip.result(idx)


@pytest.mark.parametrize(("first", "stop"), [(-1, 5), (5, 5), (0, 41), (40, None), (7, 3)])
def test_range_outside_the_clip_is_an_error(first: int, stop: int | None) -> None:
    with pytest.raises(FrameError, match="has 40 frames"):
        clip_of(start=first, stop=stop)


def test_objects_go_from_their_own_prompts() -> None:
    clip = clip_of(12)
    clip.add_prompt([CENTRE], object_id="a")
    clip.add_prompt(box=BOX, object_id=("b", 2), frame_idx=7)
    results = list(clip.track())
    assert [list(result.objects) for result in results] == [["a"]] * 7 + [["a", ("b", 2)]] * 5
    alone = clip_of(12)
    alone.add_prompt([CENTRE], object_id="a")
    for ours, theirs in zip(results, alone.track(), strict=True):
        np.testing.assert_array_equal(ours.objects["a"].mask_logits, theirs.objects["a"].mask_logits)


# -- what is run again --------------------------------------------------------------------------------------------


def test_nothing_is_run_twice() -> None:
    model = fake_model()
    clip = clip_of(10, model=model)
    clip.add_prompt([CENTRE])
    assert clip.due() == 10
    list(clip.track())
    before = len(fake_graphs(model).calls)
    assert clip.due() == 0
    assert list(clip.track()) == []
    assert len(fake_graphs(model).calls) == before


def test_correction_sticks_changes_what_follows_and_leaves_what_was_before() -> None:
    model = fake_model()
    clip = clip_of(model=model)
    clip.add_prompt([CENTRE])
    before = list(clip.track())
    preview = clip.add_prompt([(3, 3)], labels=[0], frame_idx=25)
    assert clip.due() == COUNT - 25
    again = list(clip.track())
    assert [result.frame_idx for result in again] == list(range(25, COUNT))
    np.testing.assert_array_equal(again[0].objects[1].mask_logits, preview.mask_logits)
    np.testing.assert_array_equal(again[0].objects[1].mask, preview.mask)
    after = list(clip.results())
    for left, right in zip(before[:25], after[:25], strict=True):
        assert_identical(left, right)
    changed = [
        not np.array_equal(left.objects[1].mask_logits, right.objects[1].mask_logits)
        for left, right in zip(before[25:], after[25:], strict=True)
    ]
    assert sum(changed) >= len(changed) - 2, "but for frames without the object"


def test_correction_far_behind_equals_one_made_on_the_spot() -> None:
    """The memory that it looks at is made anew from what was recorded."""
    clip = clip_of(60)
    clip.add_prompt([CENTRE])
    list(clip.track())
    late = clip.add_prompt([(3, 3)], frame_idx=20)
    tracker, _ = start(num_frames=60)
    for idx in range(21):
        tracker.step(VideoFrame(picture(idx), idx))
    on_the_spot = tracker.add_prompt(VideoFrame(picture(20), 20), points=[(3, 3)])
    assert_close(late, on_the_spot, tolerance=5e-3)
    for ours, idx in zip(clip.track(), range(20, 60), strict=True):
        theirs = tracker.step(VideoFrame(picture(idx), idx))
        assert_close(ours.objects[1], theirs.objects[1], tolerance=5e-3)


def test_second_click_on_a_corrected_frame_runs_the_decoder_alone() -> None:
    model = fake_model()
    clip = clip_of(model=model)
    clip.add_prompt([CENTRE])
    list(clip.track())
    clip.add_prompt([(3, 3)], frame_idx=20)
    fake_graphs(model).forget_calls()
    clip.add_prompt([(40, 4)], labels=[0], frame_idx=20)
    assert fake_graphs(model).names == ["decode"]


def test_only_the_object_that_was_prompted_is_run_again() -> None:
    model = fake_model()
    clip = clip_of(model=model)
    clip.add_prompt([CENTRE], object_id=1)
    clip.add_prompt([(3, 3)], object_id=2)
    first = list(clip.track())
    clip.add_prompt([(40, 4)], object_id=2, frame_idx=30)
    fake_graphs(model).forget_calls()
    again = list(clip.track())
    assert len(fake_graphs(model).of("attend")) == COUNT - 31
    assert all(list(result.objects) == [1, 2] for result in again), "with what is known of the other"
    for left, right in zip(first[30:], again, strict=True):
        np.testing.assert_array_equal(left.objects[1].mask_logits, right.objects[1].mask_logits)


def test_tracking_stopped_halfway_goes_on_from_there() -> None:
    clip, whole = clip_of(), clip_of()
    for target in (clip, whole):
        target.add_prompt([CENTRE])
    for result in clip.track():
        if result.frame_idx == 17:
            break
    assert [result.frame_idx for result in clip.track()] == list(range(18, COUNT))
    for left, right in zip(clip.results(), whole.track(), strict=True):
        assert_identical(left, right)


def test_prompt_given_while_tracking_takes_its_object_out_of_the_pass() -> None:
    clip = clip_of()
    clip.add_prompt([CENTRE])
    clip.add_prompt([CENTRE], object_id=2)
    for result in clip.track():
        if result.frame_idx == 20:
            clip.add_prompt([(3, 3)], frame_idx=10)
    assert clip.states[1].forward_from == 10
    assert clip.states[2].forward_from is None
    assert [result.frame_idx for result in clip.track()] == list(range(10, COUNT))


def test_object_removed_while_tracking() -> None:
    clip = clip_of()
    clip.add_prompt([CENTRE])
    clip.add_prompt([CENTRE], object_id=2)
    for result in clip.track():
        if result.frame_idx == 20:
            clip.remove(1)
    assert clip.object_ids == (2,)
    assert all(list(result.objects) == [2] for result in clip.results())


# -- taking back --------------------------------------------------------------------------------------------------


def test_undone_correction_shows_the_tracked_result_again() -> None:
    clip = clip_of(60)
    clip.add_prompt([CENTRE])
    before = list(clip.track())
    for point in ((3, 3), (40, 4)):
        clip.add_prompt([point], frame_idx=20)
    clip.undo(frame_idx=20)
    undone = clip.undo(frame_idx=20)
    assert undone is not None
    np.testing.assert_array_equal(undone.mask_logits, before[20].objects[1].mask_logits)
    list(clip.track())
    for left, right in zip(before, clip.results(), strict=True):
        assert_close(right.objects[1], left.objects[1], tolerance=5e-3)


def test_cleared_first_prompt_takes_its_results_with_it() -> None:
    clip = clip_of(30)
    clip.add_prompt([CENTRE])
    clip.add_prompt([CENTRE], frame_idx=12)
    list(clip.track())
    assert clip.clear_frame(0) is None
    assert [result.frame_idx for result in clip.results()] == list(range(12, 30))
    again = list(clip.track())
    assert [result.frame_idx for result in again] == list(range(12, 30))
    fresh = clip_of(30)
    fresh.add_prompt([CENTRE], frame_idx=12)
    for left, right in zip(again, fresh.track(), strict=True):
        assert_close(left.objects[1], right.objects[1], tolerance=5e-3)


def test_object_goes_with_its_last_prompt() -> None:
    clip = clip_of()
    clip.add_prompt([CENTRE])
    assert clip.undo(frame_idx=0) is None
    assert clip.object_ids == ()
    assert list(clip.results()) == []
    with pytest.raises(TrackerStateError, match="add_prompt"):
        clip.track()


# -- errors -------------------------------------------------------------------------------------------------------


def test_bad_calls_say_what_is_expected() -> None:
    clip = clip_of()
    with pytest.raises(TrackerStateError, match="add_prompt first"):
        clip.track()
    clip.add_prompt([CENTRE])
    with pytest.raises(PromptError, match="forward, backward, both"):
        clip.track("sideways")  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="one of them"):
        clip.add_prompt([CENTRE], frame_idx=3, time_s=0.5)
    with pytest.raises(PromptError, match="no times"):
        clip.add_prompt([CENTRE], time_s=0.5)
    with pytest.raises(UnknownObjectError):
        clip.undo(object_id=7, frame_idx=0)
    with pytest.raises(UnknownObjectError):
        clip.remove(7)
    with pytest.raises(FrameError, match="no frames"):
        Clip(fake_model(), [])


def test_refused_prompt_changes_nothing() -> None:
    clip = clip_of()
    clip.add_prompt([CENTRE])
    list(clip.track())
    with pytest.raises(PromptError):
        clip.add_prompt([(3, 999)], frame_idx=20)
    assert clip.due() == 0


# -- saving -------------------------------------------------------------------------------------------------------


def saved_clip(path: Path, model: Model) -> Clip:
    clip = clip_of(30, model=model, start=2, options=TrackingOptions(fill_holes=3))
    clip.add_prompt([CENTRE], frame_idx=4)
    mask = np.zeros((S, S), bool)
    mask[4:20, 7:25] = True
    clip.add_prompt(mask=mask, object_id="other", frame_idx=6)
    for result in clip.track("both"):
        if result.frame_idx == 25:
            break
    clip.add_prompt([(3, 3)], labels=[0], frame_idx=10)
    clip.add_prompt([(40, 4)], frame_idx=10)
    clip.save(path)
    return clip


def test_restored_clip_has_the_same_results_and_goes_on_alike(tmp_path: Path) -> None:
    path = tmp_path / "state.sam2clip"
    clip = saved_clip(path, fake_model())
    restored = Clip.restore(path, fake_model(), pictures(30))
    assert restored.object_ids == clip.object_ids
    assert restored.options == clip.options
    assert restored.frames == clip.frames
    for left, right in zip(clip.results(), restored.results(), strict=True):
        assert left.frame_idx == right.frame_idx
        for object_id, result in left.objects.items():
            np.testing.assert_array_equal(result.mask_logits, right.objects[object_id].mask_logits)
    assert (restored.due(), restored.due("backward")) == (clip.due(), clip.due("backward"))
    for left, right in zip(clip.track("both"), restored.track("both"), strict=True):
        assert left.frame_idx == right.frame_idx
        for object_id, result in left.objects.items():
            assert_close(right.objects[object_id], result, tolerance=1e-2)


def test_undo_goes_on_after_restoring(tmp_path: Path) -> None:
    path = tmp_path / "state.sam2clip"
    clip = saved_clip(path, fake_model())
    restored = Clip.restore(path, fake_model(), pictures(30))
    for target in (clip, restored):
        undone = target.undo(frame_idx=10)
        assert undone is not None
    np.testing.assert_array_equal(clip.result(10).objects[1].mask, restored.result(10).objects[1].mask)


def test_state_is_written_whole_or_not_at_all_and_never_over_another_file(tmp_path: Path) -> None:
    path = tmp_path / "state.sam2clip"
    clip = saved_clip(path, fake_model())
    before = path.read_bytes()
    with pytest.raises(OutputExistsError):
        clip.save(path)
    clip.add_prompt([CENTRE], object_id=(1, 2))
    with pytest.raises(OutputError, match="integer or a string"):
        clip.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_state_of_another_model_or_other_frames_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.sam2clip"
    saved_clip(path, fake_model())
    with pytest.raises(ClipStateError, match="30 frames"):
        Clip.restore(path, fake_model(), pictures(29))
    with pytest.raises(ClipStateError, match="pixels"):
        Clip.restore(path, fake_model(), [picture(idx, height=30) for idx in range(30)])
    monkeypatch.setattr("sam2track.models.Bundle.sha256", "0" * 64)
    with pytest.raises(ClipStateError, match="was made with the model fake"):
        Clip.restore(path, fake_model(), pictures(30))


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.sam2clip"
    saved_clip(path, fake_model())
    whole = path.read_bytes()
    for kept in (0, 1, 100, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:kept])
        with pytest.raises(ClipStateError):
            Clip.restore(path, fake_model(), pictures(30))
    for place in range(200, len(whole), len(whole) // 25):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            Clip.restore(path, fake_model(), pictures(30))  # a flipped bit of a name that nothing reads
        except ClipStateError:
            continue
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json.npy", b"nothing")
    with pytest.raises(ClipStateError):
        Clip.restore(path, fake_model(), pictures(30))
    path.write_text("{}")
    with pytest.raises(ClipStateError):
        Clip.restore(path, fake_model(), pictures(30))
    with pytest.raises(ClipStateError, match="check the path"):
        Clip.restore(tmp_path / "none", fake_model(), pictures(30))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("stop", [12, 25])
def test_restored_clip_goes_on_alike_whatever_becomes_of_corrections(tmp_path: Path, keep: bool, stop: int) -> None:
    clip = clip_of(30, options=TrackingOptions(keep_corrections=keep))
    clip.add_prompt([CENTRE], frame_idx=5)
    for result in clip.track("both"):
        if result.frame_idx == stop:
            break
    clip.add_prompt([(3, 3)], frame_idx=8)
    clip.add_prompt([(40, 4)], labels=[0], frame_idx=5)
    clip.save(tmp_path / "state")
    restored = Clip.restore(tmp_path / "state", fake_model(), pictures(30))
    for left, right in zip(clip.track("both"), restored.track("both"), strict=True):
        assert left.frame_idx == right.frame_idx
        assert_close(right.objects[1], left.objects[1], tolerance=1e-2)
    bank, other = (target.tracker.track_of(1).bank for target in (clip, restored))
    assert set(bank.conditioning) == set(other.conditioning)


def test_undo_of_a_correction_goes_back_to_what_was_tracked_after_restoring_too(tmp_path: Path) -> None:
    clip = clip_of(14)
    clip.add_prompt([CENTRE])
    tracked = list(clip.track())
    clip.add_prompt([(3, 3)], frame_idx=10)
    list(clip.track())
    clip.save(tmp_path / "state")
    restored = Clip.restore(tmp_path / "state", fake_model(), pictures(14))
    for target in (clip, restored):
        undone = target.undo(frame_idx=10)
        assert undone is not None
        np.testing.assert_array_equal(undone.mask_logits, tracked[10].objects[1].mask_logits)
        corrected = target.add_prompt([(40, 4)], labels=[0], frame_idx=10)
        assert target.due() == 4
    again = clip.result(10).objects[1]
    assert_close(corrected, again, tolerance=1e-2)


def test_times_are_restored(tmp_path: Path) -> None:
    clip = clip_of(6)
    clip.add_prompt([CENTRE])
    clip._times[3] = (90, Fraction(1, 30))
    list(clip.track())
    clip._times[3] = (90, Fraction(1, 30))
    clip.save(tmp_path / "state")
    restored = Clip.restore(tmp_path / "state", fake_model(), pictures(6))
    assert (restored.result(3).pts, restored.result(3).time_base) == (90, Fraction(1, 30))
    assert restored.result(2).pts is None


def test_other_pictures_are_noticed_and_small_differences_are_not(tmp_path: Path) -> None:
    clip = clip_of(6)
    clip.add_prompt([CENTRE], frame_idx=4)
    clip.save(tmp_path / "state")
    with pytest.raises(ClipStateError, match="frame 4 looks different"):
        Clip.restore(tmp_path / "state", fake_model(), [picture(idx + 1) for idx in range(6)])
    Clip.restore(tmp_path / "state", fake_model(), [np.clip(picture(idx), 2, 253) for idx in range(6)])


def rewritten(path: Path, change: Any) -> Path:
    """A saved clip with another header."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header.json"].tobytes())
    change(header, arrays)
    arrays["header.json"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: header["identity"].update(start=30),
        lambda header, arrays: header["identity"].update(stop=0),
        lambda header, arrays: header["identity"].update(stop=100),
        lambda header, arrays: header["objects"][0].update(forward_from=99),
        lambda header, arrays: header["objects"][0]["answers"][0].update(frame_idx=0),
        lambda header, arrays: header["objects"][0]["answers"][0].update(labels=[]),
        lambda header, arrays: header["objects"][1].update(object_id=1),
        lambda header, arrays: arrays.update({"0/mask_logits": arrays["0/mask_logits"][:, :4]}),
        lambda header, arrays: arrays.update({"0/object_pointer": arrays["0/object_pointer"][:, :4]}),
        lambda header, arrays: arrays.update({"0/frame_idx": arrays["0/frame_idx"] - 50}),
        lambda header, arrays: arrays["0/object_score"].fill(np.nan),
        lambda header, arrays: arrays.pop("1/tracked"),
        lambda header, arrays: arrays.update({"0/tracked": arrays["0/tracked"] * 0 + 7}),
        lambda header, arrays: arrays.update({"0/frame_idx": arrays["0/frame_idx"] * 0 + 5}),
        lambda header, arrays: arrays.update({"thumbnail_frames": arrays["thumbnail_frames"] + 90}),
        lambda header, arrays: arrays.update({"thumbnails": arrays["thumbnails"][:, :8]}),
        lambda header, arrays: arrays.update(
            {name: array[..., :5] for name, array in arrays.items() if "object_pointer" in name}
        ),
        lambda header, arrays: arrays.update(
            {name: array[:, :5, :5] for name, array in arrays.items() if "mask_logits" in name}
        ),
        lambda header, arrays: header.update(schema_version=2),
    ],
)
def test_state_that_contradicts_itself_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "state.sam2clip"
    saved_clip(path, fake_model())
    with pytest.raises(ClipStateError, match="state") as raised:
        Clip.restore(rewritten(path, change), fake_model(), pictures(30))
    assert "pickle" not in str(raised.value)


# -- several prompts, and where each pass begins -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("forward", [*range(8, 30)]),
        ("backward", [*range(20, -1, -1)]),
        ("both", [*range(8, 30), *range(8, -1, -1)]),
    ],
)
def test_passes_begin_at_the_earliest_or_latest_new_prompt(direction: Any, expected: list[int]) -> None:
    clip = clip_of(30)
    for idx in (20, 8):
        clip.add_prompt([CENTRE], frame_idx=idx)
    assert clip.due(direction) in (len(expected), len(expected) + 12), "going both ways counts before it is known"
    assert [result.frame_idx for result in clip.track(direction)] == expected
    assert list(clip.track(direction)) == []


def test_results_backward_of_a_cleared_prompt_go_with_it() -> None:
    clip = clip_of(30)
    for idx in (20, 8):
        clip.add_prompt([CENTRE], frame_idx=idx)
    list(clip.track("backward"))
    clip.clear_frame(20)
    assert [result.frame_idx for result in clip.results()] == list(range(9))
    assert [result.frame_idx for result in clip.track("backward")] == list(range(8, -1, -1))


def test_undo_of_the_second_correction_of_a_frame_whose_first_was_forgotten() -> None:
    clip = clip_of(20, options=TrackingOptions(keep_corrections=False))
    clip.add_prompt([CENTRE])
    list(clip.track())
    clip.add_prompt([(3, 3)], frame_idx=10)
    again = list(clip.track())
    clip.add_prompt([(40, 4)], frame_idx=10)
    undone = clip.undo(frame_idx=10)
    assert undone is not None
    np.testing.assert_array_equal(undone.mask_logits, again[0].objects[1].mask_logits)


def test_object_goes_with_its_last_first_prompt_where_corrections_are_forgotten() -> None:
    clip = clip_of(20, options=TrackingOptions(keep_corrections=False))
    clip.add_prompt([CENTRE])
    list(clip.track())
    clip.add_prompt([(3, 3)], frame_idx=10)
    assert clip.clear_frame(0) is None
    assert clip.object_ids == ()


# -- wrong kinds of arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda clip: clip.add_prompt([CENTRE], frame_idx=1.0), PromptError, "got a prompt on frame 1.0"),
        (lambda clip: clip.add_prompt([CENTRE], frame_idx=True), PromptError, "got a prompt on frame True"),
        (lambda clip: clip.add_prompt([CENTRE], time_s="0.1"), PromptError, "expected seconds"),
        (lambda clip: clip.due("x"), PromptError, "forward, backward, both"),
        (lambda clip: clip.remove([1]), UnknownObjectError, "no object"),
        (lambda clip: clip.result(1.0), FrameError, "got frame 1.0"),
        (lambda clip: Clip(fake_model(), None), FrameError, "NoneType as a source"),
        (lambda clip: Clip(fake_model(), iter(pictures(3))), FrameError, r"go to Tracker\.track"),
        (lambda clip: Clip(fake_model(), pictures(3), start="0"), FrameError, "got the range from frame '0'"),
        (lambda clip: clip.clear_frame("0"), PromptError, "'0'"),
        (lambda clip: Tracker(fake_model()).track_of(1), UnknownObjectError, "no object"),
        (lambda clip: Clip(fake_model(), pictures(2), {}), TypeError, "TrackingOptions"),
        (lambda clip: Tracker(fake_model(), num_frames="3"), TrackerStateError, "num_frames '3'"),
        (lambda clip: Tracker(fake_model(), num_frames=3.5), TrackerStateError, "num_frames 3.5"),
        (lambda clip: TrackingOptions(fill_holes="8"), OptionsError, "fill_holes '8'"),
        (lambda clip: TrackingOptions(fill_holes=1.5), OptionsError, "fill_holes 1.5"),
        (lambda clip: TrackingOptions(max_conditioning_frames=2.5), OptionsError, "2.5"),
        (lambda clip: TrackingOptions(keep_corrections="no"), OptionsError, "True or False"),
        (lambda clip: load(None), TypeError, "a name such as 'nano'"),
    ],
)
def test_wrong_kind_says_what_was_got_and_expected(call: Any, error: type[Exception], words: str) -> None:
    clip = clip_of(6)
    clip.add_prompt([CENTRE])
    with pytest.raises(error, match=words):
        call(clip)


def test_results_cannot_be_written_into() -> None:
    clip = clip_of(4)
    preview = clip.add_prompt([CENTRE])
    tracker, _ = start()
    for result in (preview, next(clip.track()).objects[1], next(tracker.track(pictures(1))).objects[1]):
        with pytest.raises(ValueError, match="read-only"):
            result.mask_logits[0, 0] = 5


# -- doubt --------------------------------------------------------------------------------------------------------


def test_events_are_told_in_either_direction_and_not_across_a_jump() -> None:
    shown = [black() if idx in (3, 12) else picture(idx) for idx in range(16)]
    clip = Clip(fake_model(), shown)
    clip.add_prompt([CENTRE], frame_idx=7)
    told = {
        (number, result.frame_idx): [event.kind for event in result.events]
        for number, result in enumerate(clip.track("both"))
        if result.events
    }
    assert {key[1]: kinds for key, kinds in told.items()} == {12: ["lost"], 13: ["found"], 3: ["lost"], 2: ["found"]}


def test_events_begin_anew_with_a_change_of_direction_and_a_new_object_of_an_id() -> None:
    shown = [black() if idx == 7 else picture(idx) for idx in range(8)]
    tracker = Tracker(fake_model())
    tracker.add_prompt(VideoFrame(shown[3], 3), points=[CENTRE])
    told = [tracker.step(VideoFrame(shown[idx], idx)).events for idx in range(3, 8)]
    assert [len(events) for events in told] == [0, 0, 0, 0, 1]
    assert tracker.step(VideoFrame(shown[2], 2), reverse=True).events == (), "lost ahead is not found behind"
    tracker.step(VideoFrame(shown[7], 7))
    tracker.remove(1)
    tracker.add_prompt(VideoFrame(picture(9), 9), points=[CENTRE])
    assert tracker.step(VideoFrame(picture(9), 9)).events == (), "another object of the same id"


def test_doubtful_frames_are_recalled_as_the_tracker_chose_them() -> None:
    plain = clip_of(50)
    plain.add_prompt([CENTRE])
    limit = float(np.median([result.objects[1].predicted_iou for result in plain.track()]))
    options = TrackingOptions(memory_min_iou=limit)
    clip = clip_of(50, options=options)
    clip.add_prompt([CENTRE])
    list(clip.track())
    late = clip.add_prompt([(3, 3)], frame_idx=20)
    tracker, graphs = start(options=options, num_frames=50)
    for idx in range(21):
        tracker.step(VideoFrame(picture(idx), idx))
    on_the_spot = tracker.add_prompt(VideoFrame(picture(20), 20), points=[(3, 3)])
    assert len(frames_seen(graphs.of("attend")[-1], graphs)) == 7
    assert_close(late, on_the_spot, tolerance=5e-3)
