"""Pointer temporal encoding: how long ago an object pointer was made, as a position for memory attention."""

from __future__ import annotations

import numpy as np
import onnx

from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.position import TEMPERATURE
from sam2track.build.writer import GraphWriter, Precision


def pointer_tpos(config: NetworkConfig, weights: Weights, precision: Precision) -> onnx.ModelProto:
    """normalized_diffs (16,) -> pointer_pos (16, M)."""
    g = GraphWriter("pointer_tpos", precision)
    count, memory = config.max_object_pointers_in_encoder, config.memory_size
    differences = g.reshape(g.input("normalized_diffs", [count]), count, 1)
    if config.enable_temporal_pos_encoding_for_object_pointers:
        half = config.hidden_size // 2
        divisor = TEMPERATURE ** (2 * (np.arange(half, dtype=np.float32) // 2) / half)
        angle = g.op("Div", differences, g.full_weight(divisor.astype(np.float32)))
        sine = g.compute(g.concat(g.op("Sin", angle), g.op("Cos", angle), axis=1))
        layer = weights.within("temporal_positional_encoding_projection_layer")
        position = g.linear(sine, layer["weight"], layer["bias"])
    else:  # SAM 2.0: pointers have no temporal position
        zeros = g.mul(differences, g.full_weight(np.zeros((1, memory), np.float32)))
        position = g.compute(zeros)
    g.output("pointer_pos", position, [count, memory])
    return g.model()
