"""Draw the example clip: a koi swims under a lily pad while a toy duck drifts the other way.

Everything is computed here, from noise and geometry, so the clip is free of other people's rights and its
masks are exact. The same command always draws the same pictures and writes the same masks; how the video is
compressed is up to the encoder.

    python examples/render_clip.py [FOLDER]

Lengths are in scene pixels: those of the frame, before the camera moves. Angles are in radians, clockwise as
seen on the screen; a sprite is drawn heading right, along its x axis. Colours are RGB between 0 and 1.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Colour = tuple[float, float, float]

WIDTH, HEIGHT = 854, 480
FRAME_RATE = 24
FRAME_COUNT = 84
SHUTTER_SAMPLES = 3
SHUTTER_OPEN = 0.5  # of the time between two frames
AUDIO_RATE = 48_000
CLICKS = ((180, 334), (726, 118))  # (x, y) on frame 0: the koi (object 1), the duck (object 2)

BED_MARGIN = 90  # how far the pond's bed reaches beyond the first frame, for camera and refraction
REFRACTION = 26.0  # scene pixels that the bed seems to move for a water slope of 1
FOCUS = 330.0  # scene pixels that a sunbeam lands aside for a water slope of 1
SUN = np.array([-0.45, -0.55, 0.70]) / np.linalg.norm([-0.45, -0.55, 0.70])  # towards it; z faces the camera
WATER_FILTER = np.array([0.857, 0.949, 0.877], np.float32)  # what the water leaves of the light from below
WATER_HAZE = np.array([0.015, 0.041, 0.039], np.float32)  # and what it adds
LILY_PADS = (  # radius, x, y, angle
    (92, 452, 194, 5.5),
    (70, 402, 74, 0.9),
    (118, 36, 60, 0.6),
    (104, 846, 452, 3.9),
    (64, 742, 494, 5.2),
    (80, -14, 470, 5.9),
)


# --- small tools -------------------------------------------------------------------------------------------


def noise(shape: tuple[int, int], cell: float, rng: np.random.Generator, octaves: int = 4) -> Array:
    """Smooth random texture between about -1 and 1 whose largest spots are `cell` pixels wide."""
    height, width = shape
    total: Array = np.zeros(shape, np.float32)
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.0)
        grid = rng.uniform(-1, 1, (int(height / size) + 4, int(width / size) + 4))
        fine = enlarge(grid, round(grid.shape[1] * size), round(grid.shape[0] * size))
        total += fine[:height, :width] / 1.8**octave
    return total


def enlarge(picture: Array, width: int, height: int) -> Array:
    """A smooth picture at a larger size."""
    picture = picture.astype(np.float32)
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_CUBIC), np.float32)


def blur(picture: Array, radius: float) -> Array:
    """The picture, softened by a Gaussian."""
    return np.asarray(cv2.GaussianBlur(picture.astype(np.float32), (0, 0), radius), np.float32)


def smoothstep(low: float, high: float, value: Array) -> Array:
    """0 at `low`, 1 at `high`, beyond them too, and a soft S between."""
    t = np.clip((value - low) / (high - low), 0, 1)
    return np.asarray(t * t * (3 - 2 * t), np.float32)


def mix(a: Array | Colour, b: Array | Colour, amount: Array) -> Array:
    """Blend two colours or pictures: `a` where `amount` is 0, `b` where it is 1."""
    amount = np.asarray(amount, np.float32)[..., None]
    return np.asarray(a, np.float32) * (1 - amount) + np.asarray(b, np.float32) * amount


def local_grid(width: int, height: int) -> tuple[Array, Array]:
    """Coordinates (x, y) of every pixel of a sprite, from its centre."""
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    return x - (width - 1) / 2, y - (height - 1) / 2


# --- sprites: a flat colour, a coverage and a relief, lit when they are drawn ------------------------------


@dataclass(frozen=True)
class Sprite:
    """A thing to draw: `paint` (h, w, 4) ends with its coverage, `normal` (h, w, 2) says how it leans."""

    paint: Array
    normal: Array
    shine: float


@dataclass(frozen=True)
class Pose:
    """Where a sprite is, which way it heads, how big it is, and (for the koi) the phase of its swimming."""

    x: float
    y: float
    angle: float = 0.0
    scale: float = 1.0
    swing: float | None = None


def make_sprite(colour: Array, inside: Array, relief: Array, roundness: float, shine: float) -> Sprite:
    """Build a sprite; `inside` is how far within the outline a pixel lies, `relief` its height.

    `roundness` softens the edges of the relief, `shine` is the strength of its highlights.
    """
    slope_y, slope_x = np.gradient(blur(relief, roundness))
    length = np.sqrt(slope_x**2 + slope_y**2 + 1)
    normal = np.dstack([-slope_x / length, -slope_y / length])
    coverage = np.clip(inside + 0.5, 0, 1)
    return Sprite(np.dstack([colour, coverage]).astype(np.float32), normal.astype(np.float32), shine)


def koi_sprite(rng: np.random.Generator) -> Sprite:
    """A plump orange koi seen from above: scales, a darker back, pale patches, two side fins and a tail."""
    x, y = local_grid(380, 260)
    along = np.clip((x + 110) / 260, 0, 1)  # 0 where the tail fin starts, 1 at the nose
    half_width = 114 * along**0.75 * (1 - along) ** 0.42 + 9 * (1 - along)
    steepness = np.hypot(np.gradient(half_width, axis=1), 1)  # turns a height into a distance to the outline
    inside_body = np.where((x > -112) & (x < 150), (half_width - np.abs(y)) / steepness, -20)
    body = smoothstep(-1, 2, inside_body)
    tail, fin = _koi_tail(x, y), _koi_fin(x, np.abs(y))

    across = np.abs(y) / np.maximum(half_width, 1)
    dome = np.sqrt(np.clip(1 - across**2, 0.02, 1)) * half_width
    scales = np.cos(x * 0.36) * np.cos(y * 0.36) * smoothstep(0.82, 0.62, along)
    tail_rays = np.sin(np.arctan2(y, x + 40) * 44)
    fin_rays = np.sin(np.arctan2(np.abs(y) - 20, 78 - x) * 30)
    rays = np.where(tail > fin, tail_rays, fin_rays)
    relief = np.where(body > 0.5, dome * 0.80 + scales * 0.45, rays * 0.8 + 6)

    colour = mix((0.98, 0.43, 0.07), (0.90, 0.22, 0.04), smoothstep(-0.3, 0.5, noise(x.shape, 74, rng, 3)))
    colour = mix(colour, (1.0, 0.86, 0.66), smoothstep(0.62, 0.78, noise(x.shape, 84, rng, 3)) * 0.9)
    colour = mix(colour, (1.0, 0.70, 0.36), smoothstep(0.55, 1.0, across) * 0.6)
    colour = mix(colour, (0.70, 0.17, 0.03), np.exp(-((y / 6) ** 2)) * (along < 0.8) * 0.5)
    colour *= (1 + 0.07 * scales)[..., None]
    colour = mix(mix((1.0, 0.60, 0.24), (0.93, 0.40, 0.10), rays * 0.5 + 0.5), colour, body)
    for side in (-1, 1):
        colour = mix(colour, (0.05, 0.04, 0.04), smoothstep(6.5, 5, np.hypot(x - 118, y - side * 27)))
    inside = np.maximum(inside_body, np.maximum(tail, fin))
    return make_sprite(colour, inside, relief, roundness=1.2, shine=0.35)


def _koi_tail(x: Array, y: Array) -> Array:
    """How far inside the tail fin a pixel lies: a fan that opens to the left, with a notch."""
    reach = -86 - x
    opening = 10 + reach * 0.60
    end = 92 - 26 * np.exp(-((y / 20) ** 2)) - 0.006 * y**2
    return np.asarray(np.minimum(np.minimum(opening - np.abs(y), reach), end - reach) * 0.8)


def _koi_fin(x: Array, out: Array) -> Array:
    """How far inside a side fin a pixel lies, `out` from the midline: a rounded fan that leans back."""
    bearing = np.arctan2(out - 26, 74 - x)  # seen from the fin's root, 0 straight back
    length = 72 * np.clip(1 - ((bearing - 0.95) / 0.62) ** 2, 0, 1) ** 0.5
    return np.asarray(length - np.hypot(out - 26, 74 - x))


def duck_sprite(rng: np.random.Generator) -> Sprite:
    """A yellow toy duck seen from above: round body, raised tail, wings, a head and an orange bill."""
    x, y = local_grid(250, 190)

    def ball(cx: float, cy: float, rx: float, ry: float, top: float) -> tuple[Array, Array]:
        """Relief of half an ellipsoid, and how far inside its outline a pixel lies."""
        radius = np.hypot((x - cx) / rx, (y - cy) / ry)
        return np.sqrt(np.clip(1 - radius**2, 0, 1)) * top, (1 - radius) * min(rx, ry)

    wings = [ball(-34, side * 40, 58, 30, 47) for side in (-1, 1)]
    body, tail, head = ball(-22, 0, 84, 68, 52), ball(-92, 0, 26, 22, 46), ball(46, 0, 45, 43, 88)
    bill = ball(93, 0, 22, 20, 60)
    yellow_relief, yellow_inside = np.max([body, tail, *wings, head], axis=0)
    is_bill = smoothstep(-2, 2, bill[0] - yellow_relief)

    colour = mix((0.98, 0.80, 0.10), (0.93, 0.68, 0.05), smoothstep(-0.6, 0.8, noise(x.shape, 90, rng, 2)))
    colour = mix(colour, (0.97, 0.50, 0.05), is_bill)
    for side in (-1, 1):
        from_eye = np.hypot(x - 62, (y - side * 26) * 1.1)
        colour = mix(colour, (0.04, 0.04, 0.05), smoothstep(6.5, 5, from_eye))
    relief, inside = np.maximum(yellow_relief, bill[0]), np.maximum(yellow_inside, bill[1])
    return make_sprite(colour, inside, relief, roundness=2.0, shine=0.8)


def pad_sprite(radius: int, rng: np.random.Generator) -> Sprite:
    """A lily pad: a round leaf with a notch on its right, veins, a paler heart and a few worn spots."""
    x, y = local_grid(2 * radius + 24, 2 * radius + 24)
    away, bearing = np.hypot(x, y), np.arctan2(y, x)
    rim = radius * (1 + 0.025 * np.sin(3 * bearing + rng.uniform(0, 6)) + 0.012 * np.sin(8 * bearing))
    inside = np.minimum(rim - away, (np.abs(bearing) - 0.16) * away)

    share = away / radius
    vein = np.exp(-((np.sin(bearing * 9.5) * away / 15) ** 2)) * smoothstep(1.02, 0.3, share)
    mottle = noise(x.shape, radius * 0.5, rng, 5)
    colour = mix((0.16, 0.40, 0.13), (0.30, 0.52, 0.18), smoothstep(-0.8, 0.9, mottle))
    colour = mix(colour, (0.52, 0.66, 0.32), vein * 0.6)
    colour = mix(colour, (0.50, 0.60, 0.30), smoothstep(0.35, 0.0, share) * 0.6)
    colour = mix(colour, (0.46, 0.30, 0.15), smoothstep(0.93, 1.03, share + 0.04 * mottle) * 0.8)
    colour = mix(colour, (0.42, 0.33, 0.14), smoothstep(1.05, 1.35, noise(x.shape, 26, rng, 3)))
    relief = 10 * share**3 + 1.5 * vein + 1.6 * mottle
    return make_sprite(colour, inside, relief, roundness=0.6, shine=0.25)


def lotus_sprite(rng: np.random.Generator) -> Sprite:
    """A pink water lily: three rings of pointed petals around a yellow heart."""
    x, y = local_grid(150, 150)
    away, bearing = np.hypot(x, y), np.arctan2(y, x)
    colour: Array = np.zeros((*x.shape, 3), np.float32)
    inside, relief = np.full_like(x, -20), np.zeros_like(x)
    for ring, (length, petals) in enumerate(((70, 9), (54, 8), (36, 7))):
        fold = (bearing * petals / (2 * np.pi) + ring * 0.37) % 1 - 0.5  # -0.5 to 0.5 across one petal
        inside_petal = length * (1 - 3.2 * np.abs(fold) ** 1.7) - away
        share = np.clip(away / length, 0, 1)
        petal = mix((0.99, 0.90, 0.90), (0.90, 0.42, 0.58), share**2)
        petal *= (1 - 0.35 * np.abs(fold) - 0.12 * (2 - ring) * (1 - share))[..., None]
        colour = mix(colour, petal, np.clip(inside_petal + 0.5, 0, 1))
        relief = np.where(inside_petal > 0, ring * 9 + 12 * share + 5 * np.cos(fold * np.pi), relief)
        inside = np.maximum(inside, inside_petal)
    colour = mix(colour, (0.95, 0.74, 0.18), smoothstep(15, 11, away + 2 * noise(x.shape, 6, rng, 1)))
    return make_sprite(colour, inside, relief, roundness=1.5, shine=0.2)


# --- the pond ----------------------------------------------------------------------------------------------


def pebble_bed(rng: np.random.Generator) -> Array:
    """The pond's bed: rounded pebbles, the large ones first, over dark silt."""
    shape = (HEIGHT + 2 * BED_MARGIN, WIDTH + 2 * BED_MARGIN)
    bed = mix((0.20, 0.18, 0.14), (0.31, 0.28, 0.22), smoothstep(-1, 1, noise(shape, 60, rng, 5)))
    radii = np.sort(np.minimum(rng.gamma(2.5, 4.5, 2600) + 6, 46))
    for radius in radii[::-1]:
        _lay_pebble(bed, float(radius), rng)
    return bed * (0.86 + 0.16 * noise(shape, 260, rng, 3))[..., None]


