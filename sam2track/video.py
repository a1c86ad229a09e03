"""Path -> frames: decoding, display orientation and colour; the only file that imports av for reading.

What a frame is here: one picture for each one that the decoder gives, in display order, numbered
from 0. Nothing is dropped, doubled or resampled; `pts` and `time_base` are the source's own.

Damage: reading stops at the first thing FFmpeg reports (a failed read, a packet cut short, a frame
that the decoder calls corrupt), because a picture patched up by error concealment would silently
spoil every mask after it. Frames the decoder still holds back at that moment are dropped as well:
behind a gap their numbers could not be trusted. What FFmpeg conceals and only logs (damaged
H.264 macroblocks), or never notices (HEVC, VP9, packets lost in an MPEG-TS), passes here too. So does
a cut that looks like an end (MKV, MPEG-TS): the last frame or two can lie behind a gap.
"""

from __future__ import annotations

import itertools
import logging
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sam2track.errors import VideoDecodeError, VideoError
from sam2track.orientation import read_display_matrix, turn
from sam2track.types import RgbArray, VideoFrame

if TYPE_CHECKING:
    import av
    import av.container
    import av.filter
    import av.stream

logger = logging.getLogger("sam2track")

_CURE = "check that the file plays; if it does, rewrite it first: ffmpeg -i INPUT -c:v libx264 OUTPUT.mp4"
_ATTACHED_PICTURE = 0x400  # AV_DISPOSITION_ATTACHED_PIC
_PICTURE_CODECS = frozenset({"png", "mjpeg", "bmp", "tiff", "webp"})


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a video's header and first frame say.

    Attributes:
        path: The file.
        width: Pixels, as displayed (after rotation).
        height: Pixels, as displayed (after rotation).
        average_rate: Frames a second, or None if unknown. A hint: the rate may vary.
        time_base: Seconds per unit of `pts`.
        frame_count: The header's claim, or None. A hint: it is often wrong.
        rotation: 0, 90, 180 or 270: degrees counter-clockwise by which the stored picture was turned.
        mirrored: Whether the stored picture was mirrored left to right, before that rotation.
        sample_aspect_ratio: Width : height of one displayed pixel; 1 if the source does not say.
        has_audio: Whether there is at least one audio stream.
        colour_primaries: H.273 code of the RGB primaries; 2 if the source does not say.
        colour_transfer: H.273 code of the transfer characteristic; 2 if the source does not say.
    """

    path: Path
    width: int
    height: int
    average_rate: Fraction | None
    time_base: Fraction
    frame_count: int | None
    rotation: int
    sample_aspect_ratio: Fraction
    has_audio: bool
    mirrored: bool = False
    colour_primaries: int = 2
    colour_transfer: int = 2


class Video:
    """A video file: iterate over it for its frames, as often as needed; each time starts at frame 0.

    Decoding is lazy: a frame is read when it is asked for. After the `with` block no more can be read.

    Example:
        with open_video("clip.mp4") as video:
            for frame in video:
                frame.rgb, frame.frame_idx, frame.pts
    """

    def __init__(self, info: VideoInfo) -> None:
        self._info = info
        self._closed = False

    @property
    def info(self) -> VideoInfo:
        """What the header and the first frame say."""
        return self._info

    def __iter__(self) -> Iterator[VideoFrame]:
        """Yield every frame from the first one.

        Raises:
            VideoError: The video was closed, or the file is gone.
            VideoDecodeError: At the first damaged place; the frames before it were yielded.
        """
        info = self._info
        to_rgb = _RgbConverter()
        self._refuse_if_closed()
        with _opened(_checked(info.path)) as (_, stream):
            for frame_idx, frame in enumerate(_decoded(stream, info.path)):
                yield _as_displayed(frame, frame_idx, info, to_rgb)
                self._refuse_if_closed()

    def close(self) -> None:
        """Let nobody read on: iterators in use raise VideoError instead of ending as if the clip did."""
        self._closed = True

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise VideoError(f"{self._info.path} was closed; open it again to read its frames")

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_video(path: str | os.PathLike[str]) -> Video:
    """Open a video file of any kind that FFmpeg reads; its first frame is decoded to describe it.

    Args:
        path: A file. The first video stream that is not cover art is read.

    Raises:
        VideoError: Not a file, empty, not a video, or without a video stream.
        VideoDecodeError: The very first frame is damaged.
    """
    with _opened(_checked(path)) as (container, stream):
        first = next(_decoded(stream, Path(path)), None)
        if first is None:
            raise VideoError(f"{path} holds no video frame that can be decoded; {_CURE}")
        return Video(_describe(Path(path), container, stream, first))


def count_frames(path: str | os.PathLike[str], at_most: int) -> int:
    """Count the frames that can be read, decoding no more than `at_most` of them.

    Returns:
        The smaller of `at_most` and the number of frames before the end or the first damage.

    Raises:
        VideoError: As `open_video`.
    """
    count = 0
    with _opened(_checked(path)) as (_, stream):
        try:
            for _frame in itertools.islice(_decoded(stream, Path(path)), at_most):
                count += 1
        except VideoDecodeError:
            pass  # whoever reads the frames meets the same error, and hears about it there
    return count


def _checked(path: str | os.PathLike[str]) -> Path:
    """Refuse what is plainly not a video file, more clearly than FFmpeg would."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise VideoError(f"cannot read {path}: {_reason(error)}; check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(f"{path} is a folder, expected a video file; name one of the files in it")
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path} is a pipe or a device, expected a video file; save it to a file first")
    if status.st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes), expected a video file; copy or download it again")
    return Path(path)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    import av

    try:
        # An absolute path, since FFmpeg takes what stands before a colon for a protocol.
        container = av.open(str(path.absolute()), metadata_errors="replace")
    # PyAV raises plain ValueError, RuntimeError or UnicodeError too; its whole surface is foreign here.
    except Exception as error:
        raise VideoError(f"{path} cannot be opened as a video: {_reason(error)}; {_CURE}") from error
    with container:
        for stream in container.streams.video:
            if stream.codec_context is not None and not _is_cover_art(stream):
                # Slices only. Threads of whole frames gain nothing measurable beside a tracker, and with
                # them PyAV loses the decoder's error, and frames, if it comes while the decoder is drained.
                stream.thread_type = "SLICE"
                yield container, stream
                return
        kinds = ", ".join(sorted({_kind(stream) for stream in container.streams})) or "no streams"
        raise VideoError(f"{path} has no video that can be decoded, only {kinds}; give a file with video")


