"""Each graph against the module of the reference that it stands for, same weights, same inputs."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest

reference = pytest.importorskip("reference")
torch = reference.torch
from sam2track.build.bundle import BUILDERS  # noqa: E402
from sam2track.build.network import Weights  # noqa: E402
from sam2track.build.writer import Precision  # noqa: E402
from sam2track.spec import GraphName  # noqa: E402

pytestmark = pytest.mark.torch

# Largest relative error; every looser line says why.
FP32 = 1e-4
FP16 = 1e-2
# The two-way transformer with random weights is ill-conditioned: merely rounding its weights and inputs to
# float16, with float32 arithmetic, moves the logits by 1 to 3 % (test_random_decoder_is_ill_conditioned), and
# fp32 parity itself is 30 times worse than that of the other graphs. Trained weights stay within FP16. The
# masks still have to agree.
FP16_RANDOM_DECODER, FP16_RANDOM_DECODER_IOU = 5e-2, 0.97

MODELS = ("nano", "full-512")


class Setup:
    """One network: the reference model, what the builder needs, and features of a picture."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model = reference.nano_model() if name == "nano" else reference.full_size_model(512)
        self.config, self.weights = reference.network_of(self.model)
        # The decoder of random weights is so ill-conditioned that float32 parity needs a float64 truth: the
        # reference's own float32 result changes by 1e-4 with its number of threads.
        self.exact_model = copy.deepcopy(self.model).double()
        size, side, hidden = self.config.image_size, self.config.feature_size, self.config.hidden_size
        noise = np.random.default_rng(0).standard_normal((size, size, 3)).astype(np.float32)
        picture = 8 * cv2.GaussianBlur(noise, (0, 0), 6)
        self.pixel_values = np.ascontiguousarray(picture.transpose(2, 0, 1)[None])
        with torch.inference_mode():
            output = self.model.get_image_features(torch.from_numpy(self.pixel_values), return_dict=True)
        maps = zip(output.fpn_hidden_states, (4, 2, 1), strict=True)
        self.features = [tokens.permute(1, 2, 0).reshape(1, -1, k * side, k * side).contiguous() for tokens, k in maps]
        self.tokens = output.fpn_hidden_states[2]
        self.position = output.fpn_position_encoding[2]
        no_memory = self.model.no_memory_embedding.detach().reshape(1, hidden, 1, 1)
        self.without_memory = self.features[2] + no_memory

    def run(self, graph: GraphName, precision: Precision, feeds: dict[str, Any], weights: Weights | None = None) -> Any:
        """Outputs by name."""
        return _run(
            _session(self.name, graph, precision) if weights is None else self._open(graph, precision, weights), feeds
        )

    def _open(self, graph: GraphName, precision: Precision, weights: Weights) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        content = BUILDERS[graph](self.config, weights, precision).SerializeToString()
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@cache
def setup_of(name: str) -> Setup:
    return Setup(name)


@cache
def _session(name: str, graph: GraphName, precision: Precision) -> onnxruntime.InferenceSession:
    setup = setup_of(name)
    return setup._open(graph, precision, setup.weights)


def _run(session: onnxruntime.InferenceSession, feeds: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: value.numpy() if torch.is_tensor(value) else value for name, value in feeds.items()}
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, arrays), strict=True))


def limit(precision: Precision) -> float:
    return FP32 if precision is Precision.FP32 else FP16


both_models = pytest.mark.parametrize("name", MODELS)
both_precisions = pytest.mark.parametrize("precision", list(Precision))


@both_models
@both_precisions
def test_vision_encoder(name: str, precision: Precision) -> None:
    setup = setup_of(name)
    got = setup.run("vision_encoder", precision, {"pixel_values": setup.pixel_values})
    expected = dict(zip(("feats0", "feats1", "feats2"), setup.features, strict=True))
    expected["feats2_no_mem"] = setup.without_memory
    side, hidden = setup.config.feature_size, setup.config.hidden_size
    expected["vision_pos_embed"] = setup.position.permute(1, 2, 0).reshape(1, hidden, side, side)
    errors = {key: reference.relative_error(got[key], value.numpy()) for key, value in expected.items()}
    assert max(errors.values()) <= limit(precision), errors


PROMPTS = {
    "one click": ([[100, 120]], [1], False),
    "three clicks": ([[100, 120], [30, 40], [200, 90]], [1, 1, 0], False),
    "box": ([[50, 50], [180, 200]], [2, 3], False),
    "box and click": ([[50, 50], [180, 200], [60, 70]], [2, 3, 0], False),
    "no prompt": ([[0, 0]], [-1], False),
    "click and logits": ([[100, 120]], [1], True),
}


