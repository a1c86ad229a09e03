"""What a process meets in the wild: signals, closed streams, odd names, errors that travel between processes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest

import sam2track
from sam2track import errors
from sam2track.errors import BundleContractError, OptionsError, TrackerStateError, VideoDecodeError

ROOT = Path(__file__).parent.parent
CLIP = ROOT / "examples" / "clip.mp4"
TRACK = [sys.executable, "-m", "sam2track", str(CLIP), "--click", "180,334"]


def test_every_error_survives_pickling() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(found) > 10
    for kind in found:
        error = VideoDecodeError("broken", frame_idx=3) if kind is VideoDecodeError else kind("broken")
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind and str(back) == "broken"
        assert getattr(back, "frame_idx", None) == getattr(error, "frame_idx", None)


def test_rule_01_prompt_in_a_gap_between_tracked_stretches_is_a_first_prompt() -> None:
    """Frames that were jumped over were never tracked."""
    model = fakes.fake_model()
    graphs, tracker = fakes.fake_graphs(model), sam2track.Tracker(model)
    pictures = [fakes.picture(idx) for idx in range(64)]
    for start in (0, 60):
        tracker.add_prompt(pictures[start], points=[(3, 3)], frame_idx=start)
        for idx in range(start, start + 4):
            tracker.step(sam2track.VideoFrame(pictures[idx], idx))
    for idx, is_tracked in ((2, True), (30, False), (62, True)):
        graphs.forget_calls()
        tracker.add_prompt(pictures[idx], points=[(3, 3)], frame_idx=idx)
        assert bool(graphs.of("attend")) is is_tracked


@pytest.mark.parametrize("step", [1, 3, -1])
def test_what_is_kept_of_tracked_frames_does_not_grow(step: int) -> None:
    """Every frame, every third, or backwards: one stretch, and exactly the frames that were tracked."""
    model = fakes.fake_model()
    tracker = sam2track.Tracker(model)
    indices = list(range(120, 0, -1) if step < 0 else range(0, 120, step))
    tracker.add_prompt(fakes.picture(0), points=[(3, 3)], frame_idx=indices[0])
    for idx in indices:
        tracker.step(sam2track.VideoFrame(fakes.picture(0), idx))
    kept = tracker.track_of(1)
    assert len(kept.tracked.stretches) == 1
    assert [idx for idx in range(125) if kept.tracked.reverse_at(idx) is False] == sorted(indices)


@pytest.mark.parametrize("num_frames", [0, -5])
def test_impossible_length_is_refused(num_frames: int) -> None:
    with pytest.raises(TrackerStateError, match="expected"):
        sam2track.Tracker(fakes.fake_model(), num_frames=num_frames)


@pytest.mark.parametrize(
    "option",
    [
        {"fill_holes": -1},
        {"max_conditioning_frames": 0},
        {"memory_min_iou": 1.5},
        {"memory_min_iou": float("nan")},
        {"report_min_iou": -0.1},
    ],
)
def test_impossible_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="expected"):
        sam2track.TrackingOptions(**option)


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="TrackingOptions"):
        sam2track.Tracker(fakes.fake_model(), {"fill_holes": 8})  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_signals_leave_nothing_behind(tmp_path: Path, name: str) -> None:
    process = subprocess.Popen(TRACK, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(getattr(signal, name))
    _, message = process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert "nothing was written" in message and len(message.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_closed_error_output(tmp_path: Path) -> None:
    command = " ".join(TRACK) + " --json 2>&-"
    done = subprocess.run(command, shell=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout)["frames"] == 84


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["info", "nano"], ["--version"]])
def test_full_standard_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-m", "sam2track", *command]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "standard output" in done.stderr.splitlines()[0] and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/bad\xff.mp4"
    shutil.copy(os.fsencode(CLIP), odd)
    arguments = [sys.executable, "-m", "sam2track", odd, "--click", "180,334", "-o", "a.mp4"]
    subprocess.run(arguments, cwd=tmp_path, check=True, capture_output=True)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["source"]["name"] == "bad\ufffd.mp4"


def test_a_foreign_json_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"mine": 1}', encoding="utf-8")
    done = subprocess.run(
        [*TRACK, "-o", "cut.mp4", "--overwrite"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "cut.json" in done.stderr
    assert (tmp_path / "cut.json").read_text(encoding="utf-8") == '{"mine": 1}'


@pytest.mark.parametrize("lie", ["image_size", "shape"])
def test_a_manifest_that_contradicts_its_graphs_is_refused(tmp_path: Path, lie: str) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(ROOT / "graphs" / "nano-fp32", folder)
    shutil.copy(ROOT / "constants" / "nano.json", folder / "constants.json")
    assert sam2track.load(folder, device="cpu").name == "nano"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if lie == "image_size":
        manifest["dimensions"]["image_size"] = 999
    else:
        manifest["graphs"]["pointer_tpos"]["inputs"][0]["shape"] = [9, 9]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(BundleContractError, match=r"manifest\.json"):
        sam2track.load(folder, device="cpu")


def test_one_frame_has_one_mask_whatever_happens_to_the_picture() -> None:
    """A black frame is a frame: the tracker answers for it with finite numbers."""
    model = sam2track.load("nano", device="cpu", num_threads=1)
    tracker = sam2track.Tracker(model)
    black = np.zeros((48, 64, 3), np.uint8)
    tracker.add_prompt(black, points=[(30, 20)])
    (result,) = tracker.track([black])
    assert np.isfinite(result.objects[1].object_score) and result.objects[1].mask.shape == (48, 64)
