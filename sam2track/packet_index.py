"""File -> which frame is when and where decoding can begin, from its packets, mostly without decoding.

Packets tell the frames where each has a time of its own and stands for one picture; a look at the first
frames confirms it. Where they do not tell (no times, doubled or backward times, hidden pictures, fields,
damage), the frames are counted by decoding the file once. Where even that gives no times to find a packet's
picture by, there is no entry point but the start.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from sam2track.decoding import codec_of, decoded, demuxed, next_packet, opened
from sam2track.errors import VideoDecodeError
from sam2track.keyframes import KNOWN_CODECS, has_parameters, is_independent, length_size_of, shows_picture

if TYPE_CHECKING:
    import av

    from sam2track.decoding import VideoPacket

_FRAMES_LOOKED_AT = 24  # more than any decoder holds back or leaves out at a start
# What the decoder is told beside the packets and remembers: it would be missing behind a jump.
_CARRIED_ALONG: tuple[Literal["new_extradata", "param_change"], ...] = ("new_extradata", "param_change")


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A packet at which decoding can begin, and the frame that comes out first.

    Attributes:
        packet: The packet's number in the file, from 0.
        frame_idx: The frame that it shows. It and all later frames come as in reading from the start.
    """

    packet: int
    frame_idx: int


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """The frames of a file.

    Attributes:
        frame_pts: One for each frame in display order, in units of the stream's time base; None if it has none.
        entries: Where decoding can begin, in increasing order; the start of the file is not among them.
        packets: Every packet, to recognise it after a jump.
        damage: Why reading from the start ends early, or None.
    """

    frame_pts: Sequence[int | None]
    entries: tuple[EntryPoint, ...] = ()
    packets: PacketTable | None = None
    damage: VideoDecodeError | None = None


@dataclass(slots=True)
class PacketTable:
    """All packets of a stream in the order of the file.

    Attributes:
        pts, pos, size: Of each packet; pts is 0 where it is missing, pos -1.
        shown: 1 for each packet that is to give a picture.
        duration: Of each packet in units of the time base, 0 if unknown.
        starts: Numbers of the packets that decode without any before them.
        one_each: Whether each shown packet is one picture, displayed in order of pts.
        found_by_pts: Whether a picture's pts says which packet it is from.
        cut_unnoticed: Whether a file cut off in the middle of a packet looks like a whole one.
    """

    pts: array[int] = field(default_factory=lambda: array("q"))
    pos: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    shown: bytearray = field(default_factory=bytearray)
    duration: array[int] = field(default_factory=lambda: array("q"))
    starts: list[int] = field(default_factory=list)
    one_each: bool = True
    found_by_pts: bool = True
    cut_unnoticed: bool = False

    def same_packet(self, number: int, packet: VideoPacket) -> bool:
        """Whether this is the packet that had this number when the file was read through."""
        stamp = (self.pts[number], self.pos[number], self.size[number])
        return stamp == (packet.pts, -1 if packet.pos is None else packet.pos, packet.size)


def index_frames(path: Path, stream: int = 0, *, by_decoding: bool = False) -> FrameIndex:
    """Index a file by reading its packets; frames are decoded only where packets do not tell, or if asked for.

    Args:
        path: The file.
        stream: Which of its video streams, as in `decoding.opened`.
        by_decoding: Do not trust the packets.

    Raises:
        VideoError: It cannot be opened.
    """
    table = _packets_in(path, stream)
    if table.one_each and not by_decoding:
        announced = sorted(pts for pts, shown in zip(table.pts, table.shown, strict=True) if shown)
        frame_pts = _as_they_begin(path, stream, announced)
        if frame_pts is not None:
            return FrameIndex(frame_pts, _entries(table, frame_pts), table)
    counted = count_by_decoding(path, stream)
    times = [pts for pts in counted.frame_pts if pts is not None]
    in_order = len(times) == len(counted.frame_pts) and all(a < b for a, b in itertools.pairwise(times))
    entries = _entries(table, times) if table.found_by_pts and in_order else ()
    return FrameIndex(counted.frame_pts, entries, table, counted.damage)


def count_by_decoding(path: Path, number: int = 0) -> FrameIndex:
    """Index a file by decoding all of it, with no entry point but its start."""
    frame_pts: list[int | None] = []
    damage = None
    with opened(path, number) as (_, stream):
        try:
            frame_pts.extend(frame.pts for frame in decoded(stream, path))
        except VideoDecodeError as error:
            damage = error.with_traceback(None)
    return FrameIndex(frame_pts, damage=damage)