def _lay_pebble(bed: Array, radius: float, rng: np.random.Generator) -> None:
    """Paint one pebble, with its shadow, at a random place of the bed."""
    height, width = bed.shape[:2]
    reach = int(radius * 1.5) + 3
    left, top = rng.integers(0, width - 2 * reach), rng.integers(0, height - 2 * reach)
    patch = bed[top : top + 2 * reach + 1, left : left + 2 * reach + 1]

    x, y = local_grid(2 * reach + 1, 2 * reach + 1)
    turn, flatness = rng.uniform(0, np.pi), rng.uniform(0.62, 0.95)
    u, v = x * np.cos(turn) + y * np.sin(turn), (y * np.cos(turn) - x * np.sin(turn)) / flatness
    bearing = np.arctan2(v, u)
    dents = [0.14 / lobes * np.sin(lobes * bearing + rng.uniform(0, 6)) for lobes in (2, 3)]
    away = np.hypot(u, v) / (radius * (1 + sum(dents)))  # 1 at the rim
    core = np.clip(away, 0, 1)

    tone, warmth = rng.uniform(0.34, 0.74), rng.normal(0.025, 0.035)
    stone = np.array([tone + warmth, tone, tone - warmth - 0.02])
    to_sun = (x * SUN[0] + y * SUN[1]) / radius
    grain = noise(x.shape, max(radius * 0.5, 3), rng, 3)
    light = 0.80 + 0.38 * to_sun * core - 0.32 * core**3 + 0.10 * grain
    shade = smoothstep(1.32, 0.9, away + 0.12 * to_sun)  # reaches farther on the side away from the sun
    patch *= (1 - 0.45 * shade)[..., None]
    patch[:] = mix(patch, stone * light[..., None], np.clip((1 - away) * radius * flatness + 0.5, 0, 1))


