"""Masks -> a folder of PNG files, one a frame, lossless.

Two kinds. Grey: one object, 0 outside and 255 inside. Indexed: several objects in one picture as in
the DAVIS data sets, value = position of the object + 1, with their palette; the position is the
order in which ids first appear, and where masks overlap the later object wins. The files are
written with zlib alone: OpenCV cannot write a palette.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import OutputError
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.types import FrameResult, ObjectId, VideoFrame, VideoInfo

_GREY, _INDEXED = 0, 3  # PNG colour types
# zlib's usual 6 makes files of masks up to 40 % smaller, in three times the time: 5 ms more a 720p frame.
_COMPRESSION = 3


class PngWriter(AtomicWriter):
    """One 8-bit PNG a frame, named by its index: `00000.png`; for an image sequence, like the frame's own picture.

    From frame 100000 on names have six digits, so that they no longer sort by name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        info: VideoInfo | None = None,
        *,
        indexed: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Prepare the folder; it appears under its name when the writer is closed.

        Args:
            folder: The output. It may exist if it is empty. Never the folder of the sequence that is read.
            info: What the frames come from: `shot.1001.jpg` gives `shot.1001.png`. None for frames from anywhere.
            indexed: Several objects in each file, as palette indices. Otherwise grey, for one object.
            overwrite: Whether a folder of earlier masks, and nothing else, may be replaced.

        Raises:
            OutputExistsError: The folder holds something and `overwrite` is False.
            OutputError: It cannot be written.
        """
        files = info.files if info is not None else ()
        self._names = [f"{Path(file).stem}.png" for file in files]
        ours = "|".join(map(re.escape, self._names)) or r"\d{5,}\.png"
        sources = [info.path] if info is not None else []
        super().__init__(PendingOutput(folder, overwrite=overwrite, folder_of=ours, sources=sources))
        self._indexed = indexed
        self._values: dict[ObjectId, int] = {}

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        for object_id in result.objects:
            self._values.setdefault(object_id, len(self._values) + 1)
        limit = 255 if self._indexed else 1
        if len(self._values) > limit:
            cure = "write fewer objects" if self._indexed else "use indexed=True, or a folder for each object"
            raise OutputError(f"got {len(self._values)} objects, expected at most {limit} in such PNGs; {cure}")
        picture = np.zeros(frame.rgb.shape[:2], np.uint8)
        for object_id, found in result.objects.items():
            picture[found.mask] = self._values[object_id] if self._indexed else 255
        data = encode_png(picture, davis_palette() if self._indexed else None)
        name = self._names[frame.frame_idx] if self._names else f"{frame.frame_idx:05d}.png"
        (self._pending.temporary / name).write_bytes(data)

    def _finish(self) -> None:
        pass  # each file is complete when it is written

    def _release(self) -> None:
        pass


def encode_png(picture: NDArray[np.uint8], palette: NDArray[np.uint8] | None = None) -> bytes:
    """Encode an 8-bit PNG.

    Args:
        picture: (h, w) uint8, grey levels or palette indices.
        palette: (256, 3) uint8 RGB; None for grey.
    """
    height, width = picture.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = picture
    kind = _GREY if palette is None else _INDEXED
    chunks = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
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
