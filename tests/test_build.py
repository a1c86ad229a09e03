"""Building a bundle: what the graphs are made of, which checkpoints can be built, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import networks
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper, shape_inference
from safetensors.numpy import load_file, save_file

import sam2track
from sam2track.build.bundle import build_bundle
from sam2track.build.checkpoint import Checkpoint, read_checkpoint
from sam2track.build.network import NetworkConfig, Weights
from sam2track.build.writer import Precision
from sam2track.errors import CheckpointError, OutputError, OutputExistsError
from sam2track.preprocess import frame_to_pixel_values
from sam2track.spec import GRAPH_NAMES, GraphName, Manifest, graph_path

ROOT = Path(__file__).parent.parent
NANO = ROOT / "training" / "nano-v1"
# A weight that only this graph reads.
WEIGHT_OF: dict[GraphName, str] = {
    "vision_encoder": "vision_encoder.neck.convs.1.weight",
    "mask_decoder": "mask_decoder.transformer.layers.0.mlp.proj_in.weight",
    "memory_encoder": "memory_encoder.projection.weight",
    "memory_attention": "memory_attention.layers.0.linear1.weight",
    "pointer_tpos": "temporal_positional_encoding_projection_layer.weight",
}

each_graph = pytest.mark.parametrize("graph", GRAPH_NAMES)
both_precisions = pytest.mark.parametrize("precision", list(Precision), ids=[p.value for p in Precision])


@pytest.fixture
def tiny(tmp_path: Path) -> Checkpoint:
    return networks.tiny_checkpoint(tmp_path / "checkpoint")


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `training/build_nano.py` makes, as in the checkout."""
    folder = tmp_path_factory.mktemp("rebuilt")
    build_nano_script().build_nano(folder)
    return folder


def build_nano_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_nano", ROOT / "training" / "build_nano.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def nano_graph(precision: Precision, graph: GraphName) -> onnx.ModelProto:
    return onnx.load(ROOT / "graphs" / f"nano-{precision.value}" / graph_path(graph))


def constants_of(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """The arrays in a graph by name, without the defaults of optional inputs."""
    inputs = {value.name for value in model.graph.input}
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name not in inputs}


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- the same again --------------------------------------------------------------------------------------


@both_precisions
def test_building_twice_gives_the_same_bytes(tiny: Checkpoint, tmp_path: Path, precision: Precision) -> None:
    for folder in ("first", "second"):
        build_bundle(tiny, tmp_path / folder, precision, name="tiny")
    first, second = (files_below(tmp_path / folder) for folder in ("first", "second"))
    assert first == second
    assert sorted(first) == sorted(["constants.json", "manifest.json", *map(graph_path, GRAPH_NAMES)])


def test_the_built_in_constants_are_those_of_the_checkpoint(rebuilt: Path) -> None:
    assert files_below(rebuilt / "constants") == files_below(ROOT / "constants")


@both_precisions
@each_graph
def test_the_built_in_graphs_are_those_of_the_checkpoint(rebuilt: Path, precision: Precision, graph: GraphName) -> None:
    """Byte for byte, unless a sine or a product came out a last bit apart, as it may on another processor."""
    path = Path("graphs") / f"nano-{precision.value}" / graph_path(graph)
    ours, committed = onnx.load(rebuilt / path), onnx.load(ROOT / path)
    exact = True
    for left, right in zip(described(ours), described(committed), strict=True):
        assert left[:2] == right[:2]
        for got, expected in zip(left[2], right[2], strict=True):
            if isinstance(got, str) or isinstance(expected, str):
                assert got == expected
                continue
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            tolerance = 1e-2 if got.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 1e-2)
            exact = exact and np.array_equal(got, expected)
    assert list(ours.graph.input) == list(committed.graph.input)
    assert list(ours.graph.output) == list(committed.graph.output)
    if exact:
        assert (rebuilt / path).read_bytes() == (ROOT / path).read_bytes()


def described(model: onnx.ModelProto) -> Iterator[tuple[str, list[onnx.AttributeProto], list[Any]]]:
    """Each node's operator, attributes, and inputs and outputs; constants as arrays, since their names are hashes."""
    constants = constants_of(model)
    for node in model.graph.node:
        yield node.op_type, list(node.attribute), [constants.get(name, name) for name in (*node.input, *node.output)]


