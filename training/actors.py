"""Things that move in a clip: what they look like at a moment, and where they are.

An actor's looks (an RGBA picture that may deform or swing its limbs) and its path (an affine map from picture to
world) are separate; `clips.py` puts them in front of a camera.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from training.sprites import Library, Picture

Affine = NDArray[np.float64]  # 3x3, column vectors (x, y, 1)


@dataclass(frozen=True, slots=True)
class Limb:
    """A part that swings about a joint.

    Attributes:
        picture: RGBA; its joint is the middle of its top edge.
        parent: Index of the limb it hangs on, or -1 for the body.
        joint: Where on its parent's picture it hangs, in pixels.
        rest: Angle at rest, in radians; 0 hangs down.
        swing: Amplitude in radians.
        phase: Of the swing.
        behind: Painted before the body.
    """

    picture: Picture
    parent: int
    joint: tuple[float, float]
    rest: float
    swing: float
    phase: float
    behind: bool


@dataclass(frozen=True, slots=True)
class Looks:
    """An RGBA picture that changes with time.

    Attributes:
        body: RGBA.
        limbs: Parts that swing; `parent` indices point backwards.
        pace: Radians of gait a unit of time.
        bend: Control grid of displacement amplitudes [g, g, 2] in pixels, or None for a stiff picture.
        bend_phase: Phases of that grid.
    """

    body: Picture
    limbs: tuple[Limb, ...] = ()
    pace: float = 0.0
    bend: NDArray[np.float32] | None = None
    bend_phase: NDArray[np.float32] | None = None

    def at(self, time: float) -> Picture:
        """The picture at a moment; the same size at all moments."""
        picture = self._assemble(time) if self.limbs else self.body
        if self.bend is None:
            return picture
        height, width = picture.shape[:2]
        grid = self.bend * np.sin(self.bend_phase + self.pace * time)
        shift = cv2.resize(grid.astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
        columns, rows = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
        return cv2.remap(picture, columns + shift[..., 0], rows + shift[..., 1], cv2.INTER_LINEAR)

    def _assemble(self, time: float) -> Picture:
        pad = 90  # room for limbs around the body
        height, width = self.body.shape[0] + 2 * pad, self.body.shape[1] + 2 * pad
        maps: list[Affine] = []
        body_map = translation(pad, pad)
        for limb in self.limbs:
            base = body_map if limb.parent < 0 else maps[limb.parent]
            angle = limb.rest + limb.swing * np.sin(limb.phase + self.pace * time)
            hang = translation(*limb.joint) @ rotation(angle) @ translation(-limb.picture.shape[1] / 2, -4)
            maps.append(base @ hang)
        canvas = np.zeros((height, width, 4), np.uint8)
        for limb, where in zip(self.limbs, maps, strict=True):
            if limb.behind:
                paste(canvas, limb.picture, where)
        paste(canvas, self.body, body_map)
        for limb, where in zip(self.limbs, maps, strict=True):
            if not limb.behind:
                paste(canvas, limb.picture, where)
        return canvas


@dataclass(frozen=True, slots=True)
class Path:
    """Where an actor is: world position, size and turn as smooth functions of time.

    Attributes:
        start: World position at time 0.
        velocity: World pixels a unit of time.
        sway: Amplitudes (x, y, turn, log size) of slow oscillations.
        sway_pace: Their pace, in radians a unit of time.
        sway_phase: Their phases.
        turn: Angle at time 0 and its rate.
        log_size: Log of the scale at time 0 and its rate.
        shape: 2x2 aspect and shear.
        squash: Scale of x and y in the frame: wide films are squeezed into the square input.
        away: (from, to, dx, dy): between the two times the actor is displaced by (dx, dy), with smooth ramps.
    """

    start: tuple[float, float]
    velocity: tuple[float, float] = (0.0, 0.0)
    sway: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    sway_pace: float = 0.0
    sway_phase: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    turn: tuple[float, float] = (0.0, 0.0)
    log_size: tuple[float, float] = (0.0, 0.0)
    shape: NDArray[np.float64] = field(default_factory=lambda: np.eye(2))
    squash: tuple[float, float] = (1.0, 1.0)
    away: tuple[float, float, float, float] | None = None

    def at(self, time: float, size: tuple[int, int]) -> Affine:
        """The map from the pixels of a picture of `size` (height, width) to the world."""
        waves = [
            a * (np.sin(p + self.sway_pace * time) - np.sin(p)) for a, p in zip(self.sway, self.sway_phase, strict=True)
        ]
        x = self.start[0] + self.velocity[0] * time + waves[0]
        y = self.start[1] + self.velocity[1] * time + waves[1]
        if self.away is not None:
            begin, end, far_x, far_y = self.away
            ramp = min(_smooth(time - begin + 1.5), _smooth(end + 1.5 - time))
            x, y = x + far_x * ramp, y + far_y * ramp
        scale = float(np.exp(np.clip(self.log_size[0] + self.log_size[1] * time + waves[3], -2.5, 1.1)))
        linear = np.eye(3)
        linear[:2, :2] = rotation(self.turn[0] + self.turn[1] * time + waves[2])[:2, :2] @ self.shape * scale
        linear[0] *= self.squash[0]
        linear[1] *= self.squash[1]
        return translation(x, y) @ linear @ translation(-size[1] / 2, -size[0] / 2)


@dataclass(frozen=True, slots=True)
class Actor:
    """Looks on a path; `shadow` is the (dx, dy, darkness) of its soft shadow, or None."""

    looks: Looks
    path: Path
    shadow: tuple[float, float, float] | None = None

    def moved(self, path: Path) -> Actor:
        """The same looks elsewhere."""
        return replace(self, path=path)


def translation(x: float, y: float) -> Affine:
    """The affine map that adds (x, y)."""
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])


def rotation(angle: float) -> Affine:
    """The affine map that turns by `angle` radians about the origin."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])