@both_models
@both_precisions
@pytest.mark.parametrize("prompt", PROMPTS)
def test_mask_decoder(name: str, precision: Precision, prompt: str) -> None:
    setup = setup_of(name)
    points, labels, with_logits = PROMPTS[prompt]
    got = setup.run("mask_decoder", precision, _decoder_feeds(setup, points, labels, with_logits))
    few = sum(label >= 0 for label in labels) <= 1
    with torch.inference_mode():
        expected = setup.exact_model._single_frame_forward(
            input_points=None if labels == [-1] else torch.tensor(points, dtype=torch.float64)[None, None],
            input_labels=None if labels == [-1] else torch.tensor(labels, dtype=torch.int32)[None, None],
            input_masks=torch.from_numpy(_earlier_logits(setup)).double() if with_logits else None,
            image_embeddings=[tensor.double() for tensor in (*setup.features[:2], setup.without_memory)],
            multimask_output=few,
        )
    allowed = FP16_RANDOM_DECODER if precision is Precision.FP16 and name != "nano" else limit(precision)
    chosen = expected.iou_scores.max() if few else expected.iou_scores[0, 0, 0]
    errors = {
        "mask_logits": reference.relative_error(got["mask_logits"], expected.pred_masks.numpy()),
        "high_res_mask": reference.relative_error(got["high_res_mask"], expected.high_res_masks.numpy()),
        "iou": abs(float(got["iou"].item()) - float(chosen)),
        "object_score_logits": reference.relative_error(
            got["object_score_logits"], expected.object_score_logits.numpy()
        ),
        "object_pointer": reference.relative_error(got["object_pointer"], expected.object_pointer.numpy()),
    }
    if few:
        errors["candidate_iou"] = float(np.abs(got["candidate_iou"] - expected.iou_scores[0].numpy()).max())
    assert 0.001 < (got["mask_logits"] > 0).mean() < 0.999 or prompt == "no prompt", "a trivial mask proves nothing"
    assert max(errors.values()) <= allowed, errors
    agreement = reference.intersection_over_union(got["mask_logits"] > 0, expected.pred_masks.numpy() > 0)
    assert agreement >= (FP16_RANDOM_DECODER_IOU if allowed == FP16_RANDOM_DECODER else 0.99)


@both_precisions
def test_mask_decoder_without_the_object(precision: Precision) -> None:
    """The heads and the pointer of an absent object: score forced below zero."""
    setup = setup_of("nano")
    arrays = dict(setup.weights.arrays)
    arrays["mask_decoder.pred_obj_score_head.proj_out.bias"] = np.array([-50.0], np.float32)
    got = setup.run("mask_decoder", precision, _decoder_feeds(setup, [[100, 120]], [1], False), Weights(arrays))
    assert got["object_score_logits"].item() < 0
    assert (got["mask_logits"] == -1024).all() and (got["high_res_mask"] == -1024).all()
    expected = setup.weights["no_object_pointer"]
    assert reference.relative_error(got["object_pointer"].reshape(1, -1), expected) <= limit(precision)


@pytest.mark.parametrize("unstable", [False, True])
def test_several_points_fall_back_to_a_candidate_if_the_single_mask_is_unstable(unstable: bool) -> None:
    """Rule 11: a single mask scaled towards zero is unstable; the reference then takes the best candidate."""
    model = reference.nano_model()
    with torch.no_grad():
        for parameter in model.mask_decoder.output_hypernetworks_mlps[0].proj_out.parameters():
            parameter.mul_(1e-2 if unstable else 1e2)
    setup = setup_of("nano")
    _, weights = reference.network_of(model)
    points, labels = [[100, 120], [120, 140]], [1, 1]
    got = setup.run("mask_decoder", Precision.FP32, _decoder_feeds(setup, points, labels, False), weights)
    with torch.inference_mode():
        expected = model._single_frame_forward(
            input_points=torch.tensor(points, dtype=torch.float32)[None, None],
            input_labels=torch.tensor(labels, dtype=torch.int32)[None, None],
            image_embeddings=[*setup.features[:2], setup.without_memory],
            multimask_output=False,
        )
    is_candidate = any(np.array_equal(got["mask_logits"][0, 0], mask) for mask in got["candidate_masks"][0])
    assert is_candidate is unstable
    assert reference.relative_error(got["mask_logits"], expected.pred_masks.numpy()) <= FP32
    assert reference.relative_error(got["object_pointer"], expected.object_pointer.numpy()) <= FP32
    assert abs(got["iou"].item() - expected.iou_scores.item()) <= FP32


def test_random_decoder_is_ill_conditioned() -> None:
    """The reason for FP16_RANDOM_DECODER, measured: float16 weights and inputs, float32 arithmetic."""
    setup = setup_of("full-512")
    rounded = Weights({key: array.astype(np.float16) for key, array in setup.weights.arrays.items()})
    feeds = _decoder_feeds(setup, *PROMPTS["three clicks"])
    half = {key: np.asarray(value).astype(np.float16).astype(value.dtype) for key, value in feeds.items()}
    exact = setup.run("mask_decoder", Precision.FP32, feeds)["mask_logits"]
    error = reference.relative_error(setup.run("mask_decoder", Precision.FP32, half, rounded)["mask_logits"], exact)
    assert FP16 < error < FP16_RANDOM_DECODER


