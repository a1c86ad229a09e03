"""Live source -> frames: network streams, capture devices, named pipes, standard input; read once, as they come.

A live source has no length and no second chance. Frames are numbered from 0, the first one that could be
decoded: whoever joins in the middle of a group of pictures has to wait for its end. From there on what damage
is, and what of it is noticed, is as in files (`sam2track.decoding`).
"""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sam2track.decoding import dated, demuxed, next_packet, pictures_of, reason_of, video_stream_of
from sam2track.errors import VideoDecodeError, VideoError
from sam2track.picture import RgbConverter, as_displayed, describe
from sam2track.types import VideoFrame, VideoInfo

if TYPE_CHECKING:
    import av
    import av.container

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_STANDARD_INPUT = "-"
_LOW_DELAY = 1 << 19  # AV_CODEC_FLAG_LOW_DELAY


def is_stream(source: str) -> bool:
    """Whether a source is live rather than a file: for `open_stream`, not for `open_video`.

    Args:
        source: A path; a URL (anything with "://" but file://); "-" for standard input; a named pipe or a
            character device. What does not exist is taken for a path.
    """
    url = _URL.fullmatch(source)
    if url is not None or source == _STANDARD_INPUT:
        return url is None or url[1].lower() != "file"
    try:
        mode = Path(source).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def open_stream(
    source: str,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    timeout_s: float | None = 30.0,
    stream: int = 0,
) -> VideoStream:
    """Open a live source; returns once its first frame is decoded.

    Args:
        source: A URL (rtsp://, http://, tcp://, udp://, srt://, ...), a device (/dev/video0), a named pipe,
            or "-" for standard input.
        format: FFmpeg's name of the format. By default found out; "v4l2" for a character device. A camera is
            "dshow" on Windows (source "video=NAME") and "avfoundation" on macOS (source "0").
        options: FFmpeg's options for the protocol and the format, as {"rtsp_transport": "tcp"}. What comes
            while FFmpeg finds out about the source is kept; {"fflags": "nobuffer"} lets it go, and so begins later.
        timeout_s: After so many seconds without data a URL counts as lost. None waits forever.
        stream: Which of its video streams to read, from 0.

    Raises:
        VideoError: It cannot be opened, has no video, or ends before the first frame.
    """
    name = _without_secrets(source)
    try:
        container, opened_stream = _connected(source, format, options, timeout_s, stream)
    except VideoError as error:
        raise VideoError(_told(str(error), source)) from None
    try:
        return VideoStream(container, opened_stream, source)
    except VideoDecodeError as error:
        container.close()
        raise VideoError(f"{name} was lost before its first frame: {_told(str(error), source)}") from None
    except BaseException:
        container.close()
        raise


