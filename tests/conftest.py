"""What several tests share: the built-in model, and the example clip with its true masks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import sam2track

EXAMPLES = Path(__file__).parent.parent / "examples"


class ExampleMasks(NamedTuple):
    """The truth about the example clip.

    Attributes:
        labels: (frames, height, width) uint8: 0 background, 1 the koi, 2 the duck.
        clicks: (2, 2) int32: (x, y) on frame 0, one an object.
    """

    labels: NDArray[np.uint8]
    clicks: NDArray[np.int32]


@pytest.fixture(scope="session")
def nano() -> sam2track.Model:
    """The built-in model, on one CPU thread: on a busy machine several wait for each other, three times as long."""
    return sam2track.load("nano", device="cpu", num_threads=1)


@pytest.fixture(scope="session")
def example_clip() -> Path:
    """The path of the example clip; not to be written to."""
    return EXAMPLES / "clip.mp4"


@pytest.fixture(scope="session")
def example_masks() -> ExampleMasks:
    """The true masks of the example clip."""
    with np.load(EXAMPLES / "clip_masks.npz") as clip:
        return ExampleMasks(clip["labels"], clip["clicks"])
