"""The vision encoder: Hiera backbone, feature pyramid, and the decoder's two 1x1 skip convolutions.

Tokens are (height * width, channels) from the patch embedding to the last block, so that every linear
layer is one matrix product; windows exist only around the attention itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from sam2track.build.network import HieraConfig, NetworkConfig, Weight, Weights
from sam2track.build.position import bicubic_resize, sine_grid
from sam2track.build.writer import AttentionShape, GraphWriter, Precision, Value, pointwise


@dataclass(frozen=True, slots=True)
class _Block:
    """Where a block stands in the backbone and what follows from it."""

    index: int
    stage: int
    pools: bool
    window: int  # 0: global attention
    last_of_stage: bool


def vision_encoder(config: NetworkConfig, weights: Weights, precision: Precision) -> onnx.ModelProto:
    """pixel_values (1, 3, S, S) -> feats0, feats1, feats2, feats2_no_mem, vision_pos_embed."""
    g = GraphWriter("vision_encoder", precision)
    size, side, hidden = config.image_size, config.feature_size, config.hidden_size
    pixels = g.compute(g.input("pixel_values", [1, 3, size, size]))
    stages = _backbone(g, config.vision_config.backbone_config, weights.within("vision_encoder.backbone"), pixels, size)

    skip0 = _skip_features(g, weights, stages[0], level=0)
    skip1 = _skip_features(g, weights, stages[1], level=1)
    feats2 = g.reshape(_top_features(g, config, weights, stages), 1, hidden, side, side)
    no_memory = weights["no_memory_embedding"].reshape(1, hidden, 1, 1)
    position = sine_grid(side, hidden).T.reshape(1, hidden, side, side)

    g.output("feats0", g.reshape(skip0, 1, -1, 4 * side, 4 * side), [1, hidden // 8, 4 * side, 4 * side])
    g.output("feats1", g.reshape(skip1, 1, -1, 2 * side, 2 * side), [1, hidden // 4, 2 * side, 2 * side])
    g.output("feats2", feats2, [1, hidden, side, side])
    g.output("feats2_no_mem", g.add(feats2, g.weight(no_memory)), [1, hidden, side, side])
    g.output("vision_pos_embed", g.full_weight(position), [1, hidden, side, side], computed=False)
    return g.model()


def _top_features(g: GraphWriter, config: NetworkConfig, weights: Weights, stages: list[Value]) -> Value:
    """The stride-16 level of the pyramid, channels first (C, F * F); stride 32 is added to it."""
    lateral = _lateral(g, weights, stages[2], level=2)
    if 2 not in config.vision_config.fpn_top_down_levels:
        _neck_layer(weights, level=3)  # in the checkpoint, but nothing reads it
        return lateral
    half, hidden = config.feature_size // 2, config.hidden_size
    coarse = g.reshape(_lateral(g, weights, stages[3], level=3), 1, hidden, half, half)
    scales = g.full_weight(np.array([1, 1, 2, 2], np.float32))
    doubled = g.op(
        "Resize", coarse, "", scales, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    return g.add(lateral, g.reshape(doubled, hidden, -1))


def _neck_layer(weights: Weights, level: int) -> tuple[Weight, Weight]:
    """Weight (C, channels) and bias (C,) of a pyramid level; they are stored coarsest first."""
    layer = weights.within(f"vision_encoder.neck.convs.{3 - level}")
    return pointwise(layer["weight"]), layer["bias"]


def _lateral(g: GraphWriter, weights: Weights, tokens: Value, *, level: int) -> Value:
    return g.linear_columns(tokens, *_neck_layer(weights, level))


def _skip_features(g: GraphWriter, weights: Weights, tokens: Value, *, level: int) -> Value:
    """Pyramid level 0 or 1 and the decoder's 1x1 convolution on it, which nothing else reads: one product."""
    neck, neck_bias = (array.astype(np.float64) for array in _neck_layer(weights, level))
    skip = weights.within(f"mask_decoder.conv_s{level}")
    matrix = pointwise(skip["weight"]).astype(np.float64)
    bias = matrix @ neck_bias + skip["bias"]
    return g.linear_columns(tokens, (matrix @ neck).astype(np.float32), bias.astype(np.float32))