@both_precisions
def test_the_built_in_manifests_are_those_of_the_checkpoint(rebuilt: Path, precision: Precision) -> None:
    path = Path("graphs") / f"nano-{precision.value}" / "manifest.json"
    ours, committed = (Manifest.model_validate_json((root / path).read_bytes()) for root in (rebuilt, ROOT))
    # Sizes and hashes of the files themselves are checked whenever a bundle is opened.
    assert ours.model_copy(update={"files": committed.files}) == committed
    assert ours.files.keys() == committed.files.keys()


# ---- what the graphs are made of ----------------------------------------------------------------------------


@both_precisions
@each_graph
def test_only_standard_operators_of_opset_17_and_rotary_embedding(precision: Precision, graph: GraphName) -> None:
    model = nano_graph(precision, graph)
    runtimes_own = {"memory_attention": {("com.microsoft", "RotaryEmbedding")}}.get(graph, set())
    assert {(node.domain, node.op_type) for node in model.graph.node if node.domain} == runtimes_own
    opsets = {"": 17} | ({"com.microsoft": 1} if runtimes_own else {})
    assert {opset.domain: opset.version for opset in model.opset_import} == opsets
    assert not model.functions
    assert not any(attribute.g.node for node in model.graph.node for attribute in node.attribute)  # no If, no Loop


@both_precisions
@each_graph
def test_each_constant_is_stored_once(precision: Precision, graph: GraphName) -> None:
    constants = constants_of(nano_graph(precision, graph))
    contents = [(str(array.dtype), array.shape, array.tobytes()) for array in constants.values()]
    assert len(set(contents)) == len(contents) > 0
    used = {name for node in nano_graph(precision, graph).graph.node for name in node.input}
    assert set(constants) <= used


@both_precisions
@each_graph
def test_float_inputs_and_outputs_are_float32(precision: Precision, graph: GraphName) -> None:
    model = nano_graph(precision, graph)
    integers = {"input_labels": TensorProto.INT32, "pointer_rows": TensorProto.INT64}
    for value in model.graph.input:
        assert value.type.tensor_type.elem_type == integers.get(value.name, TensorProto.FLOAT), value.name
    assert {value.type.tensor_type.elem_type for value in model.graph.output} == {TensorProto.FLOAT}


@both_precisions
@each_graph
def test_no_tensor_has_more_than_four_axes(precision: Precision, graph: GraphName) -> None:
    """GPU providers have no fast kernels beyond, and some have none."""
    shapes = inferred(nano_graph(precision, graph))
    assert {name: shape for name, (_, shape) in shapes.items() if len(shape) > 4} == {}
    model = nano_graph(precision, graph)
    assert {output for node in model.graph.node for output in node.output} <= set(shapes)


@each_graph
def test_fp16_graphs_hold_and_multiply_fp16(graph: GraphName) -> None:
    model = nano_graph(Precision.FP16, graph)
    constants = constants_of(model)
    for node in model.graph.node:
        if node.op_type in ("Gemm", "Conv"):
            assert {constants[name].dtype for name in node.input if name in constants} <= {np.dtype(np.float16)}
    weights = sum(array.nbytes for array in constants.values() if array.dtype == np.float16)
    # What stays: position encodings that are outputs, and the prompt encoder's frequencies.
    full = sum(array.nbytes for array in constants.values() if array.dtype == np.float32)
    assert full < 0.1 * weights


@each_graph
def test_fp32_graphs_compute_in_float32(graph: GraphName) -> None:
    """Half-precision weights of the checkpoint are widened as they are; nothing else is half."""
    model = nano_graph(Precision.FP32, graph)
    constants = constants_of(model)
    assert {dtype for dtype, _ in inferred(model).values()} <= {
        TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
    }  # fmt: skip
    readers = {node.op_type for node in model.graph.node for name in node.input if is_half(constants.get(name))}
    assert readers <= {"Cast"}


def is_half(array: NDArray[Any] | None) -> bool:
    return array is not None and array.dtype == np.float16