@dataclass(frozen=True)
class Wave:
    """One sine wave on the water: radians a scene pixel and a second, its phase, and its greatest slope."""

    kx: float
    ky: float
    pace: float
    phase: float
    slope_x: float
    slope_y: float


def make_waves(rng: np.random.Generator, count: int = 22) -> list[Wave]:
    """Waves of 34 to 190 scene pixels in every direction; long ones run faster, as on deep water."""
    waves = []
    for _ in range(count):
        length = float(np.exp(rng.uniform(np.log(34), np.log(190))))
        heading, phase = rng.uniform(0, 2 * np.pi, 2)
        cos, sin = float(np.cos(heading)), float(np.sin(heading))
        k, slope = 2 * np.pi / length, 0.021 * length**0.12
        waves.append(Wave(k * cos, k * sin, 11 * k**0.5, float(phase), slope * cos, slope * sin))
    return waves


def surface_slope(waves: list[Wave], x: Array, y: Array, time: float) -> tuple[Array, Array]:
    """Slope of the water's surface along x and y at the places (x, y)."""
    slope_x, slope_y = np.zeros_like(x), np.zeros_like(x)
    for wave in waves:
        swell = np.cos(wave.kx * x + wave.ky * y + (wave.phase - wave.pace * time))
        slope_x += wave.slope_x * swell
        slope_y += wave.slope_y * swell
    return slope_x, slope_y


