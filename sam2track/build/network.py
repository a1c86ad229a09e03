"""The network as the graph modules see it: every dimension they need, and arrays by name.

Names and fields are those of transformers' Sam2VideoModel; whatever a checkpoint's file format is, it becomes
these two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sam2track.errors import CheckpointError
from sam2track.spec import MAX_OBJECT_POINTERS, STRIDE

Weight: TypeAlias = NDArray[Any]


class _Section(BaseModel):
    # Config files carry much that is of no concern to inference: only the fields named here are read.
    model_config = ConfigDict(extra="ignore", frozen=True)


class HieraConfig(_Section):
    """The image backbone."""

    hidden_size: int = 96
    blocks_per_stage: tuple[int, ...] = (1, 2, 7, 2)
    embed_dim_per_stage: tuple[int, ...] = (96, 192, 384, 768)
    num_attention_heads_per_stage: tuple[int, ...] = (1, 2, 4, 8)
    window_size_per_stage: tuple[int, ...] = (8, 4, 14, 7)
    global_attention_blocks: tuple[int, ...] = (5, 7, 9)
    num_query_pool_stages: int = 3
    query_stride: tuple[int, int] = (2, 2)
    patch_kernel_size: tuple[int, int] = (7, 7)
    patch_stride: tuple[int, int] = (4, 4)
    patch_padding: tuple[int, int] = (3, 3)
    mlp_ratio: float = 4.0
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-6


class VisionConfig(_Section):
    """Backbone and feature pyramid."""

    backbone_config: HieraConfig = Field(default_factory=HieraConfig)
    fpn_hidden_size: int = 256
    fpn_kernel_size: int = 1
    fpn_stride: int = 1
    fpn_padding: int = 0
    fpn_top_down_levels: tuple[int, ...] = (2, 3)
    num_feature_levels: int = 3


class PromptEncoderConfig(_Section):
    """Point, box and mask prompts."""

    hidden_size: int = 256
    mask_input_channels: int = 16
    num_point_embeddings: int = 4
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-6


class MaskDecoderConfig(_Section):
    """The two-way transformer and its heads."""

    hidden_size: int = 256
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    attention_downsample_rate: int = 2
    num_multimask_outputs: int = 3
    iou_head_depth: int = 3
    dynamic_multimask_via_stability: bool = True
    dynamic_multimask_stability_delta: float = 0.05
    dynamic_multimask_stability_thresh: float = 0.98


class NetworkConfig(_Section):
    """Every dimension and switch of a SAM 2 video model that inference depends on."""

    image_size: int = 1024
    num_maskmem: int = 7
    max_object_pointers_in_encoder: int = 16
    vision_config: VisionConfig = Field(default_factory=VisionConfig)
    prompt_encoder_config: PromptEncoderConfig = Field(default_factory=PromptEncoderConfig)
    mask_decoder_config: MaskDecoderConfig = Field(default_factory=MaskDecoderConfig)
    memory_attention_hidden_size: int = 256
    memory_attention_num_layers: int = 4
    memory_attention_num_attention_heads: int = 1
    memory_attention_downsample_rate: int = 1
    memory_attention_feed_forward_hidden_act: str = "relu"
    memory_encoder_hidden_size: int = 256
    memory_encoder_output_channels: int = 64
    mask_downsampler_kernel_size: int = 3
    mask_downsampler_stride: int = 2
    mask_downsampler_padding: int = 1
    mask_downsampler_total_stride: int = 16
    mask_downsampler_hidden_act: str = "gelu"
    memory_fuser_num_layers: int = 2
    memory_fuser_kernel_size: int = 7
    memory_fuser_padding: int = 3
    memory_fuser_hidden_act: str = "gelu"
    rope_parameters: dict[str, Any] = Field(default_factory=lambda: {"rope_theta": 10000.0, "rope_type": "axial"})
    sigmoid_scale_for_mem_enc: float = 20.0
    sigmoid_bias_for_mem_enc: float = -10.0
    multimask_output_in_sam: bool = True
    multimask_output_for_tracking: bool = True
    multimask_min_pt_num: int = 0
    multimask_max_pt_num: int = 1
    enable_occlusion_spatial_embedding: bool = True
    enable_temporal_pos_encoding_for_object_pointers: bool = True

    @model_validator(mode="after")
    def _supported(self) -> NetworkConfig:
        if self.image_size % 32 or self.image_size <= 0:
            raise ValueError(f"image_size is {self.image_size}; expected a positive multiple of 32")
        if not (self.multimask_output_in_sam and self.multimask_output_for_tracking):
            raise ValueError("multimask_output_in_sam and multimask_output_for_tracking must be true, as in SAM 2")
        if self.hidden_size % self.memory_size:
            raise ValueError(
                f"fpn_hidden_size {self.hidden_size} must be a multiple of memory_encoder_output_channels "
                f"{self.memory_size}: a pointer is split into memory tokens"
            )
        if self.max_object_pointers_in_encoder != MAX_OBJECT_POINTERS:
            raise ValueError(
                f"max_object_pointers_in_encoder is {self.max_object_pointers_in_encoder}; "
                f"expected {MAX_OBJECT_POINTERS}"
            )
        if self.rope_parameters.get("rope_type") != "axial":
            raise ValueError(f"rope_type is {self.rope_parameters.get('rope_type')!r}; expected 'axial'")
        vision = self.vision_config
        if (vision.fpn_kernel_size, vision.fpn_stride, vision.fpn_padding) != (1, 1, 0):
            raise ValueError("the feature pyramid's convolutions must be 1x1 (kernel 1, stride 1, padding 0)")
        if not set(vision.fpn_top_down_levels) <= {2, 3}:
            raise ValueError(f"fpn_top_down_levels is {vision.fpn_top_down_levels}; expected a subset of (2, 3)")
        if vision.num_feature_levels != 3 or len(vision.backbone_config.blocks_per_stage) != 4:
            raise ValueError("expected a backbone of 4 stages and 3 feature levels, as in SAM 2")
        return self

    @property
    def hidden_size(self) -> int:
        """C: channels of the top-level features."""
        return self.vision_config.fpn_hidden_size

    @property
    def memory_size(self) -> int:
        """M: channels of a memory token."""
        return self.memory_encoder_output_channels

    @property
    def feature_size(self) -> int:
        """F: side of the top-level feature map."""
        return self.image_size // STRIDE

    @property
    def pointer_rows(self) -> int:
        """Memory rows that a full set of object pointers takes: each is split into tokens of size M."""
        return self.max_object_pointers_in_encoder * self.hidden_size // self.memory_size

    @property
    def memory_rows(self) -> int:
        """R: rows of a full memory."""
        return self.num_maskmem * self.feature_size**2 + self.pointer_rows


# In every checkpoint, and read by neither the reference's inference nor ours.
_UNUSED = frozenset({"no_memory_positional_encoding"})


@dataclass(frozen=True, slots=True)
class Weights:
    """A checkpoint's arrays by name, seen from inside one module of the network.

    Attributes:
        arrays: All arrays, by full name.
        prefix: Of the module that this view is inside of.
        used: Full names that were asked for so far.
    """

    arrays: dict[str, Weight]
    prefix: str = ""
    used: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Weight:
        """The array `prefix + name`.

        Raises:
            CheckpointError: The checkpoint has no such array.
        """
        full = self.prefix + name
        if full not in self.arrays:
            raise CheckpointError(
                f"the checkpoint has no weight {full!r}; expected the layout of transformers' Sam2VideoModel "
                "with the dimensions of its config.json"
            )
        self.used.add(full)
        return self.arrays[full]

    def __contains__(self, name: str) -> bool:
        """Whether the checkpoint has the array `prefix + name`."""
        return self.prefix + name in self.arrays

    def within(self, module: str) -> Weights:
        """The same weights seen from inside `module`."""
        return Weights(self.arrays, f"{self.prefix}{module}.", self.used)

    def root(self) -> Weights:
        """The same weights seen from outside all modules."""
        return Weights(self.arrays, "", self.used)

    def refuse_unused(self) -> None:
        """Raises CheckpointError if the network left a weight out: its config.json describes less than there is."""
        unused = sorted(set(self.arrays) - self.used - _UNUSED)
        if unused:
            raise CheckpointError(
                f"the checkpoint has {len(unused)} weights that its config.json has no place for, such as "
                f"{unused[0]!r}; expected the config.json that belongs to these weights"
            )