def inferred(model: onnx.ModelProto) -> dict[str, tuple[int, list[int]]]:
    """Type and shape of everything the nodes give, with a full memory and three points."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for value in bound.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = {"memory_rows": 7 * 256 + 32, "points": 3}[dim.dim_param]
    inferred = shape_inference.infer_shapes(bound, check_type=True, strict_mode=True, data_prop=True)
    tensors = ((value.name, value.type.tensor_type) for value in (*inferred.graph.value_info, *inferred.graph.output))
    return {name: (tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]) for name, tensor in tensors}


# ---- other networks ------------------------------------------------------------------------------------------

NETWORKS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "larger input": {"image_size": 128},
    "padded windows": {"vision_config.backbone_config.window_size_per_stage": [4, 4, 6, 6]},
    "padded windows before pooling": {
        "image_size": 160,
        "vision_config.backbone_config.window_size_per_stage": [4, 6, 2, 2],
    },
    "two memory heads": {"memory_attention_num_attention_heads": 2, "memory_attention_num_layers": 2},
    "narrow memory attention": {"memory_attention_downsample_rate": 2},
    "two memory frames": {"num_maskmem": 2},
    "more layers": {
        "memory_fuser_num_layers": 2,
        "mask_decoder_config.num_hidden_layers": 2,
        "mask_decoder_config.iou_head_depth": 4,
    },
    "more blocks": {
        "vision_config.backbone_config.blocks_per_stage": [2, 2, 3, 2],
        "vision_config.backbone_config.global_attention_blocks": [5, 8],
    },
    "other pyramid": {"vision_config.fpn_top_down_levels": [3]},
    "sam 2.0": {
        "enable_occlusion_spatial_embedding": False,
        "enable_temporal_pos_encoding_for_object_pointers": False,
    },
    "no stability": {"mask_decoder_config.dynamic_multimask_via_stability": False},
    "wide": networks.WIDE,
}


def smooth_frames(size: int, count: int = 4) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(1)
    noise = [cv2.GaussianBlur(rng.standard_normal((size, size, 3)), (0, 0), 6) for _ in range(count)]
    return [np.clip(128 + 900 * picture, 0, 255).astype(np.uint8) for picture in noise]


def track(folder: Path, size: int) -> list[sam2track.ObjectResult]:
    tracker = sam2track.Tracker(sam2track.load(folder, device="cpu", num_threads=1), num_frames=4)
    frames = smooth_frames(size)
    tracker.add_prompt(frames[0], points=[(20, 30)])
    return [result.objects[1] for result in tracker.track(frames)]


@pytest.mark.parametrize("name", NETWORKS)
def test_other_dimensions_build_and_run(tmp_path: Path, name: str) -> None:
    checkpoint = networks.tiny_checkpoint(tmp_path / "checkpoint", **NETWORKS[name])
    size = checkpoint.config.image_size
    results = {}
    for precision in Precision:
        manifest = build_bundle(checkpoint, tmp_path / precision.value, precision)
        assert manifest.dimensions.model_dump() == {
            "image_size": size,
            "hidden_size": checkpoint.config.hidden_size,
            "memory_size": checkpoint.config.memory_size,
            "memory_frames": checkpoint.config.num_maskmem,
            "max_object_pointers": 16,
        }
        results[precision] = track(tmp_path / precision.value, size)
        assert {result.mask_logits.shape for result in results[precision]} == {(size // 4, size // 4)}
        assert {result.mask.shape for result in results[precision]} == {(size, size)}
    assert any(result.mask.any() for result in results[Precision.FP32])
    first = [result[0].mask_logits for result in results.values()]
    assert first[0] == pytest.approx(first[1], abs=0.05 * float(np.abs(first[1]).max()))


def test_padded_windows_are_padded(tmp_path: Path) -> None:
    """So that the networks above test what they are named after."""
    pads = {}
    for name in ("tiny", "padded windows", "padded windows before pooling"):
        checkpoint = networks.tiny_checkpoint(tmp_path / name, **NETWORKS[name])
        build_bundle(checkpoint, tmp_path / f"{name} built", Precision.FP32)
        nodes = onnx.load(tmp_path / f"{name} built" / graph_path("vision_encoder")).graph.node
        pads[name] = sum(node.op_type == "Pad" for node in nodes)
    assert pads["tiny"] == 0 and min(pads["padded windows"], pads["padded windows before pooling"]) > 0


def test_an_input_size_of_ones_own(tmp_path: Path) -> None:
    networks.write_checkpoint(tmp_path / "checkpoint")
    manifest = build_bundle(read_checkpoint(tmp_path / "checkpoint", image_size=96), tmp_path / "built")
    assert manifest.dimensions.image_size == 96
    assert sam2track.load(tmp_path / "built", device="cpu").constants.image_size == 96


def test_weights_are_named_as_in_the_built_in_checkpoint() -> None:
    config = json.loads((NANO / "config.json").read_text())
    shapes = {name: array.shape for name, array in load_file(NANO / "model.safetensors").items()}
    assert dict(networks.weight_shapes(config)) == shapes


@pytest.fixture
def torch_threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for one test: small networks on a busy machine are faster with one."""
    torch = pytest.importorskip("torch", reason="needs the test extra: torch")
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("wide", "two memory frames")])
def test_other_dimensions_equal_the_reference(tmp_path: Path, torch_threads: Callable[[int], None], name: str) -> None:
    reference = pytest.importorskip("reference", reason="needs the test extra: torch and transformers")
    changes = networks.WIDE | NETWORKS[name]
    checkpoint = networks.tiny_checkpoint(tmp_path / "checkpoint", **changes)
    size = checkpoint.config.image_size
    torch_threads(1)
    model = reference.Sam2VideoModel(reference_config(reference, changes, size)).eval()
    weights = {name: reference.torch.from_numpy(array) for name, array in checkpoint.weights.arrays.items()}
    model.load_state_dict(weights, strict=True)

    build_bundle(checkpoint, tmp_path / "built", Precision.FP32)
    ours = track(tmp_path / "built", size)
    constants = sam2track.load(tmp_path / "built", device="cpu").constants
    pixels = [frame_to_pixel_values(frame, constants) for frame in smooth_frames(size)]
    click = reference.Click(points=((20.0, 30.0),), labels=(1,))
    with reference.exact_memory():
        theirs = reference.reference_track(model, pixels, (size, size), {1: click})
    for got, expected in zip(ours, theirs, strict=True):
        assert reference.relative_error(got.mask_logits, expected[1].mask_logits) < 1e-4
        assert got.object_score == pytest.approx(expected[1].object_score, abs=1e-4)