@dataclass(frozen=True)
class Scene:
    """Everything that does not change with time."""

    bed: Array
    waves: list[Wave]
    clouds: Array
    koi: Sprite
    duck: Sprite
    pads: list[tuple[Sprite, Pose]]
    lotus: tuple[Sprite, Pose]


def build_scene() -> Scene:
    """Draw the parts of the film; one seed each, so that a change of one leaves the others alone."""
    shape = (HEIGHT + 2 * BED_MARGIN, WIDTH + 2 * BED_MARGIN)
    return Scene(
        bed=pebble_bed(np.random.default_rng(1)),
        waves=make_waves(np.random.default_rng(2)),
        clouds=smoothstep(-0.5, 1.2, noise(shape, 320, np.random.default_rng(3))),
        koi=koi_sprite(np.random.default_rng(4)),
        duck=duck_sprite(np.random.default_rng(5)),
        pads=[
            (pad_sprite(radius, np.random.default_rng(10 + i)), Pose(x, y, angle))
            for i, (radius, x, y, angle) in enumerate(LILY_PADS)
        ],
        lotus=(lotus_sprite(np.random.default_rng(6)), Pose(60, 78, 0.3)),
    )


# --- what moves --------------------------------------------------------------------------------------------


def koi_pose(time: float) -> Pose:
    """The koi swims along a bend from the lower left to the right and rises a little, so it grows."""
    t = time * FRAME_RATE / FRAME_COUNT
    points = np.array([(168, 334), (330, 334), (440, 216), (668, 322)])  # of a cubic Bezier curve
    x, y = np.array([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]) @ points
    dx, dy = np.array([(1 - t) ** 2, 2 * t * (1 - t), t**2]) @ np.diff(points, axis=0)
    return Pose(x, y, float(np.arctan2(dy, dx)), scale=0.80 + 0.12 * t, swing=6.6 * time)


