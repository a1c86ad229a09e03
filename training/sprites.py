"""Cut-out pictures (RGBA) and photographs (RGB) from the packages, read once into one flat file that workers share.

The held-out part is fixed: it depends on the packages' contents only, never on a run.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data_sources import SOURCES, Source, fetch, files

Picture = NDArray[np.uint8]
Parts = tuple[list[Picture], list[Picture]]  # for training, held out

SPRITE_SIDE = 168  # longest side of a stored sprite; at 256 input an object is seldom larger
PHOTO_SIDE = 720  # shortest side of a stored photograph
HELD_OUT_SPRITES = 400  # drawings; the same ones that nano-v0 never saw
HELD_OUT_PHOTOS = 6  # of the first photo package; likewise
HELD_OUT_EVERY = 12  # of emoji and game sprites


# Of the stamps only photographs are wanted; these words in a path mark what is none, or a mirrored copy.
NOT_PHOTOGRAPHS = ("cartoon", "symbols", "flags", "money", "_mirror", "_flip")


@dataclass(frozen=True, slots=True)
class Library:
    """Pictures to build clips from.

    Attributes:
        sprites: Drawings, RGBA.
        stamps: Cut-out photographs of real things, RGBA.
        photos: Whole photographs and wallpapers, RGB.
    """

    sprites: list[Picture]
    stamps: list[Picture]
    photos: list[Picture]


def load_library(cache: Path, held_out: bool) -> Library:
    """The training part or the held-out part; builds the flat files on first use."""
    part = "held_out" if held_out else "train"
    parts = {name: cache / f"{part}_{name}" for name in _BUILDERS}
    for name, build in _BUILDERS.items():
        if not (cache / f"train_{name}.npz").exists():
            kept, apart = build(cache)
            _write_flat(cache / f"held_out_{name}", apart)
            _write_flat(cache / f"train_{name}", kept)
    return Library(**{name: _read_flat(path) for name, path in parts.items()})


def cut_out(picture: Picture, side: int = SPRITE_SIDE, solidity: float = 0.8) -> Picture | None:
    """The picture's largest connected shape, cropped and scaled; None if it is too thin, too small or in pieces."""
    rows, columns = np.nonzero(picture[..., 3] > 128)
    if len(rows) < 300:
        return None
    picture = picture[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = picture.shape[:2]
    if max(height, width) > 5 * min(height, width):
        return None
    scale = side / max(height, width)
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    picture = cv2.resize(picture, (max(8, int(width * scale)), max(8, int(height * scale))), interpolation=way)
    solid = (picture[..., 3] > 128).astype(np.uint8)
    if not 0.12 < solid.mean() < 0.97:
        return None
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid)
    if count < 2 or stats[1:, cv2.CC_STAT_AREA].max() < solidity * solid.sum():
        return None
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    grown = cv2.dilate((labels == largest).astype(np.uint8), np.ones((3, 3), np.uint8))
    picture[..., 3] *= grown
    return np.ascontiguousarray(picture)


def _sprites(cache: Path) -> Parts:
    parts: Parts = ([], [])
    for source in SOURCES:
        if source.kind == "drawings":
            for index, sprite in enumerate(_drawings(source, cache)):
                parts[index < HELD_OUT_SPRITES].append(sprite)
        elif source.kind in ("emoji", "doom"):
            read = _emoji if source.kind == "emoji" else _doom
            for index, sprite in enumerate(read(source, cache)):
                parts[index % HELD_OUT_EVERY == 0].append(sprite)
    return parts


def _stamps(cache: Path) -> Parts:
    parts: Parts = ([], [])
    source = next(source for source in SOURCES if source.kind == "stamps")
    root = fetch(source, cache)
    paths = [path for path in files(source, cache, (".png",)) if not _marked(str(path.relative_to(root)))]
    for index, sprite in enumerate(_cut_outs(paths)):
        parts[index % HELD_OUT_EVERY == 0].append(sprite)
    return parts


def _marked(path: str) -> bool:
    return any(word in path for word in NOT_PHOTOGRAPHS)


def _backgrounds(cache: Path) -> Parts:
    parts: Parts = ([], [])
    for source in SOURCES:
        if source.kind == "photos":
            for index, photo in enumerate(_photos(source, cache)):
                first = source.package == "gnome-backgrounds" and index < HELD_OUT_PHOTOS
                unseen = source.package == "lomiri-wallpapers-16.04" and index % 3 == 0
                parts[first or unseen].append(photo)
    return parts


