"""Memory attention: the current frame's features look at what is remembered of the object.

The number of memory rows is free: spatial memories first, each of F^2 rows, then object pointers, so that a
bank that is not full gives the result of exactly what it holds. A runtime that needs fixed shapes pins the
rows at R and masks the unfilled ones with `key_mask`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from sam2track.build.network import NetworkConfig, Weight, Weights
from sam2track.build.position import axial_rope
from sam2track.build.writer import AttentionShape, GraphWriter, Precision, Value

_LAYER_NORM_EPS = 1e-5
_MASKED = -1e4  # added to the score of a masked key: its weight is exactly 0, and float16 holds it


@dataclass(frozen=True, slots=True)
class _Rope:
    """Cosines and sines: (F^2, pairs), one row a place of the map and one column a pair of channels."""

    cos: Value
    sin: Value


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the keys and values of every layer are made from."""

    values: Value  # (rows, M)
    spatial_keys: Value  # (rows of spatial memories, M + mask channels), position added
    pointer_keys: Value  # (rows of pointers, M + mask channels), position added


def memory_attention(config: NetworkConfig, weights: Weights, precision: Precision) -> onnx.ModelProto:
    """Features (F^2, 1, C) and memory (rows, 1, M) -> conditioned_feats (1, C, F, F)."""
    g = GraphWriter("memory_attention", precision)
    side, hidden, memory = config.feature_size, config.hidden_size, config.memory_size
    features = g.compute(g.input("current_vision_features", [side * side, 1, hidden]))
    position = g.compute(g.input("current_vision_position_embeddings", [side * side, 1, hidden]))
    rows: list[int | str] = ["memory_rows", 1, memory]
    remembered = _memory(g, config, g.input("memory", rows), g.input("memory_pos", rows))
    rope = _rope(g, config)

    tokens = g.reshape(g.add(features, g.scale(position, 0.1)), side * side, hidden)
    attention = weights.within("memory_attention")
    for index in range(config.memory_attention_num_layers):
        tokens = _layer(g, config, attention.within(f"layers.{index}"), tokens, remembered, rope)
    norm = attention.within("layer_norm")
    tokens = g.layer_norm(tokens, norm["weight"], norm["bias"], eps=_LAYER_NORM_EPS)
    conditioned = g.reshape(g.transpose(tokens, 1, 0), 1, hidden, side, side)
    g.output("conditioned_feats", conditioned, [1, hidden, side, side])
    return g.model()


def _memory(g: GraphWriter, config: NetworkConfig, memory: Value, position: Value) -> _Memory:
    key_mask = g.optional_input("key_mask", ["memory_rows"], np.ones(config.memory_rows, np.float32))
    pointer_rows = g.optional_input("pointer_rows", [1], np.array([config.pointer_rows], np.int64))
    values = g.reshape(g.compute(memory), -1, config.memory_size)
    keys = g.add(values, g.reshape(g.compute(position), -1, config.memory_size))
    boundary = g.op("Sub", g.slice(g.op("Shape", memory), g.ints(0), g.ints(1), axis=0), pointer_rows)
    channels = _mask_channels(g)
    penalty = g.full_weight(np.full((1, channels), -_MASKED / channels, np.float32))
    score = g.mul(g.op("Sub", g.reshape(key_mask, -1, 1), g.full_weight(np.array(1.0, np.float32))), penalty)
    keys = g.concat(keys, g.compute(score), axis=1)
    return _Memory(
        values=values,
        spatial_keys=g.slice(keys, g.ints(0), boundary, axis=0),
        pointer_keys=g.slice(keys, boundary, g.ints(np.iinfo(np.int64).max), axis=0),
    )


def _mask_channels(g: GraphWriter) -> int:
    """Channels that carry the key mask; GPUs want a multiple of 8 in float16."""
    return 8 if g.precision is Precision.FP16 else 1


def _rope(g: GraphWriter, config: NetworkConfig) -> _Rope:
    cos, sin = axial_rope(config.feature_size, _head_dim(config), float(config.rope_parameters["rope_theta"]))
    return _Rope(g.weight(cos.T), g.weight(sin.T))


def _attention_dim(config: NetworkConfig) -> int:
    return config.memory_attention_hidden_size // config.memory_attention_downsample_rate


def _head_dim(config: NetworkConfig) -> int:
    return _attention_dim(config) // config.memory_attention_num_attention_heads


def _layer(
    g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, memory: _Memory, rope: _Rope
) -> Value:
    """Self-attention, attention to the memory, feed-forward; each on normed tokens with a residual."""

    def norm(name: str, value: Value) -> Value:
        module = weights.within(name)
        return g.layer_norm(value, module["weight"], module["bias"], eps=_LAYER_NORM_EPS)

    tokens = g.add(tokens, _self_attention(g, config, weights.within("self_attn"), norm("layer_norm1", tokens), rope))
    normed = norm("layer_norm2", tokens)
    tokens = g.add(tokens, _cross_attention(g, config, weights.within("cross_attn_image"), normed, memory, rope))
    expanded = g.linear(norm("layer_norm3", tokens), weights["linear1.weight"], weights["linear1.bias"])
    expanded = g.activation(config.memory_attention_feed_forward_hidden_act, expanded)
    return g.add(tokens, g.linear(expanded, weights["linear2.weight"], weights["linear2.bias"]))


