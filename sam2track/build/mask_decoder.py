"""The mask decoder: prompt encoder, two-way transformer, mask and score heads, and the choice among masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.position import cell_centres, random_fourier
from sam2track.build.prompt_encoder import embed_mask, embed_points, real_points
from sam2track.build.writer import AttentionShape, GraphWriter, Precision, Value, tokens_of
from sam2track.spec import LOW_RES_SIZE

NO_OBJECT_LOGIT = -1024.0
_LAYER_NORM_EPS = 1e-5  # of the two-way transformer; the other norms of the network have 1e-6


@dataclass(frozen=True, slots=True)
class _Heads:
    """What the heads say before a mask is chosen; row 0 is the single mask, 1 to 3 the candidates."""

    masks: Value  # (4, 16 F^2), compute type
    ious: Value  # (4,), float32
    object_score: Value  # (1, 1), float32
    mask_tokens: Value  # (4, C), compute type


def mask_decoder(config: NetworkConfig, weights: Weights, precision: Precision) -> onnx.ModelProto:
    """Features and a prompt -> one mask, its predicted IoU, the object score and the object pointer."""
    g = GraphWriter("mask_decoder", precision)
    side, hidden, size = config.feature_size, config.hidden_size, config.image_size
    fine = 4 * side
    feats0 = g.input("feats0", [1, hidden // 8, fine, fine])
    feats1 = g.input("feats1", [1, hidden // 4, 2 * side, 2 * side])
    conditioned = g.input("feats2_cond", [1, hidden, side, side])
    points = g.input("input_points", [1, 1, "points", 2])
    labels = g.input("input_labels", [1, 1, "points"], TensorProto.INT32)
    mask_prompt = g.optional_input("mask_prompt", [1, 1, fine, fine], np.zeros((1, 1, fine, fine), np.float32))
    has_mask_prompt = g.optional_input("has_mask_prompt", [1], np.zeros(1, np.float32))

    sparse = embed_points(g, config, weights, points, labels)
    dense = embed_mask(g, config, weights, mask_prompt, has_mask_prompt)
    image = g.add(_tokens(g, conditioned, hidden), dense)
    tokens, image = _two_way_transformer(g, config, weights.within("mask_decoder.transformer"), sparse, image)
    heads = _heads(g, config, weights.within("mask_decoder"), tokens, image, feats0, feats1)

    present = g.op("Greater", heads.object_score, g.full_weight(np.zeros((1, 1), np.float32)))
    chosen, chosen_token = _choose(g, config, heads, labels)
    masks = g.reshape(suppress_absent(g, g.full(heads.masks), present), 4, fine, fine)
    logits = g.reshape(g.op("Gather", masks, chosen, axis=0), 1, 1, fine, fine)
    pointer = _object_pointer(g, weights, g.op("Gather", heads.mask_tokens, chosen_token, axis=0), present)

    def declare(name: str, value: Value, *shape: int) -> None:
        g.output(name, g.reshape(value, *shape), shape, computed=False)

    declare("low_res_mask", _resize(g, logits, fine, LOW_RES_SIZE), 1, 1, LOW_RES_SIZE, LOW_RES_SIZE)
    declare("high_res_mask", _resize(g, logits, fine, size), 1, 1, size, size)
    declare("iou", g.op("Gather", heads.ious, chosen, axis=0), 1, 1)
    declare("object_score_logits", heads.object_score, 1, 1, 1)
    declare("object_pointer", g.full(pointer), 1, 1, hidden)
    # What our bundles say beyond the contract: logits before any resizing, and the three candidates.
    declare("mask_logits", logits, 1, 1, fine, fine)
    candidates = g.slice(masks, g.ints(1), g.ints(4), axis=0)
    declare("candidate_masks", candidates, 1, 3, fine, fine)
    declare("candidate_iou", g.slice(heads.ious, g.ints(1), g.ints(4), axis=0), 1, 3)
    return g.model()


# -- transformer --------------------------------------------------------------------------------------------


def _two_way_transformer(
    g: GraphWriter, config: NetworkConfig, weights: Weights, sparse: Value, image: Value
) -> tuple[Value, Value]:
    """Output tokens and prompt attend to the image and the image to them; returns both, (n, C) and (F^2, C)."""
    decoder = weights.root().within("mask_decoder")
    output_tokens = np.concatenate(
        [decoder[f"{name}.weight"] for name in ("obj_score_token", "iou_token", "mask_tokens")]
    )
    prompt = g.compute(g.concat(g.full_weight(output_tokens), sparse, axis=0))
    frequencies = weights.root()["shared_image_embedding.positional_embedding"].astype(np.float32)
    position = g.weight(random_fourier(cell_centres(config.feature_size), frequencies))
    heads = config.mask_decoder_config.num_attention_heads

    def attend(module: Weights, query: Value, key: Value, value: Value) -> Value:
        return _cross_attention(g, module, query, key, value, heads)

    def norm(module: Weights, value: Value) -> Value:
        return g.layer_norm(value, module["weight"], module["bias"], eps=_LAYER_NORM_EPS)

    tokens = prompt
    layers = config.mask_decoder_config.num_hidden_layers
    for index in range(layers):
        layer = weights.within(f"layers.{index}")
        if index == 0:  # the first layer's tokens are the prompt itself: no position to add, no residual
            tokens = attend(layer.within("self_attn"), tokens, tokens, tokens)
        else:
            query = g.add(tokens, prompt)
            tokens = g.add(tokens, attend(layer.within("self_attn"), query, query, tokens))
        tokens = norm(layer.within("layer_norm1"), tokens)
        key = g.add(image, position)
        to_image = attend(layer.within("cross_attn_token_to_image"), g.add(tokens, prompt), key, image)
        tokens = norm(layer.within("layer_norm2"), g.add(tokens, to_image))
        tokens = norm(layer.within("layer_norm3"), g.add(tokens, _mlp(g, layer.within("mlp"), tokens, depth=layers)))
        to_tokens = attend(layer.within("cross_attn_image_to_token"), key, g.add(tokens, prompt), tokens)
        image = norm(layer.within("layer_norm4"), g.add(image, to_tokens))
    final = attend(weights.within("final_attn_token_to_image"), g.add(tokens, prompt), g.add(image, position), image)
    return norm(weights.within("layer_norm_final_attn"), g.add(tokens, final)), image


def _cross_attention(g: GraphWriter, weights: Weights, query: Value, key: Value, value: Value, heads: int) -> Value:
    """Multi-head attention of (n, C) to (m, C)."""
    dim = weights["q_proj.weight"].shape[0]
    head_dim = dim // heads
    query, key, value = (
        g.reshape(g.linear(tokens, weights[f"{name}.weight"], weights[f"{name}.bias"]), -1, heads, head_dim)
        for name, tokens in (("q_proj", query), ("k_proj", key), ("v_proj", value))
    )
    attended = g.attention(
        query,
        key,
        value,
        scale=head_dim**-0.5,
        shape=AttentionShape(heads, 1, 1),  # tokens are few: never worth splitting
    )
    return g.linear(g.reshape(attended, -1, dim), weights["o_proj.weight"], weights["o_proj.bias"])


def _mlp(g: GraphWriter, weights: Weights, tokens: Value, *, depth: int = 3) -> Value:
    """proj_in, `depth` - 2 middle layers, proj_out, with ReLU between."""
    names = ["proj_in", *(f"layers.{index}" for index in range(depth - 2)), "proj_out"]
    for name in names:
        layer = weights.within(name)
        tokens = g.linear(tokens, layer["weight"], layer["bias"])
        tokens = tokens if name == "proj_out" else g.relu(tokens)
    return tokens


# -- heads ----------------------------------------------------------------------------------------------------


def _heads(
    g: GraphWriter,
    config: NetworkConfig,
    weights: Weights,
    tokens: Value,
    image: Value,
    feats0: Value,
    feats1: Value,
) -> _Heads:
    count = config.mask_decoder_config.num_multimask_outputs + 1
    score_token, iou_token = (g.slice(tokens, g.ints(i), g.ints(i + 1), axis=0) for i in (0, 1))
    mask_tokens = g.slice(tokens, g.ints(2), g.ints(2 + count), axis=0)
    filters = [
        _mlp(
            g,
            weights.within(f"output_hypernetworks_mlps.{index}"),
            g.slice(mask_tokens, g.ints(index), g.ints(index + 1), axis=0),
        )
        for index in range(count)
    ]
    pixels = _upscale(g, config, weights, image, feats0, feats1)
    masks = g.op("Gemm", g.concat(*filters, axis=0), pixels, transB=1)
    ious = g.op(
        "Sigmoid",
        g.full(
            _mlp(g, weights.within("iou_prediction_head"), iou_token, depth=config.mask_decoder_config.iou_head_depth)
        ),
    )
    score = g.full(_mlp(g, weights.within("pred_obj_score_head"), score_token))
    return _Heads(masks, g.reshape(ious, count), score, mask_tokens)


def _upscale(
    g: GraphWriter, config: NetworkConfig, weights: Weights, image: Value, feats0: Value, feats1: Value
) -> Value:
    """Image tokens (F^2, C) -> (16 F^2, C / 8): two doublings, each with its skip features."""
    side, hidden = config.feature_size, config.hidden_size
    doubled = _double(g, image, weights.within("upscale_conv1"), side)
    doubled = g.add(doubled, _tokens(g, feats1, hidden // 4))
    norm = weights.within("upscale_layer_norm")
    doubled = g.gelu(g.layer_norm(doubled, norm["weight"], norm["bias"], eps=1e-6))
    doubled = _double(g, doubled, weights.within("upscale_conv2"), 2 * side)
    return g.gelu(g.add(doubled, _tokens(g, feats0, hidden // 8)))


def _double(g: GraphWriter, tokens: Value, weights: Weights, side: int) -> Value:
    """Transposed 2x2 convolution of stride 2: each token becomes its own 2x2 patch, one product.

    (side^2, in) -> (4 side^2, out), in row order.
    """
    kernel = weights["weight"]  # (in, out, 2, 2)
    channels = kernel.shape[1]
    matrix = kernel.transpose(2, 3, 1, 0).reshape(4 * channels, -1)  # rows: y, x, channel
    patches = g.linear(tokens, matrix, np.tile(weights["bias"], 4))
    rows = g.transpose(g.reshape(patches, side, side, 2, 2 * channels), 0, 2, 1, 3)
    return g.reshape(rows, 4 * side * side, channels)


def suppress_absent(g: GraphWriter, masks: Value, present: Value) -> Value:
    """Absent objects have no mask: every logit is -1024, in what is shown and in what is remembered."""
    return g.op("Where", present, masks, g.full_weight(np.array(NO_OBJECT_LOGIT, np.float32)))


def _object_pointer(g: GraphWriter, weights: Weights, token: Value, present: Value) -> Value:
    """(1, C): the chosen mask token projected, or the no-object pointer."""
    pointer = _mlp(g, weights.within("object_pointer_proj"), token)
    return g.op("Where", present, pointer, g.weight(weights["no_object_pointer"]))


def _choose(g: GraphWriter, config: NetworkConfig, heads: _Heads, labels: Value) -> tuple[Value, Value]:
    """Row of the mask to return and row of its token, (1,) int64 each.

    With few real points (none on tracked frames, or a single click) the prompt is ambiguous: the candidate
    of the best predicted IoU. With more, the single mask; if that is unstable, its logits crossing zero in
    a wide band, the best candidate takes its place but the pointer stays the single mask's.
    """
    decoder = config.mask_decoder_config
    count = g.op("ReduceSum", real_points(g, g.reshape(labels, -1)), g.ints(0), keepdims=1)
    few = g.op(
        "And",
        _at_least(g, count, config.multimask_min_pt_num),
        _at_most(g, count, config.multimask_max_pt_num),
    )
    candidates = g.slice(heads.ious, g.ints(1), g.ints(decoder.num_multimask_outputs + 1), axis=0)
    best = g.add(g.op("ArgMax", candidates, axis=0, keepdims=1), g.ints(1))
    single = g.ints(0)
    chosen_token = g.op("Where", few, best, single)
    if not decoder.dynamic_multimask_via_stability:
        return chosen_token, chosen_token
    stable = _is_stable(
        g, heads.masks, decoder.dynamic_multimask_stability_delta, decoder.dynamic_multimask_stability_thresh
    )
    use_single = g.op("And", g.op("Not", few), stable)
    return g.op("Where", use_single, single, best), chosen_token


def _is_stable(g: GraphWriter, masks: Value, delta: float, threshold: float) -> Value:
    """Whether the single mask hardly changes when its threshold moves by +-delta: (1,) bool."""
    single = g.full(g.slice(masks, g.ints(0), g.ints(1), axis=0))

    def area(limit: float) -> Value:
        above = g.op("Cast", g.op("Greater", single, g.full_weight(np.array(limit, np.float32))), to=TensorProto.FLOAT)
        return g.op("ReduceSum", above, g.ints(1), keepdims=0)

    # inner / outer >= threshold, without dividing: an empty mask (0 >= 0) counts as stable.
    return g.op("GreaterOrEqual", area(delta), g.mul(area(-delta), g.full_weight(np.array(threshold, np.float32))))


def _at_least(g: GraphWriter, count: Value, limit: int) -> Value:
    return g.op("GreaterOrEqual", count, g.full_weight(np.array([limit], np.float32)))


def _at_most(g: GraphWriter, count: Value, limit: int) -> Value:
    return g.op("LessOrEqual", count, g.full_weight(np.array([limit], np.float32)))


# -- layouts --------------------------------------------------------------------------------------------------


def _tokens(g: GraphWriter, features: Value, channels: int) -> Value:
    """A float32 input (1, channels, height, width) -> (height * width, channels) in the compute type."""
    return tokens_of(g, g.compute(features), channels)


def _resize(g: GraphWriter, logits: Value, side: int, target: int) -> Value:
    """Bilinear, half-pixel centres, in float32."""
    if side == target:
        return logits
    sizes = g.ints(1, 1, target, target)
    return g.op("Resize", logits, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