def duck_pose(time: float) -> Pose:
    """The duck drifts to the left, turning and bobbing; a bob towards the camera makes it larger."""
    bob = np.sin(3.1 * time)
    angle = 2.75 + 0.22 * np.sin(1.3 * time)
    return Pose(730 - 24 * time, 116 + 9 * time + 4 * bob, angle, scale=0.94 + 0.025 * bob)


def afloat(pose: Pose, time: float) -> Pose:
    """A leaf or flower at rest, moved a little by the water."""
    phase = pose.x * 0.03 + pose.y * 0.05
    sway = np.sin(1.7 * time + phase)
    return Pose(pose.x + 2.5 * sway, pose.y + 2 * np.cos(1.4 * time + phase), pose.angle + 0.02 * sway)


@dataclass(frozen=True)
class View:
    """What the camera sees at one instant: the scene place of every pixel."""

    x: Array
    y: Array
    left: float
    top: float
    zoom: float

    @classmethod
    def at(cls, time: float) -> "View":
        """A slow pan to the right and a slight approach, shaken as by a hand."""
        shake_x = 1.6 * np.sin(5.1 * time) + 0.9 * np.sin(11.3 * time + 1)
        shake_y = 1.4 * np.sin(6.3 * time + 2) + 0.8 * np.sin(13.1 * time)
        zoom = 1 + 0.012 * time
        left = 9 * time + shake_x + WIDTH / 2 * (1 - 1 / zoom)
        top = -3 * time + shake_y + HEIGHT / 2 * (1 - 1 / zoom)
        x, y = np.meshgrid(np.arange(WIDTH) / zoom + left, np.arange(HEIGHT) / zoom + top)
        return cls(x.astype(np.float32), y.astype(np.float32), left, top, zoom)

    def window(self, pose: Pose, reach: float) -> tuple[slice, slice]:
        """Rows and columns of the frame that a sprite of radius `reach` at `pose` can touch."""
        x, y, reach = (pose.x - self.left) * self.zoom, (pose.y - self.top) * self.zoom, reach * self.zoom + 2
        rows = slice(max(0, int(y - reach)), max(0, int(y + reach) + 1))
        return rows, slice(max(0, int(x - reach)), max(0, int(x + reach) + 1))


