"""Reads a checkpoint: `config.json` and `model.safetensors` in the layout of transformers' Sam2VideoModel."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from sam2track.build.network import NetworkConfig, Weight, Weights
from sam2track.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in memory.

    Attributes:
        config: The network's dimensions.
        weights: Arrays, float32 or float16 as in the file.
        source: Name of the file or folder, for the manifest.
        sha256: Of the weight file.
    """

    config: NetworkConfig
    weights: Weights
    source: str
    sha256: str


def read_checkpoint(folder: str | Path, *, image_size: int | None = None) -> Checkpoint:
    """Reads `config.json` and `model.safetensors` from a folder.

    Args:
        folder: The checkpoint's folder.
        image_size: Input size in pixels, instead of the one in the config.

    Raises:
        CheckpointError: A file is missing or malformed, or does not describe a SAM 2 video model.
    """
    folder = Path(folder)
    config = _read_config(folder / "config.json", image_size)
    path = folder / "model.safetensors"
    arrays = _read_safetensors(path)
    return Checkpoint(config, Weights(arrays), folder.resolve().name, hashlib.sha256(path.read_bytes()).hexdigest())


def _read_config(path: Path, image_size: int | None) -> NetworkConfig:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(fields, dict) and image_size is not None:
            fields["image_size"] = image_size
        return NetworkConfig.model_validate(fields)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; expected a folder with config.json and model.safetensors") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "config"
            raise CheckpointError(f"{path}: {field}: {first['msg']}") from None
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from None


def _read_safetensors(path: Path) -> dict[str, Weight]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise CheckpointError('building needs an extra: pip install "sam2track[build]"') from None
    if not path.is_file():
        raise CheckpointError(f"{path} is missing; expected a folder with config.json and model.safetensors")
    try:
        arrays: dict[str, Weight] = load_file(path)
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error!r}") from None
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float16):
            arrays[name] = array.astype(np.float32)
        if not np.isfinite(arrays[name]).all():
            raise CheckpointError(f"{path}: weight {name!r} has values that are not finite")
    return arrays