# -- backbone ---------------------------------------------------------------------------------------------


def _backbone(g: GraphWriter, config: HieraConfig, weights: Weights, pixels: Value, size: int) -> list[Value]:
    """The tokens at the end of each stage."""
    side = size // config.patch_stride[0]
    tokens = _patch_embedding(g, config, weights, pixels, side)
    stages = []
    for block in _blocks(config):
        tokens = _block(g, config, weights.within(f"blocks.{block.index}"), block, tokens, side)
        side = side // 2 if block.pools else side
        if block.last_of_stage:
            stages.append(tokens)
    return stages


def _blocks(config: HieraConfig) -> list[_Block]:
    blocks: list[_Block] = []
    for stage, count in enumerate(config.blocks_per_stage):
        for position in range(count):
            first = stage > 0 and position == 0
            # The first block of a stage still sees the previous stage's resolution, and its window.
            window = config.window_size_per_stage[stage - 1 if first else stage]
            index = len(blocks)
            blocks.append(
                _Block(
                    index=index,
                    stage=stage,
                    pools=first and stage <= config.num_query_pool_stages,
                    window=0 if index in config.global_attention_blocks else window,
                    last_of_stage=position == count - 1,
                )
            )
    return blocks


def _patch_embedding(g: GraphWriter, config: HieraConfig, weights: Weights, pixels: Value, side: int) -> Value:
    patches = weights.within("patch_embed.projection")
    pad = [*config.patch_padding, *config.patch_padding]
    embedded = g.conv(pixels, patches["weight"], patches["bias"], strides=list(config.patch_stride), pads=pad)
    tokens = g.transpose(g.reshape(embedded, config.hidden_size, side * side), 1, 0)
    # A coarse map stretched over the image, plus one window's map repeated over it.
    coarse = bicubic_resize(weights["pos_embed"][0].astype(np.float32), side)
    window = weights["pos_embed_window"][0].astype(np.float32)
    tiled = np.tile(window, (1, side // window.shape[1], side // window.shape[2]))
    position = (coarse + tiled).reshape(config.hidden_size, side * side).T
    return g.add(tokens, g.weight(position))


def _block(g: GraphWriter, config: HieraConfig, weights: Weights, block: _Block, tokens: Value, side: int) -> Value:
    """One multi-scale block: (side * side, dim) -> (side * side or a quarter, dim_out)."""
    normed = g.layer_norm(tokens, weights["layer_norm1.weight"], weights["layer_norm1.bias"], eps=config.layer_norm_eps)
    residual = tokens
    if "proj.weight" in weights:
        residual = g.linear(normed, weights["proj.weight"], weights["proj.bias"])
        residual = _pool(g, residual, side, side, weights["proj.weight"].shape[0]) if block.pools else residual
    heads = config.num_attention_heads_per_stage[block.stage]
    attended = _attention(g, weights.within("attn"), normed, side, block, heads)
    tokens = g.add(residual, attended)
    normed = g.layer_norm(tokens, weights["layer_norm2.weight"], weights["layer_norm2.bias"], eps=config.layer_norm_eps)
    mlp = weights.within("mlp")

    def feed_forward(part: Value) -> Value:
        expanded = g.activation(config.hidden_act, g.linear(part, mlp["proj_in.weight"], mlp["proj_in.bias"]))
        return g.linear(expanded, mlp["proj_out.weight"], mlp["proj_out.bias"])

    rows = (side // 2 if block.pools else side) ** 2
    return g.add(tokens, g.in_blocks(normed, rows, rows * mlp["proj_in.weight"].shape[0], feed_forward))


def _attention(g: GraphWriter, weights: Weights, tokens: Value, side: int, block: _Block, heads: int) -> Value:
    """Attention within windows, or over the whole map; the queries of a pooling block are pooled 2x2.

    Keys and values need no bias: a key's shifts all scores of a query alike, and a value's passes through,
    because the weights of an attention sum to one. So padding, which the reference adds before projecting and
    which thus becomes the bias, is plain zeros here, added after the product with less to multiply.
    """
    dim = weights["proj.weight"].shape[0]
    matrices, biases = np.split(weights["qkv.weight"], 3), np.split(weights["qkv.bias"], 3)
    window, halving = block.window, 2 if block.pools else 1
    windows = (-(-side // window)) ** 2 if window else 1
    padded = window > 0 and side % window > 0
    if window and not padded:
        tokens = g.reshape(_to_windows(g, tokens, side, window, matrices[0].shape[1]), windows * window**2, -1)
    parts = [g.linear(tokens, matrix, None if index or padded else biases[0]) for index, matrix in enumerate(matrices)]
    if block.pools:  # a maximum commutes with a bias
        rows, width = (windows * window, window) if window and not padded else (side, side)
        parts[0] = _pool(g, parts[0], rows, width, dim)
    if padded:
        query = _to_windows(g, parts[0], side // halving, window // halving, dim)
        keys, values = (_to_windows(g, part, side, window, dim) for part in parts[1:])
        parts = [g.add(query, g.weight(biases[0])), keys, values]
    else:
        parts = [g.reshape(part, windows, -1, dim) for part in parts]
    length = window or side
    shape = AttentionShape(windows * heads, queries=(length // halving) ** 2, keys=length**2)
    attended = _multi_head(g, parts, dim, heads, shape)
    if window:
        attended = _from_windows(g, attended, side // halving, window // halving, dim)
    else:
        attended = g.reshape(attended, (side // halving) ** 2, dim)
    matrix = weights["proj.weight"].astype(np.float64)
    bias = (matrix @ biases[2] + weights["proj.bias"]).astype(np.float32)
    return g.linear(attended, weights["proj.weight"], bias)


def _multi_head(g: GraphWriter, parts: list[Value], dim: int, heads: int, shape: AttentionShape) -> Value:
    """Query, key and value, (windows, n, dim) each -> (windows, n of the query, dim); heads join the batch."""
    head_dim, windows = dim // heads, shape.batch // heads
    if heads == 1:
        return g.attention(parts[0], parts[1], parts[2], scale=head_dim**-0.5, shape=shape)
    query, key, value = (
        g.reshape(g.transpose(g.reshape(part, windows, -1, heads, head_dim), 0, 2, 1, 3), shape.batch, -1, head_dim)
        for part in parts
    )
    attended = g.attention(query, key, value, scale=head_dim**-0.5, shape=shape)
    joined = g.transpose(g.reshape(attended, windows, heads, -1, head_dim), 0, 2, 1, 3)
    return g.reshape(joined, windows, -1, dim)


def _pool(g: GraphWriter, tokens: Value, rows: int, width: int, dim: int) -> Value:
    """2x2 maximum over a map, or over windows below each other: (rows * width, dim) -> a quarter of the rows."""
    halved = g.op("ReduceMax", g.reshape(tokens, rows // 2, 2, width * dim), axes=[1], keepdims=0)
    return g.op("ReduceMax", g.reshape(halved, rows * width // 4, 2, dim), axes=[1], keepdims=0)


def _to_windows(g: GraphWriter, tokens: Value, side: int, window: int, dim: int) -> Value:
    """(side * side, dim) -> (windows, window * window, dim); the last windows are filled with zeros."""
    count = -(-side // window)
    padding = count * window - side
    if padding:
        grid = g.reshape(tokens, side, side, dim)
        tokens = g.op("Pad", grid, g.ints(0, 0, 0, padding, padding, 0))
    # Four axes are enough: a window's row is contiguous.
    rows = g.reshape(tokens, count, window, count, window * dim)
    return g.reshape(g.transpose(rows, 0, 2, 1, 3), count**2, window**2, dim)


def _from_windows(g: GraphWriter, windows: Value, side: int, window: int, dim: int) -> Value:
    """The inverse of `_to_windows`: (windows, window * window, dim) -> (side * side, dim)."""
    count = -(-side // window)
    padded = count * window
    rows = g.transpose(g.reshape(windows, count, count, window, window * dim), 0, 2, 1, 3)
    grid = g.reshape(rows, padded, padded, dim)
    if padded > side:
        grid = g.op("Slice", grid, g.ints(0, 0), g.ints(side, side), g.ints(0, 1))
    return g.reshape(grid, side**2, dim)
