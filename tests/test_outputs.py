"""Writing masks: every output is read again and compared, and none is left behind half done."""

from __future__ import annotations

import gc
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import media
import numpy as np
import pytest
from command import snapshot
from hypothesis import given
from hypothesis import strategies as st

import sam2track.outputs
from sam2track.errors import OutputError, OutputExistsError, VideoDecodeError
from sam2track.outputs import (
    MaskWriter,
    OverlayWriter,
    PngWriter,
    Sidecar,
    SidecarModel,
    SidecarPrompt,
    SidecarWriter,
)
from sam2track.outputs.formats import FORMATS, open_writer
from sam2track.outputs.overlay import PALETTE, draw_mask
from sam2track.outputs.png import davis_palette
from sam2track.outputs.sidecar import mask_box
from sam2track.types import FrameResult, VideoFrame
from sam2track.video import VideoInfo, open_video

MODEL = SidecarModel(name="nano", sha256="ab" * 32)
NTSC = Fraction(30000, 1001)


def overlay(source: Path, output: Path, **options: Any) -> list[VideoFrame]:
    """Track a fixed ellipse through the source; returns the source's frames."""
    frames = []
    with open_video(source) as video, OverlayWriter(output, video.info, **options) as writer:
        for frame in video:
            writer.write(frame, media.result_of(frame, {1: media.ellipse(frame)}))
            frames.append(frame)
    return frames


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small clip with B-frames and sound; not to be written to."""
    path = tmp_path_factory.mktemp("source") / "clip.mp4"
    return media.make_video(path, rate=NTSC, frames=20, options={"bf": "2"}, audio="aac")


# ---- overlay ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["mp4", "mov", "mkv", "MP4"])
def test_overlay_has_the_source_s_frames_at_the_source_s_times(clip: Path, tmp_path: Path, extension: str) -> None:
    output = tmp_path / f"overlay.{extension}"
    source = overlay(clip, output)
    found = list(open_video(output))
    assert [media.read_number(frame.rgb) for frame in found] == list(range(20))
    tolerance = 0.0006 if extension == "mkv" else 0  # Matroska rounds to milliseconds
    times = [frame.time_s for frame in source]
    assert [frame.time_s for frame in found] == pytest.approx(times, abs=tolerance)
    assert media.ffprobe_count(output) in (20, None)
    with av.open(str(output)) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        assert container.streams.video[0].codec_context.pix_fmt == "yuv420p"
    assert sorted(tmp_path.iterdir()) == [output]


def test_overlay_changes_the_masked_pixels_only(clip: Path, tmp_path: Path) -> None:
    output = tmp_path / "overlay.mp4"
    for before, after in zip(overlay(clip, output), open_video(output), strict=True):
        mask = media.ellipse(before).astype(np.uint8)
        outside = cv2.dilate(mask, np.ones((5, 5), np.uint8)) == 0  # chroma is stored at half size
        inside = cv2.erode(mask, np.ones((9, 9), np.uint8)) == 1
        difference = np.abs(before.rgb.astype(int) - after.rgb)
        assert difference[outside].mean() < 3
        assert difference[inside].mean() > 15
        expected = 0.55 * before.rgb[inside] + 0.45 * np.array(PALETTE[0])
        assert np.abs(after.rgb[inside] - expected).mean() < 6


def test_overlay_keeps_a_variable_frame_rate(tmp_path: Path) -> None:
    ticks = [0, 7, 8, 30, 31, 32, 90, 200, 201, 350]
    source = media.make_video(
        tmp_path / "vfr.mp4", frames=10, pts=ticks, time_base=Fraction(1, 1000), options={"bf": "2"}
    )
    output = tmp_path / "overlay.mp4"
    overlay(source, output)
    times = [frame.pts * frame.time_base for frame in open_video(output) if frame.pts is not None]
    assert times == [Fraction(tick, 1000) for tick in ticks]


@pytest.mark.parametrize("matrix", ["bt709", "smpte170m", None])
@pytest.mark.parametrize("colour_range", ["tv", "pc"])
def test_overlay_looks_the_same_whatever_the_source_s_colours(
    tmp_path: Path, matrix: str | None, colour_range: str
) -> None:
    source = tmp_path / "colours.mkv"
    label = "format=yuv444p,setparams=" + (f"colorspace={matrix}:" if matrix else "") + f"range={colour_range}"
    gradient = "gradients=s=128x96:d=0.2:r=25:c0=0x4080c0:c1=0xc08040:seed=1"
    media.ffmpeg("-f", "lavfi", "-i", gradient, "-vf", label, "-c:v", "ffv1", source)
    output = tmp_path / "overlay.mp4"
    frames = []
    with open_video(source) as video, OverlayWriter(output, video.info) as writer:
        for frame in video:
            writer.write(frame, media.result_of(frame, {}))
            frames.append(frame.rgb)
    shown = media.ffmpeg_rgb(output, 128, 96)
    # ffmpeg's own way back to RGB darkens by one level; a wrong matrix or range costs five and more.
    assert np.abs(shown.astype(int) - np.stack(frames)).mean() < 3
    with av.open(str(output)) as container:
        decoded = next(container.decode(video=0))
        assert (int(decoded.colorspace), int(decoded.color_range)) == (1, 1)  # BT.709, limited


def test_overlay_of_an_hdr_source_keeps_its_primaries_and_transfer(tmp_path: Path) -> None:
    source = tmp_path / "hdr.mkv"
    label = "format=yuv420p10le,setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=arib-std-b67"
    media.ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:d=0.2:r=25", "-vf", label, "-c:v", "ffv1", source)
    overlay(source, tmp_path / "overlay.mp4")
    info = open_video(tmp_path / "overlay.mp4").info
    assert (info.colour_primaries, info.colour_transfer) == (9, 18)
    with av.open(str(tmp_path / "overlay.mp4")) as container:
        assert container.streams.video[0].codec_context.colorspace == 1


@pytest.mark.parametrize("size", [(99, 67), (98, 67), (99, 66), (1, 1), (17, 3)])
def test_overlay_of_an_odd_size_repeats_the_last_row_and_column(tmp_path: Path, size: tuple[int, int]) -> None:
    width, height = size
    source = media.make_video(tmp_path / "odd.mkv", codec="ffv1", pix_fmt="bgr0", size=size, frames=4)
    output = tmp_path / "overlay.mp4"
    before = overlay(source, output)
    after = list(open_video(output))
    assert len(after) == 4
    for one, other in zip(before, after, strict=True):
        assert other.rgb.shape == (height + height % 2, width + width % 2, 3)
        outside = ~media.ellipse(one, radius=0.3)
        assert np.abs(one.rgb.astype(int) - other.rgb[:height, :width])[outside].mean() < 16
        assert np.abs(other.rgb[height - 1].astype(int) - other.rgb[-1]).mean() < 12
        assert np.abs(other.rgb[:, width - 1].astype(int) - other.rgb[:, -1]).mean() < 12


def test_overlay_of_a_turned_video_is_upright_and_keeps_its_pixel_aspect(tmp_path: Path) -> None:
    stored = media.make_video(tmp_path / "stored.mp4", frames=3, sample_aspect_ratio=Fraction(4, 3))
    source = tmp_path / "turned.mp4"
    media.ffmpeg("-display_rotation", "90", "-i", stored, "-c", "copy", source)
    output = tmp_path / "overlay.mp4"
    before = overlay(source, output)
    with open_video(output) as video:
        assert (video.info.width, video.info.height, video.info.rotation) == (64, 96, 0)
        assert video.info.sample_aspect_ratio == Fraction(3, 4)
        for one, other in zip(before, video, strict=True):
            outside = ~media.ellipse(one, radius=0.3)
            assert np.abs(one.rgb.astype(int) - other.rgb)[outside].mean() < 4


def test_overlay_starts_at_zero_when_its_source_does_not(tmp_path: Path) -> None:
    source = media.make_video(tmp_path / "late.ts", pts=range(250, 262), audio="aac")
    output = tmp_path / "overlay.mp4"
    before = overlay(source, output)
    assert before[0].time_s is not None and before[0].time_s > 10
    times = [frame.time_s for frame in open_video(output)]
    assert times == pytest.approx([index / 25 for index in range(12)])


def test_overlay_copes_with_missing_repeated_and_backward_times(tmp_path: Path, clip: Path) -> None:
    frames = list(open_video(clip))[:6]
    info = replace(open_video(clip).info, has_audio=False, time_base=Fraction(1, 1000), average_rate=Fraction(25))
    output = tmp_path / "overlay.mp4"
    with OverlayWriter(output, info) as writer:
        for frame, pts in zip(frames, [100, 140, 140, None, 50, 300], strict=True):
            timed = replace(frame, pts=pts, time_base=Fraction(1, 1000))
            writer.write(timed, media.result_of(timed, {}))
    times = [frame.time_s for frame in open_video(output)]
    assert times == pytest.approx([0, 0.040, 0.041, 0.081, 0.121, 0.200])


# ---- audio -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["aac", "mp3", "flac", "ac3"])
def test_audio_is_copied_untouched(tmp_path: Path, codec: str) -> None:
    source = media.make_video(tmp_path / "clip.mp4", frames=25, audio=codec)
    output = tmp_path / "overlay.mp4"
    overlay(source, output)
    before, after = media.audio_packets(source), media.audio_packets(output)
    assert len(before) > 5
    assert [data for _, data in after] == [data for _, data in before]
    assert [time for time, _ in after] == pytest.approx([time for time, _ in before], abs=1e-4)


def test_audio_keeps_its_place_beside_the_pictures(tmp_path: Path) -> None:
    source = media.make_video(tmp_path / "late.ts", pts=range(250, 275), audio="mp2", audio_s=11.5)
    output = tmp_path / "overlay.mkv"
    before = overlay(source, output)
    start = before[0].time_s
    assert start is not None
    originals = {data: time for time, data in media.audio_packets(source)}
    copies = media.audio_packets(output)
    assert len(copies) > 20
    for time, data in copies:
        # A tone repeats itself, so that only the last of equal packets is known by its content.
        assert time <= originals[data] - start + 0.002
    assert copies[0][0] == pytest.approx(0, abs=0.03)
    assert copies[-1][0] == pytest.approx(max(originals.values()) - start, abs=0.002)


def test_audio_longer_than_the_pictures_is_kept_to_its_end(tmp_path: Path) -> None:
    source = media.make_video(tmp_path / "clip.mp4", frames=12, audio="aac", audio_s=2.0)
    output = tmp_path / "overlay.mp4"
    overlay(source, output)
    assert len(media.audio_packets(output)) == len(media.audio_packets(source))


def test_a_range_of_the_clip_gets_the_audio_of_that_range(tmp_path: Path) -> None:
    source = media.make_video(tmp_path / "clip.mp4", frames=50, audio="aac")
    output = tmp_path / "overlay.mp4"
    with open_video(source) as video, OverlayWriter(output, video.info) as writer:
        for frame in video:
            if 25 <= frame.frame_idx < 35:
                writer.write(frame, media.result_of(frame, {1: media.ellipse(frame)}))
    found = list(open_video(output))
    assert [media.read_number(frame.rgb) for frame in found] == list(range(25, 35))
    assert found[0].pts == 0
    packets = media.audio_packets(output)
    assert packets[0][0] == pytest.approx(0, abs=0.03)
    assert packets[-1][0] == pytest.approx(0.4, abs=0.03)
    wanted = [data for time, data in media.audio_packets(source) if 1.0 <= time < 1.4]
    assert [data for time, data in packets if time >= 0] == wanted


# Only without B-frames does a file say how long a frame lasts, and the oldest PyAV does not pass it on.
@pytest.mark.parametrize(
    ("b_frames", "expected"), [("0", 6.0 if hasattr(av.VideoFrame, "duration") else 0.4), ("3", 0.4)]
)
def test_a_range_before_a_long_pause_gets_no_more_audio_than_it_lasts(
    tmp_path: Path, b_frames: str, expected: float
) -> None:
    ticks = [*range(10), 150, 151]
    source = media.make_video(tmp_path / "clip.mp4", frames=12, pts=ticks, audio="aac", options={"bf": b_frames})
    output = tmp_path / "overlay.mp4"
    with open_video(source) as video, OverlayWriter(output, replace(video.info, average_rate=Fraction(25))) as writer:
        for frame in video:
            if frame.frame_idx < 10:
                writer.write(frame, media.result_of(frame, {}))
    assert media.audio_packets(output)[-1][0] == pytest.approx(expected, abs=0.03)
    with av.open(str(output)) as container:
        stream = container.streams.video[0]
        assert stream.duration is not None and stream.time_base is not None
        assert stream.duration * stream.time_base == pytest.approx(expected)


@pytest.mark.parametrize(
    ("codec", "source_name", "output_name"),
    [("pcm_alaw", "clip.mov", "overlay.mp4"), ("flac", "clip.mkv", "overlay.mov")],
)
def test_audio_that_does_not_fit_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, codec: str, source_name: str, output_name: str
) -> None:
    source = media.make_video(tmp_path / source_name, frames=5, audio=codec)
    with caplog.at_level(logging.WARNING, "sam2track"):
        overlay(source, tmp_path / output_name)
    assert f"audio ({codec}) left out" in caplog.text
    info = open_video(tmp_path / output_name).info
    assert not info.has_audio
    assert len(list(open_video(tmp_path / output_name))) == 5


@pytest.mark.parametrize("name", ["overlay.mp4", "overlay.mkv"])
def test_recordings_joined_end_to_end_become_one(tmp_path: Path, name: str) -> None:
    """Their clocks start again in the middle, which no container can hold."""
    one = media.make_video(tmp_path / "one.ts", frames=12, audio="mp2")
    two = media.make_video(tmp_path / "two.ts", frames=12, audio="mp2", first=12)
    source = tmp_path / "both.ts"
    source.write_bytes(one.read_bytes() + two.read_bytes())
    overlay(source, tmp_path / name)
    found = list(open_video(tmp_path / name))
    assert [media.read_number(frame.rgb) for frame in found] == list(range(24))
    times = np.array([frame.time_s for frame in found], float)
    assert np.diff(times) == pytest.approx(1 / 25, abs=0.0011)


def test_an_overlay_of_a_damaged_source_can_be_finished(tmp_path: Path) -> None:
    source = media.make_video(
        tmp_path / "cut.mp4", frames=50, audio="aac", options={"g": "10"}, container={"movflags": "faststart"}
    )
    source.write_bytes(source.read_bytes()[: media.packet_ends(source)[33] - 3])
    output = tmp_path / "overlay.mp4"
    written = 0
    with open_video(source) as video, OverlayWriter(output, video.info) as writer:
        frames = iter(video)
        with pytest.raises(VideoDecodeError):
            for frame in frames:
                writer.write(frame, media.result_of(frame, {1: media.ellipse(frame)}))
                written += 1
    assert 20 < written < 50
    assert [media.read_number(frame.rgb) for frame in open_video(output)] == list(range(written))
    assert media.audio_packets(output)[-1][0] > written / 25 - 0.2


# ---- drawing ---------------------------------------------------------------------------------------


def test_drawing_touches_no_pixel_outside_the_mask_and_every_one_inside() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        height, width = rng.integers(1, 60, 2)
        before = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        mask = np.zeros((height, width), bool)
        mask[rng.integers(height) :, rng.integers(width) :] = True
        mask &= rng.random((height, width)) < 0.9
        after = before.copy()
        draw_mask(after, mask, (255, 0, 0))
        assert np.array_equal(after[~mask], before[~mask])
        filled = np.round(0.55 * before[mask] + 0.45 * np.array([255, 0, 0]))
        solid = (after[mask] == [255, 0, 0]).all(axis=1)
        assert (solid | (np.abs(after[mask] - filled) <= 1).all(axis=1)).all()


def test_contour_follows_the_mask_s_edge_but_not_the_frame_s() -> None:
    picture = np.full((40, 60, 3), 128, np.uint8)
    mask = np.zeros((40, 60), bool)
    mask[10:, 20:] = True
    draw_mask(picture, mask, (0, 0, 255))
    solid = (picture == [0, 0, 255]).all(axis=-1)
    assert solid[10, 20:].all() and solid[10:, 20].all()
    assert not solid[12:, 59].any() and not solid[39, 22:].any()


def test_drawing_leaves_the_frame_as_it_was(clip: Path, tmp_path: Path) -> None:
    frame = next(iter(open_video(clip)))
    before = frame.rgb.copy()
    with OverlayWriter(tmp_path / "overlay.mp4", open_video(clip).info) as writer:
        writer.write(frame, media.result_of(frame, {1: media.ellipse(frame)}))
    assert np.array_equal(frame.rgb, before)


def test_an_object_keeps_its_colour_when_another_one_goes(clip: Path, tmp_path: Path) -> None:
    frames = list(open_video(clip))[:2]
    left, right = (media.ellipse(frames[0], x=x, radius=0.15) for x in (0.25, 0.75))
    with OverlayWriter(tmp_path / "overlay.mkv", open_video(clip).info) as writer:
        writer.write(frames[0], media.result_of(frames[0], {"a": left, "b": right}))
        writer.write(frames[1], media.result_of(frames[1], {"b": right}))
    both, alone = open_video(tmp_path / "overlay.mkv")
    core = cv2.erode(right.astype(np.uint8), np.ones((9, 9), np.uint8)) == 1
    tint = np.array(PALETTE[1]) - np.array(PALETTE[0])
    # Nearer to the second colour than to the first, on both frames.
    for frame, source in zip((both, alone), frames, strict=True):
        change = (frame.rgb[core] - 0.55 * source.rgb[core]).mean(axis=0) / 0.45
        assert (change - np.array(PALETTE[0])) @ tint > 0.8 * (tint @ tint)


def test_palette_is_told_apart() -> None:
    colours = np.array(PALETTE)
    distances = np.abs(colours[:, None] - colours[None]).sum(axis=-1)
    assert (distances[~np.eye(len(PALETTE), dtype=bool)] > 80).all()


# ---- PNG -------------------------------------------------------------------------------------------


def test_png_of_one_object_is_0_and_255(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "masks"
    masks = []
    with PngWriter(folder) as writer:
        for frame in open_video(clip):
            masks.append(media.ellipse(frame, x=0.3 + frame.frame_idx / 40))
            writer.write(frame, media.result_of(frame, {"cup": masks[-1]}))
    assert sorted(path.name for path in folder.iterdir()) == [f"{index:05d}.png" for index in range(20)]
    for index, mask in enumerate(masks):
        picture = cv2.imread(str(folder / f"{index:05d}.png"), cv2.IMREAD_UNCHANGED)
        assert picture is not None and picture.dtype == np.uint8
        assert np.array_equal(picture, mask * np.uint8(255))


def test_png_is_numbered_by_the_source_s_frames(clip: Path, tmp_path: Path) -> None:
    frame = next(iter(open_video(clip)))
    with PngWriter(tmp_path / "masks") as writer:
        for index in (7, 123456):
            numbered = replace(frame, frame_idx=index)
            writer.write(numbered, media.result_of(numbered, {1: media.ellipse(frame)}))
    assert sorted(path.name for path in (tmp_path / "masks").iterdir()) == ["00007.png", "123456.png"]


def test_png_of_several_objects_holds_their_positions(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "masks"
    frames = list(open_video(clip))[:2]
    a, b = media.ellipse(frames[0], x=0.4), media.ellipse(frames[0], x=0.6)
    with PngWriter(folder, indexed=True) as writer:
        writer.write(frames[0], media.result_of(frames[0], {"a": a, "b": b}))
        writer.write(frames[1], media.result_of(frames[1], {"b": b}))
    first, palette = _read_indexed(folder / "00000.png")
    assert np.array_equal(first, np.where(b, 2, np.where(a, 1, 0)))  # the later object is on top
    second, _ = _read_indexed(folder / "00001.png")
    assert np.array_equal(second, np.where(b, 2, 0))
    assert palette[:4].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]


def _read_indexed(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(indices, palette) as FFmpeg reads them."""
    with av.open(str(path)) as container:
        frame: Any = next(container.decode(video=0))
    assert frame.format.name == "pal8"
    rows = np.frombuffer(bytes(frame.planes[0]), np.uint8).reshape(frame.height, -1)
    argb = np.frombuffer(bytes(frame.planes[1])[:1024], "<u4")
    palette = np.stack([argb >> 16 & 255, argb >> 8 & 255, argb & 255], axis=-1)
    return rows[:, : frame.width], palette


