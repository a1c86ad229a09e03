"""Packet bytes -> whether decoding can begin there, and whether the packet shows a picture.

A container's key flag is not enough. For H.264 it also marks the start of a gradual refresh, and I pictures
that later ones may look past. A packet is an entry point here only if every picture shown at or after it
comes out of a fresh decoder exactly as in reading from the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# One packet of these is one picture, and a key picture of these clears all that the decoder remembers; so it is
# with all codecs without prediction from other pictures. Left out are those that repeat a picture for an empty
# packet (Theora), that paint over the one before (GIF, APNG) or that nobody has tried: read from the start.
KNOWN_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mpeg1video", "mpeg2video", "mpeg4", "ffv1", "png"})

_START_CODE = re.compile(b"\0\0\1")
_H264_SLICES, _H264_IDR, _H264_SEI, _H264_PARAMETERS = range(1, 6), 5, 6, (7, 8)
_RECOVERY_POINT = 6
_HEVC_SLICES, _HEVC_RANDOM_ACCESS, _HEVC_PARAMETERS = range(32), range(16, 22), (32, 33, 34)
_MPEG4_SHORTEST = 32  # bytes; shorter packets may say "as before", for which no picture comes


def is_independent(codec: str, data: bytes, length_size: int) -> bool:
    """Whether a packet that the container calls a keyframe needs nothing from before it.

    Args:
        codec: FFmpeg's name of the codec.
        data: The packet.
        length_size: Bytes of the length before each NAL unit, or 0 if start codes part them.
    """
    if codec == "h264":
        return _h264_is_independent(data, length_size)
    if codec == "hevc":
        kinds = [unit[0] >> 1 & 63 for unit in _units(data, length_size) if unit]
        first = next((kind for kind in kinds if kind in _HEVC_SLICES), None)
        return first in _HEVC_RANDOM_ACCESS
    return True


def _h264_is_independent(data: bytes, length_size: int) -> bool:
    """An IDR picture, or an I picture that its encoder vouches for as an exact recovery point."""
    vouched = False
    for unit in _units(data, length_size):
        kind = unit[0] & 31 if unit else 0
        if kind == _H264_SEI:
            vouched = vouched or _is_exact_recovery_point(unit)
        elif kind in _H264_SLICES:
            return kind == _H264_IDR or vouched
    return False


def _is_exact_recovery_point(unit: bytes) -> bool:
    """Whether a unit of supplemental information says: from this very picture on, all is exact."""
    payload = unit.replace(b"\0\0\3", b"\0\0")
    at = 1
    while at + 2 < len(payload):
        kind, at = _stepped(payload, at)
        size, at = _stepped(payload, at)
        if kind == _RECOVERY_POINT and at < len(payload):
            # Two bits: a count of no pictures in between (as Exp-Golomb code: 1), then the mark for exactness.
            return payload[at] >> 6 == 0b11
        at += size
    return False


def _stepped(payload: bytes, at: int) -> tuple[int, int]:
    """Read a number written as bytes of 255 and a last one below; returns it and where it ends."""
    number = 0
    while at < len(payload) and payload[at] == 255:
        number, at = number + 255, at + 1
    return number + (payload[at] if at < len(payload) else 0), at + 1


def has_parameters(codec: str, data: bytes, length_size: int) -> bool:
    """Whether the packet carries what the decoder must know first (parameter sets, Huffman tables) itself."""
    if codec == "h264":
        return any(unit[0] & 31 in _H264_PARAMETERS for unit in _units(data, length_size) if unit)
    if codec == "hevc":
        return any(unit[0] >> 1 & 63 in _HEVC_PARAMETERS for unit in _units(data, length_size) if unit)
    return codec == "mjpeg" and b"\xff\xc4" in data[:4096]


def _units(data: bytes, length_size: int) -> Iterator[bytes]:
    """The NAL units of a packet."""
    if not length_size:
        starts = [match.end() for match in _START_CODE.finditer(data)]
        yield from (data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=False))
        return
    at = 0
    while at + length_size < len(data):
        size = int.from_bytes(data[at : at + length_size], "big")
        at += length_size
        yield data[at : at + size]
        at += size


def length_size_of(codec: str, extradata: bytes | None) -> int:
    """Bytes of the length before each NAL unit; 0 if start codes part them, or there are none."""
    if not extradata or extradata[0] != 1:
        return 0
    at = {"h264": 4, "hevc": 21}.get(codec)
    return 0 if at is None or len(extradata) <= at else (extradata[at] & 3) + 1


def shows_picture(codec: str, packet: memoryview) -> bool | None:
    """Whether one picture is shown for a packet; None if only decoding can tell."""
    first = packet[0]
    if codec == "vp8":
        return bool(first & 0x10)
    if codec == "vp9":
        # Hidden pictures share a packet with the shown one behind them; the last byte says so.
        return True if packet[-1] & 0xE0 == 0xC0 or _vp9_is_shown(first) else None
    if codec == "mpeg4" and len(packet) < _MPEG4_SHORTEST:
        return None
    return True


def _vp9_is_shown(first: int) -> bool:
    """The first bits: 10, two of the profile (and one more for profile 3), show existing, frame type, shown."""
    bits = f"{first:08b}"[5:] if first & 0x30 == 0x30 else f"{first:08b}"[4:]
    return bits[0] == "1" or bits[2] == "1"
