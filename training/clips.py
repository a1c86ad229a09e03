"""Synthesises short clips with the exact mask of every object: moving actors, a moving camera, a camera's faults."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from training.actors import Actor, Affine, Path, bounds, photo_crop, rotation, translation, warp
from training.faults import Faults
from training.looks import harmonise, make_looks, random_blob
from training.sprites import Library, Picture

Rng = np.random.Generator

NOTHING = -1
# Width to height of the filmed picture, which the input squeezes into a square.
ASPECTS = (0.5625, 1.0, 1.3333, 1.7778)
ASPECT_SHARES = (0.08, 0.2, 0.17, 0.55)
REGION = 100  # label of the background region that serves as a target
# What a target must show on frame 0: least share of the picture, least share of itself. A tenth of the clips is hard.
USUAL, HARD, HARD_SHARE = (0.008, 0.5), (0.004, 0.1), 0.1
LEAVING, CROSSED = 0.22, 0.23  # shares of clips whose main target leaves, or is crossed by something


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip and its truth.

    Attributes:
        frames: [T, S, S, 3] RGB.
        labels: [T, S, S] int8: which object is seen at a pixel, or NOTHING.
        candidates: Labels of objects that are large enough on frame 0 to be prompted; the main target first.
    """

    frames: NDArray[np.uint8]
    labels: NDArray[np.int8]
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Camera:
    """A smooth hand-held camera: pan, zoom, roll, shake."""

    pan: tuple[float, float]
    zoom: float
    roll: float
    shake: float
    size: int

    def at(self, time: float, jitter: NDArray[np.float64]) -> Affine:
        """The map from the world (frame 0's pixels) to the frame's pixels."""
        middle = self.size / 2
        scale = np.eye(3)
        scale[0, 0] = scale[1, 1] = np.exp(np.clip(self.zoom * time, -0.25, 0.6))
        moved = translation(middle - self.pan[0] * time + jitter[0], middle - self.pan[1] * time + jitter[1])
        return moved @ rotation(self.roll * time) @ scale @ translation(-middle, -middle)


def make_clip(library: Library, length: int, size: int, rng: Rng, leaving: float = LEAVING) -> Clip:
    """One random clip with at least one object that can be prompted on frame 0; `leaving` of them lose their target."""
    while True:
        clip = _attempt(library, length, size, rng, leaving)
        if clip is not None:
            return clip


def _attempt(library: Library, length: int, size: int, rng: Rng, leaving: float) -> Clip | None:
    """A random clip, or None if its main target can hardly be seen on frame 0."""
    times = _times(length, rng)
    big = int(size * 1.5)
    aspect = float(rng.choice(ASPECTS, p=ASPECT_SHARES))
    scene = _scene(library, big, aspect, rng)
    actors = _cast(library, scene, times, size, aspect, leaving, rng)
    order = _painting_order(len(actors), rng)
    region = _region(scene, rng) if rng.random() < 0.08 else None
    camera = _camera(size, actors[0].path.velocity, rng)
    faults = Faults.draw(rng)
    least, shown = HARD if rng.random() < HARD_SHARE else USUAL
    frames, labels, candidates = [], [], []
    for index, time in enumerate(times):
        view = camera.at(time, rng.normal(0, camera.shake, 2) if index else np.zeros(2))
        frame, label = _paint(scene, region, actors, order, view, time, size)
        if index == 0:
            wholes = {at: _whole_area(actor, view, time) for at, actor in enumerate(actors)} | {REGION: 0.0}
            areas = {at: int((label == at).sum()) for at in wholes}
            candidates = [at for at in wholes if areas[at] > max(least * size**2, shown * wholes[at])]
            if REGION in candidates:
                candidates.remove(REGION)
                candidates.insert(0, REGION)
            if not candidates or candidates[0] not in (0, REGION):
                return None
        frames.append(faults.apply(frame, time, rng))
        labels.append(label)
    return Clip(np.stack(frames), np.stack(labels), tuple(candidates))


def _painting_order(count: int, rng: Rng) -> list[int]:
    """Back to front. The last of the cast may be there to pass before the main target; mostly nothing else hides it."""
    others = list(range(1, count))
    if rng.random() < 0.3 or not others:
        return [0, *others]
    return [*others[:-1], 0, others[-1]] if rng.random() < 0.5 else [*others, 0]


def _whole_area(actor: Actor, view: Affine, time: float) -> float:
    """Pixels that an actor would cover if nothing hid it."""
    picture = actor.looks.at(time)
    where = view @ actor.path.at(time, picture.shape[:2])
    return float(abs(np.linalg.det(where[:2, :2])) * (picture[..., 3] > 127).sum())


