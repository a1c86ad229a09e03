"""The validation set, fixed beforehand: held-out pictures, fixed seed; and the measurement on it.

    python -m training.validate training/nano-v1      # a transformers folder, or RUN/best.pt

prints the scores on that set, and on another one whose targets all leave: it has more frames without an object.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import Sam2VideoModel

from training.checkpoint import load_averaged
from training.clips import LEAVING, make_clip
from training.dataset import Batch, collate, sample
from training.network import IMAGE_SIZE, load_network
from training.rollout import Options, Rollout, mask_iou
from training.sprites import load_library

CLIPS = 48
LENGTH = 10
SEED, LEAVING_SEED = 20_240, 20_241
KINDS = ("mask", "click", "box")


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over the validation set for one kind of prompt.

    Attributes:
        first: IoU on frame 0 (1 for a mask prompt, which is the answer itself).
        later: IoU on later frames where the object is visible; called absent counts as 0.
        visible: Share of visible frames that are called visible.
        absent: Share of absent frames that are called absent.
        last: IoU on the last third: what drift leaves.
    """

    first: float
    later: float
    visible: float
    absent: float
    last: float


def validation_set(cache: Path, clips: int = CLIPS, length: int = LENGTH, size: int = IMAGE_SIZE) -> list[Batch]:
    """One batch a clip, with one object each: the main target, prompted exactly. Weights are chosen by it."""
    return _draw(cache, SEED, clips, length, size, LEAVING)


def leaving_set(cache: Path, clips: int = CLIPS, length: int = LENGTH, size: int = IMAGE_SIZE) -> list[Batch]:
    """The same, but every target leaves, and most return. Only for reports."""
    return _draw(cache, LEAVING_SEED, clips, length, size, 1.0)


def _draw(cache: Path, seed: int, clips: int, length: int, size: int, leaving: float) -> list[Batch]:
    library, batches = load_library(cache, held_out=True), []
    for index in range(clips):
        rng = np.random.default_rng((seed, index))
        clip = make_clip(library, length, size, rng, leaving)
        batches.append(collate([sample(clip, 1, rng, exact=True)]))
    return batches


def evaluate(model: Sam2VideoModel, batches: list[Batch], group: int = 12) -> dict[str, Scores]:
    """Runs inference's rules over the set, for each kind of prompt."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    scores = {}
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
        for kind in KINDS:
            tables = [
                _run(model, _join(batches[at : at + group]).to(device), kind) for at in range(0, len(batches), group)
            ]
            scores[kind] = _summary(*(np.concatenate(column) for column in zip(*tables, strict=True)), kind)
    model.train(training)
    return scores


def overall(scores: dict[str, Scores]) -> float:
    """The one number that weights are chosen by: IoU over prompts, and the object score."""
    tracking = np.mean([scores["mask"].later, scores["click"].later, scores["box"].later])
    first = np.mean([scores["click"].first, scores["box"].first])
    return float(0.6 * tracking + 0.25 * first + 0.15 * scores["mask"].absent)


def _join(batches: list[Batch]) -> Batch:
    return Batch(*(torch.cat([getattr(batch, name) for batch in batches]) for name in Batch.__slots__))


def _run(model: Sam2VideoModel, batch: Batch, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """IoU, truly visible, said visible: each [N, T]; without objects that such a prompt cannot name."""
    predictions = Rollout(model, batch, Options(kind, train=False), np.random.default_rng(0)).run()
    truth = batch.masks.flatten(0, 1).float() / 255
    everyone = torch.arange(len(truth), device=truth.device)
    ious, said = [], []
    for prediction in predictions:
        chosen = prediction.masks[everyone, prediction.chosen]
        appears = torch.ones_like(prediction.score, dtype=torch.bool) if prediction.given else prediction.score > 0
        iou = mask_iou(chosen, truth[:, prediction.frame_idx])
        ious.append(torch.ones_like(iou) if prediction.given else iou * appears)
        said.append(appears)
    visible = truth.flatten(2).sum(2) > 0.5
    clear = torch.ones_like(batch.ambiguous[:, 0]) if kind == "mask" else ~batch.ambiguous[:, 0]
    iou, said_visible = torch.stack(ious, 1)[clear], torch.stack(said, 1)[clear]
    return iou.cpu().numpy(), visible[clear].cpu().numpy(), said_visible.cpu().numpy()


def _summary(ious: np.ndarray, visible: np.ndarray, said: np.ndarray, kind: str) -> Scores:
    def mean(values: np.ndarray, where: np.ndarray) -> float:
        return round(float(values[where].mean()), 4) if where.any() else float("nan")

    later = visible.copy()
    later[:, 0] = False
    last = later.copy()
    last[:, : 2 * ious.shape[1] // 3] = False
    tracked = np.ones_like(visible)
    tracked[:, 0] = kind != "mask"
    return Scores(
        first=mean(ious[:, 0], visible[:, 0]),
        later=mean(ious, later),
        visible=mean(said, visible & tracked),
        absent=mean(~said, ~visible & tracked),
        last=mean(ious, last),
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a transformers folder, or a checkpoint of a run")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "sam2track-training")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    folder = arguments.model.is_dir()
    model = load_network(arguments.model) if folder else load_averaged(arguments.model)
    for name, make in (("validation", validation_set), ("leaving", leaving_set)):
        batches = make(arguments.cache)
        absent = sum(int((batch.masks.flatten(3).sum(3) == 0).sum()) for batch in batches)
        print(f"{name}: {len(batches)} clips, {absent} frames without the object")
        for kind, scores in evaluate(model, batches).items():
            print(f"  {kind:6}", *(f"{key} {value:.3f}" for key, value in asdict(scores).items()))


if __name__ == "__main__":
    main()
