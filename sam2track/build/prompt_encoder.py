"""The prompt encoder, a part of the mask decoder's graph: points, boxes and masks become embeddings."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.writer import GraphWriter, Value, pointwise, tokens_of


def embed_points(g: GraphWriter, config: NetworkConfig, weights: Weights, points: Value, labels: Value) -> Value:
    """Points and labels -> (points + 1, C) float32: the reference always appends one padding point."""
    prompts = weights.within("prompt_encoder")
    hidden = config.hidden_size
    # Computed in float32 whatever the precision: the angles reach hundreds of radians.
    centred = g.add(g.reshape(points, -1, 2), g.full_weight(np.array(0.5, np.float32)))
    unit = g.mul(centred, g.full_weight(np.array(2.0 / config.image_size, np.float32)))
    signed = g.add(unit, g.full_weight(np.array(-1.0, np.float32)))
    frequencies = prompts["shared_embedding.positional_embedding"].astype(np.float32) * np.float32(2 * np.pi)
    angle = g.matmul(signed, g.full_weight(frequencies))
    position = g.concat(g.op("Sin", angle), g.op("Cos", angle), axis=1)

    label = g.reshape(labels, -1)
    is_point = g.reshape(real_points(g, label), -1, 1)
    padding = prompts["not_a_point_embed.weight"]
    table = np.concatenate([padding, prompts["point_embed.weight"]])  # row label + 1
    row = g.add(g.op("Cast", label, to=TensorProto.INT64), g.ints(1))
    embedded = g.add(g.mul(position, is_point), g.op("Gather", g.full_weight(table), row, axis=0))
    return g.reshape(g.concat(embedded, g.full_weight(padding), axis=0), -1, hidden)


def real_points(g: GraphWriter, label: Value) -> Value:
    """1.0 for a real point, 0.0 for padding (label -1): padding never counts."""
    at_least_zero = g.op(
        "Greater", g.op("Cast", label, to=TensorProto.FLOAT), g.full_weight(np.array(-0.5, np.float32))
    )
    return g.op("Cast", at_least_zero, to=TensorProto.FLOAT)


def embed_mask(
    g: GraphWriter, config: NetworkConfig, weights: Weights, mask_prompt: Value, has_mask_prompt: Value
) -> Value:
    """The dense prompt as tokens (F^2, C): the embedded mask, or the no-mask embedding without one."""
    prompt_config = config.prompt_encoder_config
    embed = weights.within("prompt_encoder.mask_embed")
    none = weights["prompt_encoder.no_mask_embed.weight"]
    value = g.compute(mask_prompt)
    side = 4 * config.feature_size
    for layer in ("1", "2"):
        conv, norm = embed.within(f"conv{layer}"), embed.within(f"layer_norm{layer}")
        value = g.conv(value, conv["weight"], conv["bias"], strides=[2, 2])
        channels, side = conv["weight"].shape[0], side // 2
        tokens = g.layer_norm(
            tokens_of(g, value, channels), norm["weight"], norm["bias"], eps=prompt_config.layer_norm_eps
        )
        tokens = g.activation(prompt_config.hidden_act, tokens)
        value = g.reshape(g.transpose(tokens, 1, 0), 1, channels, side, side)
    last = embed.within("conv3")
    dense = g.linear(tokens, pointwise(last["weight"]), last["bias"])
    difference = g.op("Sub", dense, g.weight(none))
    return g.add(g.weight(none), g.mul(g.compute(has_mask_prompt), difference))