def _is_cover_art(stream: av.VideoStream) -> bool:
    disposition = getattr(stream, "disposition", None)
    if disposition is None:  # PyAV before 14.2
        return stream.average_rate is None and stream.codec_context.name in _PICTURE_CODECS
    return bool(getattr(disposition, "value", disposition) & _ATTACHED_PICTURE)


def _kind(stream: av.stream.Stream) -> str:
    if stream.type != "video":
        return stream.type
    return "video without a decoder" if stream.codec_context is None else "cover art"


def _decoded(stream: av.VideoStream, path: Path) -> Generator[av.VideoFrame, None, None]:
    """Yield the decoder's frames, up to the end or to the first damage that FFmpeg reports."""
    frame_idx = 0
    outside = 0  # packets decoded only for others' sake: the edit list does not show them
    # In a transport stream the mark stands for any jump of its counters, as where two recordings were
    # joined; there the decoder decides.
    marks_damage = stream.container.format.name != "mpegts"
    packets = stream.container.demux(stream)  # type: ignore[attr-defined]  # an input container
    while True:
        try:
            packet = next(packets, None)
            damaged = packet is not None and packet.is_corrupt and marks_damage
            frames = [] if packet is None or damaged else packet.decode()
        except Exception as error:  # as in _opened
            raise _damaged(path, frame_idx, _reason(error)) from error
        if packet is None:
            break
        if damaged:
            raise _damaged(path, frame_idx, "a packet is damaged or cut short")
        outside += packet.is_discard
        for frame in frames:
            if frame.is_corrupt:
                raise _damaged(path, frame_idx, "the decoder reports a corrupt frame")
            yield frame
            frame_idx += 1
    expected = stream.frames - outside
    if stream.frames and expected - frame_idx > max(2, expected // 100):
        logger.warning("%s: the header announces %d frames, %d could be read", path, expected, frame_idx)


def _as_displayed(frame: av.VideoFrame, frame_idx: int, info: VideoInfo, to_rgb: _RgbConverter) -> VideoFrame:
    pts, time_base = frame.pts, frame.time_base  # taken first: a filter rewrites them
    try:
        rgb = turn(to_rgb(frame), info.rotation, info.mirrored)
    except Exception as error:  # as in _opened
        raise _damaged(info.path, frame_idx, _reason(error)) from error
    height, width = rgb.shape[:2]
    if (width, height) != (info.width, info.height):
        change = f"the picture changes from {info.width}x{info.height} to {width}x{height} pixels"
        raise _damaged(info.path, frame_idx, change)
    return VideoFrame(rgb=rgb, frame_idx=frame_idx, pts=pts, time_base=time_base)


def _describe(
    path: Path, container: av.container.InputContainer, stream: av.VideoStream, first: av.VideoFrame
) -> VideoInfo:
    rotation, mirrored = _orientation(first, path)
    width, height = first.width, first.height
    aspect = stream.sample_aspect_ratio or Fraction(1)
    if rotation in (90, 270):
        width, height, aspect = height, width, 1 / aspect
    return VideoInfo(
        path=path,
        width=width,
        height=height,
        average_rate=stream.average_rate or None,
        time_base=stream.time_base or Fraction(1, 1000),
        frame_count=stream.frames or None,
        rotation=rotation,
        mirrored=mirrored,
        sample_aspect_ratio=aspect,
        has_audio=bool(container.streams.audio),
        colour_primaries=int(stream.codec_context.color_primaries),
        colour_transfer=int(stream.codec_context.color_trc),
    )


def _orientation(frame: av.VideoFrame, path: Path) -> tuple[int, bool]:
    try:
        matrix = np.frombuffer(bytes(frame.side_data["DISPLAYMATRIX"]), np.int32)  # type: ignore[typeddict-item]
    except KeyError:
        return 0, False
    orientation = read_display_matrix(matrix.tolist())
    if orientation is None:
        logger.warning("%s is to be turned by a part of a right angle; its frames stay as stored", path)
        return 0, False
    return orientation


class _RgbConverter:
    """Decoded frame -> (height, width, 3) uint8 RGB, full range, exactly as `ffmpeg -pix_fmt rgb24` does.

    That is: the frame's own matrix and range; a frame that names no matrix is taken for BT.601 at
    every size, and one that names no range for limited. No tone mapping (HDR stays in its own
    transfer), no de-interlacing; alpha is dropped. A filter graph is used, not `frame.reformat`: before
    PyAV 15 that ignores the frame's matrix, and in PyAV 18 it shifts the chroma of 10-bit video.
    """

    def __init__(self) -> None:
        self._layout: tuple[object, ...] | None = None
        self._graph: av.filter.Graph | None = None

    def __call__(self, frame: av.VideoFrame) -> RgbArray:
        layout = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range)
        if self._graph is None or layout != self._layout:
            self._graph = self._build(frame)
            self._layout = layout
        self._graph.push(frame)
        converted = self._graph.pull()
        return converted.to_ndarray()  # type: ignore[return-value]  # rgb24 is uint8

    @staticmethod
    def _build(frame: av.VideoFrame) -> av.filter.Graph:
        from av.filter import Graph

        graph = Graph()
        source = graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 1000)
        )
        scale = graph.add("scale")
        rgb = graph.add("format", "rgb24")
        sink = graph.add("buffersink")
        source.link_to(scale)
        scale.link_to(rgb)
        rgb.link_to(sink)
        graph.configure()
        return graph


def _damaged(path: Path, frame_idx: int, reason: str) -> VideoDecodeError:
    return VideoDecodeError(
        f"{path} cannot be read from frame {frame_idx} on: {reason}; the frames before it are good. "
        f"To go on regardless, repair the file first: ffmpeg -i INPUT -c:v libx264 OUTPUT.mp4",
        frame_idx=frame_idx,
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
