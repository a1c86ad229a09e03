"""The command line: what it writes and prints, and that every mistake ends in one line and an exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import media
import numpy as np
import pytest
from command import (
    BESIDE_DISC,
    FRAMES,
    HEIGHT,
    ON_DISC,
    WIDTH,
    Command,
    Run,
    names,
    read_sidecar,
    refused,
    snapshot,
    subprocess_run,
)

import sam2track
import sam2track.models
from sam2track.onnx_graph import resolve_device
from sam2track.video import open_video

ROOT = Path(__file__).parent.parent
CHECKPOINT = ROOT / "training" / "nano-v1"
# ---- the main job ------------------------------------------------------------------------------------------


def test_one_click_writes_an_overlay_and_its_scores(tmp_path: Path) -> None:
    media.make_video(tmp_path / "clip.mp4", frames=FRAMES)
    run = subprocess_run(tmp_path, "clip.mp4", "--click", ON_DISC)
    assert (run.code, run.out) == (0, "")
    line = r"5 frames in \d+\.\d s \(\d+\.\d a second, \w+\): clip\.overlay\.mp4, scores in clip\.overlay\.json\n"
    assert re.fullmatch(line, run.err)
    assert names(tmp_path) == ["clip.mp4", "clip.overlay.json", "clip.overlay.mp4"]

    sidecar = read_sidecar(tmp_path / "clip.overlay.json")
    assert (sidecar.source.name, sidecar.source.width, sidecar.source.height) == ("clip.mp4", WIDTH, HEIGHT)
    assert (sidecar.model.name, sidecar.model.sha256) == ("nano", sam2track.load("nano").bundle.sha256)
    [prompt] = sidecar.prompts
    assert (prompt.frame_idx, prompt.object_id) == (0, 1)
    assert (prompt.points, prompt.labels, prompt.box) == (((19.0, 42.0),), (1,), None)
    assert [frame.frame_idx for frame in sidecar.frames] == list(range(FRAMES))
    for frame in sidecar.frames:
        [found] = frame.objects
        assert found.object_id == 1 and found.object_score > 0
        assert found.area == pytest.approx(np.pi * (0.2 * HEIGHT) ** 2, rel=0.25)

    pairs = zip(open_video(tmp_path / "clip.mp4"), open_video(tmp_path / "clip.overlay.mp4"), strict=True)
    for source, drawn in pairs:
        change = np.abs(drawn.rgb.astype(int) - source.rgb).max(axis=2)
        x = round(WIDTH * (0.2 + 0.6 * source.frame_idx / 15))
        assert change[42, x] > 30 and change[20, 70] < 15


def test_a_box_and_points_of_both_kinds(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("clip.mp4", "--box", "5,28,34,57", "--not", BESIDE_DISC, "--click", ON_DISC, "-o", "cut.mkv")
    assert (run.code, run.out) == (0, "")
    assert names(tmp_path) == ["clip.mp4", "cut.json", "cut.mkv"]
    [prompt] = read_sidecar(tmp_path / "cut.json").prompts
    assert prompt.box == (5.0, 28.0, 34.0, 57.0)
    assert (prompt.points, prompt.labels) == (((19.0, 42.0), (70.0, 20.0)), (1, 0))


def test_png_masks_of_one_object(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--format", "png")
    assert (run.code, run.out) == (0, "")
    assert names(tmp_path) == ["clip.masks", "clip.masks.json", "clip.mp4"]
    assert names(tmp_path / "clip.masks") == [f"{frame_idx:05d}.png" for frame_idx in range(FRAMES)]
    for frame in read_sidecar(tmp_path / "clip.masks.json").frames:
        picture = cv2.imread(str(tmp_path / "clip.masks" / f"{frame.frame_idx:05d}.png"), cv2.IMREAD_UNCHANGED)
        assert picture.shape == (HEIGHT, WIDTH)
        assert set(np.unique(picture)) == {0, 255}
        assert np.count_nonzero(picture) == frame.objects[0].area


def test_several_objects_by_id(sam2track_: Command, tmp_path: Path) -> None:
    prompts = ["--click", ON_DISC, "--click", "2:48,8", "--not", "2:70,50", "--box", "sky:50,1,80,14"]
    run = sam2track_("clip.mp4", *prompts, "--format", "png", "-o", "masks")
    assert run.code == 0
    sidecar = read_sidecar(tmp_path / "masks.json")
    assert {prompt.object_id: (prompt.points, prompt.labels, prompt.box) for prompt in sidecar.prompts} == {
        1: (((19.0, 42.0),), (1,), None),
        2: (((48.0, 8.0), (70.0, 50.0)), (1, 0), None),
        "sky": ((), (), (50.0, 1.0, 80.0, 14.0)),
    }
    ids = [prompt.object_id for prompt in sidecar.prompts]
    assert all([found.object_id for found in frame.objects] == ids for frame in sidecar.frames)
    picture = cv2.imread(str(tmp_path / "masks" / "00000.png"))  # indexed: in the colours of its palette
    assert 2 <= len(np.unique(picture.reshape(-1, 3), axis=0)) <= 4


def test_the_id_of_prompts_that_name_none(sam2track_: Command, tmp_path: Path) -> None:
    assert sam2track_("clip.mp4", "--object", "car", "--click", ON_DISC, "--click", "007:48,8").code == 0
    sidecar = read_sidecar(tmp_path / "clip.overlay.json")
    assert [prompt.object_id for prompt in sidecar.prompts] == ["car", 7]


def test_tracking_starts_at_the_prompted_frame(sam2track_: Command, tmp_path: Path) -> None:
    x = round(WIDTH * (0.2 + 0.6 * 3 / 15))
    assert sam2track_("clip.mp4", "--click", f"{x},42", "--frame", "3", "--format", "png").code == 0
    sidecar = read_sidecar(tmp_path / "clip.masks.json")
    assert sidecar.prompts[0].frame_idx == 3
    assert [len(frame.objects) for frame in sidecar.frames] == [0, 0, 0, 1, 1]
    assert all(frame.time_s == pytest.approx(frame.frame_idx / 25) for frame in sidecar.frames)
    masks = [cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in sorted((tmp_path / "clip.masks").iterdir())]
    assert [bool(mask.any()) for mask in masks] == [False, False, False, True, True]


def test_options_may_stand_before_the_video(sam2track_: Command, tmp_path: Path) -> None:
    assert sam2track_("--click", ON_DISC, "--quiet", "clip.mp4") == Run(0, "", "")
    assert names(tmp_path) == ["clip.mp4", "clip.overlay.json", "clip.overlay.mp4"]


def test_the_main_job_has_a_name_too(sam2track_: Command, tmp_path: Path) -> None:
    assert sam2track_("track", "clip.mp4", "--click", ON_DISC).code == 0
    assert "clip.overlay.mp4" in names(tmp_path)


def test_a_video_named_like_a_command(sam2track_: Command, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").rename(tmp_path / "info")
    assert sam2track_("./info", "--click", ON_DISC).code == 0
    assert "info.overlay.mp4" in names(tmp_path)


def test_json_is_one_document_on_stdout(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--json")
    assert (run.code, run.err) == (0, "")
    summary = json.loads(run.out)
    assert summary.pop("seconds") > 0 and summary.pop("frames_per_second") > 0
    assert summary == {
        "outputs": ["clip.overlay.mp4"],
        "sidecar": "clip.overlay.json",
        "frames": FRAMES,
        "provider": "CPUExecutionProvider",
        "not_seen": [{"object_id": 1, "frames": []}],
        "incomplete": None,
    }


@pytest.mark.parametrize(
    ("output_format", "output"), [("overlay", "cut.mp4"), ("png", "masks")], ids=["overlay", "png"]
)
def test_an_output_is_replaced_only_if_told(
    sam2track_: Command, tmp_path: Path, output_format: str, output: str
) -> None:
    arguments = ["clip.mp4", "--format", output_format, "-o", output]
    assert sam2track_(*arguments, "--click", ON_DISC).code == 0
    before = snapshot(tmp_path)
    assert sam2track_(*arguments, "--click", BESIDE_DISC).code == 2
    assert snapshot(tmp_path) == before
    assert sam2track_(*arguments, "--click", BESIDE_DISC, "--overwrite").code == 0
    after = snapshot(tmp_path)
    assert after.keys() == before.keys()
    changed = {name for name in after if after[name] != before[name]}
    assert f"{Path(output).stem}.json" in changed and len(changed) >= 2


# ---- the other commands ------------------------------------------------------------------------------------


def test_version(sam2track_: Command) -> None:
    run = sam2track_("--version")
    assert (run.code, run.err) == (0, "")
    package, runtime, providers = run.out.splitlines()
    assert package == f"sam2track {sam2track.__version__}"
    assert runtime.startswith("onnxruntime 1.") and "CPUExecutionProvider" in providers


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []], ids=["--help", "-h", "nothing"])
def test_help_shows_the_first_command_to_try(sam2track_: Command, arguments: list[str]) -> None:
    run = sam2track_(*arguments)
    assert (run.code, run.err) == (0, "")
    assert "sam2track video.mp4 --click 412,230" in run.out
    assert {"build", "info", "track"} <= set(run.out.split())


@pytest.mark.parametrize("command", ["track", "build", "info"])
def test_every_command_has_help_with_an_example(sam2track_: Command, command: str) -> None:
    run = sam2track_(command, "--help")
    assert (run.code, run.err) == (0, "")
    assert re.search(r"Examples?:\n +sam2track ", run.out)


def test_info_describes_a_model(sam2track_: Command) -> None:
    run = sam2track_("info")
    assert (run.code, run.err) == (0, "")
    assert re.search(r"^name +nano$", run.out, re.MULTILINE)
    assert re.search(r"^source +nano-v1 [0-9a-f]{64}$", run.out, re.MULTILINE)
    assert re.search(r"^  input +pixel_values +\(1, 3, 256, 256\)$", run.out, re.MULTILINE)


def test_info_as_json(sam2track_: Command, nano: sam2track.Model) -> None:
    run = sam2track_("info", "nano", "--json")
    assert (run.code, run.err) == (0, "")
    described = json.loads(run.out)
    assert (described["name"], described["image_size"], described["memory_frames"]) == ("nano", 256, 7)
    assert described["provider"] == "CPUExecutionProvider" or resolve_device("auto") == "cuda"
    assert described["graphs"]["vision_encoder"]["input"] == {"pixel_values": [1, 3, 256, 256]}
    assert list(described["graphs"]["memory_attention"]["optional"]) == ["key_mask", "pointer_rows"]


def test_a_bundle_can_be_built_and_used(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("build", CHECKPOINT, "-o", "mine", "--precision", "fp32", "--size", "128", "--name", "small")
    assert (run.code, run.out) == (0, "")
    assert re.fullmatch(r"mine: small, fp32, \d+\.\d MB\n", run.err)
    assert names(tmp_path) == ["clip.mp4", "mine"]
    described = json.loads(sam2track_("info", "mine", "--json").out)
    assert (described["name"], described["image_size"], described["precision"]) == ("small", 128, "fp32")
    assert sam2track_("clip.mp4", "--click", ON_DISC, "--model", "mine", "--threads", "1").code == 0
    sidecar = read_sidecar(tmp_path / "clip.overlay.json")
    assert (sidecar.model.name, sidecar.model.sha256) == ("small", described["sha256"])


# ---- mistakes ----------------------------------------------------------------------------------------------


def test_no_prompt_shows_how_to_give_one(sam2track_: Command, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    refused(
        sam2track_("clip.mp4"),
        2,
        "no prompt: say where the object is. clip.mp4 is 96x64 pixels, so a click in the middle of the first frame is: "
        "sam2track clip.mp4 --click 48,32\n",
    )
    assert snapshot(tmp_path) == before


CLICK = ["--click", ON_DISC]
MISTAKES: dict[str, tuple[list[str], str]] = {
    # videos
    "missing video": (["nowhere.mp4", *CLICK], "cannot read nowhere.mp4: No such file or directory"),
    "no video": (CLICK, "Missing argument 'VIDEO'"),
    "two videos": (["clip.mp4", "clip.mp4", *CLICK], "unexpected extra argument (clip.mp4)"),
    "folder": (["folder", *CLICK], "folder holds no pictures"),
    "text": (["text.mp4", *CLICK], "text.mp4 cannot be opened as a video"),
    "audio": (["sound.m4a", *CLICK], "sound.m4a has no video that can be decoded, only audio"),
    "empty": (["empty.mp4", *CLICK], "empty.mp4 is empty (0 bytes)"),
    # prompts
    "click beside the frame": (["clip.mp4", "--click", "96,10"], "the point (96, 10) lies outside the frame"),
    "click below the frame": (["clip.mp4", "--click", "10,64"], "expected 0 <= x < 96 and 0 <= y < 64"),
    "negative click": (["clip.mp4", "--click", "-1,2"], "the point (-1, 2) lies outside the frame"),
    "swapped": (["clip.mp4", "--click", "42,70"], "the point (42, 70) lies outside the frame"),
    "words": (["clip.mp4", "--click", "a,b"], "got 'a,b'; expected X,Y in pixels, such as 412,230"),
    "one number": (["clip.mp4", "--click", "19"], "got '19'; expected X,Y in pixels"),
    "three numbers": (["clip.mp4", "--click", "1,2,3"], "got '1,2,3'; expected X,Y in pixels"),
    "space": (["clip.mp4", "--click", "19", "42"], "got '19'; expected X,Y in pixels"),
    "empty click": (["clip.mp4", "--click", ""], "got ''; expected X,Y in pixels"),
    "no click": (["clip.mp4", "--click"], "Option '--click' requires an argument"),
    "nan": (["clip.mp4", "--click", "nan,42"], "not finite"),
    "inf": (["clip.mp4", "--click", "19,inf"], "not finite"),
    "far too large": (["clip.mp4", "--click", "1e999,2"], "not finite"),
    "only outside": (["clip.mp4", "--not", ON_DISC], "got only points outside the object"),
    "only outside of one": (["clip.mp4", *CLICK, "--not", "2:1,1"], "got only points outside the object"),
    "two boxes": (["clip.mp4", "--box", "1,1,9,9", "--box", "2,2,9,9"], "got two boxes for object 1; give one"),
    "two boxes by id": (["clip.mp4", "--box", "a:1,1,9,9", "--box", "a:2,2,9,9"], "got two boxes for object a"),
    "box of two numbers": (["clip.mp4", "--box", "1,1"], "expected X0,Y0,X1,Y1 in pixels, such as 100,80,300,400"),
    "empty box": (["clip.mp4", "--box", "1,1,1,9"], "is empty; expected x0 != x1 and y0 != y1"),
    "box outside": (["clip.mp4", "--box", "100,1,120,9"], "lies outside the frame of 96x64 pixels"),
    "nan box": (["clip.mp4", "--box", "nan,1,120,9"], "not finite in box"),
    "no id": (["clip.mp4", "--click", ":19,42"], "got ':19,42'; expected X,Y in pixels"),
    "empty id": (["clip.mp4", *CLICK, "--object", ""], "got the object id ''; expected 1 to 100 printable characters"),
    "control character": (["clip.mp4", "--click", "a\nb:19,42"], "got the object id 'a\\nb'; expected"),
    "bytes in the id": (["clip.mp4", "--click", "\udcff:19,42"], "got the object id '\\udcff'; expected"),
    "endless id": (["clip.mp4", "--click", "9" * 5000 + ":19,42"], "expected 1 to 100 printable characters"),
    "frame beyond the end": (["clip.mp4", *CLICK, "--frame", "5"], "the video has 5 frames, numbered from 0"),
    "negative frame": (["clip.mp4", *CLICK, "--frame", "-1"], "expected a frame such as 40"),
    "frame as text": (["clip.mp4", *CLICK, "--frame", "first"], "expected a frame such as 40"),
    # outputs
    "output exists": (["clip.mp4", *CLICK, "-o", "taken.mp4"], "taken.mp4 exists already"),
    "scores exist": (["clip.mp4", *CLICK, "-o", "scores.mp4"], "scores.json exists"),
    "output is input": (["clip.mp4", *CLICK, "-o", "clip.mp4"], "is the input clip.mp4: it would be lost"),
    "output is input, told": (["clip.mp4", *CLICK, "-o", "clip.mp4", "--overwrite"], "it would be lost"),
    "output links to input": (["clip.mp4", *CLICK, "-o", "link.mp4", "--overwrite"], "it would be lost"),
    "output folder missing": (["clip.mp4", *CLICK, "-o", "no/cut.mp4"], "cannot write no/cut.mp4: there is no folder"),
    "output below a file": (["clip.mp4", *CLICK, "-o", "text.mp4/cut.mp4"], "cannot write text.mp4/cut.mp4"),
    "extension": (["clip.mp4", *CLICK, "-o", "cut.gif"], "got the extension '.gif', expected one of .mp4, .mov, .mkv"),
    "no extension": (["clip.mp4", *CLICK, "-o", "cut"], "got the extension '', expected one of .mp4, .mov, .mkv"),
    "scores as output": (["clip.mp4", *CLICK, "-o", "cut.json"], "got the extension '.json', expected one of .mp4"),
    "output is a folder": (["clip.mp4", *CLICK, "-o", "folder.mp4"], "it is a folder, expected a file"),
    "no output": (["clip.mp4", *CLICK, "-o", ""], "got the output '.', which is no name"),
    "this folder": (["clip.mp4", *CLICK, "-o", ".", "--format", "png"], "got the output '.', which is no name"),
    "folder above": (["clip.mp4", *CLICK, "-o", "..", "--format", "png"], "got the output '..', which is no name"),
    "masks into a file": (
        ["clip.mp4", *CLICK, "-o", "taken.mp4", "--format", "png"],
        "it will be a folder of .png files, so its name cannot end in .mp4; give one such as taken",
    ),
    "masks over other things": (
        ["clip.mp4", *CLICK, "-o", "things", "--format", "png", "--overwrite"],
        "will not replace things: it also holds thesis.doc",
    ),
    "endless name": (["clip.mp4", *CLICK, "-o", "a" * 300 + ".mp4"], "File name too long"),
    "masks of an endless name": (["clip.mp4", *CLICK, "-o", "a" * 300, "--format", "png"], "File name too long"),
    # options
    "format": (
        ["clip.mp4", *CLICK, "--format", "gif"],
        "'gif' is not one of 'overlay', 'matte', 'ffv1', 'prores4444', 'vp9alpha', 'cutout', 'png'",
    ),
    "device": (["clip.mp4", *CLICK, "--device", "tpu"], "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
    "threads": (["clip.mp4", *CLICK, "--threads", "-1"], "-1 is not in the range"),
    "too many threads": (["clip.mp4", *CLICK, "--threads", "1" + "0" * 20], "is not in the range"),
    "model": (["clip.mp4", *CLICK, "--model", "huge"], "there is no model 'huge'; expected one of ['nano']"),
    "broken model": (["clip.mp4", *CLICK, "--model", "folder"], "folder/constants.json is missing"),
    "garbled model": (["clip.mp4", *CLICK, "--model", "garbled"], "garbled/constants.json: document: Invalid JSON"),
    "model of an endless name": (["clip.mp4", *CLICK, "--model", "a" * 300], "cannot be read: File name too long"),
    "unknown option": (["clip.mp4", "--clik", ON_DISC], "No such option"),
    # other commands
    "info of nothing": (["info", "nowhere"], "there is no model 'nowhere'"),
    "info of no video": (["info", "text.mp4"], "text.mp4 cannot be opened as a video"),
    "stream": (["clip.mp4", *CLICK, "--stream", "1"], "clip.mp4 has no video stream 1; it has 1, numbered from 0"),
    "build of nothing": (["build", "nowhere", "-o", "built"], "nowhere/config.json is missing"),
    "build of a video": (["build", "clip.mp4", "-o", "built"], "clip.mp4/config.json cannot be read"),
    "build to nowhere": (["build", str(CHECKPOINT)], "Missing option '-o'"),
    "build into a folder that exists": (["build", str(CHECKPOINT), "-o", "folder"], "folder exists; choose another"),
    "build over other things": (
        ["build", str(CHECKPOINT), "-o", "things", "--overwrite"],
        "will not replace things: it also holds thesis.doc",
    ),
    "build over a file": (["build", str(CHECKPOINT), "-o", "text.mp4", "--overwrite"], "text.mp4 is a file"),
    "build below nothing": (["build", str(CHECKPOINT), "-o", "no/built"], "the folder no does not exist"),
    "build of an endless name": (["build", str(CHECKPOINT), "-o", "a" * 300], "File name too long"),
    "build of an odd size": (["build", str(CHECKPOINT), "-o", "built", "--size", "100"], "a positive multiple of 32"),
    "build in int8": (["build", str(CHECKPOINT), "-o", "built", "--precision", "int8"], "'int8' is not one of"),
}


@pytest.fixture
def clutter(tmp_path: Path) -> Path:
    """Things that a mistake may hit."""
    for folder in ("folder", "folder.mp4", "garbled", "things"):
        (tmp_path / folder).mkdir()
    (tmp_path / "garbled" / "constants.json").write_text("{")
    (tmp_path / "things" / "thesis.doc").write_text("five years")
    for file in ("text.mp4", "taken.mp4", "scores.json"):
        (tmp_path / file).write_text("not ours")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "link.mp4").symlink_to("clip.mp4")
    media.ffmpeg("-f", "lavfi", "-i", "sine=duration=0.1", tmp_path / "sound.m4a")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_line_and_leaves_nothing(sam2track_: Command, clutter: Path, mistake: str) -> None:
    arguments, message = MISTAKES[mistake]
    before = snapshot(clutter)
    refused(sam2track_(*arguments), 2, message)
    assert snapshot(clutter) == before


@pytest.mark.skipif(resolve_device("auto") == "cuda", reason="there is a GPU")
def test_cuda_without_a_gpu(sam2track_: Command, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    refused(sam2track_("clip.mp4", *CLICK, "--device", "cuda"), 2, "CUDA was asked for, but ")
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize(
    "arguments", [["clip.mp4", *CLICK, "-o", "locked/cut.mp4"], ["build", str(CHECKPOINT), "-o", "locked/built"]]
)
def test_a_folder_that_may_not_be_written(sam2track_: Command, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(sam2track_(*arguments), 2, "Permission denied")


def test_a_traceback_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    for arguments in (["text.mp4", *CLICK], ["text.mp4", "--click", "x"], ["info", "text.mp4"]):
        refused(subprocess_run(tmp_path, *arguments), 2, "")
    assert names(tmp_path) == ["text.mp4"]


# ---- failures on the way ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["write", "_finish"])
@pytest.mark.parametrize("writer", ["overlay.OverlayWriter", "sidecar.SidecarWriter"])
def test_a_full_disk_is_a_failure_and_leaves_nothing(
    sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    name = "_add" if failing == "write" else failing
    monkeypatch.setattr(f"sam2track.outputs.{writer}.{name}", fail)
    run = sam2track_("clip.mp4", *CLICK)
    refused(run, 1, "No space left on device")
    # The masks are finished before the scores.
    kept = ["clip.overlay.mp4"] if (writer, failing) == ("sidecar.SidecarWriter", "_finish") else []
    assert names(tmp_path) == ["clip.mp4", *kept]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child there")
def test_an_interrupt_leaves_nothing(tmp_path: Path, example_clip: Path) -> None:
    # As in a shell, whatever this test itself was started from does with the signal.
    code = "import signal, sam2track.cli as c; signal.signal(signal.SIGINT, signal.default_int_handler); c.main()"
    command = [sys.executable, "-c", code, str(example_clip), "--click", "180,334", "--threads", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any(path.stat().st_size > 1000 for path in tmp_path.glob(".sam2track-*")), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "sam2track: interrupted; nothing was written"
    assert list(tmp_path.iterdir()) == []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
