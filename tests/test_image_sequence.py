"""Image sequences: which files, in which order, their numbers, times, colours, and what is wrong with some."""

from __future__ import annotations

import logging
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import media
import numpy as np
import pytest
from command import ON_DISC, Command, names, read_sidecar, refused

import sam2track
from sam2track.errors import FrameError, VideoDecodeError, VideoError
from sam2track.image_sequence import ImageSequence, is_image_sequence, open_images

WIDTH, HEIGHT = 96, 64


def write(folder: Path, numbers: Any, name: str = "shot.{:04d}.png", size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """One picture a number, showing that number's last six bits; returns the folder."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        picture = media.numbered_picture(number % 64, *size)
        assert cv2.imwrite(str(folder / name.format(number)), picture[:, :, ::-1])
    return folder


def shown(sequence: ImageSequence) -> list[int]:
    return [media.read_number(frame.rgb) for frame in sequence]


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    return write(tmp_path / "plates", range(1001, 1007))


@pytest.mark.parametrize(
    "source", ["plates", "plates/shot.1001.png", "plates/shot.%04d.png", "plates/shot.####.png", "plates/shot.*.png"]
)
def test_a_sequence_may_be_named_in_many_ways(
    shot: Path, monkeypatch: pytest.MonkeyPatch, source: str, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_image_sequence(source)
    with open_images(source, rate=25) as sequence:
        frames = list(sequence)
    assert [media.read_number(frame.rgb) for frame in frames] == [number % 64 for number in range(1001, 1007)]
    assert [frame.frame_idx for frame in frames] == list(range(6))
    assert [frame.time_s for frame in frames] == pytest.approx([n / 25 for n in range(6)])
    info = sequence.info
    assert info.files == tuple(f"shot.{number}.png" for number in range(1001, 1007))
    assert (info.path, info.width, info.height, info.frame_count) == (shot, WIDTH, HEIGHT, 6)
    assert (info.average_rate, info.time_base, info.has_audio) == (25, Fraction(1, 25), False)


def test_the_first_file_is_where_it_begins(shot: Path) -> None:
    assert open_images(shot / "shot.1004.png").info.files == ("shot.1004.png", "shot.1005.png", "shot.1006.png")


def test_one_picture_without_a_number_is_one_frame(tmp_path: Path) -> None:
    folder = write(tmp_path / "stills", [5, 6], "{:01d}.png")
    (folder / "5.png").rename(folder / "still.png")
    assert shown(open_images(folder / "still.png")) == [5]


def test_order_is_natural(tmp_path: Path) -> None:
    folder = write(tmp_path / "frames", [1, 2, 9, 10, 11], "f{}.png")
    assert shown(open_images(folder)) == [1, 2, 9, 10, 11]
    cats = write(tmp_path / "cats", [2], "zebra-{}.png")
    write(cats, [10, 9], "cat-{}-big.png")
    with pytest.MonkeyPatch.context():
        files = open_images(cats).info.files
    assert files == ("cat-9-big.png", "cat-10-big.png", "zebra-2.png")
    assert [frame.pts for frame in open_images(cats)] == [0, 1, 2], "no numbers in common: one after the other"


def test_other_files_in_the_folder_are_passed_over(shot: Path) -> None:
    (shot / "notes.txt").write_text("x")
    (shot / ".shot.1000.png").write_text("x")
    (shot / "sub.png").mkdir()
    assert len(open_images(shot).info.files) == 6


def test_a_number_that_is_missing_is_said_and_leaves_its_time_free(
    shot: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1003, 1004):
        (shot / f"shot.{number}.png").unlink()
    with caplog.at_level(logging.WARNING, "sam2track"):
        sequence = open_images(shot, rate=10)
    assert "2 numbers are missing after shot.1001.png (1003-1004)" in caplog.text
    assert [(frame.frame_idx, frame.pts) for frame in sequence] == [(0, 0), (1, 1), (2, 4), (3, 5)]
    assert [sequence.frame_at(time_s) for time_s in (0, 0.1, 0.39, 0.4, 0.6)] == [0, 1, 1, 2, 3]


def test_frames_from_anywhere(shot: Path) -> None:
    sequence = open_images(shot)
    assert sequence.num_frames == 6
    assert [frame.frame_idx for frame in sequence.frames(2, 4)] == [2, 3]
    assert [frame.frame_idx for frame in sequence.frames(3, 99, reverse=True)] == [5, 4, 3]
    assert media.read_number(sequence.frame(5).rgb) == 1006 % 64
    assert [sequence.frame_at(time_s) for time_s in (0, 0.999 / 24, 1 / 24, 6 / 24)] == [0, 0, 1, 5]
    for wrong in (-0.1, 0.3, float("nan")):
        with pytest.raises(FrameError):
            sequence.frame_at(wrong)
    for index in (-1, 6):
        with pytest.raises(FrameError):
            sequence.frame(index)
    with pytest.raises(FrameError, match="start=-1"):
        sequence.frames(-1)
    sequence.close()
    with pytest.raises(VideoError, match="closed"):
        next(iter(sequence))


KINDS = {
    "rgb48be": "png", "rgba": "png", "rgba64be": "png", "gray": "png", "gray16be": "png", "pal8": "png",
    "rgb24": "tiff", "rgb48le": "tiff", "yuvj444p": "jpg", "yuvj420p": "jpg", "bgr24": "bmp",
}  # fmt: skip


@pytest.mark.parametrize("pix_fmt", KINDS)
def test_colours_are_those_that_ffmpeg_shows(tmp_path: Path, pix_fmt: str) -> None:
    path = tmp_path / f"a.1.{KINDS[pix_fmt]}"
    media.ffmpeg("-f", "lavfi", "-i", "testsrc=s=97x65", "-frames:v", "1", "-pix_fmt", pix_fmt, "-update", "1", path)
    [frame] = open_images(path)
    assert np.abs(frame.rgb.astype(int) - media.ffmpeg_rgb(path, 97, 65)[0]).max() <= 2


def test_a_camera_s_orientation_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    cv2.imwrite(str(path), media.numbered_picture(9, WIDTH, HEIGHT)[:, :, ::-1])
    data = path.read_bytes()
    # An APP1 segment with nothing but the tag "orientation" (0x112), 6: to be turned by a quarter, clockwise.
    tag = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    exif = b"Exif\0\0" + tag
    path.write_bytes(data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + data[2:])
    [frame] = open_images(path)
    assert frame.rgb.shape == (WIDTH, HEIGHT, 3)
    assert media.read_number(np.rot90(frame.rgb)) == 9


@pytest.mark.parametrize("name", ["a%04d.png", "100%d 1.png", "what?.png", "[1].png", "Ünï 3.png", "-f.7.png"])
def test_any_file_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if os.name == "nt" and "?" in name:
        pytest.skip("not a name on Windows")
    write(tmp_path, [5], "plain-{}.png")
    (tmp_path / "plain-5.png").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert shown(open_images(name)) == [5]


def test_what_is_no_sequence_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    two = write(write(tmp_path / "two", range(3), "a.{}.png"), range(3), "b.{}.png")
    twice = write(write(tmp_path / "twice", [1], "{:02d}.png"), [1], "{:03d}.png")
    both = write(write(tmp_path / "both", [1], "{}.png"), [1], "{}.jpg")
    for source, words in [
        (empty, "holds no pictures"),
        (two, r"2 numbered sequences \(a.0.png, b.0.png"),
        (twice, "same frame"),
        (both, "same frame"),
        (two / "c.%04d.png", "no picture matches"),
        (tmp_path / "none" / "c.%04d.png", "No such file"),
        (tmp_path / "none.png", "No such file"),
    ]:
        with pytest.raises(VideoError, match=words):
            open_images(source)
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(FrameError, match="rate"):
            open_images(two / "a.0.png", rate)


@pytest.mark.parametrize("wrong", ["size", "cut", "text", "gone", "empty"])
def test_a_picture_that_cannot_be_used_is_named(shot: Path, wrong: str) -> None:
    sequence = open_images(shot)
    bad = shot / "shot.1004.png"
    data = bad.read_bytes()
    if wrong == "size":
        write(shot, [1004], size=(WIDTH + 2, HEIGHT))
    else:
        bad.write_bytes({"cut": data[: len(data) // 2], "text": b"no picture" * 40, "gone": b"", "empty": b""}[wrong])
        if wrong == "gone":
            bad.unlink()
    frames = iter(sequence)
    assert [next(frames).frame_idx for _ in range(3)] == [0, 1, 2]
    with pytest.raises(VideoDecodeError, match=r"frame 3 \(0\.125 s\), shot\.1004\.png, cannot be used") as caught:
        next(frames)
    assert (caught.value.frame_idx, caught.value.time_s) == (3, 0.125)
    if wrong == "size":
        assert "98x64 pixels, shot.1001.png has 96x64" in str(caught.value)


def test_a_clip_takes_a_sequence(shot: Path, nano: sam2track.Model) -> None:
    arrays = [frame.rgb for frame in open_images(shot)]
    found = []
    for source in (str(shot), open_images(shot), arrays):
        clip = sam2track.Clip(nano, source)
        clip.add_prompt([tuple(map(float, ON_DISC.split(",")))], frame_idx=2)
        found.append({result.frame_idx: result.objects[1].mask for result in clip.track("both")})
    assert sorted(found[0]) == list(range(6))
    for masks in found[1:]:
        assert all(np.array_equal(masks[idx], found[0][idx]) for idx in range(6))


def test_masks_are_named_like_their_pictures(sam2track_: Command, shot: Path, tmp_path: Path) -> None:
    run = sam2track_("plates/shot.1001.png", "--click", ON_DISC, "--format", "png", "--rate", "30000/1001")
    assert run.code == 0, run.err
    assert names(tmp_path / "shot.masks") == [f"shot.{number}.png" for number in range(1001, 1007)]
    sidecar = read_sidecar(tmp_path / "shot.masks.json")
    assert [(frame.frame_idx, frame.file) for frame in sidecar.frames] == [
        (number - 1001, f"shot.{number}.png") for number in range(1001, 1007)
    ]
    assert (sidecar.source.name, sidecar.source.average_rate) == ("plates", "30000/1001")
    assert sidecar.frames[5].time_s == pytest.approx(5 * 1001 / 30000)
    again = ["plates/shot.1001.png", "--click", ON_DISC, "--format", "png"]
    refused(sam2track_(*again), 2, "exists")
    assert sam2track_(*again, "--overwrite").code == 0


def test_a_frame_may_be_named_by_its_picture(sam2track_: Command, shot: Path, tmp_path: Path) -> None:
    options = ["--frame", "plates/shot.1004.png", "--start", "shot.1003.png", "--stop", "shot.1006.png", "--both"]
    run = sam2track_("plates", "--click", ON_DISC, *options, "--format", "png")
    assert run.code == 0, run.err
    assert names(tmp_path / "shot.masks") == ["shot.1003.png", "shot.1004.png", "shot.1005.png"]
    assert [prompt.frame_idx for prompt in read_sidecar(tmp_path / "shot.masks.json").prompts] == [3]
    refused(sam2track_("plates", "--click", ON_DISC, "--frame", "shot.1.png"), 2, "no frame of this name")
    refused(sam2track_("clip.mp4", "--click", ON_DISC, "--frame", "shot.1.png"), 2, "no frame of this name")


def test_an_overlay_of_a_sequence_has_its_rate(sam2track_: Command, shot: Path, tmp_path: Path) -> None:
    (shot / "shot.1003.png").unlink()
    run = sam2track_("plates", "--click", ON_DISC, "--frame", "0.125s", "--both", "--quiet")
    assert run.code == 0, run.err
    with sam2track.open_video(tmp_path / "shot.overlay.mp4") as video:
        times = [frame.time_s for frame in video]
    assert times == pytest.approx([n / 24 for n in (0, 1, 3, 4, 5)], abs=1e-3)
    assert read_sidecar(tmp_path / "shot.overlay.json").prompts[0].frame_idx == 2


def test_the_source_is_never_the_output(sam2track_: Command, shot: Path, tmp_path: Path) -> None:
    run = sam2track_("plates", "--click", ON_DISC, "--format", "png", "-o", "plates", "--overwrite")
    refused(run, 2, "is the input")
    assert len(names(shot)) == 6
    refused(sam2track_("clip.mp4", "--click", ON_DISC, "--rate", "24"), 2, "only pictures need a rate")
    refused(sam2track_("plates", "--click", ON_DISC, "--rate", "0"), 2, "such as 24 or 30000/1001")
