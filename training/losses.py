"""SAM 2's losses on one rollout: masks (focal, Dice, cross entropy), predicted IoU, object score, box discipline."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.dataset import Batch
from training.rollout import Prediction, mask_iou


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the losses.

    Attributes:
        mean: Of the candidates' mean beside the best one: high at first, or the three split up too early.
        balance: How much the cross entropy is balanced between object and rest: 1 at first, 0 later.
        single: Of the single mask on frames where the candidates count.
    """

    focal: float = 8.0
    dice: float = 1.0
    cross_entropy: float = 1.0
    iou: float = 1.0
    score: float = 0.6
    outside_box: float = 0.3
    mean: float = 0.1
    balance: float = 0.0
    single: float = 0.4


def mask_loss(logits: Tensor, truth: Tensor, weights: Weights) -> Tensor:
    """Loss of each mask; logits [N, K, H, W], truth [N, 1, H, W] in 0..1 (borders are in between)."""
    truth = truth.expand_as(logits)
    chance = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    focal = ((chance - truth).abs() ** 2 * entropy).mean((-1, -2))
    dice = 1 - (2 * (chance * truth).sum((-1, -2)) + 1) / (chance.sum((-1, -2)) + truth.sum((-1, -2)) + 1)
    if weights.balance > 0:
        share = truth.mean((-1, -2), keepdim=True).clamp(4e-3, 1 - 4e-3)
        even = 0.5 * (truth / share + (1 - truth) / (1 - share))
        entropy = entropy * (weights.balance * even + 1 - weights.balance)
    return weights.focal * focal + weights.dice * dice + weights.cross_entropy * entropy.mean((-1, -2))


def score_loss(scores: Tensor, visible: Tensor) -> Tensor:
    """Cross entropy of the object score, in which absent and visible frames count the same."""
    loss = F.binary_cross_entropy_with_logits(scores, visible.float(), reduction="none")
    # Shrunk towards the plain mean: one absent frame in a batch must not weigh as much as all the others.
    seen, absent = visible.float(), (~visible).float()
    prior = 4.0
    gain_seen = 0.5 * (len(loss) + 2 * prior) / (seen.sum() + prior)
    gain_absent = 0.5 * (len(loss) + 2 * prior) / (absent.sum() + prior)
    return (loss * (seen * gain_seen + absent * gain_absent)).mean()


def outside_box_loss(logits: Tensor, boxes: Tensor, size: int) -> Tensor:
    """How much of the mask lies outside of the prompted box, relative to the box's area, per object.

    Args:
        logits: [N, H, W].
        boxes: [N, 2, 2] corners (x, y) in pixels of the input.
        size: Side of the input.
    """
    side = logits.shape[-1]
    centres = (torch.arange(side, device=logits.device) + 0.5) * size / side
    margin = (boxes[:, 1] - boxes[:, 0]).clamp(min=8.0) * 0.1
    low, high = boxes[:, 0] - margin, boxes[:, 1] + margin
    inside_x = (centres >= low[:, :1]) & (centres <= high[:, :1])
    inside_y = (centres >= low[:, 1:]) & (centres <= high[:, 1:])
    inside = inside_y[:, :, None] & inside_x[:, None, :]
    excess = F.softplus(logits) * ~inside
    return excess.sum((-1, -2)) / inside.sum((-1, -2)).clamp(min=4)


def rollout_loss(predictions: list[Prediction], batch: Batch, kind: str, weights: Weights) -> Tensor:
    """The mean loss of the frames that were run with gradient."""
    truth = batch.masks.flatten(0, 1).float() / 255
    total = truth.new_zeros(())
    scores, visible = [], []
    counted = [
        prediction for prediction in predictions if prediction.masks.requires_grad or not torch.is_grad_enabled()
    ]
    for prediction in counted:
        target = truth[:, prediction.frame_idx, None]
        seen = target.flatten(1).sum(1) > 0.5
        usable = seen.float()
        if kind != "mask":
            usable = usable * (~batch.ambiguous.flatten()).float()
        total = total + _frame_loss(prediction, target, usable, weights)
        if prediction.frame_idx == 0 and kind == "box":
            boxes = batch.points.flatten(0, 1)[:, 3:5]
            excess = outside_box_loss(prediction.masks[:, 0], boxes, batch.frames.shape[-2])
            total = total + weights.outside_box * excess.clamp(max=4).mean()
        if not prediction.given:
            scores.append(prediction.score)
            visible.append(seen)
    total = total / len(counted)
    if scores:
        total = total + weights.score * score_loss(torch.cat(scores), torch.cat(visible))
    return total


def _frame_loss(prediction: Prediction, target: Tensor, usable: Tensor, weights: Weights) -> Tensor:
    each = mask_loss(prediction.masks, target, weights)  # [N, 4]
    candidates = each[:, 1:]
    if prediction.multiple:
        best = candidates.min(1).values
        loss = (1 - weights.mean) * best + weights.mean * candidates.mean(1) + weights.single * each[:, 0]
    else:
        loss = each[:, 0] + 0.15 * candidates.mean(1)
    true_iou = mask_iou(prediction.masks.detach(), target)
    loss = loss + weights.iou * (prediction.ious - true_iou).abs().mean(1)
    share = 0.3 if prediction.given else 1.0  # there the answer is known; only the pointer comes of it
    return share * (loss * usable).sum() / usable.sum().clamp(min=1)