def bounds(where: Affine, size: tuple[int, int], limit: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of a mapped picture inside of a canvas; None where they do not meet."""
    height, width = size
    corners = where[:2] @ np.array([[0, width, 0, width], [0, 0, height, height], [1, 1, 1, 1]], np.float64)
    left, top = np.maximum(np.floor(corners.min(1)).astype(int), 0)
    right, bottom = np.minimum(np.ceil(corners.max(1)).astype(int) + 1, (limit[1], limit[0]))
    return None if right - left < 2 or bottom - top < 2 else (int(left), int(top), int(right), int(bottom))


def warp(picture: Picture, where: Affine, box: tuple[int, int, int, int]) -> Picture:
    """The part of a mapped picture that lies in a box of the canvas; transparent outside of the picture."""
    left, top, right, bottom = box
    shrinks = abs(np.linalg.det(where[:2, :2])) < 0.3
    return cv2.warpAffine(
        picture,
        (translation(-left, -top) @ where)[:2],
        (right - left, bottom - top),
        flags=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR,
    )


def paste(canvas: Picture, picture: Picture, where: Affine) -> None:
    """Paints an RGBA picture over an RGBA canvas, in place."""
    box = bounds(where, picture.shape[:2], canvas.shape[:2])
    if box is None:
        return
    left, top, right, bottom = box
    above = warp(picture, where, box)
    below = canvas[top:bottom, left:right]
    alpha = above[..., 3:].astype(np.uint16)
    opaque = below[..., 3:] == 0
    mixed = (above[..., :3] * alpha + below[..., :3] * (255 - alpha)) // 255
    below[..., :3] = np.where(opaque, above[..., :3], mixed)
    below[..., 3:] = np.maximum(below[..., 3:], above[..., 3:])


def photo_crop(library: Library, size: tuple[int, int], rng: np.random.Generator, aspect: float = 1.0) -> Picture:
    """A random crop of a random photograph, scaled to (height, width); `aspect` times as wide before."""
    photo = library.photos[rng.integers(len(library.photos))]
    height, width = photo.shape[:2]
    part = rng.uniform(0.2, 0.98)
    crop_height = int(height * part)
    ratio = aspect * size[1] / size[0]
    crop_width = max(8, min(width, int(crop_height * ratio)))
    crop_height = max(8, min(crop_height, int(crop_width / ratio)))
    top, left = rng.integers(height - crop_height + 1), rng.integers(width - crop_width + 1)
    crop = photo[top : top + crop_height, left : left + crop_width]
    crop = crop[:, ::-1] if rng.random() < 0.5 else crop
    return cv2.resize(crop, (size[1], size[0]), interpolation=cv2.INTER_AREA)


def _smooth(value: float) -> float:
    value = min(1.0, max(0.0, value / 1.5))
    return value * value * (3 - 2 * value)
