"""The independent implementation: transformers' Sam2VideoModel on CPU torch, with the same weights.

Nothing here calls the package's network or loop; only the preprocessing of frames is shared where a test
compares what comes after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs the test extra: torch")
pytest.importorskip("transformers", reason="needs the test extra: transformers")

from transformers import Sam2VideoConfig, Sam2VideoModel  # noqa: E402
from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession  # noqa: E402

from sam2track.build.network import NetworkConfig, Weights  # noqa: E402

# OpenMP's threads wait for each other by spinning: on a busy machine two take ten times as long as one.
torch.set_num_threads(1)

CHECKPOINT = Path(__file__).parent.parent / "training" / "nano-v1"
Array = NDArray[Any]


def nano_model() -> Any:
    """The built-in weights (stored as float16, widened) in the reference network."""
    return Sam2VideoModel.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()


def full_size_model(image_size: int = 512, seed: int = 1) -> Any:
    """SAM 2.1 Hiera-Tiny with random weights, scaled so that masks are not trivial.

    Matrices N(0, 1 / fan-in), the decoder's queries and keys 0.35 of that (full scale makes its attention so
    sharp that rounding flips the choice among candidates), biases 0.02, learned embeddings 0.3, object-score
    bias 2.
    """
    side = image_size // 16
    config = Sam2VideoConfig(image_size=image_size)
    config.prompt_encoder_config.image_size = image_size
    config.memory_attention_rope_feat_sizes = [side, side]
    config.vision_config.backbone_feature_sizes = [[4 * side] * 2, [2 * side] * 2, [side] * 2]
    config.vision_config.backbone_config.image_size = [image_size] * 2
    torch.manual_seed(seed)  # the positional frequencies are a buffer, not a parameter
    model = Sam2VideoModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            last = name.split(".")[-1]
            if "norm" in name and last == "weight":
                parameter.fill_(1.0)
            elif last == "bias":
                parameter.fill_(0.02)
            elif last == "weight" and "embed." not in name and "token" not in name:
                gain = 0.35 if name.startswith("mask_decoder") and ("q_proj" in name or "k_proj" in name) else 1.0
                parameter.copy_(gain * noise / parameter[0].numel() ** 0.5)
            else:
                parameter.copy_(0.3 * noise)
        model.mask_decoder.pred_obj_score_head.proj_out.bias.fill_(2.0)
    # Not tied in a fresh model, and clicks mean nothing until they are.
    model.prompt_encoder.shared_embedding.positional_embedding = model.shared_image_embedding.positional_embedding
    return model


def network_of(model: Any) -> tuple[NetworkConfig, Weights]:
    """The reference's configuration and weights, for the builder."""
    arrays = {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}
    return NetworkConfig.model_validate(model.config.to_dict()), Weights(arrays)


@contextlib.contextmanager
def exact_memory() -> Iterator[None]:
    """Keeps the reference's memory in float32: it rounds to bfloat16 for storage, which is not ours to copy."""
    with mock.patch.object(torch, "bfloat16", torch.float32):
        yield


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """One object on one frame, as the reference has it."""

    mask: Array  # (height, width) bool
    mask_logits: Array  # (4F, 4F)
    object_score: float
    predicted_iou: float = float("nan")  # nan where the reference does not say


@dataclass(frozen=True, slots=True)
class Click:
    """Points of one object on one frame, in pixels of the model's input; labels 2 and 3 are a box."""

    points: tuple[tuple[float, float], ...]
    labels: tuple[int, ...]


def reference_track(
    model: Any, pixel_values: list[Array], frame_size: tuple[int, int], prompts: Mapping[int, Click]
) -> list[dict[int, ReferenceResult]]:
    """The reference's own video inference: prompts on frame 0, then every frame forward."""
    frames = torch.from_numpy(np.concatenate(pixel_values))
    session = Sam2VideoInferenceSession(
        video=frames, video_height=frame_size[0], video_width=frame_size[1], dtype=torch.float32
    )
    for object_id, click in prompts.items():
        inputs = {
            "point_coords": torch.tensor(click.points, dtype=torch.float32)[None, None],
            "point_labels": torch.tensor(click.labels, dtype=torch.int32)[None, None],
        }
        session.add_point_inputs(session.obj_id_to_idx(object_id), 0, inputs)
    session.obj_with_new_inputs = list(prompts)
    results = []
    with torch.inference_mode():
        model(session, frame_idx=0)
        for output in model.propagate_in_video_iterator(session, start_frame_idx=0):
            resized = torch.nn.functional.interpolate(
                output.pred_masks, size=frame_size, mode="bilinear", align_corners=False
            )
            results.append(
                {
                    object_id: ReferenceResult(
                        resized[idx, 0].numpy() > 0,
                        output.pred_masks[idx, 0].numpy(),
                        float(output.object_score_logits[idx]),
                    )
                    for idx, object_id in enumerate(output.object_ids)
                }
            )
    return results


def relative_error(got: Array, expected: Array) -> float:
    """Largest difference over the largest magnitude."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def intersection_over_union(left: Array, right: Array) -> float:
    """IoU of two masks; two empty masks agree."""
    union = np.logical_or(left, right).sum()
    return 1.0 if union == 0 else float(np.logical_and(left, right).sum() / union)
