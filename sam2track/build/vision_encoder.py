"""The vision encoder: Hiera backbone, feature pyramid, and the decoder's two 1x1 skip convolutions.

Tokens are (height * width, channels) from the patch embedding to the last block, so that every linear
layer is one matrix product; they stand in the order of the windows (see `token_order`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from sam2track.build.network import HieraConfig, NetworkConfig, Weight, Weights
from sam2track.build.position import bicubic_resize, sine_grid
from sam2track.build.token_order import TokenOrder, Windows, reorder
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
    """The tokens at the end of each stage, in the map's order."""
    order = TokenOrder(size // config.patch_stride[0], config.window_size_per_stage[0])
    tokens = _patch_embedding(g, config, weights, pixels, order)
    stages = []
    for block in _blocks(config):
        # Global attention takes any order, but pooling needs one whose windows have an even side.
        window = block.window or (order.side if block.pools else order.window)
        tokens = reorder(g, tokens, order, TokenOrder(order.side, window))
        order = TokenOrder(order.side, window)
        tokens = _block(g, config, weights.within(f"blocks.{block.index}"), block, tokens, order)
        order = order.halved() if block.pools else order
        if block.last_of_stage:
            stages.append(reorder(g, tokens, order, TokenOrder(order.side, order.side)))
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


def _patch_embedding(g: GraphWriter, config: HieraConfig, weights: Weights, pixels: Value, order: TokenOrder) -> Value:
    side = order.side
    patches = weights.within("patch_embed.projection")
    pad = [*config.patch_padding, *config.patch_padding]
    embedded = g.conv(pixels, patches["weight"], patches["bias"], strides=list(config.patch_stride), pads=pad)
    tokens = g.transpose(g.reshape(embedded, config.hidden_size, side * side), 1, 0)
    # A coarse map stretched over the image, plus one window's map repeated over it.
    coarse = bicubic_resize(weights["pos_embed"][0].astype(np.float32), side)
    window = weights["pos_embed_window"][0].astype(np.float32)
    tiled = np.tile(window, (1, side // window.shape[1], side // window.shape[2]))
    position = (coarse + tiled).reshape(config.hidden_size, side * side).T
    tokens = reorder(g, tokens, TokenOrder(side, side), order)
    return g.add(tokens, g.weight(position[order.places()]))


def _block(
    g: GraphWriter, config: HieraConfig, weights: Weights, block: _Block, tokens: Value, order: TokenOrder
) -> Value:
    """One multi-scale block: (side * side, dim) -> (side * side or a quarter, dim_out)."""
    normed = g.layer_norm(tokens, weights["layer_norm1.weight"], weights["layer_norm1.bias"], eps=config.layer_norm_eps)
    residual = tokens
    if "proj.weight" in weights:
        residual = g.linear(normed, weights["proj.weight"], weights["proj.bias"])
        residual = _pool(g, residual, order, weights["proj.weight"].shape[0]) if block.pools else residual
    heads = config.num_attention_heads_per_stage[block.stage]
    attended = _attention(g, weights.within("attn"), normed, order, block, heads)
    tokens = g.add(residual, attended)
    normed = g.layer_norm(tokens, weights["layer_norm2.weight"], weights["layer_norm2.bias"], eps=config.layer_norm_eps)
    mlp = weights.within("mlp")

    def feed_forward(part: Value) -> Value:
        expanded = g.activation(config.hidden_act, g.linear(part, mlp["proj_in.weight"], mlp["proj_in.bias"]))
        return g.linear(expanded, mlp["proj_out.weight"], mlp["proj_out.bias"])

    rows = (order.halved() if block.pools else order).side ** 2
    return g.add(tokens, g.in_blocks(normed, rows, rows * mlp["proj_in.weight"].shape[0], feed_forward))


def _attention(g: GraphWriter, weights: Weights, tokens: Value, order: TokenOrder, block: _Block, heads: int) -> Value:
    """Attention within windows, or over the whole map; the queries of a pooling block are pooled 2x2.

    Keys and values need no bias: a key's shifts all scores of a query alike, and a value's passes through,
    because the weights of an attention sum to one. So padding, which the reference adds before projecting and
    which thus becomes the bias, is plain zeros here, and the value's bias is added by the output projection.
    """
    output, dim = weights["proj.weight"], len(weights["proj.weight"])
    matrices, biases = np.split(weights["qkv.weight"], 3), np.split(weights["qkv.bias"], 3)
    bias = output.astype(np.float64) @ biases[2] + weights["proj.bias"]
    query, key, value = g.linear(tokens, matrices[0], biases[0]), g.linear(tokens, matrices[1]), tokens
    if heads == 1 and matrices[2].shape == output.shape:  # the value's projection and the output's become one
        output = (output.astype(np.float64) @ matrices[2]).astype(np.float32)
    else:
        value = g.linear(tokens, matrices[2])
    query = _pool(g, query, order, dim) if block.pools else query
    spans = order.windows() if block.window else [Windows(1, order.side, order.side)]
    sizes = [span.tokens for span in spans]
    queries = g.split(query, [size // 4 for size in sizes] if block.pools else sizes)
    shared = zip(queries, g.split(key, sizes), g.split(value, sizes), spans, strict=True)
    attended = [_window_attention(g, block, parts, span, heads, dim) for *parts, span in shared]
    return g.linear(g.concat(*attended, axis=0), output, bias.astype(np.float32))


def _window_attention(g: GraphWriter, block: _Block, parts: list[Value], span: Windows, heads: int, dim: int) -> Value:
    """Attention in each of some windows; zeros fill them up to as many keys as a whole window has."""
    batch, head_dim, places = span.count * heads, dim // heads, span.height * span.width
    length = block.window**2 or places
    query, key, value = (g.reshape(part, -1, batch, head_dim) for part in parts)
    if places < length:
        key, value = (g.op("Pad", part, g.ints(0, 0, 0, length - places, 0, 0)) for part in (key, value))
    shape = AttentionShape(batch, queries=places // 4 if block.pools else places, keys=length)
    return g.reshape(g.attention(query, key, value, scale=head_dim**-0.5, shape=shape), -1, dim)


def _pool(g: GraphWriter, tokens: Value, order: TokenOrder, dim: int) -> Value:
    """2x2 maximum: (side * side, dim) -> a quarter of the rows, in the order of the halved map."""
    shapes = order.windows()
    pooled = []
    for part, windows in zip(g.split(tokens, [windows.tokens for windows in shapes]), shapes, strict=True):
        across = windows.count * dim
        rows = g.reshape(part, windows.height // 2, 2, windows.width * across)
        rows = g.reshape(g.op("ReduceMax", rows, axes=[1], keepdims=0), -1, 2, across)
        pooled.append(g.reshape(g.op("ReduceMax", rows, axes=[1], keepdims=0), windows.tokens // 4, dim))
    return g.concat(*pooled, axis=0)
