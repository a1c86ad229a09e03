"""Trains the built-in model.

    python -m training.train --out RUN --init training/nano-v1 --minutes 120
    python -m training.train --out RUN                # the same command goes on where a killed run was

RUN gets `last.pt` (to go on), `best.pt` (best on the validation set), `log.jsonl` and `curve.png`. SIGTERM saves.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Sam2VideoModel

from training.checkpoint import BEST, LAST, Ema, Progress, restore, save, seed_everything
from training.curve import draw_curve
from training.dataset import Batch, ClipStream, batches
from training.initialise import new_network
from training.losses import rollout_loss
from training.network import load_network, parameter_groups
from training.parallel import Team, start_others
from training.rollout import Options, Prediction, Rollout, mask_iou
from training.schedule import (
    FROM_SCRATCH,
    FROM_WEIGHTS,
    IMAGES,
    PROMPTS,
    Stage,
    draw_options,
    learning_rate,
    loss_weights,
    stage_at,
)
from training.sprites import load_library
from training.validate import evaluate, overall, validation_set

LOG_EVERY = 50  # steps
SAVE_EVERY = 180.0  # seconds


class Trainer:
    """One run in one folder."""

    def __init__(self, arguments: argparse.Namespace, team: Team) -> None:
        self.arguments = arguments
        self.team = team
        self.out: Path = arguments.out
        self.device = torch.device(arguments.device)
        seed_everything(arguments.seed)
        self.scratch = arguments.init is None
        self.model: Sam2VideoModel = new_network(arguments.seed) if self.scratch else load_network(arguments.init)
        self.model.to(self.device).train()
        peak = arguments.learning_rate or (1e-3 if self.scratch else 5e-4)
        self.peak = peak
        self.optimisers = make_optimisers(self.model, peak)
        self.ema = Ema(self.model, decay=0.998)
        self.progress = Progress()
        if (self.out / LAST).exists():
            self.progress = restore(self.out / LAST, self.model, self.ema, self.optimisers)
        self.progress.starts += 1
        self.rng = np.random.default_rng((arguments.seed, self.progress.starts, 1 + team.rank))
        self.validation = validation_set(arguments.cache) if team.leads else []
        self.asked = self.stopped = False  # a signal came; the whole team knows
        self.mark = time.monotonic()  # when the clock was last read
        self.recent: list[dict[str, float]] = []

    def run(self) -> None:
        """Trains until the time is over or a signal comes."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        stage: Stage | None = None
        images = self._stream(1, IMAGES, PROMPTS, salt=1)
        clips = images
        saved = time.monotonic()
        try:
            if self.progress.step == 0:
                self._evaluate()
            while not self.stopped and self.done < 1:
                if stage != (stage := stage_at(FROM_SCRATCH if self.scratch else FROM_WEIGHTS, self.done)):
                    moves = stage.length > 1
                    clips = self._stream(stage.length, stage.clips, stage.objects, salt=2) if moves else images
                    self._log({"event": "stage", **dataclasses.asdict(stage)})
                self._planned_step(stage, images, clips)
                if self.progress.since_eval > 60 * self.arguments.eval_minutes:
                    self._evaluate()
                if self.team.leads and time.monotonic() - saved > SAVE_EVERY:
                    self._save(LAST)
                    saved = time.monotonic()
            if not self.stopped:
                self._evaluate()
        except RuntimeError:
            # A signal for the whole process group also ends the workers, and torch tells it so, wherever we are.
            if not self.asked:
                raise
            self.stopped = True
        if self.team.leads:
            self._save(LAST)
        self._log({"event": "stopped" if self.stopped else "finished"})

    @property
    def done(self) -> float:
        """Share of the planned time that was trained."""
        return self.progress.seconds / (60 * self.arguments.minutes)

    def _planned_step(self, stage: Stage, images: Iterator[Batch], clips: Iterator[Batch]) -> None:
        """One step, of a kind that is the same for the whole team."""
        start = time.monotonic()
        plan = np.random.default_rng((self.arguments.seed, self.progress.starts, self.progress.step))
        is_image = plan.random() < stage.image_share
        batch = next(images if is_image else clips).to(self.device)
        waited = time.monotonic() - start
        options = draw_options(1 if is_image else stage.length, 0 if is_image else stage.burn_in, plan)
        record = self._step(batch, options)
        elapsed = time.monotonic() - start
        record |= {"seconds": elapsed, "waited": waited, f"seconds_{'image' if is_image else 'clip'}": elapsed}
        self.recent.append(record)
        if self.progress.step % LOG_EVERY == 0:
            self._log_recent()

    def _step(self, batch: Batch, options: Options) -> dict[str, float]:
        rate = learning_rate(self.peak, self.done, self.progress.step)
        for group in (group for optimiser in self.optimisers for group in optimiser.param_groups):
            group["lr"] = rate
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            predictions = Rollout(self.model, batch, options, self.rng).run()
            loss = rollout_loss(predictions, batch, options.kind, loss_weights(self.scratch, self.done))
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        self._meet()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        if torch.isfinite(norm):
            for optimiser in self.optimisers:
                optimiser.step()
            if self.team.leads:
                self.ema.update(self.model)
        self.progress.step += 1
        return {"loss": float(loss.detach()), "norm": float(norm), **_measure(predictions, batch, options)}

    def _meet(self) -> None:
        """Averages the team's gradients and moves its common clock on."""
        now = time.monotonic()
        own_clock = self.progress.seconds + now - self.mark
        self.mark = now
        clock, self.stopped = self.team.average_gradients(self.model, own_clock, self.asked)
        self.progress.since_eval += clock - self.progress.seconds
        self.progress.seconds = clock

    def _evaluate(self) -> None:
        self.progress.since_eval = 0.0
        if not self.team.leads:
            return
        start = time.monotonic()
        own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.ema.weights)
        try:
            scores = evaluate(self.model, self.validation)
        finally:
            self.model.load_state_dict(own)
        number = overall(scores)
        flat = {kind: dataclasses.asdict(score) for kind, score in scores.items()}
        self._log({"event": "eval", "overall": round(number, 4), **flat, "took": round(time.monotonic() - start, 1)})
        if number > self.progress.best:
            self.progress.best = number
            self._save(BEST)
        draw_curve(self.out / "log.jsonl", self.out / "curve.png")
        self.mark = time.monotonic()

    def _stream(self, length: int, clips: int, objects: int, salt: int) -> Iterator[Batch]:
        seed = (self.arguments.seed, self.progress.starts, self.team.rank, salt, length)
        size = self.model.config.image_size
        stream = ClipStream(self.arguments.cache, length, objects, size, seed, reuse=4 if length == 1 else 3)
        return batches(stream, self.team.share(clips), self.arguments.workers)

    def _save(self, name: str) -> None:
        config = self.model.config.to_dict()
        plain = json.loads(json.dumps(config, default=str))
        save(self.out / name, self.model, self.ema, self.optimisers, self.progress, plain)

    def _log_recent(self) -> None:
        names = sorted({name for record in self.recent for name in record})
        means = {
            name: round(float(np.mean([record[name] for record in self.recent if name in record])), 4) for name in names
        }
        self._log({"event": "train", **means, "lr": self.optimisers[0].param_groups[0]["lr"]})
        self.recent.clear()

    def _log(self, record: dict[str, Any]) -> None:
        if not self.team.leads:
            return
        head = {"step": self.progress.step, "minutes": round(self.progress.seconds / 60, 2)}
        line = json.dumps({**head, **record})
        with (self.out / "log.jsonl").open("a") as log:
            log.write(line + "\n")
        print(line, flush=True)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def make_optimisers(model: nn.Module, rate: float, weight_decay: float = 0.02) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, which learns them in fewer steps; AdamW for kernels, gains, biases, and learned inputs."""
    decayed, plain = parameter_groups(model, weight_decay)
    matrices = [parameter for parameter in decayed["params"] if parameter.dim() == 2]
    decayed["params"] = [parameter for parameter in decayed["params"] if parameter.dim() != 2]
    return [
        torch.optim.AdamW([decayed, plain], lr=rate, betas=(0.9, 0.98), fused=True),
        torch.optim.Muon(matrices, lr=rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
    ]


def _measure(predictions: list[Prediction], batch: Batch, options: Options) -> dict[str, float]:
    """IoU of the chosen masks on frame 0 and later, and how often the object score is right."""
    truth = batch.masks.flatten(0, 1).float() / 255
    everyone = torch.arange(len(truth), device=truth.device)
    measured: dict[str, list[float]] = {}
    for prediction in predictions:
        if prediction.given:
            continue
        target = truth[:, prediction.frame_idx]
        visible = target.flatten(1).sum(1) > 0.5
        right = (prediction.score.detach() > 0) == visible
        if (~visible).any():
            measured.setdefault("absent", []).append(float(right[~visible].float().mean()))
        if visible.any():
            iou = mask_iou(prediction.masks.detach()[everyone, prediction.chosen], target)[visible].mean()
            name = f"iou_{options.kind}" if prediction.frame_idx == 0 else f"iou_later_{options.kind}"
            measured.setdefault(name, []).append(float(iou))
            measured.setdefault("visible", []).append(float(right[visible].float().mean()))
    return {name: float(np.mean(values)) for name, values in measured.items()}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; a run in it goes on")
    parser.add_argument("--init", type=Path, help="weights to start from (a transformers folder); else from nothing")
    parser.add_argument("--minutes", type=float, default=720.0, help="time to train, over all starts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--processes", type=int, help="that train together; default one a CPU core, one on CUDA")
    parser.add_argument("--workers", type=int, default=1, help="processes that make clips, and as many for images")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "sam2track-training")
    parser.add_argument("--eval-minutes", type=float, default=15.0)
    parser.add_argument("--learning-rate", type=float, help="peak; default 1e-3 from nothing, 5e-4 from weights")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.processes = arguments.processes or (1 if arguments.device == "cuda" else os.cpu_count() or 1)
    return arguments


def train_as(team: Team, port: int, arguments: argparse.Namespace) -> None:
    """What each process of the team does."""
    torch.set_flush_denormal(True)  # attention far from an object is full of them, and they are slow
    if team.size > 1:
        torch.set_num_threads(1)
    team.join(port)
    Trainer(arguments, team).run()
    team.leave()


def main() -> None:
    """The command."""
    arguments = _parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    load_library(arguments.cache, held_out=False)  # fetched and built once, before several processes need it
    others, port = start_others(arguments.processes, train_as, arguments)
    train_as(Team(0, arguments.processes), port, arguments)
    for other in others:
        other.join()


if __name__ == "__main__":
    main()
