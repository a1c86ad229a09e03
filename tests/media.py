"""Makes the videos that the tests read, each frame carrying its number as a bar code.

Everything is made on the fly with PyAV, or with the ffmpeg program of the `imageio-ffmpeg` wheel where
the test wants to know what FFmpeg itself makes of a file.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from sam2track.types import FrameResult, ObjectId, ObjectResult, VideoFrame

BITS = 6  # numbers up to 63
CELLS = BITS + 2  # white, black, then the bits, highest first


def numbered_picture(number: int, width: int, height: int) -> NDArray[np.uint8]:
    """(height, width, 3) uint8: a bar code in the upper quarter, a moving disc on a gradient below it."""
    y, x = np.mgrid[:height, :width]
    picture = np.stack([40 + x * 150 // width, 60 + y * 120 // height, np.full_like(x, 110)], axis=-1)
    centre = width * (0.2 + 0.6 * (number % 16) / 15)
    disc = (x - centre) ** 2 + (y - 0.65 * height) ** 2 < (0.2 * height) ** 2
    picture[disc] = (220, 60, 40)
    cells = [1, 0, *(number >> bit & 1 for bit in reversed(range(BITS)))]
    picture[: height // 4] = np.array(cells)[x[0] * CELLS // width][None, :, None] * 235 + 10
    return picture.astype(np.uint8)


def read_number(rgb: NDArray[np.uint8]) -> int:
    """The number in a picture's bar code; ValueError if there is none where it should be."""
    height, width = rgb.shape[:2]
    row = rgb[height // 8].astype(float).mean(axis=1)
    bits = [int(row[int((cell + 0.5) * width / CELLS)] > 128) for cell in range(CELLS)]
    if bits[:2] != [1, 0]:
        raise ValueError(f"no bar code: {bits}")
    return int("".join(map(str, bits[2:])), 2)


def make_video(
    path: Path,
    *,
    frames: int = 12,
    size: tuple[int, int] = (96, 64),
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    rate: Fraction | int = 25,
    time_base: Fraction | None = None,
    pts: Sequence[int] | None = None,
    options: Mapping[str, str] | None = None,
    sample_aspect_ratio: Fraction | None = None,
    audio: str | None = None,
    audio_s: float | None = None,
    first: int = 0,
    container: Mapping[str, str] | None = None,
) -> Path:
    """Encode numbered pictures; `size` is (width, height), `pts` in units of `time_base` (1/rate if None)."""
    time_base = time_base or 1 / Fraction(rate)
    pts = list(range(frames)) if pts is None else pts
    with av.open(str(path), "w", options=dict(container or {})) as output:
        stream: Any = output.add_stream(codec, rate=Fraction(rate), options=dict(options or {}))
        stream.width, stream.height = size
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = time_base
        if sample_aspect_ratio is not None:
            stream.codec_context.sample_aspect_ratio = sample_aspect_ratio
        sound: Any = output.add_stream(audio, rate=48000) if audio else None
        for number in range(frames):
            picture = av.VideoFrame.from_ndarray(numbered_picture(first + number, *size), format="rgb24")
            picture.pts = pts[number]
            picture.time_base = time_base
            output.mux(stream.encode(picture))
        output.mux(stream.encode(None))
        if sound is not None:
            _encode_tone(output, sound, audio_s or float((pts[-1] - pts[0]) * time_base) + 1 / float(rate))
    return path


def _encode_tone(output: Any, stream: Any, seconds: float) -> None:
    resampler = av.AudioResampler(format=stream.format.name, layout="stereo", rate=48000)
    for start in range(0, round(seconds * 48000), 1024):
        samples = 8000 * np.sin(2 * np.pi * 440 * (start + np.arange(1024)) / 48000)
        wave = av.AudioFrame.from_ndarray(samples.astype(np.int16)[None], format="s16", layout="mono")
        wave.sample_rate = 48000
        wave.pts = start
        wave.time_base = Fraction(1, 48000)
        for converted in resampler.resample(wave):
            output.mux(stream.encode(converted))
    output.mux(stream.encode(None))


def ffmpeg(*arguments: str | Path) -> bytes:
    """Run the wheel's ffmpeg; returns its standard output."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout


def ffmpeg_rgb(path: Path, width: int, height: int) -> NDArray[np.uint8]:
    """(n, height, width, 3) uint8: what ffmpeg makes of the file, rotation applied."""
    raw = ffmpeg("-i", path, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def ffprobe_count(path: Path) -> int | None:
    """`ffprobe -count_frames`, or None where that program is not installed."""
    program = shutil.which("ffprobe")
    if program is None:
        return None
    entries = ["-show_entries", "stream=nb_read_frames", "-of", "csv=p=0"]
    command = [program, "-v", "quiet", "-count_frames", "-select_streams", "v:0", *entries, str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(text.split()[0].strip(","))


def packet_ends(path: Path) -> list[int]:
    """Where each video packet ends in the file, in bytes."""
    with av.open(str(path)) as container:
        return [p.pos + p.size for p in container.demux(video=0) if p.pos is not None and p.size]


def audio_packets(path: Path) -> list[tuple[float, bytes]]:
    """(time in seconds, content) of every packet of the first audio stream."""
    with av.open(str(path)) as container:
        packets = container.demux(container.streams.audio[0])
        return [(float(p.pts * p.time_base), bytes(p)) for p in packets if p.pts is not None and p.size]


def result_of(frame: VideoFrame, masks: Mapping[ObjectId, NDArray[np.bool_]], score: float = 3.5) -> FrameResult:
    """A tracker's result with these masks."""
    logits = np.zeros((1, 1), np.float32)
    objects = {
        object_id: ObjectResult(mask=mask, object_score=score, predicted_iou=0.75, mask_logits=logits)
        for object_id, mask in masks.items()
    }
    return FrameResult(frame_idx=frame.frame_idx, objects=objects, pts=frame.pts, time_base=frame.time_base)


def ellipse(frame: VideoFrame, x: float = 0.5, y: float = 0.65, radius: float = 0.22) -> NDArray[np.bool_]:
    """(height, width) bool: an ellipse, its centre and radius as parts of the frame's size."""
    height, width = frame.rgb.shape[:2]
    rows, columns = np.ogrid[:height, :width]
    return (columns / width - x) ** 2 + (rows / height - y) ** 2 < radius**2
