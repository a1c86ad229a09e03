"""Tracks a sequence from its first true masks, and scores what comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from sam2track.clip import Clip
from sam2track.errors import DatasetError
from sam2track.evaluation.datasets import VideoSequence
from sam2track.evaluation.metrics import contour_accuracy, decay, region_similarity
from sam2track.models import Model
from sam2track.options import TrackingOptions
from sam2track.tracker import Tracker
from sam2track.types import BoolArray, ObjectResult, VideoFrame

PromptKind: TypeAlias = Literal["mask", "box", "click", "user"]
Masks: TypeAlias = dict[int, BoolArray]


@dataclass(frozen=True, slots=True)
class ObjectScore:
    """One object of a sequence; means over its frames.

    Attributes:
        object_id: As in the data set.
        frames: How many were scored.
        j: Region similarity, 0 to 1.
        f: Contour accuracy, 0 to 1.
        j_decay: First quarter less last quarter.
        f_decay: The same of the contour.
    """

    object_id: int
    frames: int
    j: float
    f: float
    j_decay: float
    f_decay: float


@dataclass(frozen=True, slots=True)
class SequenceScore:
    """One sequence.

    Attributes:
        name: Of the sequence.
        objects: A score an object.
        frames_per_second: Reading of pictures and scoring not included.
    """

    name: str
    objects: tuple[ObjectScore, ...]
    frames_per_second: float

    @property
    def j(self) -> float:
        """Mean over the objects."""
        return float(np.mean([score.j for score in self.objects]))

    @property
    def f(self) -> float:
        """Mean over the objects."""
        return float(np.mean([score.f for score in self.objects]))


def evaluate(
    model: Model, sequence: VideoSequence, kind: PromptKind, options: TrackingOptions | None = None, *, rounds: int = 3
) -> tuple[SequenceScore, list[Masks]]:
    """Tracks a sequence and scores it.

    Every object is prompted on the first frame that shows it. The first and the last frame that have
    annotations are not scored, as the benchmarks demand.

    Args:
        model: From `load`.
        sequence: Frames and true masks.
        kind: What the model is told of an object: its true mask there, the mask's box, one click at the
            interior-most point, or "user": that click, and after each pass a correcting click in the middle of the
            largest mistake on the worst frame.
        options: Of the tracker.
        rounds: Corrections of the simulated user, at most.

    Returns:
        The score, and the masks by object of every frame.
    """
    truth = [sequence.truth(idx) for idx in range(len(sequence.frames))]
    if not any(truth):
        raise DatasetError(f"{sequence.name} has no masks")
    if kind == "user":
        masks, seconds = _track_as_user(model, sequence, truth, options, rounds)
    else:
        masks, seconds = _track(model, sequence, truth, kind, options)
    score = SequenceScore(sequence.name, tuple(_score(truth, masks)), len(masks) / max(seconds, 1e-9))
    return score, masks


def interior_point(mask: BoolArray) -> tuple[int, int]:
    """(x, y) of the pixel farthest from the mask's outside; the frame's border counts as outside."""
    import cv2

    padded = np.pad(mask.astype(np.uint8), 1)
    distance = cv2.distanceTransform(padded, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    y, x = np.unravel_index(int(np.argmax(distance)), distance.shape)
    return int(x), int(y)


def _prompt(mask: BoolArray, kind: PromptKind) -> dict[str, Any]:
    if kind == "mask":
        return {"mask": mask}
    if kind == "box":
        y, x = np.nonzero(mask)
        return {"box": (int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1)}
    return {"points": [interior_point(mask)]}


def _track(
    model: Model,
    sequence: VideoSequence,
    truth: list[Masks | None],
    kind: PromptKind,
    options: TrackingOptions | None,
) -> tuple[list[Masks], float]:
    tracker = Tracker(model, options, num_frames=len(sequence.frames))
    masks: list[Masks] = []
    seconds = 0.0
    for idx, known in enumerate(truth):
        frame = VideoFrame(sequence.frame(idx), idx)
        started = time.perf_counter()
        for object_id, mask in (known or {}).items():
            if object_id not in tracker.object_ids:
                tracker.add_prompt(frame, object_id=object_id, **_prompt(mask, kind))
        found = tracker.step(frame).objects if tracker.object_ids else {}
        seconds += time.perf_counter() - started
        masks.append(without_overlap({int(str(key)): result for key, result in found.items()}))
    return masks, seconds


def _track_as_user(
    model: Model, sequence: VideoSequence, truth: list[Masks | None], options: TrackingOptions | None, rounds: int
) -> tuple[list[Masks], float]:
    frames = [sequence.frame(idx) for idx in range(len(sequence.frames))]
    clip = Clip(model, frames, options)
    for idx, known in enumerate(truth):
        for object_id, mask in (known or {}).items():
            if object_id not in clip.object_ids:
                clip.add_prompt([interior_point(mask)], object_id=object_id, frame_idx=idx)
    seconds = 0.0
    for number in range(rounds + 1):
        started = time.perf_counter()
        for _ in clip.track():
            pass
        seconds += time.perf_counter() - started
        masks = [
            without_overlap({int(str(key)): result for key, result in clip.result(idx).objects.items()})
            for idx in range(len(frames))
        ]
        if number < rounds:
            for number_of_object in clip.object_ids:
                _correct_worst(clip, int(str(number_of_object)), truth, masks)
    return masks, seconds


def _correct_worst(clip: Clip, object_id: int, truth: list[Masks | None], masks: list[Masks]) -> None:
    """A click in the middle of the largest mistake on the frame of lowest J."""
    pairs = {
        idx: (_of(masks[idx], object_id, clip.frame_size), _of(known, object_id, clip.frame_size))
        for idx, known in enumerate(truth)
        if known is not None and object_id in masks[idx]
    }
    worst = min(pairs, key=lambda idx: region_similarity(*pairs[idx]))
    found, wanted = pairs[worst]
    missed, spilt = wanted & ~found, found & ~wanted
    mistake, label = (missed, 1) if missed.sum() >= spilt.sum() else (spilt, 0)
    if mistake.any():
        clip.add_prompt([interior_point(mistake)], labels=[label], object_id=object_id, frame_idx=worst)


def without_overlap(found: dict[int, ObjectResult]) -> Masks:
    """Masks of which no two share a pixel: it goes to the object of the higher logit."""
    from sam2track.postprocess import resize_logits

    if len(found) < 2:
        return {object_id: result.mask for object_id, result in found.items()}
    size = next(iter(found.values())).mask.shape
    logits = np.stack([resize_logits(result.mask_logits, (size[0], size[1])) for result in found.values()])
    best = logits.argmax(axis=0)
    return {object_id: result.mask & (best == position) for position, (object_id, result) in enumerate(found.items())}


def _score(truth: list[Masks | None], masks: list[Masks]) -> Iterator[ObjectScore]:
    """Of every object from the frame that first shows it on, without the first and the last annotated frame."""
    annotated = {idx: known for idx, known in enumerate(truth) if known is not None}
    first_seen: dict[int, int] = {}
    for idx, known in annotated.items():
        for object_id in known:
            first_seen.setdefault(object_id, idx)
    shape = next(mask.shape for known in annotated.values() for mask in known.values())
    for object_id, first in first_seen.items():
        scored = [idx for idx in list(annotated)[1:-1] if idx >= first]
        if not scored:
            continue
        pairs = [[_of(some, object_id, shape) for some in (masks[idx], annotated[idx])] for idx in scored]
        j, f = ([measure(*pair) for pair in pairs] for measure in (region_similarity, contour_accuracy))
        yield ObjectScore(object_id, len(scored), float(np.mean(j)), float(np.mean(f)), decay(j), decay(f))


def _of(masks: Masks, object_id: int, shape: tuple[int, ...]) -> BoolArray:
    """An object's mask; an empty one if it is not seen."""
    return masks[object_id] if object_id in masks else np.zeros(shape, bool)