# --- drawing one instant -----------------------------------------------------------------------------------


def sprite_places(sprite: Sprite, pose: Pose, x: Array, y: Array) -> tuple[Array, Array]:
    """Which pixel (u, v) of the sprite is seen at each place (x, y) of the scene."""
    dx, dy = (x - pose.x) / pose.scale, (y - pose.y) / pose.scale
    cos, sin = float(np.cos(pose.angle)), float(np.sin(pose.angle))
    u, v = dx * cos + dy * sin, dy * cos - dx * sin
    height, width = sprite.paint.shape[:2]
    if pose.swing is not None:  # a wave runs down the body and grows towards the tail
        behind = np.clip(0.5 - u / width, 0, 1)
        v = v - 26 * behind**1.6 * np.sin(pose.swing - 4.2 * behind)
    return u + (width - 1) / 2, v + (height - 1) / 2


def look_up(picture: Array, u: Array, v: Array) -> Array:
    """The picture's values at the places (u, v), nothing outside of it."""
    places = u.astype(np.float32), v.astype(np.float32)
    return np.asarray(cv2.remap(picture, *places, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT), np.float32)


def lit(colour: Array, normal: Array, angle: float, shine: float) -> Array:
    """Colour of a surface under the sun and the sky; `normal` is turned with the sprite, the sun is not."""
    cos, sin = float(np.cos(angle)), float(np.sin(angle))
    nx, ny = normal[..., 0] * cos - normal[..., 1] * sin, normal[..., 0] * sin + normal[..., 1] * cos
    nz = np.sqrt(np.clip(1 - nx**2 - ny**2, 0, 1))
    facing = np.clip(nx * SUN[0] + ny * SUN[1] + nz * SUN[2], 0, 1)
    mirror = np.add(SUN, (0, 0, 1))  # a surface that leans halfway between sun and camera shows the sun
    mirror /= np.linalg.norm(mirror)
    gleam = shine * np.clip(nx * mirror[0] + ny * mirror[1] + nz * mirror[2], 0, 1) ** 40
    return np.asarray(colour * (0.48 + 0.20 * nz + 0.54 * facing)[..., None] + gleam[..., None], np.float32)


class Canvas:
    """The picture of one instant under the brush, and how much of every pixel each object covers."""

    def __init__(self, view: View, picture: Array) -> None:
        self.view = view
        self.picture = picture
        self.coverage: Array = np.zeros((HEIGHT, WIDTH, len(CLICKS)), np.float32)
        self.area: Array = np.zeros(len(CLICKS))  # of each object, as if nothing hid it

    def draw(self, sprite: Sprite, pose: Pose, x: Array, y: Array, object_idx: int | None = None) -> None:
        """Paint a sprite seen through the places (x, y), and hide what it covers."""
        window = self.view.window(pose, pose.scale * 0.62 * max(sprite.paint.shape))
        u, v = sprite_places(sprite, pose, x[window], y[window])
        paint = look_up(sprite.paint, u, v)
        alpha = paint[..., 3]
        colour = lit(paint[..., :3], look_up(sprite.normal, u, v), pose.angle, sprite.shine)
        self.picture[window] = mix(self.picture[window], colour, alpha)
        self.coverage[window] *= 1 - alpha[..., None]
        if object_idx is not None:
            self.coverage[..., object_idx][window] += alpha
            self.area[object_idx] = alpha.sum()