@both_models
@both_precisions
@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("binarize", [True, False])
def test_memory_encoder(name: str, precision: Precision, present: bool, binarize: bool) -> None:
    setup = setup_of(name)
    size = setup.config.image_size
    noise = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32)
    logits = 60 * cv2.GaussianBlur(noise, (0, 0), 8)[None, None]
    score = np.array([[3.0 if present else -2.0]], np.float32)
    feeds = {
        "feats2": setup.features[2],
        "high_res_mask": logits,
        "object_score_logits": score,
        "binarize": np.array([binarize], np.float32),
    }
    got = setup.run("memory_encoder", precision, feeds)
    with torch.inference_mode(), reference.exact_memory():
        tokens, position = setup.model._encode_new_memory(
            setup.tokens, torch.from_numpy(logits), torch.from_numpy(score), binarize
        )
    errors = (
        reference.relative_error(got["memory_tokens"], tokens.numpy()),
        reference.relative_error(got["memory_pos"], position.numpy()),
    )
    assert max(errors) <= limit(precision), errors


@both_models
@both_precisions
@pytest.mark.parametrize(("frames", "pointers"), [(1, 1), (3, 2), (7, 16), (9, 18), (2, 0)])
@pytest.mark.parametrize("padded", [False, True])
def test_memory_attention(name: str, precision: Precision, frames: int, pointers: int, padded: bool) -> None:
    """Rule 16: any number of rows, or all rows with the unfilled ones masked, equals the variable-length reference."""
    setup = setup_of(name)
    config = setup.config
    if padded and (frames > config.num_maskmem or pointers > 16):
        pytest.skip("more than the fixed rows hold")
    unit, frame_rows = config.hidden_size // config.memory_size, config.feature_size**2
    rng = np.random.default_rng(2)
    memory, position = rng.standard_normal((2, frames * frame_rows + pointers * unit, 1, config.memory_size))
    memory, position = memory.astype(np.float32), (0.3 * position).astype(np.float32)
    feeds: dict[str, Any] = {
        "current_vision_features": setup.tokens,
        "current_vision_position_embeddings": setup.position,
    }
    if padded:
        real = np.zeros(config.memory_rows, bool)
        real[: frames * frame_rows] = True
        pointer_start = config.memory_rows - config.pointer_rows
        real[pointer_start : pointer_start + pointers * unit] = True
        junk = 5 * rng.standard_normal((2, config.memory_rows, 1, config.memory_size)).astype(np.float32)
        junk[0][real], junk[1][real] = memory, position
        feeds |= {"memory": junk[0], "memory_pos": junk[1], "key_mask": real.astype(np.float32)}
    else:
        feeds |= {
            "memory": memory,
            "memory_pos": position,
            "key_mask": np.ones(len(memory), np.float32),
            "pointer_rows": np.array([pointers * unit]),
        }
    got = setup.run("memory_attention", precision, feeds)["conditioned_feats"]
    with torch.inference_mode():
        expected = setup.model.memory_attention(
            current_vision_features=setup.tokens,
            current_vision_position_embeddings=setup.position,
            memory=torch.from_numpy(memory),
            memory_posision_embeddings=torch.from_numpy(position),
            num_object_pointer_tokens=pointers * unit,
        )
    side = config.feature_size
    expected = expected.squeeze(1).transpose(1, 2).reshape(1, config.hidden_size, side, side).numpy()
    assert reference.relative_error(got, expected) <= limit(precision)


@both_models
@both_precisions
def test_pointer_tpos(name: str, precision: Precision) -> None:
    from transformers.models.sam2_video.modeling_sam2_video import get_1d_sine_pe

    setup = setup_of(name)
    differences = np.linspace(-1, 1, 16, dtype=np.float32)
    got = setup.run("pointer_tpos", precision, {"normalized_diffs": differences})["pointer_pos"]
    with torch.inference_mode():
        sine = get_1d_sine_pe(torch.from_numpy(differences), dim=setup.config.hidden_size)
        expected = setup.model.temporal_positional_encoding_projection_layer(sine).numpy()
    assert reference.relative_error(got, expected) <= limit(precision)


def _decoder_feeds(setup: Setup, points: list[list[int]], labels: list[int], with_logits: bool) -> dict[str, Any]:
    feeds: dict[str, Any] = {
        "feats0": setup.features[0].numpy(),
        "feats1": setup.features[1].numpy(),
        "feats2_cond": setup.without_memory.numpy(),
        "input_points": np.array(points, np.float32)[None, None],
        "input_labels": np.array(labels, np.int32)[None, None],
    }
    if with_logits:
        feeds |= {"mask_prompt": _earlier_logits(setup), "has_mask_prompt": np.ones(1, np.float32)}
    return feeds


def _earlier_logits(setup: Setup) -> Any:
    side = 4 * setup.config.feature_size
    noise = np.random.default_rng(3).standard_normal((side, side)).astype(np.float32)
    return 60 * cv2.GaussianBlur(noise, (0, 0), 5)[None, None]
