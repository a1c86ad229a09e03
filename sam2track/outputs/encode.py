"""Pictures -> a video file that runs like its source, in whichever codec the format wants.

- Time: every frame keeps its distance to the first one in the source's own time base, so a variable
  rate stays variable (Matroska and WebM themselves round to milliseconds), and the last frame lasts as
  long as the source says. The first frame is at time 0, whatever the source's start was, and the sound is
  shifted with it; a recording that starts at hour 10 would otherwise open with ten empty hours. A missing
  or repeated time moves on to a free one.
- Order: frames are stored as they are shown (no B-frames), since only then the duration of the last frame
  in the file is that of the last one shown; editors also step through such files faster.
- Size: 4:2:0 chroma needs even sides, so an odd one grows by one repeated row or column.
- Colour: converted to BT.709, limited range, and tagged so. Primaries and transfer are the source's,
  if it names them, since they pass through RGB unchanged. Grey levels of a lossless matte are full range.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import OutputError
from sam2track.outputs.audio import AudioCopy
from sam2track.types import VideoFrame

if TYPE_CHECKING:
    import av
    import av.container
    import av.filter
    import av.video

    from sam2track.video import VideoInfo

logger = logging.getLogger("sam2track")

CONTAINERS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm"}
_BT709 = 1  # the H.273 code of matrix, primaries and transfer
_UNSPECIFIED = 2
_LIMITED, _FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_PRIMARIES = frozenset({1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 22})  # the codes that mean something
_TRANSFERS = frozenset({1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18})


@dataclass(frozen=True, slots=True)
class VideoCodec:
    """How pictures become packets.

    Attributes:
        encoder: FFmpeg's name of the encoder.
        picture_format: FFmpeg's name of what `VideoEncoder.write` gets: rgb24, rgba or gray, all uint8.
        pixel_format: FFmpeg's name of what the encoder gets.
        extensions: Of the files that can hold it, with their dot; the first one is the usual one.
        options: The encoder's.
        stores_aspect: Whether the codec itself can say that pixels are not square. Otherwise only .mov and .mp4 can:
            PyAV has no way to write it into Matroska and WebM.
    """

    encoder: str
    picture_format: str
    pixel_format: str
    extensions: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    stores_aspect: bool = False

    def stored_size(self, side: int) -> int:
        """The rows or columns of the file; chroma at half size wants an even number."""
        return side + side % 2 if "420" in self.pixel_format else side


# Superfast: 8 ms a 720p frame on two cores at no visible loss (crf 18); veryfast takes 13 ms and
# makes the file 40 % smaller, ultrafast saves 3 ms and doubles it.
H264 = VideoCodec(
    encoder="libx264",
    picture_format="rgb24",
    pixel_format="yuv420p",
    extensions=(".mp4", ".mov", ".mkv"),
    options={"preset": "superfast", "crf": "18", "bf": "0"},
    stores_aspect=True,
)


def container_format(path: Path, codec: VideoCodec) -> str:
    """Choose the container by the file's extension.

    Raises:
        OutputError: It is none of those that can hold the codec.
    """
    extension = path.suffix.lower()
    if extension not in codec.extensions:
        one_of = "one of " if len(codec.extensions) > 1 else ""
        raise OutputError(
            f"cannot write {path}: got the extension {path.suffix!r}, expected {one_of}{', '.join(codec.extensions)}"
        )
    return CONTAINERS[extension]


class VideoEncoder:
    """Writes one video file; the file is only complete after `finish`."""

    def __init__(self, path: Path, info: VideoInfo, container: str, codec: VideoCodec = H264) -> None:
        """Open the encoder, and the source for its audio.

        Args:
            path: Where to write; an existing file is overwritten.
            info: The source: size, time base, rate, pixel aspect, colours and audio are taken from it.
            container: FFmpeg's name of the container format.
            codec: Of the pictures.
        """
        import av

        self._info = info
        self._codec = codec
        self._rate = _sane_rate(info.average_rate)
        self._last: int | None = None
        self._durations: dict[int, int] = {}  # of frames that are still in the encoder, in ticks, by their tick
        self._end = 0
        self._first_time = Fraction(0)
        self._output = av.open(str(path.absolute()), "w", format=container)
        self._stream = _add_stream(self._output, info, self._rate, codec)
        self._convert = _conversion(codec, self._stream.codec_context)
        if info.sample_aspect_ratio != 1 and not codec.stores_aspect and container in ("matroska", "webm"):
            aspect = f"{info.sample_aspect_ratio.numerator}:{info.sample_aspect_ratio.denominator}"
            logger.warning("%s: pixel aspect %s left out, %s in %s cannot hold it", info.path, aspect,
                           codec.encoder, container)  # fmt: skip
        self._audio = AudioCopy(info.path, self._output, container) if info.has_audio else None

    def write(self, picture: NDArray[np.uint8], frame: VideoFrame) -> None:
        """Encode one picture.

        Args:
            picture: (height, width, 3), (height, width, 4) or (height, width) uint8, as the codec says.
            frame: Where it comes from, for its time.

        Raises:
            OutputError: The picture has not the size of the source.
        """
        import av

        height, width = picture.shape[:2]
        if (width, height) != (self._info.width, self._info.height):
            expected = f"{self._info.width}x{self._info.height}"
            raise OutputError(f"frame {frame.frame_idx} has {width}x{height} pixels, expected {expected}")
        ticks = self._next_tick(frame)
        picture = _padded(picture, self._stream.height - height, self._stream.width - width)
        converted = av.VideoFrame.from_ndarray(picture, format=self._codec.picture_format)
        if self._convert is not None:
            self._convert.push(converted)
            converted = self._convert.pull()  # type: ignore[assignment]  # a video graph
        converted.pts = ticks
        converted.time_base = self._info.time_base
        self._mux(converted)
        if self._audio is not None:
            self._audio.copy_until(self._source_time(ticks))

    def finish(self) -> None:
        """Write what the encoder still holds back, the rest of the audio, and the container's index."""
        self._mux(None)
        if self._audio is not None and self._last is not None:
            self._audio.finish(self._source_time(self._last), self._source_time(self._end))
        self._output.close()

    def abandon(self) -> None:
        """Close the files in whatever state they are."""
        if self._audio is not None:
            self._audio.close()
        with suppress(Exception):  # its file is about to be removed
            self._output.close()

    def _mux(self, picture: av.VideoFrame | None) -> None:
        for packet in self._stream.encode(picture):
            # Muxers ask for it for the last packet; encoders do not all pass it on.
            packet.duration = self._durations.pop(packet.pts or 0, 0)
            self._output.mux(packet)

    def _next_tick(self, frame: VideoFrame) -> int:
        """The frame's time since the first one, in ticks of the source's time base, always increasing."""
        step = max(1, round(1 / (self._rate * self._info.time_base)))
        if frame.pts is None or frame.time_base is None:
            ticks = 0 if self._last is None else self._last + step
        else:
            time = frame.pts * frame.time_base
            if self._last is None:
                self._first_time = time
                if self._audio is not None:
                    self._audio.start_at(time)
            ticks = round((time - self._first_time) / self._info.time_base)
        if self._last is not None and ticks <= self._last:
            # A repeated time moves on by the least; a clock that jumps back (joined recordings) runs on.
            ticks = self._last + (1 if self._last - ticks < step else step)
        self._last = ticks
        duration = step
        if frame.duration is not None and frame.time_base is not None:
            duration = max(1, round(frame.duration * frame.time_base / self._info.time_base))
        self._durations[ticks] = duration
        self._end = ticks + duration
        return ticks

    def _source_time(self, ticks: int) -> Fraction:
        return self._first_time + ticks * self._info.time_base