def _photos(source: Source, cache: Path) -> Iterator[Picture]:
    seen: set[str] = set()
    for path in files(source, cache, (".jpg", ".jpeg", ".png", ".webp")):
        if path.stat().st_size < 60_000 or "screenshot" in path.name.lower():
            continue
        picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if picture is None or min(picture.shape[:2]) < 300:
            continue
        scale = PHOTO_SIDE / min(picture.shape[:2])
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        tiny = cv2.resize(picture, (8, 8), interpolation=cv2.INTER_AREA) // 24
        if tiny.tobytes() not in seen:  # the same wallpaper in several resolutions
            seen.add(tiny.tobytes())
            yield np.ascontiguousarray(picture[..., ::-1])


def _drawings(source: Source, cache: Path) -> Iterator[Picture]:
    paths = list(files(source, cache, (".png",)))
    random.Random(0).shuffle(paths)
    yield from _cut_outs(paths)


def _cut_outs(paths: list[Path]) -> Iterator[Picture]:
    for path in paths:
        picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        if picture is None or picture.ndim != 3 or picture.shape[2] != 4 or picture.dtype != np.uint8:
            continue
        sprite = cut_out(cv2.cvtColor(picture, cv2.COLOR_BGRA2RGBA))
        if sprite is not None:
            yield sprite


def _emoji(source: Source, cache: Path) -> Iterator[Picture]:
    """The PNG pictures embedded in the bitmap font, found by signature and end chunk."""
    path = next(files(source, cache, (".ttf",)))
    data = path.read_bytes()
    start = data.find(b"\x89PNG\r\n\x1a\n")
    while start >= 0:
        end = data.index(b"IEND", start) + 8
        picture = cv2.imdecode(np.frombuffer(data[start:end], np.uint8), cv2.IMREAD_UNCHANGED)
        if picture is not None and picture.ndim == 3 and picture.shape[2] == 4:
            sprite = cut_out(cv2.cvtColor(picture, cv2.COLOR_BGRA2RGBA))
            if sprite is not None:
                yield sprite
        start = data.find(b"\x89PNG\r\n\x1a\n", end)


def _doom(source: Source, cache: Path) -> Iterator[Picture]:
    """The sprites of a Doom WAD: column-wise run-length coded, 256 colours."""
    data = max(files(source, cache, (".wad",)), key=lambda path: path.stat().st_size).read_bytes()
    count, directory = struct.unpack_from("<ii", data, 4)
    entries = [struct.unpack_from("<ii8s", data, directory + 16 * index) for index in range(count)]
    names = [name.rstrip(b"\0") for _, _, name in entries]
    palette_at = entries[names.index(b"PLAYPAL")][0]
    palette = np.frombuffer(data, np.uint8, 768, palette_at).reshape(256, 3)
    for offset, size, _ in entries[names.index(b"S_START") + 1 : names.index(b"S_END")]:
        if size < 400:
            continue
        sprite = cut_out(_doom_picture(data, offset, palette))
        if sprite is not None:
            yield sprite


def _doom_picture(data: bytes, offset: int, palette: NDArray[np.uint8]) -> Picture:
    width, height = struct.unpack_from("<HH", data, offset)
    picture = np.zeros((height, width, 4), np.uint8)
    for column, start in enumerate(struct.unpack_from(f"<{width}I", data, offset + 8)):
        at = offset + start
        while data[at] != 255:
            top, length = data[at], data[at + 1]
            pixels = np.frombuffer(data, np.uint8, length, at + 3)[: max(0, height - top)]
            picture[top : top + len(pixels), column, :3] = palette[pixels]
            picture[top : top + len(pixels), column, 3] = 255
            at += length + 4
    return picture


_BUILDERS = {"sprites": _sprites, "stamps": _stamps, "photos": _backgrounds}


def _write_flat(path: Path, pictures: list[Picture]) -> None:
    np.save(path.with_suffix(".npy"), np.concatenate([picture.ravel() for picture in pictures]))
    np.savez(path.with_suffix(".npz"), shapes=np.array([picture.shape for picture in pictures]))


def _read_flat(path: Path) -> list[Picture]:
    flat = np.load(path.with_suffix(".npy"), mmap_mode="r")
    shapes = np.load(path.with_suffix(".npz"))["shapes"]
    ends = np.cumsum(shapes.prod(1))
    return [flat[end - shape.prod() : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)]
