"""Reading videos: which frames, when, how turned, in which colours, and what a damaged file does."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import media
import numpy as np
import pytest

from sam2track.concealment import noticing
from sam2track.errors import Sam2TrackError, VideoDecodeError, VideoError
from sam2track.orientation import read_display_matrix, turn
from sam2track.video import count_frames, list_streams, open_video

NTSC = Fraction(30000, 1001)

KINDS: dict[str, dict[str, Any]] = {
    "h264-b-frames.mp4": {"options": {"bf": "3"}, "rate": NTSC, "frames": 37},
    "h264.mkv": {"options": {"bf": "2"}},
    "h264-b-frames.ts": {"options": {"bf": "3"}},
    "h264-no-times.h264": {"options": {"bf": "2"}},
    "mpeg4-b-frames.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "vp9-odd.webm": {"codec": "libvpx-vp9", "size": (99, 67), "options": {"deadline": "realtime"}},
    "mjpeg-odd.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p", "size": (99, 67)},
    "ffv1-10-bit.mkv": {"codec": "ffv1", "pix_fmt": "yuv420p10le"},
    "png-rgb.mov": {"codec": "png", "pix_fmt": "rgb24"},
    "one-frame.mp4": {"frames": 1},
    "tiny.mkv": {"codec": "ffv1", "pix_fmt": "yuv444p", "size": (16, 8)},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_frame_comes_out_once_and_in_display_order(tmp_path: Path, name: str) -> None:
    options = dict(KINDS[name])
    path = media.make_video(tmp_path / name, **options)
    frames = options.get("frames", 12)
    width, height = options.get("size", (96, 64))
    with open_video(path) as video:
        found = list(video)
    assert [media.read_number(frame.rgb) for frame in found] == list(range(frames))
    assert [frame.frame_idx for frame in found] == list(range(frames))
    assert {frame.rgb.shape for frame in found} == {(height, width, 3)}
    assert all(frame.rgb.dtype == np.uint8 and frame.rgb.flags.c_contiguous for frame in found)
    assert len(media.ffmpeg_rgb(path, width, height)) == frames
    assert media.ffprobe_count(path) in (frames, None)
    assert (video.info.width, video.info.height) == (width, height)


def test_info_of_an_ordinary_file(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "clip.mp4", rate=NTSC, sample_aspect_ratio=Fraction(4, 3), audio="aac")
    info = open_video(str(path)).info
    assert info.path == path
    assert info.average_rate == NTSC
    assert info.time_base == Fraction(1, 30000)
    assert info.frame_count == 12
    assert (info.rotation, info.mirrored) == (0, False)
    assert info.sample_aspect_ratio == Fraction(4, 3)
    assert info.has_audio
    assert not open_video(media.make_video(tmp_path / "mute.mp4")).info.has_audio


def test_variable_frame_rate_keeps_every_time(tmp_path: Path) -> None:
    pts = [0, 7, 8, 30, 31, 32, 90, 200, 201, 350]
    path = media.make_video(tmp_path / "vfr.mp4", frames=10, pts=pts, time_base=Fraction(1, 1000), options={"bf": "2"})
    found = list(open_video(path))
    assert [frame.pts * frame.time_base for frame in found if frame.pts is not None and frame.time_base] == [
        Fraction(tick, 1000) for tick in pts
    ]
    assert [media.read_number(frame.rgb) for frame in found] == list(range(10))


def test_a_start_that_is_not_zero_is_kept(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "late.ts", pts=range(100, 112))
    times = [frame.time_s for frame in open_video(path)]
    assert times[0] is not None and times[0] >= 4  # the muxer adds its own delay
    assert np.diff(np.array(times)) == pytest.approx(1 / 25)


def test_without_times_frames_still_come(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "raw.h264", options={"bf": "2"})
    assert [media.read_number(frame.rgb) for frame in open_video(path)] == list(range(12))


@pytest.mark.parametrize("flip", ["", "-display_hflip", "-display_vflip"])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_orientation_is_that_of_the_displayed_picture(tmp_path: Path, degrees: int, flip: str) -> None:
    stored = media.make_video(tmp_path / "stored.mp4", frames=3, sample_aspect_ratio=Fraction(4, 3))
    path = tmp_path / "turned.mp4"
    flips = [flip] if flip else []
    media.ffmpeg("-display_rotation", str(degrees), *flips, "-i", stored, "-c", "copy", path)
    with open_video(path) as video:
        found = np.stack([frame.rgb for frame in video])
    width, height = (64, 96) if degrees in (90, 270) else (96, 64)
    assert (video.info.width, video.info.height) == (width, height)
    assert video.info.sample_aspect_ratio == (Fraction(3, 4) if degrees in (90, 270) else Fraction(4, 3))
    displayed = media.ffmpeg_rgb(path, width, height)
    assert np.abs(found.astype(int) - displayed).max() <= 2
    upright = np.stack([frame.rgb for frame in open_video(stored)])
    assert np.array_equal(found, upright) == (degrees == 0 and not flip)


def test_rotation_says_which_way(tmp_path: Path) -> None:
    stored = media.make_video(tmp_path / "stored.mp4", frames=1)
    path = tmp_path / "turned.mp4"
    media.ffmpeg("-display_rotation", "90", "-i", stored, "-c", "copy", path)
    assert open_video(path).info.rotation == 90
    (frame,), (original,) = open_video(path), open_video(stored)
    assert np.array_equal(frame.rgb, np.rot90(original.rgb))  # NumPy turns counter-clockwise


def test_a_crooked_rotation_is_left_alone_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = media.make_video(tmp_path / "stored.mp4", frames=1)
    path = tmp_path / "turned.mp4"
    media.ffmpeg("-display_rotation", "30", "-i", stored, "-c", "copy", path)
    with caplog.at_level(logging.WARNING, "sam2track"):
        assert open_video(path).info.rotation == 0
    assert "right angle" in caplog.text


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_display_matrix_moves_pixels_where_it_says(rotation: int, mirrored: bool) -> None:
    cos, sin = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[rotation]
    right, down = (cos, -sin), (sin, cos)  # where a step right and a step down end up, y down
    if mirrored:
        right = (-right[0], -right[1])
    one = 1 << 16
    matrix = [right[0] * one, right[1] * one, 0, down[0] * one, down[1] * one, 0, 0, 0, 1 << 30]
    assert read_display_matrix(matrix) == (rotation, mirrored)
    picture = np.zeros((5, 7, 3), np.uint8)
    picture[1, 4] = 255
    found = turn(picture, rotation, mirrored)
    # The marked pixel, as a step from the picture's centre, must end up where the matrix sends it.
    dx, dy = 4 - 3, 1 - 2
    x, y = dx * right[0] + dy * down[0], dx * right[1] + dy * down[1]
    height, width = found.shape[:2]
    assert found[height // 2 + y, width // 2 + x].tolist() == [255, 255, 255]


COLOURS = [
    ("bt709", "tv", "yuv420p"),
    ("bt709", "pc", "yuv420p"),
    ("smpte170m", "tv", "yuv420p"),
    ("bt470bg", "pc", "yuv444p"),
    ("bt2020nc", "tv", "yuv420p10le"),
    ("bt709", "pc", "yuv422p10le"),
    (None, None, "yuv420p"),
    (None, None, "gray"),
    (None, None, "gbrp"),
    (None, None, "yuva420p"),
]


@pytest.mark.parametrize(("matrix", "colour_range", "pix_fmt"), COLOURS)
def test_colours_are_those_that_ffmpeg_shows(
    tmp_path: Path, matrix: str | None, colour_range: str | None, pix_fmt: str
) -> None:
    path = tmp_path / "colours.mkv"
    tags = ["-colorspace", matrix] if matrix else []
    tags += ["-color_range", colour_range] if colour_range else []
    source = ["-f", "lavfi", "-i", "testsrc=s=97x65:d=0.12:r=25"]
    # A label only: the same numbers, read differently.
    relabel = f"format={pix_fmt}" + (f",setparams=colorspace={matrix}" if matrix else "")
    relabel += f":range={colour_range}" if colour_range else ""
    media.ffmpeg(*source, "-vf", relabel, "-c:v", "ffv1", *tags, path)
    found = np.stack([frame.rgb for frame in open_video(path)])
    assert np.abs(found.astype(int) - media.ffmpeg_rgb(path, 97, 65)).max() <= 2


def test_matrix_and_range_make_a_difference(tmp_path: Path) -> None:
    """So that the test above cannot pass with a reader that ignores the labels."""
    rgb = []
    for matrix, colour_range in [("bt709", "tv"), ("smpte170m", "tv"), ("bt709", "pc")]:
        path = tmp_path / f"{matrix}-{colour_range}.mkv"
        label = f"format=yuv420p,setparams=colorspace={matrix}:range={colour_range}"
        media.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:d=0.04:r=25", "-vf", label, "-c:v", "ffv1", path)
        rgb.append(next(iter(open_video(path))).rgb.astype(int))
    assert np.abs(rgb[0] - rgb[1]).max() > 10
    assert np.abs(rgb[0] - rgb[2]).max() > 10


def test_iterating_again_starts_again_and_iterators_are_independent(tmp_path: Path) -> None:
    video = open_video(media.make_video(tmp_path / "clip.mp4"))
    first, second = iter(video), iter(video)
    assert [next(first).frame_idx, next(first).frame_idx, next(second).frame_idx] == [0, 1, 0]
    assert [media.read_number(frame.rgb) for frame in video] == list(range(12))
    assert [frame.frame_idx for frame in second] == list(range(1, 12))


def test_frames_stay_as_they_were_when_later_ones_are_read(tmp_path: Path) -> None:
    frames = iter(open_video(media.make_video(tmp_path / "clip.mp4")))
    first = next(frames)
    copy = first.rgb.copy()
    assert len(list(frames)) == 11
    assert np.array_equal(first.rgb, copy)


def test_a_closed_video_does_not_look_like_a_finished_one(tmp_path: Path) -> None:
    with open_video(media.make_video(tmp_path / "clip.mp4")) as video:
        frames = iter(video)
        next(frames)
    with pytest.raises(VideoError, match="closed"):
        next(frames)
    with pytest.raises(VideoError, match="closed"):
        next(iter(video))


def test_cover_art_is_not_the_video(tmp_path: Path) -> None:
    clip = media.make_video(tmp_path / "clip.mp4", audio="aac")
    cover = tmp_path / "cover.png"
    media.ffmpeg("-f", "lavfi", "-i", "color=red:s=40x40", "-frames:v", "1", cover)
    path = tmp_path / "with-cover.mp4"
    # First in the file, so that taking the first stream would be wrong.
    maps = ["-map", "1", "-map", "0", "-c", "copy", "-disposition:v:0", "attached_pic"]
    media.ffmpeg("-i", clip, "-i", cover, *maps, path)
    assert [media.read_number(frame.rgb) for frame in open_video(path)] == list(range(12))
    song = tmp_path / "song.mp4"
    maps = ["-map", "1", "-map", "0:a", "-c", "copy", "-disposition:v:0", "attached_pic"]
    media.ffmpeg("-i", clip, "-i", cover, *maps, song)
    with pytest.raises(VideoError, match="cover art"):
        open_video(song)


def test_of_two_videos_the_first_is_read(tmp_path: Path) -> None:
    one = media.make_video(tmp_path / "one.mp4", first=1)
    two = media.make_video(tmp_path / "two.mp4", first=30, size=(192, 128))
    both = tmp_path / "both.mkv"
    media.ffmpeg("-i", one, "-i", two, "-map", "0", "-map", "1", "-c", "copy", both)
    assert [media.read_number(frame.rgb) for frame in open_video(both)] == list(range(1, 13))


def test_another_video_stream_can_be_chosen(tmp_path: Path) -> None:
    one = media.make_video(tmp_path / "one.mp4", first=1, options={"g": "4"})
    two = media.make_video(tmp_path / "two.mp4", first=30, size=(192, 128), frames=20, options={"g": "4", "bf": "2"})
    cover = tmp_path / "cover.jpg"
    media.ffmpeg("-f", "lavfi", "-i", "color=red:s=40x40", "-frames:v", "1", "-update", "1", cover)
    both = tmp_path / "both.mp4"
    maps = ["-map", "2", "-map", "0", "-map", "1", "-c", "copy", "-disposition:v:0", "attached_pic"]
    media.ffmpeg("-i", one, "-i", two, "-i", cover, *maps, "-metadata:s:v:2", "language=deu", both)
    assert [(found.stream, found.codec, found.width, found.title) for found in list_streams(both)] == [
        (0, "h264", 96, "und"),
        (1, "h264", 192, "deu"),
    ]
    with open_video(both, stream=1) as video:
        assert (video.info.stream, video.info.width, video.num_frames) == (1, 192, 20)
        assert [media.read_number(frame.rgb) for frame in video] == list(range(30, 50))
        assert [media.read_number(frame.rgb) for frame in video.frames(13, 16)] == [43, 44, 45]
        assert [media.read_number(frame.rgb) for frame in video.frames(13, 16, reverse=True)] == [45, 44, 43]
        assert video.frame_at(13.5 / 25) == 13
    assert count_frames(both, 99, stream=1) == 20
    assert [media.read_number(frame.rgb) for frame in open_video(both)] == list(range(1, 13))
    for number in (2, -1):
        with pytest.raises(VideoError, match=f"no video stream {number}; it has 2"):
            open_video(both, stream=number)


@pytest.mark.parametrize("name", ["a:b.mp4", "http:x.mp4", "100%d.mp4", "Ünï cødé.mp4", "-dash.mp4"])
def test_any_file_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    media.make_video(tmp_path / "clip.mp4").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert len(list(open_video(name))) == 12


def test_metadata_that_is_not_text_does_no_harm(tmp_path: Path) -> None:
    plain = media.make_video(tmp_path / "clip.mp4")
    titled = tmp_path / "titled.mp4"
    media.ffmpeg("-i", plain, "-c", "copy", "-metadata", "title=TITLETITLE", titled)
    data = titled.read_bytes()
    assert b"TITLETITLE" in data
    titled.write_bytes(data.replace(b"TITLETITLE", b"\xff\xfe\xe9TITLE\xc3\xff"))
    assert len(list(open_video(titled))) == 12


def _text(path: Path) -> None:
    path.write_text("this is not a video\n" * 50)


def _audio(path: Path) -> None:
    media.ffmpeg("-f", "lavfi", "-i", "sine=d=0.2", "-f", "wav", path)


def _noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(5000))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (Path.mkdir, "folder"),
        (Path.touch, "empty"),
        (_text, "cannot be opened as a video"),
        (_noise, "cannot be opened as a video"),
        (_audio, "only audio"),
    ],
    ids=["missing", "folder", "empty", "text", "noise", "audio"],
)
def test_what_is_not_a_video_is_said_clearly(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "input.mp4"
    make(path)
    for use in (open_video, lambda path: count_frames(path, 16)):
        with pytest.raises(VideoError, match=words) as caught:
            use(path)
        assert isinstance(caught.value, OSError)
        assert "input.mp4" in str(caught.value)


def test_a_device_is_refused() -> None:
    if not Path("/dev/null").exists():
        pytest.skip("this system has no /dev/null")
    with pytest.raises(VideoError, match="device"):
        open_video("/dev/null")


def test_count_frames_counts_no_further_than_asked(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "clip.mp4", frames=20, options={"bf": "2"})
    assert [count_frames(path, at_most) for at_most in (0, 1, 16, 20, 21, 1000)] == [0, 1, 16, 20, 20, 20]
    data = bytearray(path.read_bytes())
    whole = len(data)
    del data[whole // 2 :]  # the index is at the end: nothing can be read any more
    path.write_bytes(data)
    with pytest.raises(VideoError):
        count_frames(path, 1)


def test_count_frames_stops_before_damage_it_need_not_see(tmp_path: Path) -> None:
    path = _streamable(tmp_path, frames=30)
    path.write_bytes(path.read_bytes()[: media.packet_ends(path)[20] - 5])
    assert count_frames(path, 10) == 10
    readable = count_frames(path, 100)
    assert 15 <= readable < 20
    with pytest.raises(VideoDecodeError) as caught:
        list(open_video(path))
    assert caught.value.frame_idx == readable


def _streamable(tmp_path: Path, frames: int) -> Path:
    """An MP4 with its index in front, so that a cut leaves something to read."""
    return media.make_video(
        tmp_path / "streamable.mp4",
        frames=frames,
        options={"bf": "2", "g": "10"},
        container={"movflags": "faststart"},
    )


def test_an_end_that_ffmpeg_does_not_report_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _streamable(tmp_path, frames=30)
    data = path.read_bytes()
    with caplog.at_level(logging.WARNING, "sam2track"):
        assert len(list(open_video(path))) == 30
    assert not caplog.records
    path.write_bytes(data[: media.packet_ends(path)[11]])
    with caplog.at_level(logging.WARNING, "sam2track"):
        assert len(list(open_video(path))) == 12
    assert "announces 30 frames, 12 could be read" in caplog.text


def test_frames_hidden_by_an_edit_list_are_not_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = media.make_video(tmp_path / "whole.mp4", frames=40, options={"bf": "0", "g": "20"})
    trimmed = tmp_path / "trimmed.mp4"
    media.ffmpeg("-ss", "1.2", "-i", whole, "-c", "copy", trimmed)
    with caplog.at_level(logging.WARNING, "sam2track"):
        numbers = [media.read_number(frame.rgb) for frame in open_video(trimmed)]
    assert numbers == list(range(30, 40))
    assert not caplog.records


def test_a_change_of_size_names_the_frame_and_both_sizes(tmp_path: Path) -> None:
    small = media.make_video(tmp_path / "small.ts", frames=5)
    large = media.make_video(tmp_path / "large.ts", frames=5, size=(128, 80))
    path = tmp_path / "both.ts"
    path.write_bytes(small.read_bytes() + large.read_bytes())
    frames = iter(open_video(path))
    assert [media.read_number(next(frames).rgb) for _ in range(5)] == list(range(5))
    with pytest.raises(VideoDecodeError, match=r"frame 5.*96x64.*128x80") as caught:
        next(frames)
    assert caught.value.frame_idx == 5


def _read_damaged(path: Path) -> tuple[list[int], Sam2TrackError | None]:
    """The numbers of the frames that can be read (-1 for a spoilt bar code), and the error that ended it."""
    numbers: list[int] = []
    try:
        for frame in open_video(path):
            try:
                numbers.append(media.read_number(frame.rgb))
            except ValueError:
                numbers.append(-1)
    except VideoDecodeError as error:
        assert error.frame_idx == len(numbers)
        return numbers, error
    except VideoError as error:
        assert not numbers
        return numbers, error
    return numbers, None


DAMAGED: dict[str, dict[str, Any]] = {
    "clip.mp4": {"options": {"bf": "2"}},
    "streamable.mp4": {"options": {"bf": "2"}, "container": {"movflags": "faststart"}},
    "clip.mkv": {"options": {"bf": "2"}},
    "clip.ts": {"options": {"bf": "2"}},
    "clip.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "clip.webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime"}},
    "hevc.mov": {
        "codec": "libx265",
        "options": {"preset": "ultrafast", "x265-params": "log-level=none:pools=1"},
        "container": {"movflags": "faststart"},
    },
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_cut_file_gives_its_frames_up_to_the_cut(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = media.make_video(tmp_path / name, frames=24, **DAMAGED[name])
    data = path.read_bytes()
    counts = []
    for part in range(0, 20):
        path.write_bytes(data[: len(data) * part // 20])
        numbers, error = _read_damaged(path)
        # Where FFmpeg takes the cut for the end, a frame that came early for others to refer to is last.
        sure = len(numbers) if error else max(0, len(numbers) - 2)
        assert numbers[:sure] == list(range(sure))
        assert numbers == sorted(set(numbers))
        counts.append(len(numbers))
    assert counts == sorted(counts)
    if name != "clip.mp4":  # its index is at the end
        assert 0 < counts[-1] < 24
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", DAMAGED)
def test_flipped_bytes_raise_nothing_but_video_errors(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = media.make_video(tmp_path / name, frames=24, **DAMAGED[name])
    data = path.read_bytes()
    rng = random.Random(name)
    noticed = 0
    for trial in range(40):
        damaged = bytearray(data)
        for _ in range(1 if trial % 2 else 30):
            damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
        path.write_bytes(damaged)
        with noticing() if trial % 4 < 2 else contextlib.nullcontext():
            noticed += _read_damaged(path)[1] is not None
    assert noticed > 0
    assert capfd.readouterr() == ("", "")


def test_a_picture_patched_up_by_the_decoder_is_damage(tmp_path: Path) -> None:
    """FFmpeg conceals errors in H.264 and goes on; the garbage must not pass for a frame."""
    path = _streamable(tmp_path, frames=30)
    data = bytearray(path.read_bytes())
    ends = media.packet_ends(path)
    begin, end = max(itertools.pairwise(ends[5:]), key=lambda packet: packet[1] - packet[0])
    middle = slice((begin + end) // 2, end)  # of the largest packet but the first, a key frame
    data[middle] = bytes(byte ^ 0xFF for byte in data[middle])
    path.write_bytes(data)
    numbers, error = _read_damaged(path)
    assert isinstance(error, VideoDecodeError)
    assert numbers == list(range(10)) or numbers == list(range(20))  # there is a key frame every ten
    assert "frames before it are good" in str(error)


def test_a_packet_cut_short_is_damage_even_if_the_decoder_makes_a_picture_of_it(tmp_path: Path) -> None:
    path = media.make_video(
        tmp_path / "clip.mov", codec="mjpeg", pix_fmt="yuvj420p", container={"movflags": "faststart"}
    )
    path.write_bytes(path.read_bytes()[: media.packet_ends(path)[8] - 40])
    numbers, error = _read_damaged(path)
    assert numbers == list(range(8))
    assert isinstance(error, VideoDecodeError)
    assert "cut short" in str(error)


def test_importing_loads_neither_av_nor_cv2() -> None:
    code = "import sam2track.video, sys; sys.exit(bool({'av', 'cv2', 'onnxruntime'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