def shadow(view: View, casters: list[tuple[Sprite, Pose]], depth: float, softness: float) -> Array:
    """How much light the casters take from what lies `depth` scene pixels below them."""
    x, y = view.x[::4, ::4], view.y[::4, ::4]  # coarse: it is blurred anyway
    light = np.ones_like(x)
    for sprite, pose in casters:
        u, v = sprite_places(sprite, pose, x + depth * SUN[0], y + depth * SUN[1])
        light *= 1 - look_up(sprite.paint[..., 3], u, v)
    return enlarge(blur(1 - light, softness / 4), WIDTH, HEIGHT)


def caustics(waves: list[Wave], view: View, time: float) -> Array:
    """Light on the bed, about 1 on average: the surface bends every sunbeam, so that it lands elsewhere."""
    margin, step = 40, 0.7  # beams from outside of the frame land in it too
    x, y = np.meshgrid(
        np.arange(-margin, WIDTH + margin, step, dtype=np.float32),
        np.arange(-margin, HEIGHT + margin, step, dtype=np.float32),
    )
    coarse = surface_slope(waves, x[::4, ::4] + view.left, y[::4, ::4] + view.top, time)
    slope_x, slope_y = (enlarge(slope, x.shape[1], x.shape[0]) for slope in coarse)
    rows, columns = HEIGHT // 2, WIDTH // 2
    row = np.floor((y - FOCUS * slope_y) / 2).astype(int)
    column = np.floor((x - FOCUS * slope_x) / 2).astype(int)
    kept = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
    beams = np.bincount((row * columns + column)[kept], minlength=rows * columns).reshape(rows, columns)
    return enlarge(blur(beams * (step / 2) ** 2, 1.0), WIDTH, HEIGHT)


def render_instant(scene: Scene, time: float, sunlight: Array) -> Canvas:
    """Draw the film at one instant, from the bed of the pond up to what floats on it."""
    view = View.at(time)
    coarse = surface_slope(scene.waves, view.x[::2, ::2], view.y[::2, ::2], time)
    slope_x, slope_y = (enlarge(slope, WIDTH, HEIGHT) for slope in coarse)
    under_x, under_y = view.x + REFRACTION * slope_x, view.y + REFRACTION * slope_y
    koi, duck = koi_pose(time), duck_pose(time)
    pads = [(sprite, afloat(pose, time)) for sprite, pose in scene.pads]

    canvas = Canvas(view, look_up(scene.bed, under_x + BED_MARGIN, under_y + BED_MARGIN))
    canvas.picture *= (1 - 0.55 * shadow(view, [(scene.koi, koi)], depth=34, softness=9))[..., None]
    canvas.draw(scene.koi, koi, under_x, under_y, object_idx=0)

    shade = shadow(view, [*pads, (scene.duck, duck)], depth=46, softness=9)
    canvas.picture *= ((0.60 + 0.42 * np.minimum(sunlight, 3)) * (1 - 0.40 * shade))[..., None]
    canvas.picture = canvas.picture * WATER_FILTER + WATER_HAZE
    _reflect_sky(canvas, scene.clouds, slope_x, slope_y)

    for sprite, pose in pads:
        canvas.draw(sprite, pose, view.x, view.y)
    lotus, place = scene.lotus
    canvas.draw(lotus, afloat(place, time), view.x, view.y)
    canvas.draw(scene.duck, duck, view.x, view.y, object_idx=1)
    return canvas


def _reflect_sky(canvas: Canvas, clouds: Array, slope_x: Array, slope_y: Array) -> None:
    """Lay the sky's faint mirror image and the sun's glints on the water."""
    view = canvas.view
    mirrored = look_up(clouds, view.x + 240 * slope_x + BED_MARGIN, view.y + 240 * slope_y + BED_MARGIN)
    glint = smoothstep(0.19, 0.27, -(slope_x * SUN[0] + slope_y * SUN[1]))
    canvas.picture = mix(canvas.picture, (0.74, 0.84, 0.92), 0.05 + 0.16 * mirrored) + 0.5 * glint[..., None]


