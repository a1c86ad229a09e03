"""Pixel formats, colours, interlaced and HDR video, pixel aspect, times and sizes: the right value for each."""

from __future__ import annotations

import itertools
import logging
from fractions import Fraction
from pathlib import Path

import av
import media
import numpy as np
import pytest
from command import Command, read_sidecar

from sam2track.errors import VideoDecodeError
from sam2track.picture import RgbConverter
from sam2track.video import open_video

# What a file of this kind is made of: encoder, container, pixel format, tags.
COLOURS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "plain": ("libx264", "mp4", "yuv420p", {}),
    "bt601": ("libx264", "mp4", "yuv420p", {"-colorspace": "smpte170m", "-color_range": "tv"}),
    "bt709": ("libx264", "mov", "yuv420p", {"-colorspace": "bt709", "-color_range": "tv"}),
    "bt709 full range": ("libx264", "mkv", "yuv420p", {"-colorspace": "bt709", "-color_range": "pc"}),
    "yuvj420p": ("mjpeg", "mov", "yuvj420p", {}),
    "yuvj422p": ("mjpeg", "avi", "yuvj422p", {}),
    "yuv422p10": ("prores_ks", "mov", "yuv422p10le", {"-colorspace": "bt709"}),
    "yuv422p10 full range": ("ffv1", "mkv", "yuv422p10le", {"-colorspace": "bt709", "-color_range": "pc"}),
    "bt2020 10 bit": ("libx265", "mp4", "yuv420p10le", {"-colorspace": "bt2020nc", "-x265-params": "log-level=none"}),
    "yuv444p12": ("ffv1", "mkv", "yuv444p12le", {"-colorspace": "bt2020nc"}),
    "nv12": ("rawvideo", "nut", "nv12", {}),
    "gbrp": ("libx264rgb", "mkv", "rgb24", {}),
    "gbrp10": ("ffv1", "mkv", "gbrp10le", {}),
    "gray": ("ffv1", "mkv", "gray", {}),
    "gray full range": ("ffv1", "mkv", "gray", {"-color_range": "pc"}),
    "gray16": ("ffv1", "mkv", "gray16le", {}),
    "pal8": ("png", "mov", "pal8", {}),
    "rgba": ("png", "mov", "rgba", {}),
    "rgb48": ("png", "mov", "rgb48be", {}),
    "yuva420p": ("ffv1", "mkv", "yuva420p", {}),
    "yuva444p10": ("prores_ks", "mov", "yuva444p10le", {}),
    "yuv411p": ("rawvideo", "nut", "yuv411p", {}),
}
DECODED = {"bt709 full range": "yuvj420p", "gbrp": "gbrp", "yuva444p10": "yuva444p12le"}  # where it has another name
SIZE = (98, 66)


@pytest.mark.parametrize("kind", COLOURS)
def test_colours_are_those_that_ffmpeg_shows(tmp_path: Path, kind: str) -> None:
    codec, container, pix_fmt, tags = COLOURS[kind]
    path = tmp_path / f"clip.{container}"
    source = f"testsrc=s={SIZE[0]}x{SIZE[1]}:r=25:d=0.12"
    options = list(itertools.chain.from_iterable(tags.items()))
    media.ffmpeg("-f", "lavfi", "-i", source, "-pix_fmt", pix_fmt, "-c:v", codec, *options, path)
    with av.open(str(path)) as file:
        assert file.streams.video[0].codec_context.pix_fmt == DECODED.get(kind, pix_fmt), "the kind that is meant"
    found = np.stack([frame.rgb for frame in open_video(path)])
    shown = media.ffmpeg_rgb(path, *SIZE)
    assert len(found) == len(shown) == 3
    assert np.abs(found.astype(int) - shown).max() <= 2
    assert found.std() > 20


