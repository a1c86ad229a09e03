"""Damaged sources and Ctrl-C through the command line: what is written is whole, and what is missing is said."""

from __future__ import annotations

import itertools
import json
import random
import re
import signal
import threading
from pathlib import Path
from typing import Any

import av
import av.logging
import cv2
import media
import numpy as np
import pytest
from command import ON_DISC, Command, names, read_sidecar, refused, snapshot
from test_stream import served

import sam2track
from sam2track.concealment import noticing
from sam2track.errors import VideoDecodeError
from sam2track.outputs import PngWriter
from sam2track.tracker import Tracker

FRAMES = 12
GOOD = 8
CLICK = ["--click", ON_DISC]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """An MJPEG file cut off in the middle of its frame 8."""
    path = tmp_path / "damaged.mov"
    media.make_video(path, codec="mjpeg", pix_fmt="yuvj420p", frames=FRAMES, container={"movflags": "faststart"})
    whole = path.read_bytes()
    (tmp_path / "whole.mov").write_bytes(whole)
    path.write_bytes(whole[: media.packet_ends(path)[GOOD] - 40])
    return path


@pytest.mark.parametrize("direction", [[], ["--frame", "4", "--both"], ["--frame", "4", "--backward"]])
@pytest.mark.parametrize("output_format", ["overlay", "png"])
def test_what_lies_before_the_damage_is_written(
    sam2track_: Command, tmp_path: Path, damaged: Path, output_format: str, direction: list[str]
) -> None:
    run = sam2track_("damaged.mov", *CLICK, "--format", output_format, *direction)
    assert (run.code, run.out) == (1, "")
    told, *_, fault = run.err.splitlines()  # between them may stand on which frames the object is not seen
    assert told.startswith("8 frames in ")
    assert fault.startswith(
        "sam2track: damaged.mov cannot be read from frame 8 (0.320 s) on: a packet is damaged or cut short; the frames"
    )
    output = tmp_path / ("damaged.overlay.mp4" if output_format == "overlay" else "damaged.masks")
    sidecar = read_sidecar(output.with_suffix(".json") if output_format == "overlay" else Path(f"{output}.json"))
    assert [frame.frame_idx for frame in sidecar.frames] == list(range(GOOD))
    assert sidecar.incomplete is not None
    assert (sidecar.incomplete.frame_idx, sidecar.incomplete.time_s) == (GOOD, pytest.approx(0.32))
    assert sidecar.incomplete.reason == "a packet is damaged or cut short"
    if output_format == "overlay":
        with sam2track.open_video(output) as video:
            assert [media.read_number(frame.rgb) for frame in video] == list(range(GOOD))
    else:
        assert names(output) == [f"{idx:05d}.png" for idx in range(GOOD)]
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_masks_before_the_damage_are_those_of_the_whole_file(
    sam2track_: Command, tmp_path: Path, damaged: Path
) -> None:
    for name, code in (("damaged", 1), ("whole", 0)):
        run = sam2track_(f"{name}.mov", *CLICK, "--frame", "3", "--both", "--format", "png", "-o", name)
        assert run.code == code, run.err
    assert read_sidecar(tmp_path / "whole.json").incomplete is None
    # A clip of 8 frames is not treated as one of 12 (the reference's rule for less than 16): nearly the same masks.
    for idx in range(GOOD):
        one, other = (cv2.imread(str(tmp_path / name / f"{idx:05d}.png"), 0) for name in ("damaged", "whole"))
        assert one is not None and other is not None
        assert (one != other).mean() < 0.02 and one.any()


def test_json_says_that_something_is_missing(sam2track_: Command, damaged: Path) -> None:
    run = sam2track_("damaged.mov", *CLICK, "--json")
    assert run.code == 1
    summary = json.loads(run.out)
    assert summary["frames"] == GOOD
    assert "frame 8 (0.320 s)" in summary["incomplete"]
    assert json.loads(sam2track_("clip.mp4", *CLICK, "--json").out)["incomplete"] is None


def test_damage_before_any_object_leaves_nothing(sam2track_: Command, tmp_path: Path, damaged: Path) -> None:
    path = media.make_video(tmp_path / "early.ts", frames=FRAMES)
    path.write_bytes(path.read_bytes() + media.make_video(tmp_path / "late.ts", frames=5, size=(128, 80)).read_bytes())
    before = snapshot(tmp_path)
    refused(sam2track_("early.ts", *CLICK, "--frame", "14", "--stop", "16"), 1, "frame 12 (")
    assert snapshot(tmp_path) == before


