"""Writes a bundle: five graphs, constants.json, manifest.json. The same checkpoint gives the same bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx

from sam2track.build.checkpoint import Checkpoint
from sam2track.build.mask_decoder import mask_decoder
from sam2track.build.memory_attention import memory_attention
from sam2track.build.memory_encoder import memory_encoder
from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.pointer_tpos import pointer_tpos
from sam2track.build.vision_encoder import vision_encoder
from sam2track.build.writer import Precision
from sam2track.errors import CheckpointError, OutputError, OutputExistsError
from sam2track.spec import (
    GRAPH_NAMES,
    Constants,
    FileSpec,
    GraphName,
    GraphSpec,
    Manifest,
    MaskPromptDownsample,
    ModelDimensions,
    Source,
    TensorSpec,
    graph_path,
)

# Of the images SAM 2 was trained on (ImageNet); the checkpoint's config does not say it.
IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)

GraphBuilder: TypeAlias = Callable[[NetworkConfig, Weights, Precision], onnx.ModelProto]
BUILDERS: Mapping[GraphName, GraphBuilder] = {
    "vision_encoder": vision_encoder,
    "mask_decoder": mask_decoder,
    "memory_encoder": memory_encoder,
    "memory_attention": memory_attention,
    "pointer_tpos": pointer_tpos,
}


def build_bundle(
    checkpoint: Checkpoint,
    folder: str | Path,
    precision: Precision = Precision.FP16,
    *,
    name: str | None = None,
    overwrite: bool = False,
    progress: Callable[[GraphName], None] = lambda graph: None,
) -> Manifest:
    """Builds the five graphs of a checkpoint into a bundle folder.

    Args:
        checkpoint: From `read_checkpoint`.
        folder: Where the bundle goes; its parent must exist.
        precision: What the graphs compute in.
        name: Name of the model in the manifest; the folder's name by default.
        overwrite: Replace an existing bundle. A folder that holds anything else is never replaced.
        progress: Called with each graph's name before it is built.

    Returns:
        The manifest that was written.

    Raises:
        CheckpointError: A weight is missing, has another shape than the config says, or does not fit the precision.
        OutputExistsError: The folder exists and `overwrite` is false.
        OutputError: It cannot be written. Nothing is left behind.
    """
    folder = Path(folder)
    if precision is Precision.FP16:
        _refuse_too_large(checkpoint.weights)
    try:
        _refuse_output(folder, overwrite)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"the bundle {folder} cannot be written: {error.strerror}; choose another place") from error
    try:
        manifest = _write(checkpoint, temporary, precision, name or folder.name, progress)
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    except OSError as error:
        raise OutputError(f"the bundle {folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def _refuse_output(folder: Path, overwrite: bool) -> None:
    if not folder.parent.is_dir():
        raise OutputError(f"the folder {folder.parent} does not exist; create it first")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputError(f"{folder} is a file, expected a folder; choose another name")
    if not overwrite:
        raise OutputExistsError(f"{folder} exists; choose another folder or overwrite it")
    foreign = sorted({entry.name for entry in folder.iterdir()} - {"constants.json", "manifest.json", "onnx"})
    if foreign:
        raise OutputError(f"will not replace {folder}: it also holds {foreign[0]}; choose another folder")


def _refuse_too_large(weights: Weights) -> None:
    limit = float(np.finfo(np.float16).max)
    for name, array in weights.arrays.items():
        largest = float(np.max(np.abs(array), initial=0))
        if largest > limit:
            raise CheckpointError(
                f"weight {name!r} has a magnitude of {largest:.3g}, expected at most {limit:.0f} as float16; "
                "build with precision fp32"
            )


def _build_graph(graph: GraphName, checkpoint: Checkpoint, precision: Precision) -> onnx.ModelProto:
    try:
        return BUILDERS[graph](checkpoint.config, checkpoint.weights, precision)
    except CheckpointError:
        raise
    except Exception as error:  # numpy's or onnx's, where two shapes do not go together
        raise CheckpointError(
            f"the graph {graph} cannot be built: the weights have not the shapes that config.json leads to: "
            f"{' '.join(str(error).split()):.300}"
        ) from error


def _write(
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    name: str,
    progress: Callable[[GraphName], None],
) -> Manifest:
    config = checkpoint.config
    (folder / "onnx").mkdir()
    files: dict[str, FileSpec] = {}
    graphs: dict[GraphName, GraphSpec] = {}

    def write(path: str, content: bytes) -> None:
        (folder / path).write_bytes(content)
        files[path] = FileSpec(sha256=hashlib.sha256(content).hexdigest(), size=len(content))

    for graph in GRAPH_NAMES:
        progress(graph)
        model = _build_graph(graph, checkpoint, precision)
        graphs[graph] = _graph_spec(model)
        write(graph_path(graph), model.SerializeToString(deterministic=True))
    constants = model_constants(config, checkpoint.weights)
    checkpoint.weights.refuse_unused()
    write("constants.json", (constants.model_dump_json(indent=1) + "\n").encode())
    manifest = Manifest(
        schema_version=1,
        name=name,
        source=Source(checkpoint=checkpoint.source, sha256=checkpoint.sha256),
        precision=precision.value,
        dimensions=ModelDimensions(
            image_size=config.image_size,
            hidden_size=config.hidden_size,
            memory_size=config.memory_size,
            memory_frames=config.num_maskmem,
            max_object_pointers=config.max_object_pointers_in_encoder,
        ),
        files=files,
        graphs=graphs,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return manifest


def model_constants(config: NetworkConfig, weights: Weights) -> Constants:
    """The numbers that the loop needs and that are not in any graph."""
    temporal = weights["memory_temporal_positional_encoding"].astype("float32")
    if temporal.size != config.num_maskmem * config.memory_size:
        raise CheckpointError(
            f"weight 'memory_temporal_positional_encoding' has the shape {list(temporal.shape)}; expected "
            f"{[config.num_maskmem, 1, 1, config.memory_size]}: num_maskmem and memory_encoder_output_channels"
        )
    downsample = weights.within("mask_downsample")
    return Constants(
        image_size=config.image_size,
        memory_frames=config.num_maskmem,
        image_mean=IMAGE_MEAN,
        image_std=IMAGE_STD,
        memory_temporal_positional_encoding=temporal.reshape(config.num_maskmem, -1).tolist(),
        mask_prompt_downsample=MaskPromptDownsample(
            weight=downsample["weight"].astype("float32")[0, 0].tolist(), bias=float(downsample["bias"][0])
        ),
    )


def _graph_spec(model: onnx.ModelProto) -> GraphSpec:
    defaults = {initializer.name for initializer in model.graph.initializer}
    return GraphSpec(
        inputs=tuple(_tensor_spec(value, optional=value.name in defaults) for value in model.graph.input),
        outputs=tuple(_tensor_spec(value, optional=False) for value in model.graph.output),
    )


def _tensor_spec(value: onnx.ValueInfoProto, *, optional: bool) -> TensorSpec:
    tensor = value.type.tensor_type
    return TensorSpec(
        name=value.name,
        dtype=str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
        shape=tuple(dim.dim_param or dim.dim_value for dim in tensor.shape.dim),
        optional=optional,
    )