def _add_stream(
    output: av.container.OutputContainer, info: VideoInfo, rate: Fraction, codec: VideoCodec
) -> av.VideoStream:
    from av.codec.codec import UnknownCodecError

    try:
        added = output.add_stream(codec.encoder, rate=rate, options=dict(codec.options))
    except UnknownCodecError as error:
        raise OutputError(f"this build of PyAV has no {codec.encoder}; install its wheel: pip install av") from error
    stream = cast("av.VideoStream", added)
    stream.width, stream.height = codec.stored_size(info.width), codec.stored_size(info.height)
    stream.pix_fmt = codec.pixel_format
    context = stream.codec_context
    context.time_base = info.time_base
    context.sample_aspect_ratio = info.sample_aspect_ratio
    is_grey = codec.pixel_format == "gray"
    context.colorspace = _UNSPECIFIED if is_grey else _BT709
    context.color_range = _FULL if is_grey else _LIMITED
    context.color_primaries = info.colour_primaries if info.colour_primaries in _PRIMARIES else _BT709
    context.color_trc = info.colour_transfer if info.colour_transfer in _TRANSFERS else _BT709
    return stream


def _sane_rate(rate: Fraction | None) -> Fraction:
    """The rate is a hint for the encoder's rate control only; headers can claim 90000 frames a second."""
    return rate if rate is not None and 0 < rate <= 1000 else Fraction(25)


def _padded(picture: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Contiguous, with its last row and column repeated so often."""
    import cv2

    picture = np.ascontiguousarray(picture)
    if rows == columns == 0:
        return picture
    return np.asarray(cv2.copyMakeBorder(picture, 0, rows, 0, columns, cv2.BORDER_REPLICATE), np.uint8)


def _conversion(codec: VideoCodec, stored: av.VideoCodecContext) -> av.filter.Graph | None:
    """From the picture's format to the encoder's; None if they are the same."""
    # A filter, since PyAV's own reformat takes its arguments differently from version to version.
    import av
    from av.filter import Graph

    if codec.picture_format == codec.pixel_format:
        return None
    graph = Graph()
    given = av.VideoFormat(codec.picture_format, stored.width, stored.height)
    source = graph.add_buffer(width=stored.width, height=stored.height, format=given, time_base=Fraction(1, 1000))
    # ProRes takes its tags from the frames.
    tags = f"color_primaries={int(stored.color_primaries)}:color_trc={int(stored.color_trc)}"
    steps = [
        graph.add("scale", "out_color_matrix=bt709:out_range=tv:flags=bicubic+accurate_rnd"),
        graph.add("format", codec.pixel_format),
        graph.add("setparams", tags),
        graph.add("buffersink"),
    ]
    for one, next_one in zip([source, *steps], steps, strict=False):
        one.link_to(next_one)
    graph.configure()
    return graph