@pytest.mark.parametrize("pix_fmt", ["p010le", "p016le", "nv21"])
def test_what_only_hardware_decoders_give(tmp_path: Path, pix_fmt: str) -> None:
    """No file holds these; the converter is given the frame itself."""
    size = (128, 64)  # rows without padding
    raw = tmp_path / "frame.raw"
    source = ["-f", "lavfi", "-i", f"testsrc=s={size[0]}x{size[1]}", "-frames:v", "1"]
    media.ffmpeg(*source, "-pix_fmt", pix_fmt, "-f", "rawvideo", raw)
    data = raw.read_bytes()
    frame = av.VideoFrame(*size, pix_fmt)
    for plane in frame.planes:
        plane.update(data[: plane.buffer_size])
        data = data[plane.buffer_size :]
    assert not data
    described = ["-f", "rawvideo", "-pix_fmt", pix_fmt, "-s", f"{size[0]}x{size[1]}", "-i", raw]
    shown = np.frombuffer(media.ffmpeg(*described, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"), np.uint8)
    assert np.abs(RgbConverter()(frame).astype(int) - shown.reshape(64, 128, 3)).max() <= 2


@pytest.mark.parametrize(("transfer", "name"), [("smpte2084", "PQ"), ("arib-std-b67", "HLG"), ("bt709", "")])
def test_hdr_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, transfer: str, name: str) -> None:
    path = tmp_path / "hdr.mkv"
    tags = f"format=yuv420p10le,setparams=color_trc={transfer}:colorspace=bt2020nc:color_primaries=bt2020"
    media.ffmpeg("-f", "lavfi", "-i", "testsrc=s=96x64:d=0.2", "-vf", tags, "-c:v", "ffv1", path)
    with caplog.at_level(logging.WARNING, "sam2track"):
        frames = [frame.rgb for frame in open_video(path)]
    assert [f"HDR ({name})" in record.getMessage() for record in caplog.records] == ([True] if name else [])
    assert np.abs(np.stack(frames).astype(int) - media.ffmpeg_rgb(path, 96, 64)).max() <= 2, "no tone mapping"


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_interlaced_pictures_stay_as_they_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, codec: str
) -> None:
    """Each frame shows two moments: the lines of the first in the even rows, those of the second in the odd ones."""
    path = tmp_path / "fields.mkv"
    flags = ["-flags", "+ilme+ildct", "-x264-params", "tff=1"] if codec == "libx264" else ["-flags", "+ilme+ildct"]
    source = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=50:d=0.48", "-vf", "tinterlace=interleave_top,setfield=tff"]
    media.ffmpeg(*source, "-c:v", codec, "-q:v", "2", *flags, path)
    with caplog.at_level(logging.WARNING, "sam2track"):
        video = open_video(path)
        found = np.stack([frame.rgb for frame in video])
        assert video.num_frames == len(found) == 12
        video.frame(7)
    assert ["is interlaced" in record.getMessage() for record in caplog.records] == [True], "said once"
    assert media.ffprobe_count(path) in (12, None)
    assert np.abs(found.astype(int) - media.ffmpeg_rgb(path, 96, 64)).max() <= 2


@pytest.mark.parametrize("aspect", [Fraction(16, 11), Fraction(1), Fraction(8, 9)])
def test_pixel_aspect_reaches_the_overlay(sam2track_: Command, tmp_path: Path, aspect: Fraction) -> None:
    media.make_video(tmp_path / "anamorphic.mp4", frames=3, sample_aspect_ratio=aspect)
    assert open_video(tmp_path / "anamorphic.mp4").info.sample_aspect_ratio == aspect
    assert sam2track_("anamorphic.mp4", "--click", "19,42").code == 0
    assert open_video(tmp_path / "anamorphic.overlay.mp4").info.sample_aspect_ratio == aspect


def test_times_reach_the_scores_as_they_are(sam2track_: Command, tmp_path: Path) -> None:
    """Variable, and beginning at 10 s; the overlay begins at 0 and keeps the distances."""
    pts = [10000, 10040, 10050, 10200, 10900, 11000]
    media.make_video(tmp_path / "vfr.mkv", frames=6, pts=pts, time_base=Fraction(1, 1000))
    assert sam2track_("vfr.mkv", "--click", "19,42").code == 0
    times = [frame.time_s for frame in read_sidecar(tmp_path / "vfr.overlay.json").frames]
    assert times == pytest.approx([tick / 1000 for tick in pts])
    shown = [frame.time_s for frame in open_video(tmp_path / "vfr.overlay.mp4")]
    assert shown == pytest.approx([(tick - 10000) / 1000 for tick in pts], abs=1e-3)