def reference_config(reference: Any, changes: dict[str, Any], size: int) -> Any:
    """The reference wants the size of every map said."""
    config = reference.Sam2VideoConfig(**networks.config_with(changes))
    side = size // 16
    config.prompt_encoder_config.image_size = size
    config.memory_attention_rope_feat_sizes = [side, side]
    config.vision_config.backbone_feature_sizes = [[4 * side] * 2, [2 * side] * 2, [side] * 2]
    config.vision_config.backbone_config.image_size = [size] * 2
    return config


# ---- checkpoints that are refused -----------------------------------------------------------------------------


def refusal(checkpoint: Path, tmp_path: Path, precision: Precision = Precision.FP32) -> str:
    """What is said against a checkpoint; nothing is left behind."""
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(CheckpointError) as caught:
        build_bundle(read_checkpoint(checkpoint), tmp_path / "built", precision)
    assert isinstance(caught.value, ValueError)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *WEIGHT_OF.values(),
        "mask_downsample.bias",
        "memory_temporal_positional_encoding",
        "no_memory_embedding",
        "no_object_pointer",
        "occlusion_spatial_embedding_parameter",
        "vision_encoder.backbone.blocks.4.attn.qkv.weight",
        "mask_decoder.output_hypernetworks_mlps.3.proj_out.bias",
    ],
)
def test_a_missing_weight_is_named(tmp_path: Path, name: str) -> None:
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint", **{name: None})
    message = refusal(checkpoint, tmp_path)
    assert message.startswith(f"the checkpoint has no weight {name!r}; expected the layout of transformers'")


