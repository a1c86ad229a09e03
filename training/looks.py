"""Makes what actors look like: drawings, photo-filled shapes, and jointed creatures, shaded and coloured."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from training.actors import Limb, Looks, photo_crop
from training.sprites import Library, Picture

Rng = np.random.Generator


def make_looks(library: Library, rng: Rng) -> Looks:
    """Random looks; about a third have limbs or are made of several materials."""
    kind = rng.random()
    if kind < 0.3:
        return _creature(library, rng)
    body = _shade(_body(library, rng), rng)
    if rng.random() < 0.5:
        return Looks(body)
    grid = int(rng.integers(2, 5))
    reach = rng.uniform(0.03, 0.12) * max(body.shape[:2])
    bend = rng.normal(0, reach / 1.5, (grid, grid, 2)).astype(np.float32)
    phase = (rng.uniform(0, 2 * np.pi) + rng.uniform(-1.2, 1.2, (grid, grid, 2))).astype(np.float32)
    return Looks(_padded(body, int(reach * 1.5)), (), rng.uniform(0.2, 1.2), bend, phase)


def harmonise(looks: Looks, scene: Picture, amount: float) -> Looks:
    """Moves the colours of an actor towards those of a scene: real objects share the scene's light and haze."""
    if amount <= 0:
        return looks
    pictures = [looks.body, *(limb.picture for limb in looks.limbs)]
    own = np.concatenate([picture[picture[..., 3] > 128][:, :3] for picture in pictures]).astype(np.float32)
    there = scene[::8, ::8].reshape(-1, 3).astype(np.float32)
    gain = 1 + amount * (np.clip((there.std(0) + 8) / (own.std(0) + 8), 0.4, 1.6) - 1)
    shift = amount * (there.mean(0) - own.mean(0))
    table = np.arange(256, dtype=np.float32)[:, None]
    table = np.clip((table - own.mean(0)) * gain + own.mean(0) + shift, 0, 255).astype(np.uint8)
    body = _mapped(looks.body, table)
    limbs = tuple(
        Limb(_mapped(limb.picture, table), limb.parent, limb.joint, limb.rest, limb.swing, limb.phase, limb.behind)
        for limb in looks.limbs
    )
    return Looks(body, limbs, looks.pace, looks.bend, looks.bend_phase)