def test_a_change_of_size_ends_the_masks_there(sam2track_: Command, tmp_path: Path) -> None:
    small = media.make_video(tmp_path / "small.ts", frames=5)
    large = media.make_video(tmp_path / "large.ts", frames=5, size=(128, 80))
    (tmp_path / "both.ts").write_bytes(small.read_bytes() + large.read_bytes())
    run = sam2track_("both.ts", *CLICK)
    assert run.code == 1
    assert re.search(r"from frame 5 \(\d+\.\d{3} s\) on: the picture changes from 96x64 to 128x80 pixels", run.err)
    assert len(read_sidecar(tmp_path / "both.overlay.json").frames) == 5


def test_a_bad_picture_ends_the_masks_there(sam2track_: Command, tmp_path: Path) -> None:
    for number in range(6):
        picture = media.numbered_picture(number, 96, 64)
        cv2.imwrite(str(tmp_path / f"shot.{number:04d}.png"), picture if number != 4 else picture[:60])
    run = sam2track_("shot.0000.png", *CLICK, "--format", "png")
    assert run.code == 1
    assert "frame 4 (0.167 s), shot.0004.png, cannot be used: it has 96x60 pixels, shot.0000.png has 96x64" in run.err
    assert names(tmp_path / "shot.masks") == [f"shot.{number:04d}.png" for number in range(4)]


def test_a_live_source_that_is_lost_leaves_its_masks(sam2track_: Command, tmp_path: Path) -> None:
    clip = media.make_video(tmp_path / "clip.mkv", frames=20, options={"bf": "0", "g": "5"})
    data, cut = clip.read_bytes(), media.packet_ends(clip)[11]
    with served(lambda out: out.write(data[:cut]), length=len(data)) as url:
        run = sam2track_(url, *CLICK, "-o", "live.mp4")
    assert run.code == 1, run.err
    sidecar = read_sidecar(tmp_path / "live.json")
    assert sidecar.incomplete is not None
    assert sidecar.incomplete.frame_idx == len(sidecar.frames) >= 10
    assert sidecar.incomplete.time_s == pytest.approx(len(sidecar.frames) / 25, abs=0.001)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.avi"])
