"""A path as documents name it -> a video file or pictures, opened."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field

from sam2track.errors import VideoError
from sam2track.image_sequence import ImageSequence, is_image_sequence, open_images
from sam2track.video import Video, open_video

_HIGHEST_RATE = 1000  # pictures a second


def parse_rate(text: str) -> Fraction:
    """Pictures a second from `24`, `23.976` or `30000/1001`.

    Raises:
        ValueError: It is none of these.
    """
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not 0 < rate <= _HIGHEST_RATE:
        raise ValueError(f"got {text!r}; expected pictures a second, such as 24 or 30000/1001")
    return rate


def _checked_rate(text: str) -> str:
    parse_rate(text)
    return text


Rate = Annotated[str, AfterValidator(_checked_rate)]  # in documents, which have no fractions
StreamNumber = Annotated[int, Field(ge=0)]


def open_source(path: str, *, stream: int = 0, rate: Fraction | str | None = None) -> Video | ImageSequence:
    """Opens a video file, or pictures: a folder, the first one, or a pattern.

    Args:
        path: Of it.
        stream: Which of a file's video streams.
        rate: Pictures a second; None for 24.

    Raises:
        VideoError: It cannot be opened, or the other kind was meant: pictures have no streams, a video has times
            of its own.
    """
    if is_image_sequence(path):
        if stream:
            raise VideoError(f"got the stream {stream} with {path}; pictures have no streams")
        return open_images(path) if rate is None else open_images(path, Fraction(rate))
    if rate is not None:
        raise VideoError(f"got a rate with {path}; a video has times of its own, only pictures need a rate")
    return open_video(path, stream=stream)
