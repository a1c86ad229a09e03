"""Cut-out pictures (RGBA) and photographs (RGB) from the packages, read once into one flat file that workers share.

The held-out part is fixed: it depends on the packages' contents only, never on a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data_sources import SOURCES, Source, fetch, files
from training.formats import font_pictures, resource_pictures, wad_sprites

Picture = NDArray[np.uint8]
Parts = tuple[list[Picture], list[Picture]]  # for training, held out

SPRITE_SIDE = 168  # longest side of a stored sprite; at 256 input an object is seldom larger
PHOTO_SIDE = 720  # shortest side of a stored photograph
HELD_OUT_SPRITES = 400  # drawings; the same ones that nano-v0 never saw
HELD_OUT_PHOTOS = 6  # of the first photo package; likewise
HELD_OUT_EVERY = 12  # of emoji, game sprites and stamps


# Of GCompris, the activities that show photographs.
RESOURCES = (
    "categorization",
    "erase",
    "explore_farm_animals",
    "explore_monuments",
    "explore_world_animals",
    "explore_world_music",
)
# Of the stamps only photographs are wanted; these words in a path mark what is none, or a mirrored copy.
NOT_PHOTOGRAPHS = ("cartoon", "symbols", "flags", "money", "_mirror", "_flip")


@dataclass(frozen=True, slots=True)
class Library:
    """Pictures to build clips from.

    Attributes:
        sprites: Drawings, RGBA.
        stamps: Cut-out photographs of real things, RGBA.
        cut_outs: What stood out in photographs, RGBA; roughly cut.
        photos: Whole photographs and wallpapers, RGB.
    """

    sprites: list[Picture]
    stamps: list[Picture]
    cut_outs: list[Picture]
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
            suffix, read = ((".ttf",), font_pictures) if source.kind == "emoji" else ((".wad",), wad_sprites)
            largest = max(files(source, cache, suffix), key=lambda path: path.stat().st_size)
            cuts = (cut_out(picture) for picture in read(largest.read_bytes()))
            for index, sprite in enumerate(cut for cut in cuts if cut is not None):
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
        if source.kind not in ("photos", "rcc"):
            continue
        for index, photo in enumerate(_photos(source, cache)):
            seen_by_v0 = source.package not in ("lomiri-wallpapers-16.04", "tuxpaint-data", "gcompris-qt-data")
            first = source.package == "gnome-backgrounds" and index < HELD_OUT_PHOTOS
            parts[first or (not seen_by_v0 and index % 5 == 0)].append(photo)
    return parts


def _real_cut_outs(cache: Path) -> Parts:
    """Middle parts of photographs, cut out by GrabCut: real surfaces, and shapes that need not be perfect."""
    parts: Parts = ([], [])
    source = next(source for source in SOURCES if source.kind == "rcc")
    for index, photo in enumerate(_photos(source, cache)):
        sprite = cut_middle(photo)
        if sprite is not None:
            parts[index % 5 == 0].append(sprite)
    return parts


def cut_middle(photo: Picture) -> Picture | None:
    """What stands out in the middle of a photograph; None if nothing does."""
    scale = 260 / max(photo.shape[:2])
    small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    height, width = small.shape[:2]
    rectangle = (width // 14, height // 14, width - width // 7, height - height // 7)
    mask = np.zeros((height, width), np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)
    cv2.grabCut(small, mask, rectangle, *models, 4, cv2.GC_INIT_WITH_RECT)
    inside = ((mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)).astype(np.uint8)
    inside = cv2.morphologyEx(inside, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    inside = cv2.morphologyEx(inside, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    if not 0.06 < inside.mean() < 0.6:
        return None
    alpha = cv2.GaussianBlur(inside * 255, (3, 3), 0)
    return cut_out(np.dstack([small, alpha]), solidity=0.75)


def _photos(source: Source, cache: Path) -> Iterator[Picture]:
    seen: set[bytes] = set()
    for picture in _pictures(source, cache):
        if min(picture.shape[:2]) < 200 or _detail(picture) < 0.04:
            continue
        scale = min(1.0, PHOTO_SIDE / min(picture.shape[:2]))
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        tiny = (cv2.resize(picture, (8, 8), interpolation=cv2.INTER_AREA) // 24).tobytes()
        if tiny not in seen:  # the same wallpaper in several resolutions
            seen.add(tiny)
            yield picture


def _pictures(source: Source, cache: Path) -> Iterator[Picture]:
    if source.kind == "rcc":
        for path in files(source, cache, (".rcc",)):
            if path.stem in RESOURCES:
                yield from resource_pictures(path.read_bytes())
        return
    for path in files(source, cache, (".jpg", ".jpeg", ".png", ".webp")):
        if path.stat().st_size > 60_000 and "screenshot" not in path.name.lower():
            picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
            if picture is not None:
                yield np.ascontiguousarray(picture[..., ::-1])


def _detail(picture: Picture) -> float:
    """Share of pixels with any fine structure: next to none in plain wallpapers."""
    small = cv2.resize(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), (640, 360), interpolation=cv2.INTER_AREA)
    return float((np.abs(cv2.Laplacian(small.astype(np.float32), cv2.CV_32F)) > 3).mean())


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


_BUILDERS = {"sprites": _sprites, "stamps": _stamps, "cut_outs": _real_cut_outs, "photos": _backgrounds}


def _write_flat(path: Path, pictures: list[Picture]) -> None:
    np.save(path.with_suffix(".npy"), np.concatenate([picture.ravel() for picture in pictures]))
    np.savez(path.with_suffix(".npz"), shapes=np.array([picture.shape for picture in pictures]))


def _read_flat(path: Path) -> list[Picture]:
    flat = np.load(path.with_suffix(".npy"), mmap_mode="r")
    shapes = np.load(path.with_suffix(".npz"))["shapes"]
    ends = np.cumsum(shapes.prod(1))
    return [flat[end - shape.prod() : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)]
