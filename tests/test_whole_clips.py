"""Whole clips with the built-in model on the example clip: file, stream, clip and threads agree."""

from __future__ import annotations

import os
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import media
import numpy as np
import pytest

import sam2track
from sam2track import PromptEntry
from sam2track.errors import ClipStateError, FrameError, OutputError, PromptError

KOI, DUCK = (180.0, 334.0), (726.0, 118.0)
LENGTH = 24


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, example_clip: Path) -> Path:
    """The beginning of the example clip, small: 24 frames with B-frames and a keyframe every 8."""
    path = tmp_path_factory.mktemp("clip") / "short.mp4"
    x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "8", "-crf", "12"]
    media.ffmpeg("-i", example_clip, "-frames:v", str(LENGTH), "-an", *x264, path)
    return path


@pytest.fixture(scope="module")
def forward(nano: sam2track.Model, short: Path) -> list[sam2track.FrameResult]:
    """The file tracked frame by frame."""
    with sam2track.open_video(short) as video:
        tracker = sam2track.Tracker(nano)
        tracker.add_prompt(next(iter(video)), points=[KOI])
        return list(tracker.track(video))


def iou(left: Any, right: Any) -> float:
    union = (left | right).sum()
    return 1.0 if union == 0 else float((left & right).sum() / union)


def test_stream_gives_exactly_the_masks_of_the_file(
    nano: sam2track.Model, short: Path, forward: list[sam2track.FrameResult], tmp_path: Path
) -> None:
    """A named pipe: read once, no way back, no length."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    transport = tmp_path / "clip.ts"
    media.ffmpeg("-i", short, "-c", "copy", "-f", "mpegts", transport)
    feeder = threading.Thread(target=lambda: pipe.write_bytes(transport.read_bytes()), daemon=True)
    feeder.start()
    tracker = sam2track.Tracker(nano)
    with sam2track.open_stream(str(pipe)) as stream:
        for frame, expected in zip(stream, forward, strict=True):
            if frame.frame_idx == 0:
                tracker.add_prompt(frame, points=[KOI])
            np.testing.assert_array_equal(tracker.step(frame).objects[1].mask, expected.objects[1].mask)
    feeder.join(10)
    assert len(forward) == LENGTH


def test_clip_gives_the_masks_of_the_tracker(
    nano: sam2track.Model, short: Path, forward: list[sam2track.FrameResult]
) -> None:
    results = list(sam2track.track_video(short, [PromptEntry(points=(KOI,))], model=nano))
    assert [(result.frame_idx, result.pts, result.time_base) for result in results] == [
        (result.frame_idx, result.pts, result.time_base) for result in forward
    ]
    for ours, theirs in zip(results, forward, strict=True):
        assert iou(ours.objects[1].mask, theirs.objects[1].mask) > 0.999, "logits are kept in float16"


def test_backward_decodes_the_file_and_equals_forward_on_the_reversed_frames(
    nano: sam2track.Model, short: Path
) -> None:
    with sam2track.open_video(short) as video:
        reversed_frames = [frame.rgb for frame in video][::-1]
    prompts = [PromptEntry(frame_idx=LENGTH - 1, points=(KOI,), object_id="koi")]
    backward = list(sam2track.track_video(short, prompts, model=nano, direction="backward"))
    assert [result.frame_idx for result in backward] == list(range(LENGTH - 1, -1, -1))
    mirrored = [PromptEntry(frame_idx=0, points=(KOI,), object_id="koi")]
    for ours, theirs in zip(backward, sam2track.track_video(reversed_frames, mirrored, model=nano), strict=True):
        np.testing.assert_array_equal(ours.objects["koi"].mask, theirs.objects["koi"].mask)


def test_prompts_by_time_and_range_in_the_source_s_numbers(nano: sam2track.Model, short: Path) -> None:
    with sam2track.open_video(short) as video:
        times = [frame.time_s or 0.0 for frame in video]
        prompts = [PromptEntry(time_s=times[10] - times[0], points=(KOI,))]
        results = list(sam2track.track_video(video, prompts, model=nano, direction="both", start=8, stop=14))
    assert [result.frame_idx for result in results] == [10, 11, 12, 13, 10, 9, 8]
    with pytest.raises(FrameError, match="no frame at"):
        sam2track.track_video(short, [PromptEntry(time_s=99.0, points=(KOI,))], model=nano)
    with pytest.raises(PromptError, match="from 8 to 13"):
        sam2track.track_video(short, [PromptEntry(points=(KOI,), frame_idx=3)], model=nano, start=8, stop=14)


def test_saved_clip_goes_on_in_a_new_process_s_place(nano: sam2track.Model, short: Path, tmp_path: Path) -> None:
    clip = sam2track.Clip(nano, short)
    clip.add_prompt([KOI], frame_idx=12)
    list(islice(clip.track("both"), 8))
    clip.add_prompt([DUCK], object_id="duck", frame_idx=5)
    clip.save(tmp_path / "state.sam2clip")
    restored = sam2track.Clip.restore(tmp_path / "state.sam2clip", nano, short)
    for ours, theirs in zip(restored.track("both"), clip.track("both"), strict=True):
        assert (ours.frame_idx, list(ours.objects)) == (theirs.frame_idx, list(theirs.objects))
        for object_id, result in ours.objects.items():
            assert iou(result.mask, theirs.objects[object_id].mask) > 0.995
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["state.sam2clip"]
    with sam2track.open_video(short) as video:
        fewer = [frame.rgb for frame in video][:-1]
    with pytest.raises(ClipStateError, match="24 frames"):
        sam2track.Clip.restore(tmp_path / "state.sam2clip", nano, fewer)


def test_two_trackers_in_two_threads_on_one_model_equal_one_after_the_other(
    nano: sam2track.Model, short: Path, forward: list[sam2track.FrameResult]
) -> None:
    def run(click: tuple[float, float]) -> list[Any]:
        with sam2track.open_video(short) as video:
            tracker = sam2track.Tracker(nano)
            tracker.add_prompt(next(iter(video)), points=[click])
            return [result.objects[1].mask for result in tracker.track(video)]

    alone = run(DUCK)
    together: dict[tuple[float, float], list[Any]] = {}
    threads = [
        threading.Thread(target=lambda click=click: together.__setitem__(click, run(click))) for click in (KOI, DUCK)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    np.testing.assert_array_equal(together[DUCK], alone)
    np.testing.assert_array_equal(together[KOI], [result.objects[1].mask for result in forward])


def test_saving_never_replaces_what_the_frames_come_from(nano: sam2track.Model, short: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.mp4"
    source.write_bytes(short.read_bytes())
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    media.ffmpeg("-i", short, "-frames:v", "3", pictures / "shot.%04d.png")
    for path, victim in ((source, source), (pictures, pictures / "shot.0002.png")):
        before = victim.read_bytes()
        clip = sam2track.Clip(nano, path, stop=2)
        clip.add_prompt([KOI])
        with pytest.raises(OutputError, match="is the input"):
            clip.save(victim, overwrite=True)
        assert victim.read_bytes() == before