def _scene(library: Library, size: int, aspect: float, rng: Rng) -> Picture:
    """A photograph's crop, sometimes with shapes of other photographs in it: clutter with strong borders."""
    scene = photo_crop(library, (size, size), rng, aspect)
    if rng.random() < 0.25:
        for _ in range(int(rng.integers(1, 5))):
            side = int(size * rng.uniform(0.2, 0.9))
            top, left = (int(at) for at in rng.uniform(-0.3, 0.8, 2) * size)
            where = translation(left, top)
            patch = np.dstack([photo_crop(library, (side, side), rng), random_blob(side, rng)])
            box = bounds(where, (side, side), (size, size))
            if box is not None:
                part = warp(patch, where, box)
                target = scene[box[1] : box[3], box[0] : box[2]]
                target[:] = np.where(part[..., 3:] > 127, part[..., :3], target)
    return scene


def _times(length: int, rng: Rng) -> NDArray[np.float64]:
    """Moments of the frames: a stride for the clip (slow to fast) with jitter; sometimes frames are dropped."""
    stride = float(np.exp(rng.normal(-0.2, 0.5)))
    steps = stride * rng.uniform(0.8, 1.2, length)
    if rng.random() < 0.1:
        steps *= 1 + 2 * (rng.random(length) < 0.2)
    return np.concatenate([[0.0], np.cumsum(steps[1:])])


def _cast(
    library: Library,
    scene: Picture,
    times: NDArray[np.float64],
    size: int,
    aspect: float,
    leaving: float,
    rng: Rng,
) -> list[Actor]:
    """The actors, in painting order; the first one is the main target (drawn first: others may pass before it)."""
    count = int(rng.choice([1, 2, 3, 4, 5], p=[0.25, 0.3, 0.25, 0.12, 0.08]))
    actors: list[Actor] = []
    blend = rng.uniform(0, 0.75) if rng.random() < 0.5 else 0.0
    shadow = (rng.uniform(-14, 14), rng.uniform(2, 16), rng.uniform(0.2, 0.6)) if rng.random() < 0.3 else None
    for index in range(count):
        alike = actors and rng.random() < 0.22
        looks = actors[0].looks if alike else harmonise(make_looks(library, rng), scene, blend)
        path = _path(looks.body.shape[:2], size, index == 0, rng)
        squash = (aspect**-0.5, aspect**0.5)
        actors.append(Actor(looks, replace(path, squash=squash), shadow))
    if len(times) >= 3:
        _drama(library, actors, scene, times, size, leaving, rng)
    return actors


def _drama(
    library: Library,
    actors: list[Actor],
    scene: Picture,
    times: NDArray[np.float64],
    size: int,
    leaving: float,
    rng: Rng,
) -> None:
    """Makes the main target leave (and often return), or sends something across it; in place."""
    last = float(times[-1])
    kind = rng.random()
    if kind < leaving:
        begin = rng.uniform(0.25, 0.8) * last
        end = begin + rng.uniform(0.2, 0.5) * last if rng.random() < 0.7 else 10 * last
        angle = rng.uniform(0, 2 * np.pi)
        far = size * rng.uniform(1.1, 1.5)
        away = (max(begin, 1.6), end, far * np.cos(angle), far * np.sin(angle))
        actors[0] = actors[0].moved(replace(actors[0].path, away=away))
    elif kind < leaving + CROSSED:
        target = actors[0].path
        moment = rng.uniform(0.2, 0.9) * last
        speed = rng.uniform(0.4, 1.6) * size / max(last, 2.0)
        angle = rng.uniform(0, 2 * np.pi)
        velocity = (speed * np.cos(angle), speed * np.sin(angle))
        meeting = target.at(moment, (0, 0))[:2, 2]
        looks = harmonise(make_looks(library, rng), scene, rng.uniform(0, 0.8))
        bigger = float(np.clip(target.log_size[0] + rng.uniform(-0.2, 0.7), -0.7, 0.7))
        start = (meeting[0] - velocity[0] * moment, meeting[1] - velocity[1] * moment)
        path = Path(start, velocity, log_size=(bigger, 0.0), turn=(rng.uniform(-1, 1), 0.0), squash=target.squash)
        actors.append(Actor(looks, path))


def _path(picture_size: tuple[int, int], size: int, main: bool, rng: Rng) -> Path:
    """A random path; fast and slow, straight and swaying, approaching and receding."""
    still = rng.random() < 0.15
    speed = 0.0 if still else rng.exponential(6.0)
    angle = rng.uniform(0, 2 * np.pi)
    wanted = size * np.exp(rng.uniform(np.log(0.3 if main else 0.15), np.log(1.0)))  # longest side in the frame
    aspect = np.exp(rng.normal(0, 0.15))
    margin = 0.22 if main else 0.08
    sway = (rng.exponential(6), rng.exponential(6), rng.exponential(0.15), rng.exponential(0.05))
    return Path(
        start=(rng.uniform(margin, 1 - margin) * size, rng.uniform(margin, 1 - margin) * size),
        velocity=(speed * np.cos(angle), speed * np.sin(angle)),
        sway=(0.0, 0.0, 0.0, 0.0) if still else sway,
        sway_pace=rng.uniform(0.2, 1.2),
        sway_phase=tuple(rng.uniform(0, 2 * np.pi, 4)),
        turn=(rng.normal(0, 0.4), 0.0 if still else rng.normal(0, 0.06)),
        log_size=(float(np.log(wanted / max(picture_size))), 0.0 if still else rng.normal(0, 0.025)),
        shape=np.array([[aspect, rng.normal(0, 0.12)], [0.0, 1 / aspect]]),
    )


