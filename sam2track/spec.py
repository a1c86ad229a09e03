"""What a bundle says of itself: pydantic models of `constants.json` and `manifest.json`, and the contract.

The only place where the numbers of a model live: everything else asks here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sam2track.errors import BundleContractError, BundleIntegrityError, BundleNotFoundError

STRIDE = 16  # pixels of the input per cell of the top-level features
LOW_RES_SIZE = 256  # of the contract's low_res_mask
MAX_OBJECT_POINTERS = 16

GraphName: TypeAlias = Literal["vision_encoder", "mask_decoder", "memory_encoder", "memory_attention", "pointer_tpos"]
GRAPH_NAMES: tuple[GraphName, ...] = (
    "vision_encoder",
    "mask_decoder",
    "memory_encoder",
    "memory_attention",
    "pointer_tpos",
)

Shape: TypeAlias = "tuple[int | str, ...]"
_Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
_Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MaskPromptDownsample(_Strict):
    """The learned 4x4 convolution of stride 4 that turns a mask prompt into the decoder's mask input."""

    weight: tuple[tuple[_Finite, ...], ...] = Field(min_length=4, max_length=4)
    bias: _Finite

    @model_validator(mode="after")
    def _square(self) -> MaskPromptDownsample:
        if any(len(row) != 4 for row in self.weight):
            raise ValueError("weight must be 4 rows of 4 numbers")
        return self


class Constants(BaseModel):
    """`constants.json`: the numbers of a model that are not inside its graphs."""

    # A bundle published by others may carry more than the contract asks for.
    model_config = ConfigDict(frozen=True, extra="ignore")

    image_size: int = Field(gt=0, multiple_of=32)
    memory_frames: int = Field(gt=0)
    image_mean: tuple[_Finite, _Finite, _Finite]
    image_std: tuple[_Finite, _Finite, _Finite]
    memory_temporal_positional_encoding: tuple[tuple[_Finite, ...], ...]
    mask_prompt_downsample: MaskPromptDownsample | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Constants:
        rows = self.memory_temporal_positional_encoding
        if len(rows) != self.memory_frames:
            raise ValueError(f"memory_temporal_positional_encoding has {len(rows)} rows; expected {self.memory_frames}")
        if not rows[0] or any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("memory_temporal_positional_encoding has rows of different lengths; expected memory size")
        if min(self.image_std) <= 0:
            raise ValueError(f"image_std is {self.image_std}; expected positive numbers")
        return self

    @property
    def memory_size(self) -> int:
        """M: width of a memory token."""
        return len(self.memory_temporal_positional_encoding[0])

    @property
    def feature_size(self) -> int:
        """F: side of the top-level feature map."""
        return self.image_size // STRIDE


class TensorSpec(_Strict):
    """One input or output of a graph. A string in the shape is a free dimension."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    optional: bool = False


class GraphSpec(_Strict):
    """Inputs and outputs of one graph."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class FileSpec(_Strict):
    """Size in bytes and sha256 of one file."""

    sha256: _Sha256
    size: int = Field(ge=0)


class Source(_Strict):
    """The checkpoint a bundle was built from."""

    checkpoint: str
    sha256: _Sha256


class ModelDimensions(_Strict):
    """The sizes that define the shapes of the graphs."""

    image_size: int
    hidden_size: int
    memory_size: int
    memory_frames: int
    max_object_pointers: int


class Manifest(_Strict):
    """`manifest.json`: where a bundle comes from and what exactly is in it. Paths are relative, with `/`."""

    schema_version: Literal[1]
    name: str
    source: Source
    precision: Literal["fp16", "fp32"]
    dimensions: ModelDimensions
    files: Mapping[str, FileSpec]
    graphs: Mapping[GraphName, GraphSpec]

    @model_validator(mode="after")
    def _complete(self) -> Manifest:
        expected = {graph_path(name) for name in GRAPH_NAMES} | {"constants.json"}
        if set(self.files) != expected:
            raise ValueError(f"files lists {sorted(self.files)}; expected {sorted(expected)}")
        if set(self.graphs) != set(GRAPH_NAMES):
            raise ValueError(f"graphs lists {sorted(self.graphs)}; expected {sorted(GRAPH_NAMES)}")
        return self


