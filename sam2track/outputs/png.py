"""Masks -> a folder of PNG files, one a frame, lossless.

Hard masks, grey: one object, 0 outside and 255 inside. Indexed: several objects in one picture as in
the DAVIS data sets, value = position of the object + 1, with their palette; the position is the
order in which ids first appear, and where masks overlap the later object wins. Soft ones, grey with 8 or 16
bits, and cut-outs as RGBA: all objects together. The files are written with zlib alone: OpenCV
cannot write a palette, and would need its channels turned round.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import OutputError
from sam2track.matte import MatteOptions, union_alpha, written_mask
from sam2track.outputs.cutout import with_alpha
from sam2track.outputs.folder import FolderWriter
from sam2track.types import FrameResult, ObjectId, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

_GREY, _INDEXED, _RGBA = 0, 3, 6  # PNG colour types
# zlib's usual 6 makes files of masks up to 40 % smaller, in three times the time: 5 ms more a 720p frame.
_COMPRESSION = 3


class PngWriter(FolderWriter):
    """One 8-bit PNG a frame, grey or indexed: hard masks."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        info: VideoInfo | None = None,
        *,
        indexed: bool = False,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the folder; see `FolderWriter`.

        Args:
            folder: The output. It may exist if it is empty.
            info: See `FolderWriter`.
            indexed: Several objects in each file, as palette indices. Otherwise grey, for one object.
            matte: What is done to masks before they are written; by default nothing.
            overwrite: Whether a folder of earlier masks, and nothing else, may be replaced.
        """
        super().__init__(folder, info, matte=matte, overwrite=overwrite)
        self._indexed = indexed
        self._values: dict[ObjectId, int] = {}

    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        for object_id in result.objects:
            self._values.setdefault(object_id, len(self._values) + 1)
        limit = 255 if self._indexed else 1
        if len(self._values) > limit:
            cure = "write fewer objects" if self._indexed else "use indexed=True, or a folder for each object"
            raise OutputError(f"got {len(self._values)} objects, expected at most {limit} in such PNGs; {cure}")
        picture = np.zeros(frame.rgb.shape[:2], np.uint8)
        for object_id, found in result.objects.items():
            picture[written_mask(found, self._matte)] = self._values[object_id] if self._indexed else 255
        return encode_png(picture, davis_palette() if self._indexed else None)


class SoftPngWriter(FolderWriter):
    """One grey PNG a frame, 8-bit: the alpha of all objects together, with soft edges if asked for."""

    has_soft_edges = True

    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        return encode_png(union_alpha(frame, result, self._matte, np.uint8))


class SoftPng16Writer(FolderWriter):
    """The same with 16 bits: 0 outside, 65535 inside."""

    has_soft_edges = True

    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        return encode_png(union_alpha(frame, result, self._matte, np.uint16))


class CutoutPngWriter(FolderWriter):
    """One 8-bit RGBA PNG a frame: the picture with the alpha of all objects together, straight.

    What lies further than a margin outside is black, so that the files do not hold what was cut out.
    """

    has_soft_edges = True

    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        return encode_png(with_alpha(frame.rgb, union_alpha(frame, result, self._matte, np.uint8)))


def encode_png(picture: NDArray[np.uint8] | NDArray[np.uint16], palette: NDArray[np.uint8] | None = None) -> bytes:
    """Encode a PNG.

    Args:
        picture: (h, w) uint8 or uint16 grey levels, (h, w) uint8 palette indices, or (h, w, 4) uint8 RGBA.
        palette: (256, 3) uint8 RGB; None for grey and RGBA.
    """
    height, width = picture.shape[:2]
    kind = _RGBA if picture.ndim == 3 else _GREY if palette is None else _INDEXED
    levels = picture.astype(picture.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    rows = np.zeros((height, levels.shape[1] + 1), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = levels
    if kind == _RGBA:  # 2, the difference to the row above: a third smaller for photographs
        rows[:, 0] = 2
        rows[1:, 1:] -= levels[:-1]
    header = struct.pack(">IIBBBBB", width, height, 8 * picture.itemsize, kind, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header)]
    if palette is not None:
        chunks.append(_chunk(b"PLTE", palette.tobytes()))
    chunks.append(_chunk(b"IDAT", zlib.compress(rows.tobytes(), _COMPRESSION)))
    chunks.append(_chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def davis_palette() -> NDArray[np.uint8]:
    """(256, 3) uint8 RGB: the palette of PASCAL VOC and DAVIS, in which 0 is black and 1 dark red.

    Bits 0, 1, 2 of the index are the highest bits of red, green and blue, the next three bits the
    second highest, and so on.
    """
    index = np.arange(256)[:, None] >> np.arange(3)  # (256, 3): the bits of each channel, from bit 0 on
    palette = np.zeros((256, 3), np.uint8)
    for step in range(3):
        palette |= ((index >> (3 * step) & 1) << (7 - step)).astype(np.uint8)
    return palette


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