# By the shape inference of onnx, which up to 1.18 lets the other two through.
@pytest.mark.parametrize("graph", ["vision_encoder", "memory_encoder", "pointer_tpos"])
def test_a_weight_of_another_shape_names_the_graph(tmp_path: Path, graph: GraphName) -> None:
    weight = networks.random_weights(networks.TINY)[WEIGHT_OF[graph]]
    tripled = np.concatenate([weight] * 3)
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint", **{WEIGHT_OF[graph]: tripled})
    message = refusal(checkpoint, tmp_path)
    assert message.startswith(f"the graph {graph} cannot be built: the weights have not the shapes that config.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite_is_named(tmp_path: Path, value: float) -> None:
    name = "memory_encoder.projection.bias"
    weight = networks.random_weights(networks.TINY)[name]
    weight[3] = value
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint", **{name: weight})
    assert f"weight {name!r} has values that are not finite" in refusal(checkpoint, tmp_path)


def test_a_weight_too_large_for_half_precision_is_named(tmp_path: Path) -> None:
    name = "memory_attention.layers.0.linear1.weight"
    weight = networks.random_weights(networks.TINY)[name]
    weight[1, 2] = -1e5
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint", **{name: weight})
    message = refusal(checkpoint, tmp_path, Precision.FP16)
    assert message == (
        f"weight {name!r} has a magnitude of 1e+05, expected at most 65504 as float16; build with precision fp32"
    )
    build_bundle(read_checkpoint(checkpoint), tmp_path / "built", Precision.FP32)


def test_another_float_type_is_taken(tmp_path: Path) -> None:
    weights = networks.random_weights(networks.TINY)
    half = {name: array.astype(np.float16) for name, array in weights.items()}
    double = {name: array.astype(np.float16).astype(np.float64) for name, array in weights.items()}
    for kind, arrays in (("half", half), ("double", double)):
        networks.write_checkpoint(tmp_path / kind)
        save_file(arrays, tmp_path / kind / "model.safetensors")
        build_bundle(read_checkpoint(tmp_path / kind), tmp_path / f"{kind} built", Precision.FP32)
    narrow, wide = (track(tmp_path / f"{kind} built", 64) for kind in ("half", "double"))
    assert narrow[0].mask_logits == pytest.approx(wide[0].mask_logits, abs=1e-3)


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "odd size": ({"image_size": 100}, "image_size is 100; expected a positive multiple of 32"),
    "no size": ({"image_size": 0}, "image_size is 0; expected a positive multiple of 32"),
    "size as text": ({"image_size": "big"}, "image_size: Input should be a valid integer"),
    "pointers": ({"max_object_pointers_in_encoder": 8}, "max_object_pointers_in_encoder is 8; expected 16"),
    "memory width": ({"memory_encoder_output_channels": 5}, "must be a multiple of memory_encoder_output_channels 5"),
    "one mask": ({"multimask_output_in_sam": False}, "must be true, as in SAM 2"),
    "rope": ({"rope_parameters": {"rope_type": "default"}}, "rope_type is 'default'; expected 'axial'"),
    "stages": ({"vision_config.backbone_config.blocks_per_stage": [1, 1, 2]}, "a backbone of 4 stages"),
    "pyramid": ({"vision_config.fpn_top_down_levels": [0, 1]}, "fpn_top_down_levels is (0, 1); expected a subset"),
    "pyramid kernel": ({"vision_config.fpn_kernel_size": 3}, "convolutions must be 1x1"),
    "section": ({"vision_config": 7}, "vision_config: Input should be"),
    "activation": ({"memory_fuser_hidden_act": "silu"}, "activation 'silu' is not supported; expected one of ['gelu'"),
    "memory frames": ({"num_maskmem": 7}, "weight 'memory_temporal_positional_encoding' has the shape [4, 1, 1, 16]"),
    "one memory frame": ({"num_maskmem": 1}, "weight 'memory_temporal_positional_encoding' has the shape"),
    "more layers": ({"memory_attention_num_layers": 2}, "no weight 'memory_attention.layers.1.layer_norm1.weight'"),
    "more blocks": (
        {"vision_config.backbone_config.blocks_per_stage": [1, 1, 2, 2]},
        "no weight 'vision_encoder.backbone.blocks.5.layer_norm1.weight'",
    ),
    "fewer blocks": ({"vision_config.backbone_config.blocks_per_stage": [1, 1, 1, 1]}, "the graph vision_encoder"),
    "hidden size": ({"vision_config.fpn_hidden_size": 64}, "the graph vision_encoder cannot be built"),
    "heads": ({"memory_attention_num_attention_heads": 3}, "the graph memory_attention cannot be built"),
    "no heads": ({"memory_attention_num_attention_heads": 0}, "the graph memory_attention cannot be built"),
    "decoder heads": ({"mask_decoder_config.num_attention_heads": 3}, "the graph mask_decoder cannot be built"),
    "down-sampling": ({"mask_downsampler_total_stride": 8}, "the graph memory_encoder cannot be built"),
    "windows": ({"vision_config.backbone_config.window_size_per_stage": [4]}, "the graph vision_encoder cannot be"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    changes, expected = CONFIGS[case]
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "config.json").write_text(json.dumps(networks.config_with(changes)))
    assert expected in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / file).unlink()
    message = refusal(checkpoint, tmp_path)
    assert message == f"{checkpoint / file} is missing; expected a folder with config.json and model.safetensors"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere", tmp_path).startswith(f"{tmp_path / 'nowhere' / 'config.json'} is missing")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_a_config_that_is_no_config(tmp_path: Path, content: bytes) -> None:
    checkpoint = networks.write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "config.json").write_bytes(content)
    assert refusal(checkpoint, tmp_path).startswith(f"{checkpoint / 'config.json'}")


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_weights_that_are_cut_short(tmp_path: Path, size: int) -> None:
    path = networks.write_checkpoint(tmp_path / "checkpoint") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert refusal(path.parent, tmp_path).startswith(f"{path} cannot be read as safetensors: ")