def _camera(size: int, target: tuple[float, float], rng: Rng) -> Camera:
    """Still, panning, or following the main target, as a film of something that runs does."""
    moves = rng.random() < 0.8
    pan = rng.normal(0, 4, 2) * moves
    if rng.random() < 0.35:
        pan = np.array(target) * rng.uniform(0.7, 1.1) + rng.normal(0, 0.5, 2)
    return Camera(
        (float(pan[0]), float(pan[1])),
        float(rng.normal(0, 0.012) * moves),
        float(rng.normal(0, 0.008) * moves),
        float(rng.exponential(1.2) * (rng.random() < 0.5)),
        size,
    )


def _region(scene: Picture, rng: Rng) -> NDArray[np.uint8] | None:
    """One coherent region of the photograph itself: a target with a real border and a real texture."""
    small = cv2.GaussianBlur(cv2.resize(scene, (96, 96), interpolation=cv2.INTER_AREA), (3, 3), 0)
    lab = cv2.cvtColor(small, cv2.COLOR_RGB2LAB).reshape(-1, 3).astype(np.float32)
    rows, columns = np.mgrid[:96, :96].astype(np.float32)
    place = np.stack([rows, columns], -1).reshape(-1, 2) * rng.uniform(0.5, 1.5)
    criteria = (cv2.TERM_CRITERIA_MAX_ITER, 6, 1.0)
    cv2.setRNGSeed(int(rng.integers(1 << 30)))
    data, count = np.hstack([lab, place]), int(rng.integers(5, 12))
    _, classes, _ = cv2.kmeans(data, count, None, criteria, 1, cv2.KMEANS_RANDOM_CENTERS)
    classes = cv2.medianBlur(classes.reshape(96, 96).astype(np.uint8), 5)
    row, column = rng.integers(30, 66, 2)  # inside of the part that frame 0 shows
    _, parts = cv2.connectedComponents((classes == classes[row, column]).astype(np.uint8))
    region = (parts == parts[row, column]).astype(np.uint8)
    if not 0.01 < region.mean() < 0.35:
        return None
    return (cv2.resize(region * 255, scene.shape[1::-1], interpolation=cv2.INTER_LINEAR) > 127).astype(np.uint8)


def _paint(
    scene: Picture,
    region: NDArray[np.uint8] | None,
    actors: list[Actor],
    order: list[int],
    view: Affine,
    time: float,
    size: int,
) -> tuple[Picture, NDArray[np.int8]]:
    margin = (scene.shape[0] - size) / 2
    ground = (view @ translation(-margin, -margin))[:2]
    frame = cv2.warpAffine(scene, ground, (size, size), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    label = np.full((size, size), NOTHING, np.int8)
    if region is not None:
        seen = cv2.warpAffine(region, ground, (size, size), flags=cv2.INTER_NEAREST)
        label[seen > 0] = REGION
    for index in order:
        actor = actors[index]
        picture = actor.looks.at(time)
        where = view @ actor.path.at(time, picture.shape[:2])
        box = bounds(where, picture.shape[:2], (size, size))
        if box is None:
            continue
        if actor.shadow is not None:
            _cast_shadow(frame, picture, where, actor.shadow)
        left, top, right, bottom = box
        above = warp(picture, where, box)
        alpha = above[..., 3:].astype(np.uint16)
        below = frame[top:bottom, left:right]
        frame[top:bottom, left:right] = (above[..., :3] * alpha + below * (255 - alpha)) // 255
        label[top:bottom, left:right][above[..., 3] > 127] = index
    return frame, label


def _cast_shadow(frame: Picture, picture: Picture, where: Affine, shadow: tuple[float, float, float]) -> None:
    moved = translation(shadow[0], shadow[1]) @ where
    box = bounds(moved, picture.shape[:2], frame.shape[:2])
    if box is None:
        return
    left, top, right, bottom = box
    alpha = warp(np.ascontiguousarray(picture[..., 3]), moved, box)
    dark = cv2.GaussianBlur(alpha, (9, 9), 0)[..., None].astype(np.uint16) * int(shadow[2] * 255) // 255
    frame[top:bottom, left:right] = frame[top:bottom, left:right] * (255 - dark) // 255