def _self_attention(g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, rope: _Rope) -> Value:
    query = _rotated(g, config, g.linear(tokens, *_query_matrix(config, weights)), rope)
    key = _rotated(g, config, g.linear(tokens, weights["k_proj.weight"], weights["k_proj.bias"]), rope)
    return _attend(g, config, weights, query, key, tokens, keys=config.feature_size**2)


def _cross_attention(
    g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, memory: _Memory, rope: _Rope
) -> Value:
    """Attention to the memory.

    The key mask is one more channel, which is not rotated: the query's is 1, the key's the penalty, and the
    product adds it to the score.
    """
    channels = _mask_channels(g)
    query = _rotated(g, config, g.linear(tokens, *_query_matrix(config, weights, channels)), rope, channels)
    matrix, bias = _key_matrix(config, weights, channels)
    spatial = _rotated(g, config, g.linear(memory.spatial_keys, matrix, bias), rope, channels)
    pointers = g.linear(memory.pointer_keys, matrix, bias)  # pointers have no place: not rotated
    heads, width = config.memory_attention_num_attention_heads, _head_dim(config) + channels
    key = g.concat(spatial, g.reshape(pointers, -1, heads, width), axis=0)
    return _attend(g, config, weights, query, key, memory.values, keys=config.memory_rows)


def _query_matrix(config: NetworkConfig, weights: Weights, mask_channels: int = 0) -> tuple[Weight, Weight]:
    """The projection of queries, scaled as the scores need it; mask channels are 1."""
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    matrix, bias = (
        weights[f"q_proj.{name}"].astype(np.float32).reshape(heads, head_dim, -1) * np.float32(head_dim**-0.5)
        for name in ("weight", "bias")
    )
    more = ((0, 0), (0, mask_channels), (0, 0))
    rows = heads * (head_dim + mask_channels)
    return np.pad(matrix, more).reshape(rows, -1), np.pad(bias, more, constant_values=1).reshape(rows)


def _key_matrix(config: NetworkConfig, weights: Weights, mask_channels: int) -> tuple[Weight, Weight]:
    """The projection of memory keys; mask channels pass through to every head."""
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    matrix, bias = (weights[f"k_proj.{name}"].reshape(heads, head_dim, -1) for name in ("weight", "bias"))
    width = head_dim + mask_channels
    matrix = np.pad(matrix, ((0, 0), (0, mask_channels), (0, mask_channels)))
    matrix[:, head_dim:, config.memory_size :] = np.eye(mask_channels, dtype=matrix.dtype)
    return matrix.reshape(heads * width, -1), np.pad(bias, ((0, 0), (0, mask_channels), (0, 0))).reshape(-1)


def _rotated(g: GraphWriter, config: NetworkConfig, tokens: Value, rope: _Rope, still_channels: int = 0) -> Value:
    """Tokens turned by their place in the map, every F^2 of them one map: (n, heads, head_dim + still channels).

    One pass over the data with ONNX Runtime's own operator; written out it is six.
    """
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    places, width = config.feature_size**2, head_dim + still_channels
    maps = g.reshape(tokens, -1, places, heads * width)
    turned = g.runtime_op(
        "RotaryEmbedding", maps, g.ints(0), rope.cos, rope.sin, shape=[None, places, heads * width],
        interleaved=1, num_heads=heads, rotary_embedding_dim=head_dim,
    )  # fmt: skip
    return g.reshape(turned, -1, heads, width)


def _attend(
    g: GraphWriter, config: NetworkConfig, weights: Weights, query: Value, key: Value, tokens: Value, *, keys: int
) -> Value:
    """Attention whose values are the tokens (m, c) that the keys were made from, projected afterwards.

    The rows of attention sum to one, so projecting the average is the same as averaging the projections, and
    the value's projection and the output's become one: a quarter of the work in SAM 2's attention to the memory.

    Args:
        g: The graph.
        config: Dimensions.
        weights: Of the attention.
        query: (F^2, heads, d), scaled.
        key: (m, heads, d).
        tokens: (m, c).
        keys: m, at most.

    Returns:
        (F^2, C).
    """
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    channels = weights["v_proj.weight"].shape[1]
    shape = AttentionShape(heads, config.feature_size**2, keys)
    attended = g.attention(query, key, g.reshape(tokens, -1, 1, channels), shape=shape)
    output = weights["o_proj.weight"].astype(np.float64)
    value = weights["v_proj.weight"].astype(np.float64).reshape(heads, head_dim, -1)
    matrix = np.einsum("chd,hdm->chm", output.reshape(-1, heads, head_dim), value)
    bias = output @ weights["v_proj.bias"] + weights["o_proj.bias"]
    joined = g.reshape(attended, config.feature_size**2, heads * channels)
    return g.linear(joined, matrix.reshape(len(output), -1).astype(np.float32), bias.astype(np.float32))