def graph_path(name: str) -> str:
    """Path of a graph inside its bundle."""
    return f"onnx/{name}.onnx"


@dataclass(frozen=True, slots=True)
class Contract:
    """Required names and shapes of one graph; a free dimension is a string and fits anything."""

    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]


def contracts(constants: Constants, hidden_size: int) -> dict[GraphName, Contract]:
    """The contract of the five graphs for one set of dimensions."""
    size, side, memory = constants.image_size, constants.feature_size, constants.memory_size
    feats0: Shape = (1, hidden_size // 8, 4 * side, 4 * side)
    feats1: Shape = (1, hidden_size // 4, 2 * side, 2 * side)
    feats2: Shape = (1, hidden_size, side, side)
    tokens: Shape = (side * side, 1, hidden_size)
    memory_tokens: Shape = (side * side, 1, memory)
    # Free in our own bundles; where it is fixed, this is how many there must be.
    rows: Shape = (constants.memory_frames * side * side + MAX_OBJECT_POINTERS * (hidden_size // memory), 1, memory)
    return {
        "vision_encoder": Contract(
            {"pixel_values": (1, 3, size, size)},
            {
                "feats2": feats2,  # first: the hidden size is read from it
                "feats0": feats0,
                "feats1": feats1,
                "feats2_no_mem": feats2,
                "vision_pos_embed": feats2,
            },
        ),
        "mask_decoder": Contract(
            {
                "feats0": feats0,
                "feats1": feats1,
                "feats2_cond": feats2,
                "input_points": (1, 1, "points", 2),
                "input_labels": (1, 1, "points"),
            },
            {
                "low_res_mask": (1, 1, LOW_RES_SIZE, LOW_RES_SIZE),
                "high_res_mask": (1, 1, size, size),
                "iou": (1, 1),
                "object_score_logits": (1, 1, 1),
                "object_pointer": (1, 1, hidden_size),
            },
        ),
        "memory_encoder": Contract(
            {
                "feats2": feats2,
                "high_res_mask": (1, 1, size, size),
                "object_score_logits": (1, 1),
                "binarize": ("...",),
            },
            {"memory_tokens": memory_tokens, "memory_pos": memory_tokens},
        ),
        "memory_attention": Contract(
            {
                "current_vision_features": tokens,
                "current_vision_position_embeddings": tokens,
                "memory": rows,
                "memory_pos": rows,
            },
            {"conditioned_feats": feats2},
        ),
        "pointer_tpos": Contract(
            {"normalized_diffs": (MAX_OBJECT_POINTERS,)}, {"pointer_pos": (MAX_OBJECT_POINTERS, memory)}
        ),
    }


_Model = TypeVar("_Model", bound=BaseModel)


def read_json(path: Path, model: type[_Model]) -> _Model:
    """Reads and validates a JSON file of a bundle.

    Raises:
        BundleNotFoundError: The file is missing.
        BundleContractError: It is not JSON or does not fit; names file, field, got and expected.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise BundleNotFoundError(
            f"{path} is missing; a bundle is a folder with constants.json and onnx/*.onnx"
        ) from None
    except OSError as error:
        raise BundleNotFoundError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        got = "" if first["type"] in ("missing", "json_invalid", "value_error") else f"; got {first['input']!r:.80}"
        raise BundleContractError(
            f"{path}: {field}: {first['msg']}{got}. Build or download the bundle again."
        ) from None


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verify_file(path: Path, expected: FileSpec) -> None:
    """Checks size and sha256 before a file is used.

    Raises:
        BundleNotFoundError: The file is missing.
        BundleIntegrityError: It is not the file the manifest describes.
    """
    if not path.is_file():
        raise BundleNotFoundError(f"{path} is missing; build or download the bundle again")
    size = path.stat().st_size
    if size != expected.size:
        raise BundleIntegrityError(
            f"{path} has {size} bytes; its manifest says {expected.size}. Build or download the bundle again."
        )
    digest = file_sha256(path)
    if digest != expected.sha256:
        raise BundleIntegrityError(
            f"{path} has sha256 {digest[:12]}…; its manifest says {expected.sha256[:12]}…. "
            "Build or download the bundle again."
        )