# ---- where the bundle goes -----------------------------------------------------------------------------------


def test_progress_names_each_graph_in_turn(tiny: Checkpoint, tmp_path: Path) -> None:
    seen: list[GraphName] = []
    manifest = build_bundle(tiny, tmp_path / "built", progress=seen.append)
    assert seen == list(GRAPH_NAMES)
    assert (manifest.name, manifest.precision) == ("built", "fp16")
    assert manifest.source.checkpoint == "checkpoint"


def test_an_existing_bundle_is_kept_unless_told_otherwise(tiny: Checkpoint, tmp_path: Path) -> None:
    build_bundle(tiny, tmp_path / "built", Precision.FP32, name="old")
    before = files_below(tmp_path)
    with pytest.raises(OutputExistsError, match="built exists; choose another folder or overwrite it"):
        build_bundle(tiny, tmp_path / "built", name="new")
    assert files_below(tmp_path) == before
    build_bundle(tiny, tmp_path / "built", name="new", overwrite=True)
    assert sam2track.load(tmp_path / "built", device="cpu").name == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", "checkpoint"]


def test_a_folder_of_something_else_is_never_replaced(tiny: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.doc").write_text("five years")
    with pytest.raises(OutputError, match=r"will not replace .*home: it also holds thesis\.doc"):
        build_bundle(tiny, tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.doc").read_text() == "five years"


def test_a_file_or_a_missing_folder_in_the_way(tiny: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OutputError, match="is a file, expected a folder"):
        build_bundle(tiny, tmp_path / "file", overwrite=True)
    with pytest.raises(OutputError, match="nowhere does not exist; create it first"):
        build_bundle(tiny, tmp_path / "nowhere" / "built")
    with pytest.raises(OutputError, match="does not exist; create it first"):
        build_bundle(tiny, tmp_path / "file" / "built")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(28, "No space left on device")], ids=["interrupt", "disk"]
)
def test_a_build_that_fails_leaves_nothing_and_keeps_the_old_bundle(
    tiny: Checkpoint, tmp_path: Path, error: BaseException | type[BaseException]
) -> None:
    build_bundle(tiny, tmp_path / "built", Precision.FP32, name="old")
    before = files_below(tmp_path)

    def fail(graph: GraphName) -> None:
        if graph == GRAPH_NAMES[-1]:
            raise error

    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        build_bundle(tiny, tmp_path / "built", name="new", overwrite=True, progress=fail)
    assert files_below(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", "checkpoint"]


def test_a_checkpoint_in_memory_can_be_built(tmp_path: Path) -> None:
    """Whatever a checkpoint's file format is, these two are enough."""
    config = NetworkConfig.model_validate(networks.TINY)
    weights = Weights(dict(networks.random_weights(networks.TINY)))
    build_bundle(Checkpoint(config, weights, "made up", "0" * 64), tmp_path / "built", Precision.FP32)
    shutil.rmtree(tmp_path / "built")


def test_a_config_that_leaves_weights_out_is_refused(tmp_path: Path) -> None:
    """Fewer layers than the weights have would build a network that nobody trained."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(NANO, checkpoint)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    config["memory_attention_num_layers"] = 1
    (checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")
    message = refusal(checkpoint, tmp_path)
    assert "memory_attention.layers.1" in message and "config.json" in message


@pytest.mark.parametrize("threads", [-1, 257, 10**20])
def test_impossible_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(sam2track.Sam2TrackError, match="expected 0"):
        sam2track.load("nano", device="cpu", num_threads=threads)
