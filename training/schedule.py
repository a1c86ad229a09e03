"""What is trained when: image steps, then clips that get longer; prompts, learning rate and loss weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.losses import Weights
from training.rollout import Options

# Chances of the prompt kinds. A box is 40 % of the image steps: v0 took boxes for hints of place. A mask is what
# video segmentation starts from, and what clips need most.
IMAGE_KINDS = {"click": 0.34, "box": 0.40, "two": 0.10, "three": 0.10, "mask": 0.06}
CLIP_KINDS = {"click": 0.22, "box": 0.20, "two": 0.04, "three": 0.04, "mask": 0.50}

CORRECTED_SHARE = 0.15  # steps with a click on the model's own error
OLD_PROMPT_SHARE = 0.4  # clip steps that pretend to be far behind the prompted frame
OLDEST_PROMPT = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the curriculum.

    Attributes:
        begin: Share of the whole run at which it starts.
        length: Frames of a clip; 1 is images only.
        clips: Clips in a clip step.
        objects: Prompted objects in each clip.
        image_share: Share of image steps in between.
        burn_in: Frames after the first one that are run without gradient: they bring the memory to where
            errors have piled up, at a third of the price.
    """

    begin: float
    length: int
    clips: int
    objects: int
    image_share: float
    burn_in: int = 0


IMAGES, PROMPTS = 8, 6  # of an image step

FROM_SCRATCH = (
    Stage(0.0, 1, IMAGES, PROMPTS, 1.0),
    Stage(0.35, 3, 4, 3, 0.33),
    Stage(0.50, 5, 4, 3, 0.40),
    Stage(0.62, 8, 2, 4, 0.40),
    Stage(0.80, 14, 2, 3, 0.35, burn_in=6),
)
# An image step takes a quarter of a clip step's time, and the first frame limits the rest.
FROM_WEIGHTS = (
    Stage(0.0, 8, 2, 4, 0.60),
    Stage(0.35, 16, 2, 3, 0.50, burn_in=9),
)


def stage_at(stages: tuple[Stage, ...], done: float) -> Stage:
    """The stage at a share `done` of the run."""
    return [stage for stage in stages if stage.begin <= done][-1]


def learning_rate(peak: float, done: float, step: int, warm_up: int = 150) -> float:
    """Linear warm-up, flat, then linear to 2 % over the last third: a flat run can be prolonged at any time."""
    decay = 1.0 if done < 0.67 else 0.02 + 0.98 * max(0.0, (1 - done) / 0.33)
    return peak * min(1.0, (step + 1) / warm_up) * decay


def loss_weights(scratch: bool, done: float) -> Weights:
    """From scratch the masks learn together and the cross entropy is balanced at first; both fade."""
    if not scratch:
        return Weights()
    fading = max(0.0, 1 - done / 0.28)
    return Weights(mean=max(0.1, 0.7 * fading), balance=fading)


def draw_options(length: int, burn_in: int, rng: np.random.Generator) -> Options:
    """How the next step is run."""
    kinds = IMAGE_KINDS if length == 1 else CLIP_KINDS
    kind = str(rng.choice(list(kinds), p=list(kinds.values())))
    corrected = rng.random() < CORRECTED_SHARE and not (length == 1 and kind == "mask")
    first = 1 if kind == "mask" else 0
    frame = int(rng.integers(first, length)) if corrected else None
    age = int(rng.integers(1, OLDEST_PROMPT)) if length > 1 and rng.random() < OLD_PROMPT_SHARE else 0
    return Options(kind, True, min(burn_in, int(rng.integers(0, burn_in + 1))), age, frame)