def random_blob(side: int, rng: Rng) -> NDArray[np.uint8]:
    """A random closed shape as an alpha mask."""
    count = int(rng.integers(3, 10))
    angles = np.sort(rng.uniform(0, 2 * np.pi, count))
    radii = rng.uniform(0.35, 1.0, count)
    turn = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    wrapped = np.concatenate([angles - 2 * np.pi, angles, angles + 2 * np.pi])
    radius = np.interp(turn, wrapped, np.tile(radii, 3))
    if rng.random() < 0.7:
        radius = np.convolve(np.concatenate([radius[-8:], radius, radius[:8]]), np.ones(17) / 17, "valid")
    centre = side / 2
    squeeze = rng.uniform(0.4, 1.0)
    points = np.stack([np.cos(turn) * squeeze, np.sin(turn)], 1) * radius[:, None] * (centre - 2) + centre
    alpha = np.zeros((side, side), np.uint8)
    cv2.fillPoly(alpha, [np.round(points * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
    return alpha


def _body(library: Library, rng: Rng) -> Picture:
    kind = rng.random()
    if kind < 0.18:
        alpha = random_blob(144, rng)
        return np.dstack([_material(library, alpha.shape, rng), alpha])
    real = rng.random() < 0.45
    shapes = (library.stamps if rng.random() < 0.6 else library.cut_outs) if real else library.sprites
    sprite = np.array(shapes[rng.integers(len(shapes))])
    if rng.random() < 0.5:
        sprite = np.ascontiguousarray(sprite[:, ::-1])
    if kind < (0.25 if real else 0.6):
        share = 1.0 if rng.random() < 0.6 else rng.uniform(0.3, 0.7)
        material = _material(library, sprite.shape[:2], rng)
        sprite[..., :3] = cv2.addWeighted(material, share, np.ascontiguousarray(sprite[..., :3]), 1 - share, 0)
    if rng.random() < 0.2:
        _paint_marks(sprite, library, rng)
    return _coloured(sprite, rng)


def _material(library: Library, size: tuple[int, ...], rng: Rng) -> Picture:
    """A photograph's crop, a plain colour with grain, or stripes: what surfaces are made of."""
    height, width = size[:2]
    kind = rng.random()
    if kind < 0.65:
        return _coloured(photo_crop(library, (height, width), rng), rng)
    colour = rng.uniform(10, 245, 3)
    coarse = rng.normal(0, rng.uniform(4, 30), (max(2, height // 6), max(2, width // 6), 1)).astype(np.float32)
    grain = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)[..., None]
    surface = colour + grain + rng.normal(0, rng.uniform(0, 8), (height, width, 1))
    if kind > 0.88:
        angle, pitch = rng.uniform(0, np.pi), rng.uniform(6, 30)
        rows, columns = np.mgrid[:height, :width]
        wave = np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * 2 * np.pi / pitch)[..., None]
        surface = np.where(wave > rng.uniform(-0.5, 0.5), surface, surface * 0.3 + rng.uniform(0, 180, 3))
    return np.clip(surface, 0, 255).astype(np.uint8)


def _paint_marks(sprite: Picture, library: Library, rng: Rng) -> None:
    """Covers part of an object with another material, in place: clothes, patches, two-coloured animals."""
    height, width = sprite.shape[:2]
    other = _material(library, (height, width), rng)
    alpha = cv2.resize(random_blob(96, rng), (width, height))
    left, top = int(rng.uniform(-0.5, 0.5) * width), int(rng.uniform(-0.5, 0.5) * height)
    alpha = cv2.warpAffine(alpha, np.array([[1.0, 0, left], [0, 1.0, top]]), (width, height))[..., None]
    sprite[..., :3] = np.where(alpha > 128, other, sprite[..., :3])


def _coloured(picture: Picture, rng: Rng) -> Picture:
    gain = rng.uniform(0.7, 1.3, 3) * rng.uniform(0.7, 1.3)
    table = np.arange(256, dtype=np.float32)[:, None] * gain + rng.uniform(-25, 25, 3)
    return _mapped(picture, np.clip(table, 0, 255).astype(np.uint8))


def _mapped(picture: Picture, table: NDArray[np.uint8]) -> Picture:
    mapped = picture.copy()
    for channel in range(3):
        mapped[..., channel] = table[:, channel][picture[..., channel]]
    return mapped


def _shade(picture: Picture, rng: Rng) -> Picture:
    """Light on the shape as if it were inflated; most objects in films are not flat."""
    if rng.random() < 0.35:
        return picture
    solid = np.pad((picture[..., 3] > 128).astype(np.uint8), 1)
    depth = np.sqrt(cv2.distanceTransform(solid, cv2.DIST_L2, 3)[1:-1, 1:-1])
    depth = cv2.GaussianBlur(depth, (0, 0), rng.uniform(2, 6))
    slope_y, slope_x = np.gradient(depth * rng.uniform(2, 6))
    angle = rng.uniform(0, 2 * np.pi)
    facing = (np.cos(angle) * slope_x + np.sin(angle) * slope_y + 1) / np.sqrt(slope_x**2 + slope_y**2 + 2)
    light = np.clip(rng.uniform(0.35, 0.7) + rng.uniform(0.4, 0.8) * facing, 0.2, 1.6)[..., None]
    shaded = picture.copy()
    shaded[..., :3] = np.clip(picture[..., :3] * light, 0, 255)
    return shaded


def _padded(picture: Picture, margin: int) -> Picture:
    return np.pad(picture, ((margin, margin), (margin, margin), (0, 0)))


def _creature(library: Library, rng: Rng) -> Looks:
    """A body with two to six limbs of one or two segments, each swinging, often of another material."""
    if rng.random() < 0.4:
        body = _body(library, rng)
        body = cv2.resize(body, None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    else:
        width, height = int(rng.uniform(30, 110)), int(rng.uniform(30, 80))
        alpha = cv2.resize(random_blob(96, rng), (width, height), interpolation=cv2.INTER_AREA)
        body = np.dstack([_material(library, alpha.shape, rng), alpha])
    body = _shade(body, rng)
    skin = [_material(library, (96, 40), rng) for _ in range(2)]
    if rng.random() < 0.4:
        skin[0] = cv2.resize(np.ascontiguousarray(body[..., :3]), (40, 96))
    limbs: list[Limb] = []
    gait = rng.uniform(0, 0.9)
    for _ in range(int(rng.integers(2, 6))):
        _add_limb(limbs, body, skin, gait, rng)
    return Looks(body, tuple(limbs), rng.uniform(0.3, 1.6))


def _add_limb(limbs: list[Limb], body: Picture, skin: list[Picture], gait: float, rng: Rng) -> None:
    inside = np.argwhere(body[..., 3] > 128)
    if not len(inside):
        return
    row, column = inside[rng.integers(len(inside))]
    below = rng.random() < 0.65
    rest = rng.normal(0, 0.25) if below else rng.uniform(-np.pi, np.pi)
    if below:
        row = max(row, int(body.shape[0] * 0.6))
    thickness = rng.uniform(5, 20)
    length = rng.uniform(20, 50)
    phase = rng.uniform(0, 2 * np.pi)
    behind = bool(rng.random() < 0.5)
    upper = _capsule(skin[0], length, thickness, rng)
    limbs.append(Limb(upper, -1, (float(column), float(row)), rest, gait * rng.uniform(0.3, 1), phase, behind))
    if rng.random() < 0.6:
        lower = _capsule(skin[int(rng.random() < 0.5)], length * rng.uniform(0.6, 1.0), thickness * 0.8, rng)
        joint = (upper.shape[1] / 2, upper.shape[0] - 6.0)
        bend = rng.normal(0, 0.4)
        limbs.append(Limb(lower, len(limbs) - 1, joint, bend, gait * rng.uniform(0.2, 0.9), phase + 1.2, behind))


def _capsule(skin: Picture, length: float, thickness: float, rng: Rng) -> Picture:
    """A tapered limb that hangs from the middle of its top edge."""
    height, width = int(length), int(max(4, thickness))
    outline = [(1, 3), (width / 2, 0), (width - 1, 3)]
    taper = rng.uniform(0.5, 1.1)
    foot = min(width / 2, width * taper / 2)
    outline += [(width / 2 + foot, height - 3), (width / 2, height), (width / 2 - foot, height - 3)]
    alpha = np.zeros((height, width), np.uint8)
    cv2.fillPoly(alpha, [np.round(np.array(outline) * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
    surface = cv2.resize(skin, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32)
    light = np.cos(np.linspace(-1.2, 1.2, width) + rng.uniform(-0.5, 0.5))[None, :, None] * 0.5 + 0.6
    return np.dstack([np.clip(surface * light, 0, 255).astype(np.uint8), alpha])
