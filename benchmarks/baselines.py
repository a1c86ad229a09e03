"""What tracking without any training reaches: the floor that the built-in model has to be above.

    python benchmarks/baselines.py DAVIS --dataset davis2016

Two classics with OpenCV, from the first true mask: dense optical flow (DIS) that carries the mask from frame to
frame, and back-projection of the object's colour histogram near where the object was. Scored as `sam2track eval`
scores a model, on the same frames.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sam2track.evaluation.datasets import VideoSequence, read_sequences
from sam2track.evaluation.metrics import contour_accuracy, region_similarity

Mask = NDArray[np.bool_]
Rgb = NDArray[np.uint8]
Baseline = Callable[[list[Rgb], Mask], Iterator[Mask]]

HISTOGRAM_BINS = (16, 16, 8)
SEARCH_PIXELS = 24  # how far the object is looked for around where it was


def still(frames: list[Rgb], mask: Mask) -> Iterator[Mask]:
    """The first mask on every frame."""
    for _ in frames:
        yield mask


def optical_flow(frames: list[Rgb], mask: Mask) -> Iterator[Mask]:
    """Each frame looks up where its pixels were on the frame before."""
    flow_of = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    soft = mask.astype(np.float32)
    y, x = np.mgrid[: mask.shape[0], : mask.shape[1]].astype(np.float32)
    before = cv2.cvtColor(frames[0], cv2.COLOR_RGB2GRAY)
    yield mask
    for frame in frames[1:]:
        now = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        back = flow_of.calc(now, before, None)
        soft = cv2.remap(soft, x + back[..., 0], y + back[..., 1], cv2.INTER_LINEAR)
        before = now
        yield soft > 0.5


def colour_histogram(frames: list[Rgb], mask: Mask) -> Iterator[Mask]:
    """Pixels near the last mask whose colour is more the object's than the background's on the first frame."""

    def bins(rgb: Rgb) -> tuple[NDArray[np.int64], ...]:
        hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV_FULL).astype(np.int64)
        return tuple(hsv[..., axis] * count // 256 for axis, count in enumerate(HISTOGRAM_BINS))

    where = bins(frames[0])
    inside, outside = np.ones(HISTOGRAM_BINS), np.ones(HISTOGRAM_BINS)
    np.add.at(inside, tuple(axis[mask] for axis in where), 1)
    np.add.at(outside, tuple(axis[~mask] for axis in where), 1)
    likelihood = inside / inside.sum() / (inside / inside.sum() + outside / outside.sum())
    reach = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * SEARCH_PIXELS + 1,) * 2)
    yield mask
    for frame in frames[1:]:
        near = cv2.dilate(mask.astype(np.uint8), reach) > 0
        score = cv2.GaussianBlur(likelihood[bins(frame)].astype(np.float32), (0, 0), 2)
        found = near & (score > 0.5)
        mask = found if found.any() else mask
        yield found


BASELINES: dict[str, Baseline] = {
    "first mask, still": still,
    "optical flow (DIS)": optical_flow,
    "colour histogram": colour_histogram,
}


def score(sequence: VideoSequence, baseline: Baseline) -> tuple[float, float]:
    """Mean J and F over the objects, without the first and the last frame."""
    frames = [sequence.frame(idx) for idx in range(len(sequence.frames))]
    truth = [sequence.truth(idx) or {} for idx in range(len(frames))]
    scores = []
    for object_id, first in truth[0].items():
        empty = np.zeros_like(first)
        pairs = [
            (found, known.get(object_id, empty)) for found, known in zip(baseline(frames, first), truth, strict=True)
        ][1:-1]
        scores.append(
            [np.mean([measure(*pair) for pair in pairs]) for measure in (region_similarity, contour_accuracy)]
        )
    j, f = np.mean(scores, axis=0)
    return float(j), float(f)


def main() -> None:
    """Scores every baseline on every sequence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--dataset", default="davis", choices=["davis", "davis2016", "davis2017"])
    parser.add_argument("--split")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sequences = read_sequences(arguments.root, arguments.dataset, arguments.split)
    result: dict[str, Any] = {
        name: {sequence.name: score(sequence, baseline) for sequence in sequences}
        for name, baseline in BASELINES.items()
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for name, scores in result.items():
        j, f = np.mean(list(scores.values()), axis=0)
        print(f"\n{name}: J&F {(j + f) / 2:.3f}, J {j:.3f}, F {f:.3f}")
        for sequence, (one_j, one_f) in scores.items():
            print(f"  {sequence:24} J {one_j:.3f}  F {one_f:.3f}")


if __name__ == "__main__":
    main()
