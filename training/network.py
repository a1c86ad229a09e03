"""The network: transformers' Sam2VideoModel with small dimensions, and the calls that training needs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Sam2VideoConfig, Sam2VideoModel

IMAGE_SIZE = 256

# Per-channel mean and standard deviation of the input, as in SAM 2.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def nano_config(size: int = IMAGE_SIZE, hidden: int = 128, blocks: tuple[int, ...] = (1, 2, 4, 1)) -> Sam2VideoConfig:
    """The built-in model's dimensions; why these, says training/README.md."""
    features = size // 16
    config = Sam2VideoConfig(image_size=size)
    vision, prompt, decoder = config.vision_config, config.prompt_encoder_config, config.mask_decoder_config
    _assign(
        vision.backbone_config,
        hidden_size=32,
        image_size=[size, size],
        blocks_per_stage=list(blocks),
        embed_dim_per_stage=[32, 64, 128, 256],
        num_attention_heads=1,
        num_attention_heads_per_stage=[1, 2, 4, 8],
        window_size_per_stage=[8, 4, 8, 4],
        global_attention_blocks=[sum(blocks[:2]) + 1, sum(blocks[:3]) - 1],
    )
    _assign(
        vision,
        backbone_channel_list=[256, 128, 64, 32],
        fpn_hidden_size=hidden,
        backbone_feature_sizes=[[4 * features] * 2, [2 * features] * 2, [features] * 2],
    )
    _assign(prompt, hidden_size=hidden, image_size=size)
    _assign(decoder, hidden_size=hidden, mlp_dim=512, num_attention_heads=4, iou_head_hidden_dim=hidden)
    _assign(
        config,
        memory_attention_hidden_size=hidden,
        memory_attention_num_layers=2,
        memory_attention_feed_forward_hidden_size=512,
        memory_attention_rope_feat_sizes=[features, features],
        memory_attention_dropout=0.0,
        memory_attention_rope_dropout=0.0,
        memory_encoder_hidden_size=hidden,
        mask_downsampler_embed_dim=hidden,
        memory_fuser_embed_dim=hidden,
        memory_fuser_intermediate_dim=512,
        memory_fuser_layer_scale_init_value=1e-2,
    )
    return config


def load_network(folder: Path) -> Sam2VideoModel:
    """A network from `config.json` and `model.safetensors`, in float32 and ready to train."""
    return tie_positions(Sam2VideoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager"))


def tie_positions(model: Sam2VideoModel) -> Sam2VideoModel:
    """Makes the prompt's and the image's position code one matrix: a click must match its place."""
    model.prompt_encoder.shared_embedding.positional_embedding = model.shared_image_embedding.positional_embedding
    return model


def normalise(frames: Tensor) -> Tensor:
    """uint8 [..., S, S, 3] -> float [N, 3, S, S]."""
    pixels = frames.flatten(0, -4).permute(0, 3, 1, 2).float() / 255
    mean, std = pixels.new_tensor(MEAN).view(1, 3, 1, 1), pixels.new_tensor(STD).view(1, 3, 1, 1)
    return (pixels - mean) / std


def encode_frames(model: Sam2VideoModel, frames: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Skip features at strides 4 and 8, top features, and the top features' position encoding [1, C, F, F]."""
    output = model.vision_encoder(normalise(frames), return_dict=True)
    stride4, stride8, top = output.fpn_hidden_states[:3]
    decoder = model.mask_decoder
    return decoder.conv_s0(stride4), decoder.conv_s1(stride8), top, output.fpn_position_encoding[2][:1]


def embed_prompts(
    model: Sam2VideoModel, points: Tensor, labels: Tensor, mask_input: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Sparse [N, 1, K, C] and dense [N, C, F, F] prompt embeddings; `mask_input` are logits at stride 4."""
    return model.prompt_encoder(
        input_points=points[:, None], input_labels=labels[:, None], input_boxes=None, input_masks=mask_input
    )


def decode_all(
    model: Sam2VideoModel, features: Tensor, skips: tuple[Tensor, Tensor], sparse: Tensor, dense: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All four masks at once, which the decoder's own forward does not give.

    Returns:
        Mask logits [N, 4, H, W], predicted IoU [N, 4], object score [N], mask tokens [N, 4, C].
    """
    decoder, count = model.mask_decoder, features.shape[0]
    learned = torch.cat([decoder.obj_score_token.weight, decoder.iou_token.weight, decoder.mask_tokens.weight])
    tokens = torch.cat([learned.expand(count, 1, -1, -1), sparse.to(learned.dtype)], 2)
    positions = model.get_image_wide_positional_embeddings().expand(count, -1, -1, -1)
    tokens, image = decoder.transformer(
        point_embeddings=tokens,
        image_embeddings=features + dense,
        image_positional_embeddings=positions,
        attention_similarity=None,
        target_embedding=None,
    )
    image = image.transpose(2, 3).reshape(features.shape)
    fine = decoder.activation(decoder.upscale_layer_norm(decoder.upscale_conv1(image) + skips[1]))
    fine = decoder.activation(decoder.upscale_conv2(fine) + skips[0])
    tokens = tokens[:, 0]
    mask_tokens = tokens[:, 2 : 2 + decoder.num_mask_tokens]
    heads = [head(mask_tokens[:, index]) for index, head in enumerate(decoder.output_hypernetworks_mlps)]
    masks = torch.bmm(torch.stack(heads, 1), fine.flatten(2)).unflatten(2, fine.shape[2:])
    score = decoder.pred_obj_score_head(tokens[:, 0])[:, 0]
    return masks.float(), decoder.iou_prediction_head(tokens[:, 1]).float(), score.float(), mask_tokens


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay on matrices only, not on gains, biases, tokens and position encodings."""
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        learned_input = any(word in name for word in ("embed", "token", "positional", "pointer", "no_memory"))
        (plain if parameter.dim() < 2 or learned_input else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def _assign(section: Any, **values: Any) -> None:
    for name, value in values.items():
        if not hasattr(section, name):
            raise AttributeError(f"{type(section).__name__} has no field {name!r}")
        setattr(section, name, value)
