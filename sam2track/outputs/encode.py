"""RGB frames -> an H.264 video file that looks and runs like its source.

- Time: every frame keeps its distance to the first one in the source's own time base, so a variable
  rate stays variable (Matroska itself rounds to milliseconds). The first frame is at time 0, whatever
  the source's start was, and the sound is shifted with it; a recording that starts at hour 10 would
  otherwise open with ten empty hours. A missing or repeated time moves on to a free one.
- Size: H.264 with 4:2:0 chroma needs even sides, so an odd one grows by one repeated row or column.
- Colour: converted to BT.709, limited range, and tagged so. Primaries and transfer are the source's,
  if it names them, since they pass through RGB unchanged.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from sam2track.errors import OutputError
from sam2track.outputs.audio import AudioCopy
from sam2track.types import RgbArray, VideoFrame

if TYPE_CHECKING:
    import av
    import av.filter

    from sam2track.video import VideoInfo

CONTAINERS = {".mp4": "mp4", ".mov": "mov", ".mkv": "matroska"}
# Superfast: 8 ms a 720p frame on two cores at no visible loss (crf 18); veryfast takes 13 ms and
# makes the file 40 % smaller, ultrafast saves 3 ms and doubles it.
_X264 = {"preset": "superfast", "crf": "18"}
_BT709 = 1  # the H.273 code of matrix, primaries and transfer
_LIMITED = 1  # AVCOL_RANGE_MPEG
_PRIMARIES = frozenset({1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 22})  # the codes that mean something
_TRANSFERS = frozenset({1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18})


def container_format(path: Path) -> str:
    """Choose the container by the file's extension.

    Raises:
        OutputError: It is none of those that are supported.
    """
    try:
        return CONTAINERS[path.suffix.lower()]
    except KeyError:
        raise OutputError(
            f"cannot write {path}: got the extension {path.suffix!r}, expected one of {', '.join(CONTAINERS)}"
        ) from None


class VideoEncoder:
    """Writes one video file; the file is only complete after `finish`."""

    def __init__(self, path: Path, info: VideoInfo, container: str) -> None:
        """Open the encoder, and the source for its audio.

        Args:
            path: Where to write; an existing file is overwritten.
            info: The source: size, time base, rate, pixel aspect, colours and audio are taken from it.
            container: FFmpeg's name of the container format.
        """
        import av
        from av.codec.codec import UnknownCodecError

        self._info = info
        self._rate = _sane_rate(info.average_rate)
        self._last: int | None = None
        self._first_time = Fraction(0)
        self._output = av.open(str(path.absolute()), "w", format=container)
        try:
            stream = self._output.add_stream("libx264", rate=self._rate, options=_X264)
        except UnknownCodecError as error:
            raise OutputError("this build of PyAV has no libx264; install its wheel: pip install av") from error
        stream.width, stream.height = _even(info.width), _even(info.height)
        stream.pix_fmt = "yuv420p"
        codec = stream.codec_context
        codec.time_base = info.time_base
        codec.sample_aspect_ratio = info.sample_aspect_ratio
        codec.colorspace = _BT709
        codec.color_range = _LIMITED
        codec.color_primaries = info.colour_primaries if info.colour_primaries in _PRIMARIES else _BT709
        codec.color_trc = info.colour_transfer if info.colour_transfer in _TRANSFERS else _BT709
        self._stream = stream
        self._to_yuv = _yuv_graph(stream.width, stream.height)
        self._audio = AudioCopy(info.path, self._output, container) if info.has_audio else None

    def write(self, rgb: RgbArray, frame: VideoFrame) -> None:
        """Encode one picture.

        Args:
            rgb: (height, width, 3) uint8, the picture.
            frame: Where it comes from, for its time.

        Raises:
            OutputError: The picture has not the size of the source.
        """
        import av

        height, width = rgb.shape[:2]
        if (width, height) != (self._info.width, self._info.height):
            expected = f"{self._info.width}x{self._info.height}"
            raise OutputError(f"frame {frame.frame_idx} has {width}x{height} pixels, expected {expected}")
        ticks = self._next_tick(frame)
        self._to_yuv.push(av.VideoFrame.from_ndarray(_padded(rgb), format="rgb24"))
        picture = self._to_yuv.pull()
        picture.pts = ticks
        picture.time_base = self._info.time_base
        self._output.mux(self._stream.encode(picture))  # type: ignore[arg-type]  # a video graph
        if self._audio is not None:
            self._audio.copy_until(self._source_time(ticks))

    def finish(self) -> None:
        """Write what the encoder still holds back, the rest of the audio, and the container's index."""
        self._output.mux(self._stream.encode(None))
        if self._audio is not None and self._last is not None:
            end = self._source_time(self._last) + 1 / self._rate
            self._audio.finish(self._source_time(self._last), end)
        self._output.close()

    def abandon(self) -> None:
        """Close the files in whatever state they are."""
        if self._audio is not None:
            self._audio.close()
        with suppress(Exception):  # its file is about to be removed
            self._output.close()

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
        return ticks

    def _source_time(self, ticks: int) -> Fraction:
        return self._first_time + ticks * self._info.time_base


def _sane_rate(rate: Fraction | None) -> Fraction:
    """The rate is a hint for the encoder's rate control only; headers can claim 90000 frames a second."""
    return rate if rate is not None and 0 < rate <= 1000 else Fraction(25)


def _even(size: int) -> int:
    return size + size % 2


def _padded(rgb: RgbArray) -> RgbArray:
    import cv2

    height, width = rgb.shape[:2]
    if height % 2 == 0 and width % 2 == 0:
        return rgb
    return cv2.copyMakeBorder(rgb, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)  # type: ignore[return-value]


def _yuv_graph(width: int, height: int) -> av.filter.Graph:
    # A filter, since PyAV's own reformat takes its arguments differently from version to version.
    import av
    from av.filter import Graph

    graph = Graph()
    rgb24 = av.VideoFormat("rgb24", width, height)
    source = graph.add_buffer(width=width, height=height, format=rgb24, time_base=Fraction(1, 1000))
    scale = graph.add("scale", "out_color_matrix=bt709:out_range=tv:flags=bicubic+accurate_rnd")
    yuv = graph.add("format", "yuv420p")
    sink = graph.add("buffersink")
    source.link_to(scale)
    scale.link_to(yuv)
    yuv.link_to(sink)
    graph.configure()
    return graph