def _packets_in(path: Path, number: int) -> PacketTable:
    table = PacketTable()
    with opened(path, number) as (_, stream):
        reader = _PacketReader(stream, table)
        packets = demuxed(stream)
        try:
            while (packet := next_packet(packets, path, 0)) is not None:
                if packet.size or packet.dts is not None:  # else it is the one that flushes the decoder
                    reader.add(packet)
        except VideoDecodeError:
            table.one_each = False
    return table


class _PacketReader:
    """Fills a table, and takes back its promises at the first packet that breaks them."""

    def __init__(self, stream: av.VideoStream, table: PacketTable) -> None:
        context = stream.codec_context
        self._table = table
        self._codec = codec_of(stream)
        table.cut_unnoticed = stream.container.format.name in ("mpegts", "mpeg")
        self._length_size = length_size_of(self._codec, context.extradata)
        self._parameters_seen = False
        self._latest: int | None = None  # the last pts shown so far
        self._seen: set[int] = set()
        palette = stream.codec_context.pix_fmt == "pal8"  # sent once, beside the packets
        if palette or (self._codec not in KNOWN_CODECS and not context.codec.intra_only):
            table.one_each = table.found_by_pts = False

    def add(self, packet: VideoPacket) -> None:
        table = self._table
        number = len(table.pts)
        shows = bool(packet.size) and not packet.is_discard
        shows_one = shows_picture(self._codec, memoryview(packet)) if shows else False
        pts = packet.pts
        table.pts.append(pts or 0)
        table.pos.append(-1 if packet.pos is None else packet.pos)
        table.size.append(packet.size)
        table.shown.append(shows_one is not False)
        table.duration.append(packet.duration or 0)
        if not packet.size or pts is None or (shows_one is not False and pts in self._seen):
            table.one_each = table.found_by_pts = False
            return
        if hasattr(packet, "has_sidedata") and any(map(packet.has_sidedata, _CARRIED_ALONG)):  # PyAV 15 and later
            table.found_by_pts = False
        if shows_one is None or packet.is_corrupt:
            table.one_each = False
        if packet.is_keyframe:
            self._add_keyframe(number, packet, bool(shows_one))
        if shows_one is not False:
            self._seen.add(pts)
            self._latest = pts if self._latest is None else max(self._latest, pts)

    def _add_keyframe(self, number: int, packet: VideoPacket, shown: bool) -> None:
        """Note where decoding can begin; a keyframe shown before what came earlier means that time runs back."""
        data = bytes(packet)
        own = has_parameters(self._codec, data, self._length_size)
        # Parameters that only an earlier packet brought would be missing; those of the header never are.
        complete = own or not self._parameters_seen
        self._parameters_seen |= own
        if not shown:
            return
        if self._latest is not None and cast("int", packet.pts) < self._latest:
            self._table.one_each = False
        elif complete and is_independent(self._codec, data, self._length_size):
            self._table.starts.append(number)


def _as_they_begin(path: Path, number: int, announced: list[int]) -> list[int] | None:
    """The announced frames, without those at the start that never come; None if it begins otherwise.

    A file that was cut out of a longer one can begin with pictures whose references are gone.
    """
    begin: list[int | None] = []
    fields = False
    with opened(path, number) as (_, stream):
        # Where start codes part the packets, each field of a frame can be a packet of its own.
        by_start_codes = not length_size_of("h264", stream.codec_context.extradata)
        h264 = codec_of(stream) == "h264"
        try:
            for frame in itertools.islice(decoded(stream, path), _FRAMES_LOOKED_AT):
                begin.append(frame.pts)
                fields |= h264 and by_start_codes and frame.interlaced_frame
        except VideoDecodeError:
            return None
    if fields or not begin or begin[0] is None:
        return None
    first = bisect_left(announced, begin[0])
    return announced[first:] if announced[first : first + _FRAMES_LOOKED_AT] == begin else None


def _entries(table: PacketTable, frame_pts: Sequence[int]) -> tuple[EntryPoint, ...]:
    if not table.found_by_pts:
        return ()
    entries = []
    for packet in table.starts:
        frame_idx = bisect_left(frame_pts, table.pts[packet])
        if 0 < frame_idx < len(frame_pts) and frame_pts[frame_idx] == table.pts[packet]:
            entries.append(EntryPoint(packet, frame_idx))
    return tuple(entries)