def test_times_that_are_missing_or_run_back(sam2track_: Command, tmp_path: Path) -> None:
    raw = media.make_video(tmp_path / "raw.h264", frames=6, options={"bf": "2"})
    assert [media.read_number(frame.rgb) for frame in open_video(raw)] == list(range(6))
    clip = media.make_video(tmp_path / "one.ts", frames=6).read_bytes()
    (tmp_path / "back.ts").write_bytes(clip + clip)
    for name, count in (("raw.h264", 6), ("back.ts", 12)):
        run = sam2track_(name, "--click", "19,42", "-o", f"{name}.mp4")
        assert run.code == 0, run.err
        times = [frame.time_s for frame in open_video(tmp_path / f"{name}.mp4")]
        assert len(times) == count
        assert all(a < b for a, b in itertools.pairwise(times)), "an output's times always increase"


def test_an_edit_list_says_which_frames_there_are(sam2track_: Command, tmp_path: Path) -> None:
    whole = media.make_video(tmp_path / "whole.mp4", frames=30, options={"bf": "2", "g": "10"})
    path = tmp_path / "trimmed.mp4"
    media.ffmpeg("-ss", "0.6", "-i", whole, "-c", "copy", path)
    count = media.ffprobe_count(path)
    with open_video(path) as video:
        numbers = [media.read_number(frame.rgb) for frame in video]
        assert numbers == list(range(15, 30)) and count in (15, None)
    assert sam2track_("trimmed.mp4", "--click", "19,42").code == 0
    frames = read_sidecar(tmp_path / "trimmed.overlay.json").frames
    assert [frame.frame_idx for frame in frames] == list(range(15))


@pytest.mark.parametrize(
    ("size", "codec"),
    [((2, 2), "ffv1"), ((16, 16), "libx264"), ((31, 17), "ffv1"), ((1, 7), "png"), ((7, 300), "ffv1")],
)
def test_odd_and_tiny_sizes(sam2track_: Command, tmp_path: Path, size: tuple[int, int], codec: str) -> None:
    width, height = size
    path = tmp_path / "small.mkv"
    pix_fmt = {"libx264": "yuv444p", "png": "rgb24"}.get(codec, "yuv444p")
    source = f"testsrc2=s={max(width, 32)}x{max(height, 32)}:r=25:d=0.12"
    media.ffmpeg(
        "-f",
        "lavfi",
        "-i",
        source,
        "-vf",
        f"crop={width}:{height}:0:0:exact=1",
        "-pix_fmt",
        pix_fmt,
        "-c:v",
        codec,
        path,
    )
    with open_video(path) as video:
        frames = list(video)
    assert [frame.rgb.shape for frame in frames] == [(height, width, 3)] * 3
    assert (
        np.abs(np.stack([frame.rgb for frame in frames]).astype(int) - media.ffmpeg_rgb(path, width, height)).max() <= 2
    )
    run = sam2track_("small.mkv", "--click", f"{width // 2},{height // 2}", "--format", "png")
    assert run.code == 0, run.err
    assert len(read_sidecar(tmp_path / "small.masks.json").frames) == 3


def test_8k(sam2track_: Command, tmp_path: Path) -> None:
    path = tmp_path / "8k.mp4"
    source = ["-f", "lavfi", "-i", "testsrc=s=7680x4320:r=25", "-frames:v", "3", "-pix_fmt", "yuv420p"]
    media.ffmpeg(*source, "-c:v", "libx264", "-preset", "ultrafast", path)
    with open_video(path) as video:
        assert next(video.frames(2)).rgb.shape == (4320, 7680, 3)
    run = sam2track_("8k.mp4", "--click", "3840,2160", "--format", "png")
    assert run.code == 0, run.err
    assert len(read_sidecar(tmp_path / "8k.masks.json").frames) == 3


def test_a_change_of_size_names_frame_and_time(tmp_path: Path) -> None:
    small = media.make_video(tmp_path / "small.ts", frames=5, options={"bf": "0"})
    large = media.make_video(tmp_path / "large.ts", frames=5, size=(128, 80), pts=range(5, 10), options={"bf": "0"})
    path = tmp_path / "both.ts"
    path.write_bytes(small.read_bytes() + large.read_bytes())
    with pytest.raises(VideoDecodeError, match=r"frame 5 \(\d+\.\d+ s\)") as caught:
        list(open_video(path))
    first = next(iter(open_video(path))).time_s
    assert caught.value.time_s is not None and first is not None
    assert caught.value.time_s - first == pytest.approx(5 / 25, abs=0.001)
    assert caught.value.reason == "the picture changes from 96x64 to 128x80 pixels"
