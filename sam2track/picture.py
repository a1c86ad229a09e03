"""Decoded frame -> displayed picture: colour, orientation, size; and what a first frame says of its video."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sam2track.decoding import damaged, reason_of
from sam2track.orientation import read_display_matrix, turn
from sam2track.types import RgbArray, VideoFrame, VideoInfo

if TYPE_CHECKING:
    import av
    import av.container
    import av.filter

logger = logging.getLogger("sam2track")

_HDR = {16: "PQ", 18: "HLG"}  # H.273 codes of the transfer characteristic
_DEINTERLACE = "for clean edges de-interlace it first: ffmpeg -i INPUT -vf bwdif=send_frame OUTPUT.mp4"
_TONE_MAP = "masks are better on a tone-mapped copy (ffmpeg's filters zscale and tonemap), and fit the original"


class RgbConverter:
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
        """Convert one frame; the filter graph is kept for the next of the same layout."""
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


def as_displayed(
    frame: av.VideoFrame, frame_idx: int, info: VideoInfo, to_rgb: RgbConverter, source: Path | str | None = None
) -> VideoFrame:
    """Colour and turn a decoded frame; VideoDecodeError if that fails or its size is not the video's.

    Args:
        source: What errors name: a live source's name; by default the file.
    """
    source = info.path if source is None else source
    pts, time_base = frame.pts, frame.time_base  # taken first: a filter rewrites them
    duration = None if info.has_b_frames else getattr(frame, "duration", None)  # the oldest PyAV does not tell it
    try:
        rgb = turn(to_rgb(frame), info.rotation, info.mirrored)
    except Exception as error:  # as in _opened
        raise damaged(source, frame_idx, reason_of(error)) from error
    height, width = rgb.shape[:2]
    if (width, height) != (info.width, info.height):
        change = f"the picture changes from {info.width}x{info.height} to {width}x{height} pixels"
        raise damaged(source, frame_idx, change)
    return VideoFrame(rgb=rgb, frame_idx=frame_idx, pts=pts, time_base=time_base, duration=duration or None)


def describe(
    path: Path, container: av.container.InputContainer, stream: av.VideoStream, first: av.VideoFrame
) -> VideoInfo:
    """What the header and the first frame say; logs what the user should know of the pictures, once a source."""
    rotation, mirrored = _orientation(first, path)
    if first.interlaced_frame:
        logger.warning("%s is interlaced: both fields stay in one picture, as stored; %s", path, _DEINTERLACE)
    if (transfer := _HDR.get(int(stream.codec_context.color_trc))) is not None:
        logger.warning("%s is HDR (%s): pictures keep its transfer and look flat; %s", path, transfer, _TONE_MAP)
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
        has_b_frames=bool(stream.codec_context.has_b_frames),
    )


def _orientation(frame: av.VideoFrame, path: Path) -> tuple[int, bool]:
    try:
        matrix = np.frombuffer(bytes(frame.side_data["DISPLAYMATRIX"]), np.int32)  # type: ignore[typeddict-item]
    except KeyError:
        return 0, False
    except ValueError:  # PyAV 18 cannot list what it has no name for: EXIF, as photographs have it
        return round(frame.rotation / 90) * 90 % 360, False
    orientation = read_display_matrix(matrix.tolist())
    if orientation is None:
        logger.warning("%s is to be turned by a part of a right angle; its frames stay as stored", path)
        return 0, False
    return orientation
