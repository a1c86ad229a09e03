"""Numbered pictures -> frames: a folder, a first file or a pattern, as renderers and editors write them.

Frames are numbered from 0 like those of any source, in the natural order of the names (2 before 10). A file's own
number stays with it in two ways: `VideoInfo.files` names the file of each frame, so that masks can be named after
their pictures (shot.1001.png gives the mask 1001), and times follow the numbers: frame number n is shown (n - first)
/ rate seconds after the first. A gap in the numbers is a gap in time, said in a warning.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from sam2track.decoding import checked, decoded, opened
from sam2track.errors import FrameError, VideoDecodeError, VideoError
from sam2track.image_files import PICTURES, files_of, is_pattern, ticks_of
from sam2track.picture import RgbConverter, as_displayed, describe
from sam2track.types import VideoFrame, VideoInfo

_ROUNDING_S = Fraction(1, 10**6)  # a time in seconds as a float is not exact
_RATE = Fraction(24)


def is_image_sequence(source: str | os.PathLike[str]) -> bool:
    """Whether a source is for `open_images` rather than `open_video`: a folder, a picture, or a pattern of pictures.

    A pattern has `%04d`, `####`, `*` or `?` in the file's name; a file that is really called so is a file.
    """
    path = Path(source)
    if path.is_dir():
        return True
    return path.suffix.lower() in PICTURES and (path.is_file() or is_pattern(path.name))


def open_images(source: str | os.PathLike[str], rate: Fraction | int | float = _RATE) -> ImageSequence:
    """Open pictures as the frames of a clip; the first one is decoded to describe it.

    Args:
        source: One of
            a folder, for all pictures in it: one numbered sequence, or names without a common pattern;
            a numbered picture, for itself and those after it (`shot.1001.png`); one without a number, for itself;
            a pattern: `shot.%04d.png` (four digits or more), `shot.####.png`, `shot.*.png`.
        rate: Pictures a second.

    Raises:
        VideoError: There are no such pictures, several sequences, or the first picture cannot be read.
        FrameError: The rate is not above 0.
    """
    if not 0 < rate < math.inf:
        raise FrameError(f"got the rate {rate}; expected pictures a second, above 0")
    files = files_of(Path(source))
    picture_rate = Fraction(rate).limit_denominator(1001)
    first = _read(files[0], RgbConverter())[1]
    info = replace(
        first,
        path=files[0].parent.absolute(),
        average_rate=picture_rate,
        time_base=1 / picture_rate,
        frame_count=len(files),
        files=tuple(file.name for file in files),
    )
    return ImageSequence(info)


class ImageSequence:
    """Pictures as frames: a `FrameSource`, and used like a `Video`.

    Each picture is read when it is asked for. All must be of the first one's size. Alpha is dropped, 16 bits become
    8, a camera's orientation is applied.

    Example:
        with open_images("plates", rate=24) as sequence:
            for frame in sequence:
                frame.rgb, frame.frame_idx, sequence.info.files[frame.frame_idx]
    """

    def __init__(self, info: VideoInfo) -> None:
        self._info = info
        self._ticks = ticks_of(info.files)
        self._closed = False

    @property
    def info(self) -> VideoInfo:
        """What is known of the first picture; `path` is the folder, `files` names the file of every frame."""
        return self._info

    @property
    def num_frames(self) -> int:
        """How many pictures there are."""
        return len(self._info.files)

    def __iter__(self) -> Iterator[VideoFrame]:
        """Yield every frame from the first one; see `frames`."""
        return self.frames()

    def frames(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[VideoFrame]:
        """Yield the frames start <= frame_idx < stop, in order or backwards.

        Raises:
            FrameError: A number is negative.
            VideoError: The sequence was closed.
            VideoDecodeError: A picture is gone, damaged, or of another size; says which file.
        """
        for name, value in (("start", start), ("stop", stop)):
            if value is not None and value < 0:
                raise FrameError(f"got {name}={value}, expected 0 or more; frames are numbered from 0")
        wanted = range(self.num_frames)[start:stop]
        return self._read_all(reversed(wanted) if reverse else wanted)

    def frame(self, frame_idx: int) -> VideoFrame:
        """Read one frame.

        Raises:
            FrameError: There is no such frame.
            VideoDecodeError: As `frames`.
        """
        if not 0 <= frame_idx < self.num_frames:
            raise FrameError(f"{self._info.path} has no frame {frame_idx}; give 0 to {self.num_frames - 1}")
        return next(self._read_all([frame_idx]))

    def frame_at(self, time_s: float) -> int:
        """The number of the frame shown at a time, in seconds from the first frame.

        Raises:
            FrameError: The time is before the first or after the last frame, or not a number.
        """
        length = (self._ticks[-1] + 1) * self._info.time_base
        if not math.isfinite(time_s) or time_s < 0 or time_s > length + _ROUNDING_S:
            raise FrameError(f"{self._info.path} has no frame at {time_s} s; give 0 to {float(length):.3f} s")
        tick = math.floor((Fraction(time_s) + _ROUNDING_S) / self._info.time_base)
        return bisect_right(self._ticks, tick) - 1

    def close(self) -> None:
        """Let nobody read on."""
        self._closed = True

    def _read_all(self, wanted: Sequence[int] | Iterator[int]) -> Iterator[VideoFrame]:
        to_rgb = RgbConverter()
        for frame_idx in wanted:
            if self._closed:
                raise VideoError(f"{self._info.path} was closed; open it again to read its frames")
            yield self._read_one(frame_idx, to_rgb)

    def _read_one(self, frame_idx: int, to_rgb: RgbConverter) -> VideoFrame:
        info, tick = self._info, self._ticks[frame_idx]
        name = info.files[frame_idx]
        time_s = float(tick * info.time_base)
        try:
            picture, found = _read(info.path / name, to_rgb)
        except VideoError as error:
            raise _unreadable(name, frame_idx, time_s, getattr(error, "reason", "") or str(error)) from error
        if (found.width, found.height) != (info.width, info.height):
            sizes = f"it has {found.width}x{found.height} pixels, {info.files[0]} has {info.width}x{info.height}"
            raise _unreadable(name, frame_idx, time_s, sizes)
        return replace(picture, frame_idx=frame_idx, pts=tick, time_base=info.time_base)

    def __enter__(self) -> ImageSequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unreadable(name: str, frame_idx: int, time_s: float, reason: str) -> VideoDecodeError:
    return VideoDecodeError(
        f"frame {frame_idx} ({time_s:.3f} s), {name}, cannot be used: {reason}; the frames before it are good",
        frame_idx=frame_idx,
        time_s=time_s,
        reason=reason,
    )


def _read(file: Path, to_rgb: RgbConverter) -> tuple[VideoFrame, VideoInfo]:
    """A picture as displayed, and what it says of itself: a video of one frame."""
    with opened(checked(file)) as (container, stream):
        decoded_frame = next(decoded(stream, file), None)
        if decoded_frame is None:
            raise VideoError(f"{file} holds no picture that can be decoded; check that it can be looked at")
        info = describe(file, container, stream, decoded_frame)
        return as_displayed(decoded_frame, 0, info, to_rgb), info
