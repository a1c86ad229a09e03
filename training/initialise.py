"""The start that makes the network learn from nothing. With transformers' own start it does not.

Why each step is needed is in training/README.md; in short: signals must keep their size through narrow layers,
a click must find its place at once, and the memory must start as a look at the same place.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from transformers import Sam2VideoModel

from training.network import nano_config, tie_positions

HEADS = ("hypernetworks", "iou_prediction", "obj_score_head", "object_pointer_proj")
# Residual branches start small, so that depth does not grow the signal.
RESIDUAL = (
    ("backbone", ("attn.proj", "mlp.proj_out"), 0.5),
    ("mask_decoder.transformer", ("o_proj", "mlp.proj_out"), 0.7),
    ("memory_attention", ("o_proj", "linear2"), 0.5),
)


def new_network(seed: int) -> Sam2VideoModel:
    """A network that is ready to learn."""
    torch.manual_seed(seed)
    model = Sam2VideoModel(nano_config())
    model.set_attn_implementation("eager")
    with torch.no_grad():
        _fan_in(model)
        _embeddings(model)
        _place_matching(model)
        _memory_at_the_same_place(model)
    return tie_positions(model)


def _fan_in(model: nn.Module) -> None:
    """Weights scaled by fan-in: the default N(0, 0.02) leaves logits of 0.0008 in layers this narrow."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=_gain(name) / math.sqrt(module.in_features))
        elif isinstance(module, nn.Conv2d):
            fan_in = module.in_channels // module.groups * math.prod(module.kernel_size)
            nn.init.trunc_normal_(module.weight, std=1 / math.sqrt(fan_in))
        elif isinstance(module, nn.ConvTranspose2d):
            nn.init.trunc_normal_(module.weight, std=1 / math.sqrt(module.in_channels))
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.7)
        else:
            continue
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


def _gain(name: str) -> float:
    for part, endings, gain in RESIDUAL:
        if part in name and name.endswith(endings):
            return gain
    hidden = any(head in name for head in HEADS) and "proj_out" not in name
    return math.sqrt(2) if hidden else 1.0


def _embeddings(model: Sam2VideoModel) -> None:
    backbone, decoder, prompt = model.vision_encoder.backbone, model.mask_decoder, model.prompt_encoder
    for positions in (backbone.pos_embed, backbone.pos_embed_window):
        nn.init.trunc_normal_(positions, std=0.1)
    for parameter in (model.no_memory_embedding, model.no_object_pointer, model.occlusion_spatial_embedding_parameter):
        nn.init.trunc_normal_(parameter, std=0.1)
    nn.init.normal_(prompt.no_mask_embed.weight, std=0.02)
    nn.init.normal_(prompt.not_a_point_embed.weight, std=0.1)
    nn.init.normal_(prompt.point_embed.weight, std=0.3)
    for embedding in (decoder.obj_score_token, decoder.iou_token, decoder.mask_tokens):
        nn.init.normal_(embedding.weight, std=0.12)
    for head in decoder.output_hypernetworks_mlps:
        head.proj_out.weight.mul_(0.3)
    for layer in model.memory_encoder.memory_fuser.layers:
        nn.init.constant_(layer.scale, 0.3)
    # The mask prompt starts as logits: 16 pixels that are all 1 give +10, all 0 give -10.
    nn.init.constant_(model.mask_downsample.weight, 20 / 16)
    nn.init.constant_(model.mask_downsample.bias, -10.0)


def _place_matching(model: Sam2VideoModel) -> None:
    """Tokens and pixels are compared by one orthogonal matrix and copied by it: a token takes what is under it."""
    transformer = model.mask_decoder.transformer
    attentions = [transformer.final_attn_token_to_image]
    for layer in transformer.layers:
        attentions += [layer.cross_attn_token_to_image, layer.cross_attn_image_to_token]
        layer.layer_norm4.weight.fill_(0.5)
        own = torch.empty_like(layer.self_attn.q_proj.weight)
        nn.init.orthogonal_(own)
        layer.self_attn.q_proj.weight.copy_(0.8 * own)
        layer.self_attn.k_proj.weight.copy_(0.8 * own)
        layer.self_attn.v_proj.weight.copy_(own)
        layer.self_attn.o_proj.weight.copy_(own.t())
    shared = torch.empty_like(attentions[0].q_proj.weight)
    nn.init.orthogonal_(shared)
    for attention in attentions:
        attention.q_proj.weight.copy_(1.6 * shared)
        attention.k_proj.weight.copy_(1.6 * shared)
        attention.v_proj.weight.copy_(shared)
        attention.o_proj.weight.copy_(shared.t())
    # Image features weigh less than position at first, or a click cannot be told from its surroundings.
    for convolution in model.vision_encoder.neck.convs:
        convolution.weight.mul_(0.4)


def _memory_at_the_same_place(model: Sam2VideoModel) -> None:
    """A constant vector in the temporal encodings turns, through RoPE, into attention to the same place."""
    temporal = model.memory_temporal_positional_encoding
    direction = torch.randn(temporal.shape[-1]) * 0.3
    nn.init.trunc_normal_(temporal, std=0.05)
    temporal.add_(direction)
    for layer in model.memory_attention.layers:
        attention = layer.cross_attn_image
        width = attention.q_proj.out_features
        look = torch.zeros(width)
        slow = torch.arange(12) * 2  # the slowest turning pairs would not tell places apart; the first do
        look[slow] = 2.2
        look[width // 2 + slow] = 2.2
        attention.q_proj.bias.copy_(look)
        attention.k_proj.weight.add_(torch.outer(look, direction / direction.dot(direction)))
    model.memory_attention.layer_norm.weight.fill_(0.5)
