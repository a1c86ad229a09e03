"""Path -> frames: all of them in order, a range, one, or backwards, as often as needed.

What a frame is here: one picture for each one that the decoder gives, in display order, numbered
from 0. Nothing is dropped, doubled or resampled; `pts` and `time_base` are the source's own.

A range costs no more than reading from the nearest keyframe before it. For that the file's packets are read
once, without decoding, and kept as an index. Some files cannot be entered but at their start: those whose
packets carry no times (raw streams, some AVI) or times that double or run back, GIF and APNG, gradual refresh.
Their ranges are read from the start and give the same frames, slower.

What damage is, and what of it is noticed, stands in `sam2track.decoding`.
"""

from __future__ import annotations

import itertools
import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from sam2track.decoding import CURE, checked, codec_of, dated, decoded, opened, video_streams_of
from sam2track.errors import FrameError, VideoDecodeError, VideoError
from sam2track.picture import RgbConverter, as_displayed, describe
from sam2track.random_access import FrameReader
from sam2track.types import StreamInfo, VideoFrame, VideoInfo

__all__ = ["StreamInfo", "Video", "VideoInfo", "count_frames", "list_streams", "open_video"]

_HELD_BYTES = 256 * 2**20  # of RGB, when reading backwards
_WORTH_A_JUMP = 48  # frames; opening and entering a file costs about as much as decoding some
_FRAMES_AT_ONCE = 512  # read backwards from a file with entry points, so that the first does not take too long
_ROUNDING_S = Fraction(1, 10**6)  # a time in seconds as a float is not exact


