"""Frames of a file from anywhere: decoding begins at the nearest entry point, and is checked on the way.

What reaches the decoder behind a jump are the very packets of the index, in their order; what comes out must
be the very frames of the index. If either is not so, the frames are read from the start of the file: slower,
never wrong.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_right
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sam2track.decoding import damaged, decoded, demuxed, next_packet, opened, pictures_of
from sam2track.errors import VideoDecodeError
from sam2track.packet_index import EntryPoint, FrameIndex, PacketTable, count_by_decoding, index_frames

if TYPE_CHECKING:
    from typing import TypeAlias

    import av
    import av.container

    from sam2track.decoding import VideoPacket

    NumberedFrames: TypeAlias = Generator[tuple[int, av.VideoFrame], None, None]

_SOON_READ = 32  # frames; to begin this close to the start, reading all packets first costs more than it saves


class _MismatchError(Exception):
    """What comes behind a jump is not what the index announces."""


class FrameReader:
    """Reads stretches of a file; the index is made when it is first needed, and kept."""

    def __init__(self, path: Path, stream: int = 0) -> None:
        self._path = path
        self._stream = stream
        self._index: FrameIndex | None = None

    @property
    def index(self) -> FrameIndex:
        """The frames of the file.

        Raises:
            VideoError: The file is gone.
        """
        if self._index is None:
            index = index_frames(self._path, self._stream)
            if not self._ends_as_announced(index):
                index = index_frames(self._path, self._stream, by_decoding=True)
            self._index = index
        return self._index

    def read(self, start: int, stop: int | None) -> NumberedFrames:
        """Yield (frame_idx, decoded frame) for start <= frame_idx < stop, up to the end of the file.

        Raises:
            VideoDecodeError: At the first damaged place between the entry point and `stop`.
        """
        if stop is not None and stop <= start:
            return
        entry = self._entry_for(start)
        last: tuple[int, int | None] | None = None
        try:
            frames = _decoded_from(self._path, self._stream, self.index, entry) if entry else self._from_start()
            for frame_idx, frame in frames:
                if stop is not None and frame_idx >= stop:
                    return
                if frame_idx >= start:
                    last = (frame_idx, frame.pts)
                    yield frame_idx, frame
                    if frame_idx + 1 == stop:
                        return  # before the decoder is asked for a frame that nobody wants
            return
        except _MismatchError:
            pass
        if last is None:
            self._index = count_by_decoding(self._path, self._stream)  # its numbers could be wrong too
            yield from self.read(start, stop)
        else:
            self._index = dataclasses.replace(self.index, entries=())
            yield from self._continued(last, stop)

    def next_boundary(self, stop: int, at_least: int, at_most: int) -> int:
        """Where to begin to read up to `stop`: at an entry point if one is at a good distance.

        Args:
            stop: The end, not included.
            at_least: A shorter stretch is not worth a jump of its own.
            at_most: A longer stretch is too much.
        """
        places = [0, *(entry.frame_idx for entry in self.index.entries)]
        allowed = places[bisect_right(places, stop - at_most - 1) : bisect_right(places, stop - 1)]
        good = [place for place in allowed if place <= stop - at_least]
        if good:
            return good[-1]
        return allowed[0] if allowed else stop - at_most

    def _ends_as_announced(self, index: FrameIndex) -> bool:
        """Whether the last group of pictures can be read, if it could be cut off without any other sign."""
        if (
            index.damage is not None
            or index.packets is None
            or not (index.packets.cut_unnoticed and index.packets.one_each)
        ):
            return True
        if not index.entries:
            return False
        try:
            for _ in _decoded_from(self._path, self._stream, index, index.entries[-1]):
                pass
        except (VideoDecodeError, _MismatchError):
            return False
        return True

    def _entry_for(self, start: int) -> EntryPoint | None:
        if start == 0 or (self._index is None and start < _SOON_READ):
            return None
        entries = self.index.entries
        at = bisect_right(entries, start, key=lambda entry: entry.frame_idx)
        return entries[at - 1] if at else None

    def _from_start(self) -> NumberedFrames:
        with opened(self._path, self._stream) as (_, stream):
            yield from enumerate(decoded(stream, self._path))

    def _continued(self, last: tuple[int, int | None], stop: int | None) -> NumberedFrames:
        """Go on behind the frame that was given last, if reading from the start gives it the same number."""
        behind = last[0] + 1
        for frame_idx, frame in self.read(0, stop):
            if frame_idx == last[0] and frame.pts != last[1]:
                break
            if frame_idx > last[0]:
                yield frame_idx, frame
                behind = frame_idx + 1
        else:
            if behind > last[0] + 1 or stop == behind:
                return
        raise damaged(self._path, behind, "the frames do not come as the packets announce them")


def _decoded_from(path: Path, number: int, index: FrameIndex, entry: EntryPoint) -> NumberedFrames:
    table = index.packets
    if table is None:
        raise _MismatchError
    with opened(path, number) as (container, stream):
        packets = _after_jump(container, stream, table, entry.packet)
        if packets is not None:
            yield from _checked(packets, path, index, table, entry)
            return
    with opened(path, number) as (_, stream):  # no jump leads there: pass over the packets before it
        packets = itertools.islice(demuxed(stream), entry.packet, None)
        yield from _checked(packets, path, index, table, entry)


def _after_jump(
    container: av.container.InputContainer, stream: av.VideoStream, table: PacketTable, number: int
) -> Iterator[VideoPacket] | None:
    """The packets from `number` on, reached by a jump; None if no jump leads there."""
    earlier = [table.pts[start] for start in table.starts if start < number]
    # Containers look up a picture's own time or one before it. To land too early only costs reading.
    for target in [table.pts[number], *earlier[-1:-3:-1]]:
        try:
            container.seek(target, stream=stream, backward=True)
            packets = demuxed(stream)
            for packet in itertools.islice(packets, number + 1):
                if table.same_packet(number, packet):
                    return itertools.chain([packet], packets)
                if packet.pos is not None and packet.pos > table.pos[number] >= 0:
                    break
        except Exception:  # as in opened: PyAV's whole surface is foreign
            continue
    return None


def _checked(
    packets: Iterator[VideoPacket], path: Path, index: FrameIndex, table: PacketTable, entry: EntryPoint
) -> NumberedFrames:
    """Decode from an entry point on; _MismatchError as soon as anything differs from the index."""
    first_pts = table.pts[entry.packet]
    frame_idx = entry.frame_idx
    number = entry.packet
    while (packet := next_packet(packets, path, frame_idx)) is not None:
        if packet.size or packet.dts is not None:
            if number >= len(table.pts) or not table.same_packet(number, packet):
                raise _MismatchError
            # Shown before the entry point but stored behind it, so what it refers to is missing.
            leading = table.pts[number] < first_pts
            number += 1
        else:
            leading = False
        try:
            for frame in pictures_of(packet, path, frame_idx):
                if frame_idx == entry.frame_idx and frame.pts is not None and frame.pts < first_pts:
                    continue
                if frame_idx >= len(index.frame_pts) or frame.pts != index.frame_pts[frame_idx]:
                    raise _MismatchError
                if frame_idx == entry.frame_idx and not frame.key_frame:
                    raise _MismatchError  # the container marks as keyframe what is none
                yield frame_idx, frame
                frame_idx += 1
        except VideoDecodeError as error:
            if leading or frame_idx == entry.frame_idx:
                raise _MismatchError from error
            raise
    if frame_idx != len(index.frame_pts):
        raise _MismatchError
