"""Small SAM 2 networks with random weights, as checkpoints on disk: any dimensions, no PyTorch.

Names and shapes are those of transformers' Sam2VideoModel; `test_build.py` compares them with it, and with
those of the built-in checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from sam2track.build.checkpoint import Checkpoint, read_checkpoint
from sam2track.build.network import NetworkConfig

Array = NDArray[np.float32]
Shape = tuple[int, ...]

# The smallest network that has every kind of layer: windows, global attention, pooling, several heads.
TINY: dict[str, Any] = {
    "image_size": 64,
    "num_maskmem": 4,
    "memory_attention_hidden_size": 32,
    "memory_attention_feed_forward_hidden_size": 48,
    "memory_attention_num_layers": 1,
    "memory_encoder_hidden_size": 32,
    "memory_encoder_output_channels": 16,
    "mask_downsampler_embed_dim": 32,
    "memory_fuser_embed_dim": 32,
    "memory_fuser_intermediate_dim": 40,
    "memory_fuser_num_layers": 1,
    "vision_config": {
        "fpn_hidden_size": 32,
        "backbone_channel_list": [32, 24, 16, 8],
        "backbone_config": {
            "model_type": "sam2_hiera_det_model",
            "hidden_size": 8,
            "blocks_per_stage": [1, 1, 2, 1],
            "embed_dim_per_stage": [8, 16, 24, 32],
            "num_attention_heads_per_stage": [1, 2, 2, 4],
            "window_size_per_stage": [4, 4, 2, 2],
            "global_attention_blocks": [3],
            "window_positional_embedding_background_size": [3, 3],
            "mlp_ratio": 2.0,
        },
    },
    "prompt_encoder_config": {"hidden_size": 32, "mask_input_channels": 8},
    "mask_decoder_config": {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "mlp_dim": 24,
        "iou_head_hidden_dim": 20,
    },
}


# The reference insists on memories of 64 channels; two tokens a pointer.
WIDE = {
    "memory_attention_hidden_size": 128,
    "memory_encoder_hidden_size": 128,
    "memory_encoder_output_channels": 64,
    "mask_downsampler_embed_dim": 128,
    "memory_fuser_embed_dim": 128,
    "vision_config.fpn_hidden_size": 128,
    "prompt_encoder_config.hidden_size": 128,
    "mask_decoder_config.hidden_size": 128,
}


def config_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    """TINY with some of its fields changed; a dotted name reaches into a section."""
    config = deepcopy(TINY)
    for dotted, value in changes.items():
        section = config
        *path, name = dotted.split(".")
        for part in path:
            section = section[part]
        section[name] = value
    return config


def write_checkpoint(folder: Path, config: Mapping[str, Any] = TINY, *, seed: int = 0, **weights: Any) -> Path:
    """A checkpoint's folder; `weights` replaces arrays, or leaves out those that are None."""
    folder.mkdir()
    arrays: dict[str, Any] = random_weights(config, seed) | weights
    save_file({name: array for name, array in arrays.items() if array is not None}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tiny_checkpoint(folder: Path, **changes: Any) -> Checkpoint:
    """Written and read again."""
    return read_checkpoint(write_checkpoint(folder, config_with(changes)))


def random_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, Array]:
    """Matrices N(0, 1 / fan-in), norms 1, so that numbers stay near 1 through the network."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config):
        noise = rng.standard_normal(shape).astype(np.float32)
        last = name.rpartition(".")[2]
        if "norm" in name and last == "weight":
            noise = 1 + 0.1 * noise
        elif last == "weight":
            noise /= np.float32(max(np.prod(shape[1:]), 1)) ** np.float32(0.5)
        else:
            noise *= np.float32(0.1)
        weights[name] = noise
    # An object that is there: absent ones have no mask to look at.
    weights["mask_decoder.pred_obj_score_head.proj_out.bias"] += 2
    return weights


def weight_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every weight of the network."""
    network = NetworkConfig.model_validate(config)
    yield from _vision_encoder(network, config)
    yield from _prompt_encoder(network)
    yield from _mask_decoder(network, config)
    yield from _memory_encoder(network, config)
    yield from _memory_attention(network, config)
    hidden, memory, frames = network.hidden_size, network.memory_size, network.num_maskmem
    yield from _mlp("object_pointer_proj", (hidden, hidden, hidden, hidden))
    yield "memory_temporal_positional_encoding", (frames, 1, 1, memory)
    yield "no_memory_embedding", (1, 1, hidden)
    yield "no_memory_positional_encoding", (1, 1, hidden)
    yield "no_object_pointer", (1, hidden)
    if network.enable_occlusion_spatial_embedding:
        yield "occlusion_spatial_embedding_parameter", (1, memory)
    if network.enable_temporal_pos_encoding_for_object_pointers:
        yield from _layer("temporal_positional_encoding_projection_layer", (memory, hidden))
    yield "shared_image_embedding.positional_embedding", (2, hidden // 2)
    yield from _layer("mask_downsample", (1, 1, 4, 4))


def _vision_encoder(network: NetworkConfig, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    backbone = network.vision_config.backbone_config
    dims, width = backbone.embed_dim_per_stage, backbone.hidden_size
    background = config["vision_config"]["backbone_config"]["window_positional_embedding_background_size"]
    prefix = "vision_encoder.backbone"
    yield f"{prefix}.pos_embed", (1, width, *background)
    yield f"{prefix}.pos_embed_window", (1, width, *[backbone.window_size_per_stage[0]] * 2)
    yield from _layer(f"{prefix}.patch_embed.projection", (width, 3, *backbone.patch_kernel_size))
    index, dim = 0, width
    for count, wider in zip(backbone.blocks_per_stage, dims, strict=True):
        for _ in range(count):
            block = f"{prefix}.blocks.{index}"
            yield from _norm(f"{block}.layer_norm1", dim)
            yield from _layer(f"{block}.attn.qkv", (3 * wider, dim))
            yield from _layer(f"{block}.attn.proj", (wider, wider))
            yield from _norm(f"{block}.layer_norm2", wider)
            inner = int(wider * backbone.mlp_ratio)
            yield from _layer(f"{block}.mlp.proj_in", (inner, wider))
            yield from _layer(f"{block}.mlp.proj_out", (wider, inner))
            if dim != wider:
                yield from _layer(f"{block}.proj", (wider, dim))
            index, dim = index + 1, wider
    for level, channels in enumerate(reversed(dims)):
        yield from _layer(f"vision_encoder.neck.convs.{level}", (network.hidden_size, channels, 1, 1))


def _prompt_encoder(network: NetworkConfig) -> Iterator[tuple[str, Shape]]:
    prompts, hidden = network.prompt_encoder_config, network.hidden_size
    few, many = prompts.mask_input_channels // 4, prompts.mask_input_channels
    yield from _layer("prompt_encoder.mask_embed.conv1", (few, 1, 2, 2))
    yield from _layer("prompt_encoder.mask_embed.conv2", (many, few, 2, 2))
    yield from _layer("prompt_encoder.mask_embed.conv3", (hidden, many, 1, 1))
    yield from _norm("prompt_encoder.mask_embed.layer_norm1", few)
    yield from _norm("prompt_encoder.mask_embed.layer_norm2", many)
    yield "prompt_encoder.no_mask_embed.weight", (1, hidden)
    yield "prompt_encoder.not_a_point_embed.weight", (1, hidden)
    yield "prompt_encoder.point_embed.weight", (prompts.num_point_embeddings, hidden)
    yield "prompt_encoder.shared_embedding.positional_embedding", (2, hidden // 2)


def _mask_decoder(network: NetworkConfig, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    decoder, hidden = network.mask_decoder_config, network.hidden_size
    inner = hidden // decoder.attention_downsample_rate
    masks = decoder.num_multimask_outputs + 1
    yield from _layer("mask_decoder.conv_s0", (hidden // 8, hidden, 1, 1))
    yield from _layer("mask_decoder.conv_s1", (hidden // 4, hidden, 1, 1))
    head = config["mask_decoder_config"]["iou_head_hidden_dim"]
    yield from _mlp("mask_decoder.iou_prediction_head", (hidden, *[head] * (decoder.iou_head_depth - 1), masks))
    yield from _mlp("mask_decoder.pred_obj_score_head", (hidden, hidden, hidden, 1))
    for index in range(masks):
        yield from _mlp(f"mask_decoder.output_hypernetworks_mlps.{index}", (hidden, hidden, hidden, hidden // 8))
    for name, rows in (("iou_token", 1), ("mask_tokens", masks), ("obj_score_token", 1)):
        yield f"mask_decoder.{name}.weight", (rows, hidden)
    yield from _layer("mask_decoder.upscale_conv1", (hidden, hidden // 4, 2, 2), bias=hidden // 4)
    yield from _layer("mask_decoder.upscale_conv2", (hidden // 4, hidden // 8, 2, 2), bias=hidden // 8)
    yield from _norm("mask_decoder.upscale_layer_norm", hidden // 4)
    transformer = "mask_decoder.transformer"
    yield from _attention(f"{transformer}.final_attn_token_to_image", hidden, inner)
    yield from _norm(f"{transformer}.layer_norm_final_attn", hidden)
    for index in range(decoder.num_hidden_layers):
        layer = f"{transformer}.layers.{index}"
        yield from _attention(f"{layer}.self_attn", hidden, hidden)
        yield from _attention(f"{layer}.cross_attn_token_to_image", hidden, inner)
        yield from _attention(f"{layer}.cross_attn_image_to_token", hidden, inner)
        yield from _mlp(f"{layer}.mlp", (hidden, config["mask_decoder_config"]["mlp_dim"], hidden))
        for norm in range(1, 5):
            yield from _norm(f"{layer}.layer_norm{norm}", hidden)


def _memory_encoder(network: NetworkConfig, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    width, kernel = network.memory_encoder_hidden_size, network.mask_downsampler_kernel_size
    yield from _layer("memory_encoder.feature_projection", (width, network.hidden_size, 1, 1))
    yield from _layer("memory_encoder.projection", (network.memory_size, width, 1, 1))
    channels, stride, index = 1, network.mask_downsampler_stride, 0
    while stride ** (index + 1) <= network.mask_downsampler_total_stride:
        layer = f"memory_encoder.mask_downsampler.layers.{index}"
        wider = channels * network.mask_downsampler_stride**2
        yield from _layer(f"{layer}.conv", (wider, channels, kernel, kernel))
        yield from _norm(f"{layer}.layer_norm", wider)
        channels, index = wider, index + 1
    embed = config["mask_downsampler_embed_dim"]
    yield from _layer("memory_encoder.mask_downsampler.final_conv", (embed, channels, 1, 1))
    dim, inner = config["memory_fuser_embed_dim"], config["memory_fuser_intermediate_dim"]
    for index in range(network.memory_fuser_num_layers):
        layer = f"memory_encoder.memory_fuser.layers.{index}"
        yield from _layer(f"{layer}.depthwise_conv", (dim, 1, *[network.memory_fuser_kernel_size] * 2))
        yield from _norm(f"{layer}.layer_norm", dim)
        yield from _layer(f"{layer}.pointwise_conv1", (inner, dim))
        yield from _layer(f"{layer}.pointwise_conv2", (dim, inner))
        yield f"{layer}.scale", (dim,)


def _memory_attention(network: NetworkConfig, config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, memory = network.memory_attention_hidden_size, network.memory_size
    inner, wide = (
        hidden // network.memory_attention_downsample_rate,
        config["memory_attention_feed_forward_hidden_size"],
    )
    yield from _norm("memory_attention.layer_norm", hidden)
    for index in range(network.memory_attention_num_layers):
        layer = f"memory_attention.layers.{index}"
        yield from _attention(f"{layer}.self_attn", hidden, inner)
        yield from _attention(f"{layer}.cross_attn_image", hidden, inner, memory)
        yield from _layer(f"{layer}.linear1", (wide, hidden))
        yield from _layer(f"{layer}.linear2", (hidden, wide))
        for norm in range(1, 4):
            yield from _norm(f"{layer}.layer_norm{norm}", hidden)


def _layer(name: str, shape: Shape, *, bias: int | None = None) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", (shape[0] if bias is None else bias,)


def _norm(name: str, size: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _mlp(name: str, sizes: tuple[int, ...]) -> Iterator[tuple[str, Shape]]:
    layers = ["proj_in", *(f"layers.{index}" for index in range(len(sizes) - 3)), "proj_out"]
    for layer, inner, outer in zip(layers, sizes, sizes[1:], strict=False):
        yield from _layer(f"{name}.{layer}", (outer, inner))


def _attention(name: str, dim: int, inner: int, memory: int | None = None) -> Iterator[tuple[str, Shape]]:
    yield from _layer(f"{name}.q_proj", (inner, dim))
    yield from _layer(f"{name}.k_proj", (inner, memory or dim))
    yield from _layer(f"{name}.v_proj", (inner, memory or dim))
    yield from _layer(f"{name}.o_proj", (dim, inner))