class Video:
    """A video file: iterate over it for its frames, as often as needed; each time starts at frame 0.

    Decoding is lazy: a frame is read when it is asked for. After the `with` block no more can be read.

    Example:
        with open_video("clip.mp4") as video:
            for frame in video:
                frame.rgb, frame.frame_idx, frame.pts
            for frame in video.frames(100, 200, reverse=True):
                ...
    """

    def __init__(self, info: VideoInfo) -> None:
        self._info = info
        self._reader = FrameReader(info.path, info.stream)
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
        return self._forward(0, None)

    def frames(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[VideoFrame]:
        """Yield the frames start <= frame_idx < stop, decoding from the nearest keyframe before them.

        Lazy: nothing is read before the first frame is asked for. The file is closed when the iterator ends,
        is closed or is dropped. Backwards, up to 256 MB of frames are held at once; long groups of pictures
        are decoded several times for it.

        Args:
            start: The first frame, from 0.
            stop: The frame behind the last one; None, or more than there are, for the end of the video.
            reverse: From stop - 1 down to start.

        Raises:
            FrameError: A number is negative.
            VideoError: The video was closed, or the file is gone.
            VideoDecodeError: At the first damaged place that is reached. Backwards at once if the end of a
                damaged video is asked for, and before any frame of a damaged stretch.
        """
        for name, value in (("start", start), ("stop", stop)):
            if value is not None and value < 0:
                raise FrameError(f"got {name}={value}, expected 0 or more; frames are numbered from 0")
        return self._backward(start, stop) if reverse else self._forward(start, stop)

    def frame(self, frame_idx: int) -> VideoFrame:
        """Read one frame.

        Args:
            frame_idx: 0 to num_frames - 1.

        Raises:
            FrameError: The video has no such frame.
            VideoError: As `frames`.
            VideoDecodeError: As `frames`.
        """
        found = list(self.frames(frame_idx, frame_idx + 1))
        if found:
            return found[0]
        count = self.num_frames
        raise FrameError(f"{self._info.path} has no frame {frame_idx}, but {count}; give 0 to {count - 1}")

    @property
    def num_frames(self) -> int:
        """How many frames there are: as many as iteration yields, up to damage that reading packets shows.

        The first use reads through the file's packets; it decodes the file where those do not tell. Damage
        that only shows in decoding is not foreseen.

        Raises:
            VideoError: The video was closed, or the file is gone.
        """
        self._refuse_if_closed()
        checked(self._info.path)
        return len(self._reader.index.frame_pts)

    @property
    def damage(self) -> VideoDecodeError | None:
        """Why there are no more than `num_frames`, if that is because the file is damaged; None if it is whole.

        Found out like `num_frames`, and no more is foreseen.
        """
        count, index = self.num_frames, self._reader.index
        if index.damage is None:
            return None
        last = index.frame_pts[-1] if count else None
        end = None if last is None else (count - 1, float(last * self._info.time_base))
        return dated(index.damage, self._info.path, end, self._info.average_rate)

    def frame_at(self, time_s: float) -> int:
        """The number of the frame that a player shows at a time.

        Args:
            time_s: Seconds since the first frame appeared (its pts counts as 0), to the end of the last frame.

        Raises:
            FrameError: The time is before the first or after the last frame, or not a number.
            VideoError: The frames carry no times or not in order, the video was closed, or the file is gone.
        """
        count = self.num_frames
        times = self._reader.index.frame_pts
        if None in times or any(a >= b for a, b in itertools.pairwise(cast("list[int]", times))):
            raise VideoError(
                f"{self._info.path} has frames without a time or with times out of order; "
                f"give a frame number, 0 to {count - 1}"
            )
        pts = cast("list[int]", times)
        length = (pts[-1] - pts[0] + self._last_duration(pts)) * self._info.time_base
        if not math.isfinite(time_s) or time_s < 0 or time_s > length + _ROUNDING_S:
            raise FrameError(f"{self._info.path} has no frame at {time_s} s; give 0 to {float(length):.3f} s")
        ticks = (Fraction(time_s) + _ROUNDING_S) / self._info.time_base
        return bisect_right(pts, pts[0] + math.floor(ticks)) - 1

    def _last_duration(self, pts: list[int]) -> Fraction:
        """How long the last frame is shown, in units of the time base."""
        packets = self._reader.index.packets
        if packets is not None:
            for time, duration in zip(reversed(packets.pts), reversed(packets.duration), strict=True):
                if time == pts[-1] and duration:
                    return Fraction(duration)
        if self._info.average_rate:
            return 1 / (self._info.average_rate * self._info.time_base)
        return Fraction(pts[-1] - pts[-2] if len(pts) > 1 else 1)

    def _forward(self, start: int, stop: int | None) -> Iterator[VideoFrame]:
        info = self._info
        to_rgb = RgbConverter()
        self._refuse_if_closed()
        checked(info.path)
        last: tuple[int, float | None] | None = None
        try:
            for frame_idx, frame in self._reader.read(start, stop):
                last = (frame_idx, None if frame.pts is None else float(frame.pts * info.time_base))
                yield as_displayed(frame, frame_idx, info, to_rgb)
                self._refuse_if_closed()
        except VideoDecodeError as error:
            raise dated(error, info.path, last, info.average_rate) from error

    def _backward(self, start: int, stop: int | None) -> Iterator[VideoFrame]:
        count, damage = self.num_frames, self.damage
        if damage is not None and (stop is None or stop > count):
            raise damage
        stop = count if stop is None else min(stop, count)
        held = max(1, _HELD_BYTES // (self._info.width * self._info.height * 3))
        while start < stop:
            at_most = min(held, _FRAMES_AT_ONCE) if self._reader.index.entries else held
            begin = max(start, self._reader.next_boundary(stop, _WORTH_A_JUMP, at_most))
            stretch = list(self._forward(begin, stop))
            if len(stretch) != stop - begin:
                missing = begin + len(stretch)
                raise VideoDecodeError(
                    f"{self._info.path} ends at frame {missing}, but {count} frames are announced; {CURE}",
                    frame_idx=missing,
                )
            while stretch:
                yield stretch.pop()
                self._refuse_if_closed()
            stop = begin

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


def open_video(path: str | os.PathLike[str], *, stream: int = 0) -> Video:
    """Open a video file of any kind that FFmpeg reads; its first frame is decoded to describe it.

    Args:
        path: A file.
        stream: Which of its video streams to read; `list_streams` has them. Cover art is none of them.

    Raises:
        VideoError: Not a file, empty, not a video, or without such a video stream.
        VideoDecodeError: The very first frame is damaged.
    """
    with opened(checked(path), stream) as (container, opened_stream):
        first = next(decoded(opened_stream, Path(path)), None)
        if first is None:
            raise VideoError(f"{path} holds no video frame that can be decoded; {CURE}")
        return Video(replace(describe(Path(path), container, opened_stream, first), stream=stream))


def list_streams(path: str | os.PathLike[str]) -> tuple[StreamInfo, ...]:
    """The video streams of a file that can be read, cover art not among them.

    Raises:
        VideoError: As `open_video`.
    """
    with opened(checked(path)) as (container, _):
        return tuple(
            StreamInfo(
                stream=number,
                codec=codec_of(stream),
                width=stream.width,
                height=stream.height,
                average_rate=stream.average_rate or None,
                title=" ".join(filter(None, (stream.metadata.get("title"), stream.metadata.get("language")))),
            )
            for number, stream in enumerate(video_streams_of(container))
        )


def count_frames(path: str | os.PathLike[str], at_most: int, *, stream: int = 0) -> int:
    """Count the frames that can be read, decoding no more than `at_most` of them.

    Returns:
        The smaller of `at_most` and the number of frames before the end or the first damage.

    Raises:
        VideoError: As `open_video`.
    """
    count = 0
    with opened(checked(path), stream) as (_, opened_stream):
        try:
            for _frame in itertools.islice(decoded(opened_stream, Path(path)), at_most):
                count += 1
        except VideoDecodeError:
            pass  # whoever reads the frames meets the same error, and hears about it there
    return count