# --- the film ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """One finished frame: its RGB picture, its label map, and the visible share of each object."""

    picture: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    visible: Array


def render_frames(scene: Scene) -> Iterator[Frame]:
    """Draw all frames; each is the mean of a few instants while the shutter is open."""
    x, y = local_grid(WIDTH, HEIGHT)
    vignette = 1 - 0.22 * (np.hypot(x / WIDTH, y / HEIGHT) / 0.71) ** 2.5
    for frame_idx in range(FRAME_COUNT):
        start = frame_idx / FRAME_RATE
        sunlight = caustics(scene.waves, View.at(start), start)
        opening = SHUTTER_OPEN / FRAME_RATE / SHUTTER_SAMPLES
        instants = [render_instant(scene, start + i * opening, sunlight) for i in range(SHUTTER_SAMPLES)]
        picture = np.mean([instant.picture for instant in instants], axis=0)
        coverage = np.mean([instant.coverage for instant in instants], axis=0)
        area = np.mean([instant.area for instant in instants], axis=0)

        grain = np.random.default_rng((7, frame_idx)).normal(0, 0.009, (HEIGHT, WIDTH, 1))
        exposed = np.clip(picture * vignette[..., None] + grain, 0, 1)
        labels = np.where(coverage.max(axis=2) > 0.5, coverage.argmax(axis=2) + 1, 0)
        visible = np.minimum(coverage.sum(axis=(0, 1)) / area, 1).astype(np.float32)
        yield Frame(np.rint(exposed * 255).astype(np.uint8), labels.astype(np.uint8), visible)


def compose_sound() -> Array:
    """A few soft bell tones over quiet lapping water, mono, as long as the film."""
    count = FRAME_COUNT * AUDIO_RATE // FRAME_RATE
    time = np.arange(count) / AUDIO_RATE
    bells = np.zeros(count)
    for start, pitch in ((0.1, 293.66), (0.8, 440.0), (1.4, 369.99), (2.1, 587.33), (2.6, 440.0)):
        since = np.clip(time - start, 0, None)
        bells += np.sin(2 * np.pi * pitch * since) * np.exp(-2.2 * since) * (1 - np.exp(-60 * since))
    hiss = np.random.default_rng(8).normal(0, 1, count + 400)
    lapping = np.convolve(hiss, np.hanning(401) / 20, mode="valid") * (1.3 + np.sin(2 * np.pi * 0.7 * time))
    fade = np.clip(np.minimum(time, time[-1] - time) / 0.25, 0, 1)
    return np.asarray((0.07 * bells + 0.010 * lapping) * fade, np.float32)


def write_clip(path: Path, pictures: Iterator[NDArray[np.uint8]]) -> None:
    """Encode the frames as H.264 and the sound as AAC."""
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        video = container.add_stream("libx264", rate=FRAME_RATE, options={"crf": "28", "preset": "slower"})
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        context = video.codec_context
        context.colorspace = context.color_primaries = context.color_trc = 1  # BT.709; players guess otherwise
        context.color_range = 1  # 16 to 235
        audio = container.add_stream("aac", rate=AUDIO_RATE, layout="mono")
        audio.bit_rate = 64_000
        for frame_idx, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
            frame.pts, frame.time_base = frame_idx, Fraction(1, FRAME_RATE)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        sound = av.AudioFrame.from_ndarray(compose_sound()[None], format="fltp", layout="mono")
        sound.sample_rate, sound.pts = AUDIO_RATE, 0
        container.mux(audio.encode(sound))
        container.mux(audio.encode(None))


def main(folder: Path) -> None:
    """Write `clip.mp4` and `clip_masks.npz` into the folder."""
    labels: list[NDArray[np.uint8]] = []
    visible: list[Array] = []

    def pictures() -> Iterator[NDArray[np.uint8]]:
        for frame in render_frames(build_scene()):
            labels.append(frame.labels)
            visible.append(frame.visible)
            yield frame.picture

    write_clip(folder / "clip.mp4", pictures())
    np.savez_compressed(
        folder / "clip_masks.npz",
        labels=np.stack(labels),
        visible=np.stack(visible),
        clicks=np.array(CLICKS, np.int32),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
