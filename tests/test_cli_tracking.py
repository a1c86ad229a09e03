"""The command line: directions, ranges, times, masks, prompt files, live sources."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cv2
import media
import numpy as np
import pytest
from command import BESIDE_DISC, FRAMES, HEIGHT, ON_DISC, WIDTH, Command, names, read_sidecar, refused, snapshot

import sam2track
from sam2track.cli.prompts import Moment, MomentType


def frames_of(path: Path) -> list[int]:
    return [frame.frame_idx for frame in read_sidecar(path).frames]


def tracked(path: Path) -> list[int]:
    """The frames of a sidecar on which there is an object."""
    return [frame.frame_idx for frame in read_sidecar(path).frames if frame.objects]


# -- directions, ranges, times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--frame", "3"], [3, 4]),
        (["--frame", "3", "--backward"], [0, 1, 2, 3]),
        (["--frame", "3", "--both"], [0, 1, 2, 3, 4]),
    ],
)
def test_direction_says_which_frames_have_masks(
    sam2track_: Command, tmp_path: Path, options: list[str], expected: list[int]
) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, *options)
    assert run.code == 0, run.err
    assert frames_of(tmp_path / "clip.overlay.json") == list(range(FRAMES)), "one a frame, in display order"
    assert tracked(tmp_path / "clip.overlay.json") == expected
    assert media.ffprobe_count(tmp_path / "clip.overlay.mp4") in (FRAMES, None)


def test_both_ways_equals_the_library(sam2track_: Command, tmp_path: Path, nano: sam2track.Model) -> None:
    assert sam2track_("clip.mp4", "--click", ON_DISC, "--frame", "2", "--both", "--format", "png").code == 0
    clip = sam2track.Clip(nano, tmp_path / "clip.mp4")
    x, y = map(float, ON_DISC.split(","))
    clip.add_prompt([(x, y)], frame_idx=2)
    list(clip.track("both"))
    for result in clip.results():
        written = cv2.imread(str(tmp_path / "clip.masks" / f"{result.frame_idx:05d}.png"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(written > 0, result.objects[1].mask)


@pytest.mark.parametrize("direction", [[], ["--both"]])
def test_range_is_tracked_and_written_with_the_source_s_numbers(
    sam2track_: Command, tmp_path: Path, direction: list[str]
) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--frame", "2", "--start", "1", "--stop", "4", *direction)
    assert run.code == 0, run.err
    assert frames_of(tmp_path / "clip.overlay.json") == [1, 2, 3]
    assert tracked(tmp_path / "clip.overlay.json") == ([1, 2, 3] if direction else [2, 3])
    assert media.ffprobe_count(tmp_path / "clip.overlay.mp4") in (3, None)


def test_time_is_the_frame_shown_then(sam2track_: Command, tmp_path: Path) -> None:
    with sam2track.open_video(tmp_path / "clip.mp4") as video:
        times = [float(frame.pts * frame.time_base) for frame in video if frame.pts is not None and frame.time_base]
    moment = times[2] - times[0] + 0.001
    assert (
        sam2track_("clip.mp4", "--click", ON_DISC, "--frame", f"{moment:.4f}s", "--stop", f"0:{times[4]:.4f}").code == 0
    )
    sidecar = read_sidecar(tmp_path / "clip.overlay.json")
    assert [prompt.frame_idx for prompt in sidecar.prompts] == [2]
    assert frames_of(tmp_path / "clip.overlay.json") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40", Moment(40)),
        ("1.5s", Moment(time_s=1.5)),
        ("0:01.5", Moment(time_s=1.5)),
        ("1:02:03", Moment(time_s=3723)),
    ],
)
def test_moment_is_a_frame_or_a_time(text: str, expected: Moment) -> None:
    assert MomentType().convert(text, None, None) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "-3", "1.5", "s", "1:s", "1:2s", "1:2:3:4", ":", "nans", "infs", "-1s", "1e999s"]
)
def test_anything_else_is_no_moment(sam2track_: Command, text: str) -> None:
    refused(sam2track_("clip.mp4", "--click", ON_DISC, f"--frame={text}"), 2, "such as 40, or a time such as 1.6s")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--frame", "5"], "has 5 frames"),
        (["--frame", "5", "--both"], "has 5 frames"),
        (["--stop", "9"], "has 5 frames"),
        (["--start", "3", "--stop", "3"], "expected it to end later"),
        (["--start", "3", "--frame", "1"], "outside the range"),
        (["--stop", "2", "--frame", "2"], "outside the range"),
        (["--frame", "99s"], "no frame at 99"),
    ],
)
def test_range_that_cannot_be_is_refused_before_any_work(
    sam2track_: Command, tmp_path: Path, options: list[str], message: str
) -> None:
    before = snapshot(tmp_path)
    refused(sam2track_("clip.mp4", "--click", ON_DISC, *options), 2, message)
    assert snapshot(tmp_path) == before


def test_stream_says_which_video(sam2track_: Command, tmp_path: Path) -> None:
    large = media.make_video(tmp_path / "large.mp4", size=(192, 128), frames=7)
    media.ffmpeg("-i", tmp_path / "clip.mp4", "-i", large, "-map", "0", "-map", "1", "-c", "copy", tmp_path / "two.mkv")
    assert sam2track_("two.mkv", "--stream", "1", "--click", "38,84").code == 0
    sidecar = read_sidecar(tmp_path / "two.overlay.json")
    assert (sidecar.source.width, len(sidecar.frames)) == (192, 7)
    listed = sam2track_("info", "two.mkv")
    assert listed.code == 0, listed.err
    assert "stream           0 h264 96x64 25" in listed.out and "stream           1 h264 192x128 25" in listed.out
    streams = json.loads(sam2track_("info", "two.mkv", "--json").out)["streams"]
    assert [stream["size"] for stream in streams] == ["96x64", "192x128"]


# -- masks and prompt files ---------------------------------------------------------------------------------------


def write_mask(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[10:40, 20:60] = 255
    cv2.imwrite(str(path), mask)
    return mask


def test_mask_prompt_is_the_answer(sam2track_: Command, tmp_path: Path) -> None:
    mask = write_mask(tmp_path / "mask.png")
    assert sam2track_("clip.mp4", "--mask", "car:mask.png", "--format", "png").code == 0
    [prompt] = read_sidecar(tmp_path / "clip.masks.json").prompts
    assert (prompt.object_id, prompt.mask) == ("car", "mask.png")
    written = cv2.imread(str(tmp_path / "clip.masks" / "00000.png"), cv2.IMREAD_UNCHANGED) > 0
    expected = mask > 0
    assert (written & expected).sum() / (written | expected).sum() > 0.95


def test_prompt_file_prompts_many_frames_and_objects(sam2track_: Command, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write_mask(tmp_path / "sub" / "mask.png")
    x, y = map(float, ON_DISC.split(","))
    entries = [
        {"points": [[x, y]]},
        {"points": [[70, 20]], "labels": [0]},
        {"frame_idx": 3, "points": [[x, y]]},
        {"frame_idx": 1, "object_id": "other", "mask": "mask.png"},
    ]
    (tmp_path / "sub" / "prompts.json").write_text(json.dumps({"prompts": entries}))
    run = sam2track_("clip.mp4", "--prompts", "sub/prompts.json")
    assert run.code == 0, run.err
    sidecar = read_sidecar(tmp_path / "clip.overlay.json")
    assert [(prompt.object_id, prompt.frame_idx) for prompt in sidecar.prompts] == [
        (1, 0), (1, 0), (1, 3), ("other", 1)
    ]  # fmt: skip
    ids = [[found.object_id for found in frame.objects] for frame in sidecar.frames]
    assert ids == [[1], *[[1, "other"]] * (FRAMES - 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mask", "none.png"], "none.png"),
        (["--mask", "clip.mp4"], "as a picture"),
        (["--mask", "mask.png", "--click", ON_DISC], "a mask is the answer itself"),
        (["--mask", "mask.png", "--mask", "mask.png"], "two masks"),
        (["--mask", "black.png"], "empty mask"),
        (["--prompts", "none.json"], "none.json"),
        (["--prompts", "bad.json"], "prompts.0.points.0.1"),
        (["--prompts", "outside.json"], "lies outside the frame"),
        (["--prompts", "negative.json"], "only points outside"),
    ],
)
def test_bad_masks_and_prompt_files_are_refused_before_any_work(
    sam2track_: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    write_mask(tmp_path / "mask.png")
    cv2.imwrite(str(tmp_path / "black.png"), np.zeros((HEIGHT, WIDTH), np.uint8))
    for name, entry in (
        ("bad", {"points": [[1, "y"]]}),
        ("outside", {"points": [[1, 999]]}),
        ("negative", {"points": [[1, 2]], "labels": [0]}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps({"prompts": [entry]}))
    before = snapshot(tmp_path)
    refused(sam2track_("clip.mp4", *arguments), 2, message)
    assert snapshot(tmp_path) == before


def test_doubt_is_an_option_and_is_told(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--report-min-iou", "1", "--memory-min-iou", "0.5", "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["not_seen"] == [{"object_id": 1, "frames": [[0, FRAMES - 1]]}]
    assert all(frame.objects[0].area == 0 for frame in read_sidecar(tmp_path / "clip.overlay.json").frames)
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--report-min-iou", "1", "--overwrite")
    assert run.err.endswith(f"object 1: not seen on {FRAMES} frames (0-{FRAMES - 1})\n")


# -- live sources -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server of a folder; gives its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_stream_gives_the_masks_of_the_file(sam2track_: Command, tmp_path: Path) -> None:
    media.ffmpeg("-i", tmp_path / "clip.mp4", "-c", "copy", "-f", "mpegts", tmp_path / "clip.ts")
    assert sam2track_("clip.ts", "--click", ON_DISC, "--format", "png", "-o", "file").code == 0
    with served(tmp_path) as address:
        run = sam2track_(f"{address}/clip.ts", "--click", ON_DISC, "--format", "png", "-o", "live")
    assert run.code == 0, run.err
    for idx in range(FRAMES):
        file, live = (cv2.imread(str(tmp_path / name / f"{idx:05d}.png"), 0) for name in ("file", "live"))
        differing = (file != live).mean()
        assert differing < 0.02, "a stream has no length: its pointers are normalised by 16 frames"


def test_stream_stops_where_told(sam2track_: Command, tmp_path: Path) -> None:
    with served(tmp_path) as address:
        assert sam2track_(f"{address}/clip.mp4", "--click", ON_DISC, "--stop", "3", "-o", "live.mp4").code == 0
    assert frames_of(tmp_path / "live.json") == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--both"], "goes forward"),
        (["--start", "2"], "goes forward"),
        (["--frame", "1s"], "frame numbers only"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    sam2track_: Command, tmp_path: Path, options: list[str], message: str
) -> None:
    before = snapshot(tmp_path)
    with served(tmp_path) as address:
        refused(sam2track_(f"{address}/clip.mp4", "--click", ON_DISC, *options), 2, message)
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes, and another Ctrl-C")
def test_ctrl_c_ends_a_live_source_with_what_there_is(tmp_path: Path) -> None:
    media.make_video(tmp_path / "clip.mp4", frames=60)
    media.ffmpeg("-i", tmp_path / "clip.mp4", "-c", "copy", "-f", "mpegts", tmp_path / "clip.ts")
    command = [sys.executable, "-m", "sam2track", "-", "--click", ON_DISC, "--not", BESIDE_DISC, "-o", "live.mp4"]
    data = (tmp_path / "clip.ts").read_bytes()
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(data[: len(data) // 2])  # and then nothing for a while: a camera that goes on
        deadline = time.monotonic() + 60
        while not any(name.startswith(".sam2track") for name in names(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        process.stdin.write(data[len(data) // 2 :])
        process.stdin.close()
        err = process.stderr.read().decode()
    assert process.returncode == 0, err
    count = len(frames_of(tmp_path / "live.json"))
    assert 0 < count <= 60
    assert media.ffprobe_count(tmp_path / "live.mp4") in (count, None)
    assert names(tmp_path) == ["clip.mp4", "clip.ts", "live.json", "live.mp4"]


# -- what the range and the prompts default to, and where a mistake is ----------------------------------------------


def test_prompts_are_about_the_first_frame_of_the_range(sam2track_: Command, tmp_path: Path) -> None:
    run = sam2track_("clip.mp4", "--click", ON_DISC, "--start", "2", "--stop", "4")
    assert run.code == 0, run.err
    assert [prompt.frame_idx for prompt in read_sidecar(tmp_path / "clip.overlay.json").prompts] == [2]
    assert tracked(tmp_path / "clip.overlay.json") == [2, 3]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"points": [[1, 999]]}, "lies outside the frame"),
        ({"points": [[1, 2]], "labels": [0], "object_id": 7}, "only points outside"),
        ({"box": [1, 2, 1, 9]}, "is empty"),
        ({"mask": "none.png"}, "check the path"),
        ({"points": [[1, 2]], "frame_idx": 9}, "has 5 frames"),
        ({"points": [[1, 2]], "time_s": 99}, "no frame at 99"),
        ({"points": [[1, 2]], "frame_idx": 4}, "outside the range from frame 0 to before frame 4"),
    ],
)
def test_offending_entry_is_named_whenever_it_is_found(
    sam2track_: Command, tmp_path: Path, entry: dict[str, object], message: str
) -> None:
    (tmp_path / "prompts.json").write_text(json.dumps({"prompts": [{"points": [[19, 42]]}, entry]}))
    before = snapshot(tmp_path)
    run = sam2track_("clip.mp4", "--prompts", "prompts.json", "--stop", "4")
    refused(run, 2, message)
    assert "prompts.json: prompts.1: " in run.err
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes, and another Ctrl-C")
@pytest.mark.parametrize(("name", "code", "kept"), [("SIGINT", 0, True), ("SIGTERM", 143, False)])
def test_signals_need_not_wait_for_a_live_source_that_says_nothing(
    tmp_path: Path, name: str, code: int, kept: bool
) -> None:
    media.make_video(tmp_path / "clip.mp4", frames=60)
    media.ffmpeg("-i", tmp_path / "clip.mp4", "-c", "copy", "-f", "mpegts", tmp_path / "clip.ts")
    command = [sys.executable, "-m", "sam2track", "-", "--click", ON_DISC, "-o", "live.mp4"]
    data = (tmp_path / "clip.ts").read_bytes()
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(data[: 3 * len(data) // 4])  # and then nothing, for ever
        deadline = time.monotonic() + 60
        while not any(entry.startswith(".sam2track") for entry in names(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)
        process.send_signal(getattr(signal, name))
        assert process.wait(30) == code, process.stderr.read()
    written = ["live.json", "live.mp4"] if kept else []
    assert names(tmp_path) == ["clip.mp4", "clip.ts", *written]
    if kept:
        assert media.ffprobe_count(tmp_path / "live.mp4") in (len(frames_of(tmp_path / "live.json")), None)


def test_live_source_that_is_cut_off_leaves_what_came_before(sam2track_: Command, tmp_path: Path) -> None:
    media.make_video(tmp_path / "long.mp4", frames=40)
    media.ffmpeg("-i", tmp_path / "long.mp4", "-c", "copy", "-f", "mpegts", tmp_path / "long.ts")
    data = (tmp_path / "long.ts").read_bytes()
    (tmp_path / "cut.ts").write_bytes(data[: len(data) // 2])

    class Broken(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        run = sam2track_(f"http://127.0.0.1:{server.server_port}/x.ts", "--click", ON_DISC, "-o", "live.mp4")
        server.shutdown()
        thread.join()
    assert run.code == 1, run.err
    frames = frames_of(tmp_path / "live.json")
    assert frames == list(range(len(frames))) and len(frames) > 5
    incomplete = read_sidecar(tmp_path / "live.json").incomplete
    assert incomplete is not None and incomplete.frame_idx == len(frames)