def test_davis_palette_is_theirs() -> None:
    palette = davis_palette()
    assert palette.shape == (256, 3) and palette.dtype == np.uint8
    # From the palette of the DAVIS 2017 annotations.
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0), 4: (0, 0, 128), 8: (64, 0, 0)}
    known |= {15: (192, 128, 128), 20: (0, 64, 128), 255: (224, 224, 192)}
    assert {index: tuple(palette[index].tolist()) for index in known} == known


def test_png_of_more_objects_than_it_can_hold_is_refused(clip: Path, tmp_path: Path) -> None:
    frame = next(iter(open_video(clip)))
    mask = media.ellipse(frame)
    with pytest.raises(OutputError, match="indexed=True"), PngWriter(tmp_path / "masks") as writer:
        writer.write(frame, media.result_of(frame, {1: mask, 2: mask}))
    many = media.result_of(frame, dict.fromkeys(range(256), mask))
    with (
        pytest.raises(OutputError, match="at most 255"),
        PngWriter(tmp_path / "masks", indexed=True) as writer,
    ):
        writer.write(frame, many)
    assert not list(tmp_path.iterdir())


# ---- sidecar ---------------------------------------------------------------------------------------


def test_sidecar_is_one_json_document_with_a_line_a_frame(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "clip.json"
    prompts = [
        SidecarPrompt(frame_idx=0, object_id=1, points=((48.0, 40.5),), labels=(1,)),
        SidecarPrompt(frame_idx=3, object_id="cup", box=(1, 2, 30, 40)),
    ]
    with open_video(clip) as video, SidecarWriter(path, video.info, model=MODEL, prompts=prompts) as writer:
        for frame in video:
            absent = np.zeros(frame.rgb.shape[:2], bool)
            writer.write(frame, media.result_of(frame, {1: media.ellipse(frame), "cup": absent}, score=-2.25))
    text = path.read_text(encoding="utf-8")
    document = Sidecar.model_validate_json(text)
    assert document.schema_version == 1
    assert document.model == MODEL
    assert list(document.prompts) == prompts
    assert document.source.name == "clip.mp4"
    assert (document.source.width, document.source.height) == (96, 64)
    assert (document.source.average_rate, document.source.time_base) == ("30000/1001", "1/30000")
    assert [frame.frame_idx for frame in document.frames] == list(range(20))
    assert [frame.pts for frame in document.frames] == [1001 * index for index in range(20)]
    assert [frame.time_s for frame in document.frames] == pytest.approx([i * 1001 / 30000 for i in range(20)])
    present, gone = document.frames[5].objects
    mask = media.ellipse(next(iter(open_video(clip))))
    assert (present.object_id, present.object_score, present.predicted_iou) == (1, -2.25, 0.75)
    assert present.area == mask.sum()
    assert present.box == mask_box(mask)
    assert (gone.object_id, gone.area, gone.box) == ("cup", 0, None)
    lines = [line.rstrip(",") for line in text.splitlines()[1:-1]]
    assert [json.loads(line)["frame_idx"] for line in lines] == list(range(20))


def test_sidecar_without_times(clip: Path, tmp_path: Path) -> None:
    frame = replace(next(iter(open_video(clip))), pts=None, time_base=None)
    info = replace(open_video(clip).info, average_rate=None)
    with SidecarWriter(tmp_path / "clip.json", info, model=MODEL) as writer:
        writer.write(frame, media.result_of(frame, {}))
    document = Sidecar.model_validate_json((tmp_path / "clip.json").read_text())
    assert (document.frames[0].pts, document.frames[0].time_s, document.source.average_rate) == (
        None,
        None,
        None,
    )


def test_sidecar_is_written_as_it_comes(clip: Path, tmp_path: Path) -> None:
    frame = next(iter(open_video(clip)))
    writer = SidecarWriter(tmp_path / "clip.json", open_video(clip).info, model=MODEL)
    for index in range(300):
        numbered = replace(frame, frame_idx=index)
        writer.write(numbered, media.result_of(numbered, {1: media.ellipse(frame)}))
    (temporary,) = tmp_path.iterdir()
    assert temporary.stat().st_size > 20000
    writer.abort()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sidecar_never_holds_what_json_cannot(clip: Path, tmp_path: Path, value: float) -> None:
    frame = next(iter(open_video(clip)))
    result = media.result_of(frame, {1: media.ellipse(frame)}, score=value)
    with (
        pytest.raises(OutputError, match=r"object_score|finite"),
        SidecarWriter(tmp_path / "clip.json", open_video(clip).info, model=MODEL) as writer,
    ):
        writer.write(frame, result)
    assert not list(tmp_path.iterdir())


def test_sidecar_takes_integers_and_strings_as_ids(clip: Path, tmp_path: Path) -> None:
    frame = next(iter(open_video(clip)))
    mask = media.ellipse(frame)
    info = open_video(clip).info
    with SidecarWriter(tmp_path / "clip.json", info, model=MODEL) as writer:
        writer.write(frame, media.result_of(frame, {np.int64(7): mask, "7": mask}))
    document = Sidecar.model_validate_json((tmp_path / "clip.json").read_text())
    assert [found.object_id for found in document.frames[0].objects] == [7, "7"]
    with (
        pytest.raises(OutputError, match="integer or a string"),
        SidecarWriter(tmp_path / "other.json", info, model=MODEL) as writer,
    ):
        writer.write(frame, media.result_of(frame, {(1, 2): mask}))


def test_sidecar_prompt_needs_a_label_for_each_point() -> None:
    with pytest.raises(ValueError, match="expected one each"):
        SidecarPrompt(frame_idx=0, object_id=1, points=((1, 2), (3, 4)), labels=(1,))


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_box_is_the_smallest_that_holds_the_mask(height: int, width: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits).reshape(height, width)
    box = mask_box(mask)
    if box is None:
        assert not mask.any()
        return
    x0, y0, x1, y1 = box
    assert mask[y0:y1, x0:x1].sum() == mask.sum()
    edges = (mask[y0, x0:x1], mask[y1 - 1, x0:x1], mask[y0:y1, x0], mask[y0:y1, x1 - 1])
    assert all(edge.any() for edge in edges)


# ---- what all writers have in common ---------------------------------------------------------------


class Make:
    """Makes a writer of one kind; `name` is its output's."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        suffix = ".json" if kind == "sidecar" else "" if FORMATS[kind].is_folder else Path(FORMATS[kind].ending).suffix
        self.name = f"output{suffix}"

    def __call__(self, folder: Path, info: VideoInfo, **options: Any) -> MaskWriter:
        if self.kind == "sidecar":
            return SidecarWriter(folder / self.name, info, model=MODEL, **options)
        return open_writer(self.kind, folder / self.name, info, object_ids=[1], **options)


writers = pytest.mark.parametrize("make", [Make(kind) for kind in (*FORMATS, "sidecar")], ids=lambda make: make.kind)


def frames_of(path: Path, masks: bool = True) -> Iterator[tuple[VideoFrame, FrameResult]]:
    for frame in open_video(path):
        yield frame, media.result_of(frame, {1: media.ellipse(frame)} if masks else {})


@writers
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("after", [0, 1, 15])
def test_an_exception_in_the_middle_leaves_nothing(
    clip: Path, tmp_path: Path, make: Make, error: type[BaseException], after: int
) -> None:
    with pytest.raises(error), make(tmp_path, open_video(clip).info) as writer:
        for frame, result in frames_of(clip):
            if frame.frame_idx == after:
                raise error
            writer.write(frame, result)
    assert not list(tmp_path.iterdir())


@writers
def test_an_output_has_no_name_before_it_is_whole(clip: Path, tmp_path: Path, make: Make) -> None:
    with make(tmp_path, open_video(clip).info) as writer:
        for frame, result in frames_of(clip):
            writer.write(frame, result)
            assert not [path for path in tmp_path.iterdir() if path.name.startswith("output")]
    assert [path.stem for path in tmp_path.iterdir()] == ["output"]


@writers
def test_an_existing_output_is_refused_and_left_alone(clip: Path, tmp_path: Path, make: Make) -> None:
    info = open_video(clip).info

    def write(frames: int, **options: Any) -> None:
        with make(tmp_path, info, **options) as writer:
            for frame, result in frames_of(clip):
                if frame.frame_idx < frames:
                    writer.write(frame, result)

    write(5)
    (output,) = tmp_path.iterdir()
    before = _content(output)
    with pytest.raises(OutputExistsError, match="exists already") as caught:
        write(9)
    assert isinstance(caught.value, FileExistsError)
    assert list(tmp_path.iterdir()) == [output] and _content(output) == before
    write(9, overwrite=True)
    assert list(tmp_path.iterdir()) == [output] and _content(output) != before
    before = _content(output)
    with pytest.raises(ZeroDivisionError), make(tmp_path, info, overwrite=True) as writer:
        writer.write(*next(frames_of(clip)))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [output] and _content(output) == before


def _content(output: Path) -> dict[str, bytes]:
    files = [output] if output.is_file() else sorted(output.iterdir())
    return {path.name: path.read_bytes() for path in files}


@writers
def test_an_output_that_appears_meanwhile_is_not_overwritten(clip: Path, tmp_path: Path, make: Make) -> None:
    with pytest.raises(OutputError), make(tmp_path, open_video(clip).info) as writer:
        writer.write(*next(frames_of(clip)))
        (tmp_path / make.name).write_text("somebody else's")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["somebody else's"]


@pytest.mark.parametrize("kind", ["same", "relative", "symlink", "hardlink"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_source_is_never_the_output(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, overwrite: bool
) -> None:
    source, output = tmp_path / "clip.mp4", tmp_path / "other.mp4"
    source.write_bytes(clip.read_bytes())
    monkeypatch.chdir(tmp_path)
    if kind == "symlink":
        output.symlink_to(source)
    elif kind == "hardlink":
        output.hardlink_to(source)
    else:
        output = source if kind == "same" else Path("clip.mp4")
    info = open_video(source).info
    for make in (
        lambda: OverlayWriter(output, info, overwrite=overwrite),
        lambda: SidecarWriter(output, info, model=MODEL, overwrite=overwrite),
    ):
        with pytest.raises(OutputError, match="is the input"):
            make()
    assert source.read_bytes() == clip.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} <= {"clip.mp4", "other.mp4"}


@writers
def test_a_missing_folder_is_named(clip: Path, tmp_path: Path, make: Make) -> None:
    with pytest.raises(OutputError, match=r"no folder .*nowhere"):
        make(tmp_path / "nowhere", open_video(clip).info)
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_a_file_and_the_other_way_round(clip: Path, tmp_path: Path) -> None:
    info = open_video(clip).info
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "masks").write_text("a file")
    with pytest.raises(OutputError, match="it is a folder"):
        OverlayWriter(tmp_path / "folder.mp4", info, overwrite=True)
    with pytest.raises(OutputError, match="it is a file"):
        PngWriter(tmp_path / "masks", overwrite=True)


def test_a_folder_with_other_files_is_never_replaced(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "masks"
    folder.mkdir()
    with PngWriter(folder) as writer:  # empty: fine
        writer.write(*next(frames_of(clip)))
    (folder / "thesis.doc").write_text("ten years of work")
    with pytest.raises(OutputError, match=r"thesis\.doc"):
        PngWriter(folder, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"00000.png", "thesis.doc"}


@pytest.mark.parametrize("name", ["overlay.avi", "overlay", "overlay.mp4.txt"])
def test_other_extensions_name_those_that_work(clip: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=r"\.mp4, \.mov, \.mkv"):
        OverlayWriter(tmp_path / name, open_video(clip).info)
    assert not list(tmp_path.iterdir())


@writers
def test_no_frame_no_output(clip: Path, tmp_path: Path, make: Make) -> None:
    with pytest.raises(OutputError, match="no frame"), make(tmp_path, open_video(clip).info):
        pass
    assert not list(tmp_path.iterdir())


@writers
def test_closing_twice_and_aborting_afterwards_change_nothing(clip: Path, tmp_path: Path, make: Make) -> None:
    writer = make(tmp_path, open_video(clip).info)
    frame, result = next(frames_of(clip))
    writer.write(frame, result)
    writer.close()
    writer.close()
    writer.abort()
    with pytest.raises(OutputError, match="closed"):
        writer.write(frame, result)
    (output,) = tmp_path.iterdir()
    assert output.stem == "output"


@writers
def test_frames_must_fit_their_masks_and_come_in_order(clip: Path, tmp_path: Path, make: Make) -> None:
    info = open_video(clip).info
    pairs = list(frames_of(clip))[:3]
    small = media.result_of(pairs[0][0], {1: np.ones((3, 4), bool)})
    numbers: Any = media.result_of(pairs[0][0], {1: np.ones((64, 96), np.float32)})
    for first, second, words in [
        ((pairs[0][0], small), None, r"shape \(3, 4\)"),
        ((pairs[0][0], numbers), None, "float32"),
        ((pairs[0][0], pairs[1][1]), None, "masks of frame 1"),
        (pairs[2], pairs[1], "frame 1 after frame 2"),
        (pairs[1], pairs[1], "frame 1 after frame 1"),
    ]:
        writer = make(tmp_path, info)
        with pytest.raises(OutputError, match=words):
            for pair in (first, second):
                if pair is not None:
                    writer.write(*pair)
        writer.close()  # what failed is gone: there is nothing to finish
        assert not list(tmp_path.iterdir())


@writers
@pytest.mark.parametrize("replacing", [False, True])
def test_a_full_disk_is_an_output_error_and_changes_nothing(
    clip: Path, tmp_path: Path, make: Make, replacing: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource", reason="needs a limit on the size of files")
    info = replace(open_video(clip).info, has_audio=False)
    if replacing:
        with make(tmp_path, info) as earlier:
            earlier.write(*next(frames_of(clip)))
    before = snapshot(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = np.random.default_rng(0)
    try:
        writer = make(tmp_path, info, overwrite=True)  # not as a context manager: a failed call cleans up by itself
        with pytest.raises(OutputError):
            for index in range(400):
                rgb = noise.integers(0, 256, (64, 96, 3), dtype=np.uint8)
                frame = VideoFrame(rgb=rgb, frame_idx=index, pts=index * 1001, time_base=Fraction(1, 30000))
                result = media.result_of(frame, {1: noise.random((64, 96)) < 0.5})
                if index == 3:  # a PNG of noise is larger than that at once
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
                writer.write(frame, result)
            writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert snapshot(tmp_path) == before
    assert capfd.readouterr() == ("", "")


@writers
def test_ctrl_c_inside_a_call_leaves_nothing(
    clip: Path, tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make(tmp_path, open_video(clip).info)
    frame, result = next(frames_of(clip))
    writer.write(frame, result)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_add", interrupt)
    frame = replace(frame, frame_idx=1)
    with pytest.raises(KeyboardInterrupt):
        writer.write(frame, media.result_of(frame, {}))
    assert not list(tmp_path.iterdir())


@writers
def test_a_forgotten_writer_leaves_nothing(clip: Path, tmp_path: Path, make: Make) -> None:
    writer = make(tmp_path, open_video(clip).info)
    writer.write(*next(frames_of(clip)))
    del writer
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_frames_of_another_size_than_the_source_are_refused(clip: Path, tmp_path: Path) -> None:
    info = replace(open_video(clip).info, width=98)
    with pytest.raises(OutputError, match="96x64 pixels, expected 98x64"):
        OverlayWriter(tmp_path / "overlay.mp4", info).write(*next(frames_of(clip)))
    assert not list(tmp_path.iterdir())


def test_a_size_that_cannot_be_encoded_is_an_output_error(clip: Path, tmp_path: Path) -> None:
    width = 40000  # more than H.264 allows
    info = replace(open_video(clip).info, width=width, height=2)
    frame = VideoFrame(rgb=np.zeros((2, width, 3), np.uint8), frame_idx=0)
    with pytest.raises(OutputError, match="cannot write"), OverlayWriter(tmp_path / "overlay.mp4", info) as writer:
        writer.write(frame, media.result_of(frame, {}))
    assert not list(tmp_path.iterdir())


def test_importing_loads_neither_av_nor_cv2() -> None:
    code = "import sam2track.outputs.formats, sys; sys.exit(bool({'av', 'cv2', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_sorted_and_resolve() -> None:
    names = sam2track.outputs.__all__
    assert names == sorted(names)
    assert all(getattr(sam2track.outputs, name).__name__ == name for name in names)
    assert set(names) <= set(dir(sam2track.outputs))
    with pytest.raises(AttributeError, match="NoSuchWriter"):
        _ = sam2track.outputs.NoSuchWriter  # type: ignore[attr-defined]
