"""File -> decoded frames, from the first one on; and every word on why a video cannot be opened or read.

Damage: reading stops at the first thing FFmpeg reports (a failed read, a packet cut short, a frame
that the decoder calls corrupt), because a picture patched up by error concealment would silently
spoil every mask after it. Frames the decoder still holds back at that moment are dropped as well:
behind a gap their numbers could not be trusted. What FFmpeg conceals and only logs (damaged
H.264 macroblocks, a cut in MKV) is noticed within `concealment.noticing`; what it never notices (HEVC,
VP9, packets lost in an MPEG-TS) passes here too. So does a cut that looks like an end (MPEG-TS): the
last frame or two can lie behind a gap.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sam2track.concealment import Concealment, is_noticing
from sam2track.errors import VideoDecodeError, VideoError

if TYPE_CHECKING:
    import av
    import av.container
    import av.packet
    import av.stream

    VideoPacket: TypeAlias = "av.packet.Packet[av.VideoStream]"

logger = logging.getLogger("sam2track")

CURE = "check that the file plays; if it does, rewrite it first: ffmpeg -i INPUT -c:v libx264 OUTPUT.mp4"
_ATTACHED_PICTURE = 0x400  # AV_DISPOSITION_ATTACHED_PIC
_PICTURE_CODECS = frozenset({"png", "mjpeg", "bmp", "tiff", "webp"})
# PyAV before 15 cannot be asked for the codec of a decoder.
_CODECS_OF_DECODERS = {"libdav1d": "av1", "libaom-av1": "av1", "libvpx-vp9": "vp9", "libvpx": "vp8"}


def checked(path: str | os.PathLike[str]) -> Path:
    """Refuse, with VideoError, what is plainly not a video file, more clearly than FFmpeg would."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise VideoError(f"cannot read {path}: {reason_of(error)}; check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise VideoError(f"{path} is a folder, expected a video file; name a file in it (pictures: open_images)")
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(
            f"{path} is a pipe or a device, expected a video file; read it with open_stream, or save it to a file first"
        )
    if status.st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes), expected a video file; copy or download it again")
    return Path(path)


@contextmanager
def opened(path: Path, number: int = 0) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """Open a file at one of its video streams, cover art not counted; it is closed with the `with` block."""
    import av

    try:
        # An absolute path, since FFmpeg takes what stands before a colon for a protocol.
        # And no picture's name is a pattern here.
        container = av.open(str(path.absolute()), metadata_errors="replace", options={"pattern_type": "none"})
    # PyAV raises plain ValueError, RuntimeError or UnicodeError too; its whole surface is foreign here.
    except Exception as error:
        raise VideoError(f"{path} cannot be opened as a video: {reason_of(error)}; {CURE}") from error
    with container:
        yield container, video_stream_of(container, path, number)


def video_streams_of(container: av.container.InputContainer) -> list[av.VideoStream]:
    """The video streams that can be decoded and are not cover art."""
    streams = container.streams.video
    return [stream for stream in streams if stream.codec_context is not None and not _is_cover_art(stream)]


def video_stream_of(container: av.container.InputContainer, source: Path | str, number: int = 0) -> av.VideoStream:
    """One of `video_streams_of`, its decoder set up; VideoError if there is none with this number."""
    streams = video_streams_of(container)
    if not streams:
        kinds = ", ".join(sorted({_kind(stream) for stream in container.streams})) or "no streams"
        raise VideoError(f"{source} has no video that can be decoded, only {kinds}; give a file with video")
    if not 0 <= number < len(streams):
        raise VideoError(
            f"{source} has no video stream {number}; it has {len(streams)}, numbered from 0, cover art not counted"
        )
    # Slices only. Threads of whole frames gain nothing measurable beside a tracker, they hold frames
    # back, and with them PyAV loses the decoder's error, and frames, if it comes while draining.
    stream = streams[number]
    stream.thread_type = "SLICE"
    if is_noticing() and codec_of(stream) == "h264":
        stream.codec_context.thread_count = 1  # only this thread's log is known to be of this stream
    return stream


def codec_of(stream: av.VideoStream) -> str:
    """FFmpeg's name of the codec, whichever decoder is in use."""
    name = stream.codec_context.codec.name
    return _CODECS_OF_DECODERS.get(name, name)


