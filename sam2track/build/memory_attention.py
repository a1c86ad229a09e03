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
    """Cosines and sines with one row a pair of channels: (pairs, 1, F^2) for keys, (F^2, pairs) for queries."""

    key_cos: Value
    key_sin: Value
    query_cos: Value
    query_sin: Value


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the keys and values of every layer are made from."""

    values: Value  # (rows, M)
    spatial_keys: Value  # (rows of spatial memories, M), position added
    pointer_keys: Value  # (rows of pointers, M), position added
    mask: Value  # (heads, mask channels, rows)


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
    heads = config.memory_attention_num_attention_heads
    channels = _mask_channels(g)
    penalty = g.full_weight(np.array(-_MASKED / channels, np.float32))
    score = g.mul(g.op("Sub", key_mask, g.full_weight(np.array(1.0, np.float32))), penalty)
    shape = g.concat(g.ints(heads, channels), g.op("Shape", key_mask), axis=0)
    return _Memory(
        values=values,
        spatial_keys=g.slice(keys, g.ints(0), boundary, axis=0),
        pointer_keys=g.slice(keys, boundary, g.ints(np.iinfo(np.int64).max), axis=0),
        mask=g.compute(g.op("Expand", g.reshape(score, 1, 1, -1), shape)),
    )


def _mask_channels(g: GraphWriter) -> int:
    """Channels that carry the key mask; GPUs want a multiple of 8 in float16."""
    return 8 if g.precision is Precision.FP16 else 1


def _rope(g: GraphWriter, config: NetworkConfig) -> _Rope:
    head_dim = _head_dim(config)
    cos, sin = axial_rope(config.feature_size, head_dim, float(config.rope_parameters["rope_theta"]))
    return _Rope(
        key_cos=g.weight(cos[:, None, :]),
        key_sin=g.weight(sin[:, None, :]),
        query_cos=g.weight(cos.T),
        query_sin=g.weight(sin.T),
    )


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
    heads, side = config.memory_attention_num_attention_heads, config.feature_size
    query = g.concat(*_rotated_query(g, config, weights, tokens, rope), axis=2)
    key = g.concat(*_rotated_keys(g, config, weights, tokens, rope), axis=1)
    value = g.reshape(g.linear(tokens, weights["v_proj.weight"], weights["v_proj.bias"]), -1, heads, _head_dim(config))
    attended = g.attend_columns(query, key, g.transpose(value, 1, 0, 2), shape=AttentionShape(heads, side**2, side**2))
    return _join_heads(g, config, weights, attended)


def _cross_attention(
    g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, memory: _Memory, rope: _Rope
) -> Value:
    """Attention to the memory; its values are the M-wide tokens themselves, projected afterwards.

    The rows of attention sum to one, so projecting the average is the same as averaging the projections,
    at a quarter of the work in SAM 2. The key mask is one more channel: the query's is 1, the key's the
    penalty, and the product adds it to the score.
    """
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    channels = _mask_channels(g)
    ones = g.weight(np.ones((heads, config.feature_size**2, channels), np.float32))
    query = g.concat(*_rotated_query(g, config, weights, tokens, rope), ones, axis=2)
    spatial = _rotated_keys(g, config, weights, memory.spatial_keys, rope)
    pointers = _key_halves(g, config, weights, memory.pointer_keys)  # pointers have no place: not rotated
    halves = [g.concat(turned, still, axis=2) for turned, still in zip(spatial, pointers, strict=True)]
    shape = AttentionShape(heads, config.feature_size**2, config.memory_rows)
    attended = g.attend_columns(query, g.concat(*halves, memory.mask, axis=1), memory.values, shape=shape)
    matrix = weights["v_proj.weight"].reshape(heads, head_dim, -1).transpose(0, 2, 1)
    projected = g.matmul(attended, g.weight(matrix))
    projected = g.add(projected, g.weight(weights["v_proj.bias"].reshape(heads, 1, head_dim)))
    return _join_heads(g, config, weights, projected)


# -- rotary encoding ----------------------------------------------------------------------------------------


def _halves(array: Weight) -> tuple[Weight, Weight]:
    """Rows of the first and of the second channel of each rotated pair.

    The reference interleaves the pairs. Scores do not change when queries and keys have their channels
    reordered alike, and halves need no interleaving.
    """
    return array[0::2], array[1::2]


def _key_halves(g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value) -> list[Value]:
    """Keys not yet rotated, channels first: two of (heads, head_dim / 2, n)."""
    heads = config.memory_attention_num_attention_heads
    matrices, biases = (_halves(weights[f"k_proj.{name}"]) for name in ("weight", "bias"))
    return [
        g.reshape(g.linear_columns(tokens, matrix, bias), heads, _head_dim(config) // 2, -1)
        for matrix, bias in zip(matrices, biases, strict=True)
    ]


def _rotated_keys(g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, rope: _Rope) -> list[Value]:
    """Keys turned by their place in the map; every F^2 tokens are one map. Two of (heads, head_dim / 2, n)."""
    heads, pairs = config.memory_attention_num_attention_heads, _head_dim(config) // 2
    maps = [
        g.reshape(half, heads, pairs, -1, config.feature_size**2) for half in _key_halves(g, config, weights, tokens)
    ]
    turned = _rotate(g, maps[0], maps[1], rope.key_cos, rope.key_sin)
    return [g.reshape(half, heads, pairs, -1) for half in turned]


def _rotated_query(g: GraphWriter, config: NetworkConfig, weights: Weights, tokens: Value, rope: _Rope) -> list[Value]:
    """Queries, scaled and turned: two of (heads, F^2, head_dim / 2)."""
    heads, head_dim = config.memory_attention_num_attention_heads, _head_dim(config)
    matrices, biases = (_halves(weights[f"q_proj.{name}"]) for name in ("weight", "bias"))
    halves = []
    for matrix, bias in zip(matrices, biases, strict=True):
        half = g.reshape(g.linear(tokens, matrix, bias), -1, heads, head_dim // 2)
        halves.append(g.scale(g.transpose(half, 1, 0, 2), head_dim**-0.5))
    return _rotate(g, halves[0], halves[1], rope.query_cos, rope.query_sin)


def _rotate(g: GraphWriter, first: Value, second: Value, cos: Value, sin: Value) -> list[Value]:
    return [
        g.op("Sub", g.mul(first, cos), g.mul(second, sin)),
        g.add(g.mul(second, cos), g.mul(first, sin)),
    ]


def _join_heads(g: GraphWriter, config: NetworkConfig, weights: Weights, attended: Value) -> Value:
    """(heads, n, head_dim) -> (n, C) through the output projection."""
    joined = g.reshape(g.transpose(attended, 1, 0, 2), -1, _attention_dim(config))
    return g.linear(joined, weights["o_proj.weight"], weights["o_proj.bias"])
