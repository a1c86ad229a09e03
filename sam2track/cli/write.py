"""Frames with their masks -> the writers, up to the end or to damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sam2track.cli.run import Absences
from sam2track.errors import VideoDecodeError

if TYPE_CHECKING:
    from sam2track.outputs import MaskWriter
    from sam2track.types import FrameResult, VideoFrame


@dataclass(slots=True)
class Written:
    """What went into the outputs, and why it is not all of the source, if so."""

    frames: int = 0
    absences: Absences = field(default_factory=Absences)
    damage: VideoDecodeError | None = None


def write(tracked: Iterator[tuple[VideoFrame, FrameResult]], writers: list[MaskWriter]) -> Written:
    """Writes all frames; of a damaged source those before the damage, if there is an object on any."""
    written = Written()
    try:
        for frame, result in tracked:
            for writer in writers:
                writer.write(frame, result)
            written.absences.note(result)
            written.frames += 1
    except VideoDecodeError as error:
        if not written.absences.ranges:
            raise
        written.damage = error.with_traceback(None)
    for writer in writers:  # the masks first: if they cannot be finished, the scores are not left alone
        if written.damage is not None and (note_damage := getattr(writer, "note_damage", None)) is not None:
            note_damage(written.damage)
        writer.close()
    return written