def _is_cover_art(stream: av.VideoStream) -> bool:
    disposition = getattr(stream, "disposition", None)
    if disposition is None:  # PyAV before 14.2
        return stream.average_rate is None and stream.codec_context.name in _PICTURE_CODECS
    return bool(getattr(disposition, "value", disposition) & _ATTACHED_PICTURE)


def _kind(stream: av.stream.Stream) -> str:
    if stream.type != "video":
        return stream.type
    return "video without a decoder" if stream.codec_context is None else "cover art"


def decoded(stream: av.VideoStream, source: Path | str) -> Generator[av.VideoFrame, None, None]:
    """Yield the decoder's frames, up to the end or to the first damage that FFmpeg reports."""
    frame_idx = 0
    outside = 0  # packets decoded only for others' sake: the edit list does not show them
    packets = demuxed(stream)
    while (packet := next_packet(packets, source, frame_idx)) is not None:
        outside += packet.is_discard
        for frame in pictures_of(packet, source, frame_idx):
            yield frame
            frame_idx += 1
    expected = stream.frames - outside
    if stream.frames and expected - frame_idx > max(2, expected // 100):
        logger.warning("%s: the header announces %d frames, %d could be read", source, expected, frame_idx)


def demuxed(stream: av.VideoStream) -> Iterator[VideoPacket]:
    """The stream's packets from where its container stands; an empty one at the end flushes the decoder."""
    return stream.container.demux(stream)  # type: ignore[attr-defined, no-any-return]  # an input container


def next_packet(packets: Iterator[VideoPacket], source: Path | str, frame_idx: int) -> VideoPacket | None:
    """The next packet, None at the end; VideoDecodeError, for frame `frame_idx`, if it cannot be read."""
    try:
        with Concealment() as log:
            packet = next(packets, None)
    except Exception as error:  # as in opened
        raise damaged(source, frame_idx, reason_of(error)) from error
    if log.found and isinstance(source, Path):  # a live source may well end in the middle of an element
        raise damaged(source, frame_idx, f"the file is cut off or damaged ({log.found})")
    return packet


def pictures_of(packet: VideoPacket, source: Path | str, frame_idx: int) -> Iterator[av.VideoFrame]:
    """What the decoder gives for a packet: frames `frame_idx` and on; VideoDecodeError at the first bad one."""
    # In a transport stream the mark stands for any jump of its counters, as where two recordings were
    # joined; there the decoder decides.
    if packet.is_corrupt and packet.stream.container.format.name != "mpegts":
        raise damaged(source, frame_idx, "a packet is damaged or cut short")
    try:
        with Concealment() as log:
            frames = packet.decode()
    except Exception as error:  # as in opened
        raise damaged(source, frame_idx, reason_of(error)) from error
    if log.found:  # without a delay the first of these frames is the bad one, else it is one that is held back
        raise damaged(source, frame_idx, f"the decoder would have to patch up a picture ({log.found})")
    for number, frame in enumerate(frames, frame_idx):
        if frame.is_corrupt:
            raise damaged(source, number, "the decoder reports a corrupt frame")
        yield frame


def damaged(source: Path | str, frame_idx: int, reason: str, time_s: float | None = None) -> VideoDecodeError:
    """The error for a file (a path) or a live source (a string) that cannot be read from `frame_idx` on."""
    cure = "To go on, open it again."
    if isinstance(source, Path):
        cure = "To go on regardless, repair the file first: ffmpeg -i INPUT -c:v libx264 OUTPUT.mp4"
    when = "" if time_s is None else f" ({time_s:.3f} s)"
    return VideoDecodeError(
        f"{source} cannot be read from frame {frame_idx}{when} on: {reason}; the frames before it are good. {cure}",
        frame_idx=frame_idx,
        time_s=time_s,
        reason=reason,
    )


def dated(
    error: VideoDecodeError, source: Path | str, last: tuple[int, float | None] | None, rate: Fraction | None
) -> VideoDecodeError:
    """The same error with the time at which the lost frame was due, counted on from the last good one.

    Args:
        error: Of this source.
        source: As for `damaged`.
        last: frame_idx and time, in seconds, of a good frame before it, if one is known.
        rate: Frames a second, if known.
    """
    if error.time_s is not None or last is None or last[1] is None or not rate:
        return error
    return damaged(source, error.frame_idx, error.reason, last[1] + float((error.frame_idx - last[0]) / rate))


def reason_of(error: Exception) -> str:
    """What an exception of PyAV or the system says, without the file's name."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
