"""An endless stream of training samples, made in worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.clips import REGION, Clip, make_clip
from training.prompts import prompt_sheet
from training.sprites import load_library

STRIDE = 4  # of the low-res masks that the losses compare
LEAVING = 0.35  # share of training clips whose target leaves: the object score learns from few frames


@dataclass(frozen=True, slots=True)
class Batch:
    """B clips of T frames with P prompted objects each.

    Attributes:
        frames: [B, T, S, S, 3] uint8 RGB.
        masks: [B, P, T, S/4, S/4] uint8: how much of each low-res pixel the object covers, of 255.
        first_masks: [B, P, S, S] uint8, 0 or 1: the full-size masks on frame 0.
        points: [B, P, 5, 2], as `prompts.prompt_sheet`.
        labels: [B, P, 5].
        ambiguous: [B, P] bool: only a mask tells what is meant, no click or box.
    """

    frames: Tensor
    masks: Tensor
    first_masks: Tensor
    points: Tensor
    labels: Tensor
    ambiguous: Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on a device."""
        return Batch(*(getattr(self, name).to(device, non_blocking=True) for name in self.__slots__))


class ClipStream(IterableDataset[tuple[Tensor, ...]]):
    """Samples with `objects` prompted objects each; a made clip is reused a few times, mirrored and turned anew."""

    def __init__(
        self, cache: Path, length: int, objects: int, size: int, seed: tuple[int, ...], reuse: int = 3
    ) -> None:
        self.cache, self.length, self.objects = cache, length, objects
        self.size, self.seed, self.reuse = size, seed, reuse

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        cv2.setNumThreads(1)
        torch.set_num_threads(1)
        worker = get_worker_info()
        rng = np.random.default_rng((*self.seed, worker.id if worker else 0))
        library = load_library(self.cache, held_out=False)
        capacity = max(24, 1200 // self.length)
        pool: list[Clip] = []
        while True:
            if len(pool) < 16 or rng.random() < 1 / self.reuse:
                clip = make_clip(library, self.length, self.size, rng, LEAVING)
                if len(pool) < capacity:
                    pool.append(clip)
                else:
                    pool[rng.integers(capacity)] = clip
            else:
                clip = pool[rng.integers(len(pool))]
            yield sample(augment(clip, rng), self.objects, rng)


def augment(clip: Clip, rng: np.random.Generator) -> Clip:
    """Mirrors, turns, reverses in time and swaps colour channels."""
    frames, labels, candidates = clip.frames, clip.labels, clip.candidates
    if len(frames) > 1 and rng.random() < 0.35:
        visible = [int(label) for label in np.unique(labels[-1]) if label >= 0 and (labels[-1] == label).mean() > 0.004]
        if visible:
            frames, labels, candidates = frames[::-1], labels[::-1], tuple(visible)
    if rng.random() < 0.5:
        frames, labels = frames[:, :, ::-1], labels[:, :, ::-1]
    if rng.random() < 0.1:
        frames, labels = frames[:, ::-1], labels[:, ::-1]
    if rng.random() < 0.1:
        frames, labels = frames.transpose(0, 2, 1, 3), labels.transpose(0, 2, 1)
    if rng.random() < 0.2:
        frames = frames[..., rng.permutation(3)]
    return Clip(np.ascontiguousarray(frames), np.ascontiguousarray(labels), candidates)


def sample(clip: Clip, objects: int, rng: np.random.Generator, exact: bool = False) -> tuple[Tensor, ...]:
    """Arrays of one clip, in the order of Batch's fields; the main target comes first, others at random."""
    order = [clip.candidates[0], *rng.permutation(clip.candidates[1:]).tolist()]
    chosen = [int(order[index % len(order)]) for index in range(objects)]
    masks = [clip.labels == label for label in chosen]
    sheets = [prompt_sheet(mask[0], rng, exact) for mask in masks]
    arrays = (
        clip.frames,
        np.stack([_covered(mask) for mask in masks]),
        np.stack([mask[0] for mask in masks]).astype(np.uint8),
        np.stack([points for points, _ in sheets]),
        np.stack([labels for _, labels in sheets]),
        np.array([label == REGION for label in chosen]),
    )
    return tuple(torch.from_numpy(array) for array in arrays)


def _covered(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    size = mask.shape[1] // STRIDE
    return np.stack([cv2.resize(m.astype(np.uint8) * 255, (size, size), interpolation=cv2.INTER_AREA) for m in mask])


def collate(samples: list[tuple[Tensor, ...]]) -> Batch:
    """Stacks samples."""
    return Batch(*(torch.stack(column) for column in zip(*samples, strict=True)))


def batches(stream: ClipStream, batch_size: int, workers: int) -> Iterator[Batch]:
    """Batches from worker processes, or from this one if `workers` is 0."""
    loader = DataLoader(
        stream,
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=collate,
        prefetch_factor=3 if workers else None,
        multiprocessing_context="spawn" if workers else None,  # a fork inherits OpenCV's threads' locks and hangs
    )
    return iter(loader)