class VideoStream:
    """A live source: iterate over it once for its frames. A context manager; iterate in one thread only.

    A frame is given out as soon as the container and the decoder have it: none is read ahead.

    Example:
        with open_stream("rtsp://camera/live") as stream:
            for frame in stream:
                frame.rgb, frame.frame_idx, frame.time_s
    """

    def __init__(self, container: av.container.InputContainer, stream: av.VideoStream, source: str) -> None:
        self._container = container
        self._source = source
        self._name = _without_secrets(source)
        self._frames = self._decoded(stream)
        self._reading = threading.Lock()  # held while waiting for data
        self._first: av.VideoFrame | None = next(self._frames, None)
        self._closed = self._iterated = False
        if self._first is None:
            raise VideoError(f"{self._name} ended before its first frame; check what it sends")
        self._info = describe(Path(self._name), container, stream, self._first)

    @property
    def info(self) -> VideoInfo:
        """What the header and the first frame say; `path` is the source without user, password and query."""
        return self._info

    def __iter__(self) -> Iterator[VideoFrame]:
        """Yield every frame from the first one, waiting for each, until the source ends.

        Raises:
            VideoError: The stream was closed, or iterated over before.
            VideoDecodeError: The connection was lost or the data is damaged; the frames before were yielded.
        """
        self._refuse_if_closed()
        if self._iterated:
            raise VideoError(f"{self._name} was read before and a live source cannot go back; open it again")
        self._iterated = True
        return self._displayed()

    def close(self) -> None:
        """Disconnect. An iterator in use raises VideoError instead of ending as if the source did.

        If another thread waits for data at this moment, it disconnects as soon as its wait is over.
        """
        if not self._closed:
            self._closed = True
            self._first = None
            self._disconnect()

    def _disconnect(self) -> None:
        if self._reading.acquire(blocking=False):
            self._container.close()
            self._reading.release()

    def _displayed(self) -> Iterator[VideoFrame]:
        to_rgb = RgbConverter()
        self._refuse_if_closed()
        frame, self._first = self._first, None
        frame_idx = 0
        while frame is not None:
            last = (frame_idx, None if frame.pts is None else float(frame.pts * self._info.time_base))
            yield as_displayed(frame, frame_idx, self._info, to_rgb, self._name)
            self._refuse_if_closed()
            frame_idx += 1
            try:
                with self._reading:
                    frame = next(self._frames, None)
                if self._closed:
                    self._disconnect()
                    self._refuse_if_closed()
            except VideoDecodeError as error:
                error = dated(error, self._name, last, self._info.average_rate)
                told = (_told(text, self._source) for text in (str(error), error.reason))
                raise VideoDecodeError(
                    next(told), frame_idx=error.frame_idx, time_s=error.time_s, reason=next(told)
                ) from None

    def _decoded(self, stream: av.VideoStream) -> Generator[av.VideoFrame, None, None]:
        frame_idx = 0
        packets = demuxed(stream)
        while (packet := next_packet(packets, self._name, frame_idx)) is not None:
            try:
                for frame in pictures_of(packet, self._name, frame_idx):
                    yield frame
                    frame_idx += 1
            except VideoDecodeError:
                if frame_idx:
                    raise
                # Joined in the middle of a group of pictures: what it begins with was never sent to us.

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise VideoError(f"{self._name} was closed; open it again to read on")

    def __enter__(self) -> VideoStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connected(
    source: str, format: str | None, options: Mapping[str, str] | None, timeout_s: float | None, number: int
) -> tuple[av.container.InputContainer, av.VideoStream]:
    import av

    name = _without_secrets(source)
    if format is None and _is_character_device(source):
        format = "v4l2"
    try:
        container = av.open(
            "pipe:0" if source == _STANDARD_INPUT else source,
            format=format,
            options=dict(options or {}),
            metadata_errors="replace",
            timeout=timeout_s,
        )
    except Exception as error:  # as in decoding.opened
        cure = "check the address, and that it plays: ffplay SOURCE"
        raise VideoError(f"{name} cannot be opened as a live source: {reason_of(error)}; {cure}") from error
    try:
        stream = video_stream_of(container, name, number)
    except VideoError:
        container.close()
        raise
    if not stream.codec_context.has_b_frames:
        # Some decoders (AV1) work on several frames at a time without it. With it, others would no longer
        # put B-frames in their place.
        stream.codec_context.flags |= _LOW_DELAY
    return container, stream


def _is_character_device(source: str) -> bool:
    try:
        return stat.S_ISCHR(Path(source).stat().st_mode)
    except (OSError, ValueError):
        return False


def _without_secrets(source: str) -> str:
    """A source as it may be shown: users, passwords and the query, which can hold a key, are left out."""
    url = _URL.fullmatch(source)
    if url is None:
        return source
    address = url[2].rpartition("@")[2]  # the last one, since a password may hold anything
    return f"{url[1]}://{re.split('[?#]', address)[0]}"


def _told(text: str, source: str) -> str:
    """An error's text without what FFmpeg may have put of the source into it."""
    text = text.replace(source, _without_secrets(source))
    return text.replace("Immediate exit requested", "no data came for too long")  # FFmpeg's words for a timeout