def test_every_damaged_file_ends_in_a_line_and_whole_outputs(sam2track_: Command, tmp_path: Path, name: str) -> None:
    """A few of the places of `test_video`'s sweeps, through the whole command."""
    kinds: dict[str, dict[str, Any]] = {
        "clip.avi": {"codec": "mpeg4"},
        "clip.mp4": {"container": {"movflags": "faststart"}},
    }
    path = media.make_video(tmp_path / name, frames=16, options={"bf": "2"}, **kinds.get(name, {}))
    data = path.read_bytes()
    spoilt = bytearray(data)
    spoilt[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    written = 0
    for trial, content in enumerate((data[: len(data) // 3], data[: len(data) * 3 // 4], spoilt)):
        path.write_bytes(content)
        run = sam2track_(name, *CLICK, "--format", "png", "-o", f"masks{trial}")
        assert run.code in (0, 1, 2)
        assert "Traceback" not in run.err
        if f"masks{trial}" in names(tmp_path):
            sidecar = read_sidecar(tmp_path / f"masks{trial}.json")
            assert (sidecar.incomplete is None) == (run.code == 0)
            assert names(tmp_path / f"masks{trial}") == [f"{frame.frame_idx:05d}.png" for frame in sidecar.frames]
            written += 1
        else:  # not even the first frame can be read
            refused(run, run.code or -1, name)
    assert written > 0


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "k"), [*itertools.product(["track", "write"], [0, 1, 4]), ("close", 0)])
@pytest.mark.parametrize("direction", [[], ["--both"]])
def test_ctrl_c_at_any_frame_leaves_what_was_there(
    sam2track_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: list[str], k: int, place: str
) -> None:
    assert sam2track_("clip.mp4", *CLICK, "--format", "png", "-o", "masks", "--quiet").code == 0
    before = snapshot(tmp_path)
    calls = 0
    owner: Any = Tracker if place == "track" else PngWriter
    method = {"track": "advance", "write": "_add", "close": "_finish"}[place]
    original = getattr(owner, method)

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > k:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, method, interrupted)
    run = sam2track_("clip.mp4", *CLICK, *direction, "--format", "png", "-o", "masks", "--overwrite")
    assert not [thread for thread in threading.enumerate() if thread.name == "sam2track-read-ahead"]
    assert (run.code, run.out, run.err.strip()) == (130, "", "sam2track: interrupted; nothing was written")
    assert snapshot(tmp_path) == before


# -- what FFmpeg conceals -----------------------------------------------------------------------------------------


def _spoilt(path: Path, number: int, span: int = 60) -> None:
    """Spoil a packet from its middle on, so that its headers stay good."""
    data = bytearray(path.read_bytes())
    begin, end = media.packet_ends(path)[number - 1 : number + 1]
    middle = (begin + end) // 2
    for at in range(middle, min(end - 1, middle + span)):
        data[at] ^= 0x5A
    path.write_bytes(data)


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("name", ["clip.mkv", "clip.mp4"])
def test_what_h264_conceals_is_noticed_where_the_log_may_be_read(
    tmp_path: Path, name: str, slices: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = {"g": "8", "bf": "2", "x264-params": f"slices={slices}"}
    path = media.make_video(tmp_path / name, frames=24, size=(320, 192), options=options)
    clean = [frame.rgb for frame in sam2track.open_video(path)]
    with noticing():
        assert len(list(sam2track.open_video(path))) == 24
    _spoilt(path, 11)
    before = av.logging.get_level()
    for _ in range(2):  # the same message once more is a message too
        with noticing(), pytest.raises(VideoDecodeError, match=r"patch up a picture|cannot be read") as caught:
            for idx, frame in enumerate(sam2track.open_video(path)):
                assert np.array_equal(frame.rgb, clean[idx]), "no spoilt picture comes out"
        assert 5 <= caught.value.frame_idx <= 12
    assert av.logging.get_level() == before
    assert capfd.readouterr() == ("", "") and not caplog.records


def test_a_cut_in_mkv_is_no_end(sam2track_: Command, tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "cut.mkv", frames=24, options={"bf": "0"})
    path.write_bytes(path.read_bytes()[: media.packet_ends(path)[15] - 9])
    run = sam2track_("cut.mkv", *CLICK)
    assert run.code == 1 and "from frame 15 (0.600 s) on: the file is cut off or damaged" in run.err
    assert len(read_sidecar(tmp_path / "cut.overlay.json").frames) == 15


def test_most_flipped_bytes_of_h264_are_noticed(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "clip.mkv", frames=24, size=(320, 192), options={"g": "8", "bf": "2"})
    clean, data, ends = [f.rgb for f in sam2track.open_video(path)], path.read_bytes(), media.packet_ends(path)
    rng = random.Random(7)
    harmed = noticed = 0
    for _ in range(20):
        number = rng.randrange(2, 22)
        spoilt = bytearray(data)
        spoilt[rng.randrange((ends[number - 1] + ends[number]) // 2, ends[number])] ^= rng.randrange(1, 256)
        path.write_bytes(spoilt)
        found = []
        try:
            with noticing():
                found += [frame.rgb for frame in sam2track.open_video(path)]
        except VideoDecodeError:
            noticed += 1
            harmed += 1
        else:
            harmed += not all(map(np.array_equal, found, clean))
    assert noticed >= 0.6 * harmed > 6


@pytest.mark.parametrize("direction", [[], ["--both"]])
def test_out_point_behind_the_damage_gives_what_lies_before_it(
    sam2track_: Command, tmp_path: Path, damaged: Path, direction: list[str]
) -> None:
    run = sam2track_("damaged.mov", *CLICK, "--stop", "10", "-o", "cut.mp4", *direction)
    assert run.code == 1, run.err
    assert "cannot be read from frame 8 (0.320 s) on" in run.err
    assert [frame.frame_idx for frame in read_sidecar(tmp_path / "cut.json").frames] == list(range(GOOD))


def test_video_tells_of_its_damage(tmp_path: Path, damaged: Path) -> None:
    with sam2track.open_video(damaged) as video:
        assert video.num_frames == GOOD
        assert video.damage is not None and video.damage.frame_idx == GOOD
        assert video.damage.time_s == pytest.approx(0.32)
    with sam2track.open_video(tmp_path / "whole.mov") as video:
        assert video.damage is None
