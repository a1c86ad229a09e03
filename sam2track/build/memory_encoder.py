"""The memory encoder: a frame's raw features and its mask become memory tokens."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.position import sine_grid
from sam2track.build.writer import GraphWriter, Precision, Value, pointwise

_LAYER_NORM_EPS = 1e-6


def memory_encoder(config: NetworkConfig, weights: Weights, precision: Precision) -> onnx.ModelProto:
    """feats2, high_res_mask, object_score_logits, binarize -> memory_tokens and memory_pos (F^2, 1, M)."""
    g = GraphWriter("memory_encoder", precision)
    size, side, hidden, memory = (
        config.image_size,
        config.feature_size,
        config.hidden_size,
        config.memory_size,
    )
    features = g.compute(g.input("feats2", [1, hidden, side, side]))
    logits = g.input("high_res_mask", [1, 1, size, size])
    object_score = g.input("object_score_logits", [1, 1])
    binarize = g.input("binarize", [1])
    encoder = weights.within("memory_encoder")

    mask = _downsample(g, config, encoder.within("mask_downsampler"), mask_for_memory(g, config, logits, binarize))
    projection = encoder.within("feature_projection")
    pixels = g.linear(
        g.transpose(g.reshape(features, hidden, side * side), 1, 0),
        pointwise(projection["weight"]),
        projection["bias"],
    )
    fused = g.add(pixels, mask)
    for index in range(config.memory_fuser_num_layers):
        fused = _fuse(g, config, encoder.within(f"memory_fuser.layers.{index}"), fused)
    projection = encoder.within("projection")
    tokens = g.linear(fused, pointwise(projection["weight"]), projection["bias"])
    if config.enable_occlusion_spatial_embedding:
        tokens = g.add(tokens, _absence(g, weights, object_score))

    g.output("memory_tokens", g.reshape(tokens, side * side, 1, memory), [side * side, 1, memory])
    position = sine_grid(side, memory).reshape(side * side, 1, memory)
    g.output("memory_pos", g.full_weight(position), [side * side, 1, memory], computed=False)
    return g.model()


def mask_for_memory(g: GraphWriter, config: NetworkConfig, logits: Value, binarize: Value) -> Value:
    """Mask logits -> the mask that is remembered: 0 or 1 on prompted frames, else the sigmoid; then scaled."""
    hard = g.op("Cast", g.op("Greater", logits, g.full_weight(np.array(0.0, np.float32))), to=TensorProto.FLOAT)
    soft = g.op("Sigmoid", logits)
    is_prompted = g.op("Greater", binarize, g.full_weight(np.array([0.5], np.float32)))
    mask = g.op("Where", is_prompted, hard, soft)
    scaled = g.mul(mask, g.full_weight(np.array(config.sigmoid_scale_for_mem_enc, np.float32)))
    return g.compute(g.add(scaled, g.full_weight(np.array(config.sigmoid_bias_for_mem_enc, np.float32))))


def _downsample(g: GraphWriter, config: NetworkConfig, weights: Weights, mask: Value) -> Value:
    """(1, 1, S, S) -> tokens (F^2, C): strided convolutions, each with a norm over the channels."""
    stride, pad = config.mask_downsampler_stride, config.mask_downsampler_padding
    layers = round(np.log(config.mask_downsampler_total_stride) / np.log(stride))
    side = config.image_size
    for index in range(layers):
        layer = weights.within(f"layers.{index}")
        conv, norm = layer.within("conv"), layer.within("layer_norm")
        mask = g.conv(mask, conv["weight"], conv["bias"], strides=[stride, stride], pads=[pad] * 4)
        channels, side = conv["weight"].shape[0], side // stride
        tokens = g.transpose(g.reshape(mask, channels, side * side), 1, 0)
        tokens = g.layer_norm(tokens, norm["weight"], norm["bias"], eps=_LAYER_NORM_EPS)
        tokens = g.activation(config.mask_downsampler_hidden_act, tokens)
        if index < layers - 1:
            mask = g.reshape(g.transpose(tokens, 1, 0), 1, channels, side, side)
    final = weights.within("final_conv")
    return g.linear(tokens, pointwise(final["weight"]), final["bias"])


def _fuse(g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value) -> Value:
    """A ConvNeXt block on tokens (F^2, C)."""
    side = config.feature_size
    depthwise, norm = weights.within("depthwise_conv"), weights.within("layer_norm")
    channels = depthwise["weight"].shape[0]
    grid = g.reshape(g.transpose(tokens, 1, 0), 1, channels, side, side)
    pad = config.memory_fuser_padding
    mixed = g.conv(grid, depthwise["weight"], depthwise["bias"], group=channels, pads=[pad] * 4)
    mixed = g.transpose(g.reshape(mixed, channels, side * side), 1, 0)
    mixed = g.layer_norm(mixed, norm["weight"], norm["bias"], eps=_LAYER_NORM_EPS)
    expand, shrink = weights.within("pointwise_conv1"), weights.within("pointwise_conv2")
    mixed = g.activation(config.memory_fuser_hidden_act, g.linear(mixed, expand["weight"], expand["bias"]))
    mixed = g.mul(g.linear(mixed, shrink["weight"], shrink["bias"]), g.weight(weights["scale"]))
    return g.add(tokens, mixed)


def _absence(g: GraphWriter, weights: Weights, object_score: Value) -> Value:
    """The no-object embedding (1, M) if the object is absent, else zeros: an absent frame is remembered too."""
    absent = g.op("LessOrEqual", object_score, g.full_weight(np.zeros((1, 1), np.float32)))
    embedding = g.full_weight(weights["occlusion_spatial_embedding_parameter"])
    return g.compute(g.mul(g.op("Cast", absent, to=TensorProto.FLOAT), embedding))
