"""Everything a run needs to go on after it was killed, written so that a half-written file can never be read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Sam2VideoConfig, Sam2VideoModel

from training.network import tie_positions

LAST, BEST = "last.pt", "best.pt"


class Ema:
    """A running mean of a network's weights; young means forget faster."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weights = {name: tensor.detach().clone().float() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves the mean towards the network's weights."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        mine, theirs = [], []
        for name, tensor in model.state_dict().items():
            mine.append(self.weights[name])
            theirs.append(tensor.detach())
        torch._foreach_lerp_(mine, theirs, 1 - decay)


@dataclass
class Progress:
    """Where a run is.

    Attributes:
        step: Optimiser steps done.
        seconds: Time spent training, over all starts.
        starts: How often it was started; a start draws new data.
        best: Best overall validation number so far.
        since_eval: Seconds of training since the last evaluation.
    """

    step: int = 0
    seconds: float = 0.0
    starts: int = 0
    best: float = 0.0
    since_eval: float = 0.0


def save(
    path: Path,
    model: nn.Module,
    ema: Ema,
    optimisers: list[torch.optim.Optimizer],
    progress: Progress,
    config: dict[str, Any],
) -> None:
    """Writes a checkpoint to a temporary name, then renames it."""
    state = {
        "config": config,
        "model": model.state_dict(),
        "ema": ema.weights,
        "ema_steps": ema.steps,
        "optimisers": [optimiser.state_dict() for optimiser in optimisers],
        "progress": vars(progress),
        "torch_rng": torch.get_rng_state(),
    }
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    temporary.replace(path)


def restore(path: Path, model: nn.Module, ema: Ema, optimisers: list[torch.optim.Optimizer]) -> Progress:
    """Puts a checkpoint back in place."""
    state = torch.load(path, map_location=next(model.parameters()).device, weights_only=True)
    model.load_state_dict(state["model"])
    ema.weights = {name: tensor.float() for name, tensor in state["ema"].items()}
    ema.steps = state["ema_steps"]
    for optimiser, own in zip(optimisers, state["optimisers"], strict=True):
        optimiser.load_state_dict(own)
    torch.set_rng_state(state["torch_rng"].cpu())
    return Progress(**state["progress"])


def load_averaged(path: Path) -> Sam2VideoModel:
    """The network of a checkpoint, with its averaged weights in float32."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = Sam2VideoModel(Sam2VideoConfig.from_dict(state["config"]))
    model.load_state_dict(state["ema"])
    return tie_positions(model)


def seed_everything(seed: int) -> None:
    """Seeds Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
