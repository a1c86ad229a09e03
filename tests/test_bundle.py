"""Opening a bundle: whatever is wrong with it is found by `sam2track.load`, and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sam2track
from sam2track.build.bundle import build_bundle
from sam2track.build.writer import Precision
from sam2track.errors import (
    BundleContractError,
    BundleError,
    BundleIntegrityError,
    BundleNotFoundError,
    DeviceError,
)
from sam2track.models import read_bundle
from sam2track.onnx_graph import resolve_device
from sam2track.spec import GRAPH_NAMES, GraphName, graph_path

ROOT = Path(__file__).parent.parent
FILES = ["constants.json", *(graph_path(name) for name in GRAPH_NAMES)]

each_graph = pytest.mark.parametrize("graph", GRAPH_NAMES)
each_file = pytest.mark.parametrize("file", FILES)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a manifest, of a small network; not to be written to."""
    folder = tmp_path_factory.mktemp("built")
    build_bundle(networks.tiny_checkpoint(folder / "checkpoint"), folder / "tiny", Precision.FP32)
    return folder / "tiny"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle in which every graph has other shapes."""
    folder = tmp_path_factory.mktemp("other")
    changes = {"image_size": 96, "memory_encoder_output_channels": 8}
    build_bundle(networks.tiny_checkpoint(folder / "checkpoint", **changes), folder / "other", Precision.FP32)
    return folder / "other"


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    """A copy to spoil, with its manifest."""
    return Path(shutil.copytree(built, tmp_path / "bundle"))


@pytest.fixture
def unsigned(bundle: Path) -> Path:
    """A copy to spoil, without a manifest, as others publish it."""
    (bundle / "manifest.json").unlink()
    return bundle


def load(folder: Path) -> sam2track.Model:
    return sam2track.load(folder, device="cpu", num_threads=1)


def refusal(folder: Path, kind: type[BundleError], path: str) -> str:
    """What `load` says against a bundle; exactly this kind of error, on one line, naming the file."""
    with pytest.raises(kind) as caught:
        load(folder)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert message.startswith(str(folder / path)), message
    assert "\n" not in message and len(message) < 1000
    return message


def edit_json(path: Path, **changes: Any) -> None:
    """Set fields, or remove those that are `...`."""
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not ...}))


def edit_graph(folder: Path, graph: GraphName, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(folder / graph_path(graph))
    change(model)
    onnx.save(model, folder / graph_path(graph))


def rename(model: onnx.ModelProto, old: str, new: str) -> None:
    """Rename an input inside the nodes and at the border."""
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
    for value in model.graph.input:
        if value.name == old:
            value.name = new


def retype_input(model: onnx.ModelProto, name: str, dtype: int) -> None:
    """Let an input be of another type, which is cast to what it was."""
    value = next(value for value in model.graph.input if value.name == name)
    was = value.type.tensor_type.elem_type
    rename(model, name, f"{name}_inside")
    value.name, value.type.tensor_type.elem_type = name, dtype
    model.graph.node.insert(0, helper.make_node("Cast", [name], [f"{name}_inside"], to=was))


def retype_output(model: onnx.ModelProto, name: str, dtype: int) -> None:
    for node in model.graph.node:
        if node.output[0] == name:
            node.output[0] = f"{name}_inside"
    model.graph.node.append(helper.make_node("Cast", [f"{name}_inside"], [name], to=dtype))
    next(value for value in model.graph.output if value.name == name).type.tensor_type.elem_type = dtype


def remove_output(model: onnx.ModelProto, name: str) -> None:
    kept = [value for value in model.graph.output if value.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def track_two_frames(model: sam2track.Model) -> list[Any]:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (2, 40, 60, 3)).astype(np.uint8)
    tracker = sam2track.Tracker(model)
    tracker.add_prompt(frames[0], points=[(30, 20)])
    return [result.objects[1].mask_logits for result in tracker.track(frames)]


# ---- bundles that can be used ------------------------------------------------------------------------


def test_a_bundle_is_known_by_its_manifest(built: Path) -> None:
    model = load(built)
    assert model.name == "tiny"
    assert model.bundle.manifest is not None and model.bundle.manifest.source.checkpoint == "checkpoint"
    assert [logits.shape for logits in track_two_frames(model)] == [(16, 16)] * 2


def test_a_bundle_without_a_manifest_loads_and_computes_the_same(built: Path, unsigned: Path) -> None:
    signed, model = load(built), load(unsigned)
    assert model.name == "bundle" and model.bundle.manifest is None
    assert model.bundle.sha256 == signed.bundle.sha256
    assert np.array_equal(track_two_frames(model), track_two_frames(signed))


def test_a_folder_may_be_given_as_text(built: Path) -> None:
    assert sam2track.load(str(built), device="cpu").name == "tiny"


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_the_built_in_bundles_are_what_their_manifests_say(precision: str) -> None:
    folder = ROOT / "graphs" / f"nano-{precision}"
    bundle = read_bundle(folder, constants=ROOT / "constants" / "nano.json")
    assert bundle.name == "nano"
    assert bundle.manifest is not None and bundle.manifest.precision == precision
    assert sorted(path.name for path in folder.rglob("*")) == sorted(
        ["manifest.json", "onnx", *(f"{name}.onnx" for name in GRAPH_NAMES)]
    )


def test_what_a_bundle_may_have_beyond_the_contract(unsigned: Path) -> None:
    def widen(model: onnx.ModelProto) -> None:
        model.graph.input.append(helper.make_tensor_value_info("knob", TensorProto.FLOAT, [1]))
        model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "knob"))
        model.graph.node.append(helper.make_node("Identity", ["knob"], ["extra"]))
        model.graph.output.append(helper.make_tensor_value_info("extra", TensorProto.FLOAT, [1]))
        retype_input(model, "input_labels", TensorProto.INT64)

    before = track_two_frames(load(unsigned))
    edit_graph(unsigned, "mask_decoder", widen)
    edit_json(unsigned / "constants.json", publisher="somebody")
    (unsigned / "README.md").write_text("published")
    assert np.array_equal(track_two_frames(load(unsigned)), before)


def pin_rows(rows: int) -> Callable[[onnx.ModelProto], None]:
    def pin(model: onnx.ModelProto) -> None:
        for value in model.graph.input:
            if value.name in ("memory", "memory_pos", "key_mask"):
                value.type.tensor_type.shape.dim[0].dim_value = rows
        for tensor in model.graph.initializer:
            if tensor.name == "key_mask":
                tensor.CopyFrom(numpy_helper.from_array(np.ones(rows, np.float32), "key_mask"))

    return pin


def test_a_fixed_number_of_memory_rows_must_be_that_of_the_model(unsigned: Path) -> None:
    rows = 4 * 4 * 4 + 16 * 2  # memory frames, F^2; pointers, tokens of each
    free = track_two_frames(load(unsigned))
    edit_graph(unsigned, "memory_attention", pin_rows(rows))
    model = load(unsigned)
    assert model.graphs.fixed_memory
    assert track_two_frames(model)[1] == pytest.approx(free[1], abs=1e-4)
    edit_graph(unsigned, "memory_attention", pin_rows(rows - 16))
    message = refusal(unsigned, BundleContractError, "onnx/memory_attention.onnx")
    assert f"input 'memory' has shape [{rows - 16}, 1, 16]; expected [{rows}, 1, 16]" in message


# ---- files that are missing ----------------------------------------------------------------------------


@each_file
@pytest.mark.parametrize("signed", [True, False], ids=["manifest", "no manifest"])
def test_a_missing_file_is_named(bundle: Path, file: str, signed: bool) -> None:
    if not signed:
        (bundle / "manifest.json").unlink()
    (bundle / file).unlink()
    message = refusal(bundle, BundleNotFoundError, file)
    assert "is missing; " in message
    with pytest.raises(FileNotFoundError):
        load(bundle)


@each_file
def test_a_folder_in_the_place_of_a_file(unsigned: Path, file: str) -> None:
    (unsigned / file).unlink()
    (unsigned / file).mkdir()
    assert refusal(unsigned, BundleNotFoundError, file)


@pytest.mark.parametrize("name", ["huge", "text.txt", "nano ", "Nano"])
def test_an_unknown_model_lists_those_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no bundle")
    with pytest.raises(BundleNotFoundError) as caught:
        sam2track.load(name)
    assert str(caught.value) == f"there is no model {name!r}; expected one of ['nano'] or the folder of a bundle"


def test_an_empty_folder_is_told_what_a_bundle_is(tmp_path: Path) -> None:
    message = refusal(tmp_path, BundleNotFoundError, "constants.json")
    assert message.endswith("is missing; a bundle is a folder with constants.json and onnx/*.onnx")


# ---- files that are not those of the manifest ------------------------------------------------------------


@each_file
@pytest.mark.parametrize("place", [0, 0.5, 1], ids=["first", "middle", "last"])
def test_a_flipped_byte_is_found_before_a_graph_is_opened(
    bundle: Path, file: str, place: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray((bundle / file).read_bytes())
    content[round(place * (len(content) - 1))] ^= 1
    (bundle / file).write_bytes(content)
    monkeypatch.delattr("sam2track.graphs.open_session")
    message = refusal(bundle, BundleIntegrityError, file)
    assert "has sha256 " in message and "its manifest says " in message
    with pytest.raises(ValueError):
        load(bundle)


@each_file
@pytest.mark.parametrize("change", [-1, 1, -(10**9)], ids=["one byte less", "one byte more", "empty"])
def test_a_file_of_another_size_is_found(bundle: Path, file: str, change: int) -> None:
    content = (bundle / file).read_bytes()
    (bundle / file).write_bytes(content[:change] if change < 0 else content + b"\n")
    message = refusal(bundle, BundleIntegrityError, file)
    assert f"has {max(len(content) + change, 0)} bytes; its manifest says {len(content)}" in message


def test_a_flipped_byte_in_a_hash_of_the_manifest_is_found(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    file = manifest["files"]["onnx/mask_decoder.onnx"]
    file["sha256"] = file["sha256"].translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert refusal(bundle, BundleIntegrityError, "onnx/mask_decoder.onnx")


@each_graph
def test_two_graphs_swapped_are_found(bundle: Path, graph: GraphName) -> None:
    following = GRAPH_NAMES[(GRAPH_NAMES.index(graph) + 1) % len(GRAPH_NAMES)]
    shutil.copy(bundle / graph_path(following), bundle / graph_path(graph))
    refusal(bundle, BundleIntegrityError, graph_path(graph))


# ---- graphs that do not follow the contract ----------------------------------------------------------------


@each_graph
@pytest.mark.parametrize("size", [0, 100, 0.5, -1], ids=["empty", "100 bytes", "half", "one byte less"])
def test_a_graph_that_is_no_graph(unsigned: Path, graph: GraphName, size: float) -> None:
    content = (unsigned / graph_path(graph)).read_bytes()
    (unsigned / graph_path(graph)).write_bytes(content[: round(size * len(content)) if size == 0.5 else int(size)])
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert "cannot be opened as an ONNX graph: " in message
    assert message.endswith("Build or download the bundle again.")


SHAPES: dict[GraphName, str] = {
    "vision_encoder": "input 'pixel_values' has shape [1, 3, 96, 96]; expected [1, 3, 64, 64]",
    "mask_decoder": "input 'feats0' has shape [1, 4, 24, 24]; expected [1, 4, 16, 16]",
    "memory_encoder": "input 'feats2' has shape [1, 32, 6, 6]; expected [1, 32, 4, 4]",
    "memory_attention": "input 'current_vision_features' has shape [36, 1, 32]; expected [16, 1, 32]",
    "pointer_tpos": "output 'pointer_pos' has shape [16, 8]; expected [16, 16]",
}


@each_graph
def test_a_graph_of_another_model(unsigned: Path, other: Path, graph: GraphName) -> None:
    shutil.copy(other / graph_path(graph), unsigned / graph_path(graph))
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert message == f"{unsigned / graph_path(graph)}: {SHAPES[graph]}"


def test_constants_of_another_model(unsigned: Path, other: Path) -> None:
    shutil.copy(other / "constants.json", unsigned)
    message = refusal(unsigned, BundleContractError, "onnx/vision_encoder.onnx")
    assert "input 'pixel_values' has shape [1, 3, 64, 64]; expected [1, 3, 96, 96]" in message


def test_fewer_axes(unsigned: Path) -> None:
    def flatten(model: onnx.ModelProto) -> None:
        remove_output(model, "iou")
        for node in model.graph.node:
            if node.output[0] == "iou":
                node.output[0] = "iou_inside"
        model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
        model.graph.node.append(helper.make_node("Reshape", ["iou_inside", "one"], ["iou"]))
        model.graph.output.append(helper.make_tensor_value_info("iou", TensorProto.FLOAT, [1]))

    edit_graph(unsigned, "mask_decoder", flatten)
    message = refusal(unsigned, BundleContractError, "onnx/mask_decoder.onnx")
    assert "output 'iou' has shape [1]; expected [1, 1]" in message


OUTPUTS: list[tuple[GraphName, str]] = [
    ("vision_encoder", "feats2"),
    ("vision_encoder", "feats2_no_mem"),
    ("vision_encoder", "vision_pos_embed"),
    ("mask_decoder", "low_res_mask"),
    ("mask_decoder", "iou"),
    ("mask_decoder", "object_pointer"),
    ("memory_encoder", "memory_pos"),
]


@pytest.mark.parametrize(("graph", "name"), OUTPUTS)
def test_a_missing_output(unsigned: Path, graph: GraphName, name: str) -> None:
    edit_graph(unsigned, graph, lambda model: remove_output(model, name))
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert f"output {name!r} is missing; it has [" in message


INPUTS: list[tuple[GraphName, str]] = [
    ("vision_encoder", "pixel_values"),
    ("mask_decoder", "feats2_cond"),
    ("memory_encoder", "binarize"),
    ("memory_attention", "memory_pos"),
    ("pointer_tpos", "normalized_diffs"),
]


@pytest.mark.parametrize(("graph", "name"), INPUTS)
def test_an_input_of_another_name(unsigned: Path, graph: GraphName, name: str) -> None:
    edit_graph(unsigned, graph, lambda model: rename(model, name, "renamed"))
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert f"input {name!r} is missing; it has [" in message and "'renamed'" in message


@each_graph
def test_an_extra_input_that_is_required(unsigned: Path, graph: GraphName) -> None:
    def extend(model: onnx.ModelProto) -> None:
        model.graph.input.append(helper.make_tensor_value_info("secret", TensorProto.FLOAT, [1]))

    edit_graph(unsigned, graph, extend)
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert "requires the unknown input 'secret'; expected [" in message


@pytest.mark.parametrize(
    ("graph", "name", "dtype", "expected"),
    [
        ("vision_encoder", "pixel_values", TensorProto.FLOAT16, "the type float16; expected float"),
        ("mask_decoder", "input_points", TensorProto.INT64, "the type int64; expected float"),
        ("mask_decoder", "input_labels", TensorProto.FLOAT, "the type float; expected int32 or int64"),
        ("memory_attention", "memory", TensorProto.DOUBLE, "the type double; expected float"),
    ],
)
def test_an_input_of_another_type(unsigned: Path, graph: GraphName, name: str, dtype: int, expected: str) -> None:
    edit_graph(unsigned, graph, lambda model: retype_input(model, name, dtype))
    message = refusal(unsigned, BundleContractError, graph_path(graph))
    assert f"input {name!r} has {expected}" in message


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32])
def test_an_output_of_another_type(unsigned: Path, dtype: int) -> None:
    edit_graph(unsigned, "mask_decoder", lambda model: retype_output(model, "object_score_logits", dtype))
    message = refusal(unsigned, BundleContractError, "onnx/mask_decoder.onnx")
    got = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "double", TensorProto.INT32: "int32"}[dtype]
    assert f"output 'object_score_logits' has the type {got}; expected float" in message


# ---- JSON files ----------------------------------------------------------------------------------------------

TABLE = [[0.0] * 16] * 4
KERNEL = [[0.0] * 4] * 4


@pytest.mark.parametrize("file", ["constants.json", "manifest.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"image_size": 64,}', b"\xff\xfe", b"[" * 100_000, b"hello", "{“image_size”: 64}".encode()],
    ids=["empty", "open", "comma", "bytes", "deep", "word", "quotes"],
)
def test_a_json_file_that_is_no_json(bundle: Path, file: str, content: bytes) -> None:
    if file == "constants.json":
        (bundle / "manifest.json").unlink()
    (bundle / file).write_bytes(content)
    message = refusal(bundle, BundleContractError, file)
    assert f"{file}: document: Invalid JSON: " in message
    assert message.endswith("Build or download the bundle again.")


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"'])
@pytest.mark.parametrize("file", ["constants.json", "manifest.json"])
def test_a_json_file_that_holds_no_object(bundle: Path, file: str, content: str) -> None:
    if file == "constants.json":
        (bundle / "manifest.json").unlink()
    (bundle / file).write_text(content)
    assert f"{file}: document: Input should be an object; got " in refusal(bundle, BundleContractError, file)


@pytest.mark.parametrize(
    ("field", "value", "named", "got"),
    [
        ("image_size", ..., "image_size", "Field required"),
        ("image_size", "big", "image_size", "got 'big'"),
        ("image_size", 64.5, "image_size", "got 64.5"),
        ("image_size", 50, "image_size", "got 50"),
        ("image_size", 0, "image_size", "got 0"),
        ("image_size", -64, "image_size", "got -64"),
        ("image_size", None, "image_size", "got None"),
        ("image_size", [64, 64], "image_size", "got [64, 64]"),
        ("image_size", float("nan"), "image_size", "got nan"),
        ("memory_frames", 0, "memory_frames", "got 0"),
        ("memory_frames", 7, "document", "has 4 rows; expected 7"),
        ("image_mean", [0.5, 0.5], "image_mean.2", "Field required"),
        ("image_mean", 0.5, "image_mean", "got 0.5"),
        ("image_mean", [0.5, float("nan"), 0.5], "image_mean.1", "got nan"),
        ("image_std", [0.5, float("inf"), 0.5], "image_std.1", "got inf"),
        ("image_std", [0.5, 0.0, 0.5], "document", "image_std is (0.5, 0.0, 0.5); expected positive numbers"),
        ("image_std", [0.5, -1.0, 0.5], "document", "image_std is (0.5, -1.0, 0.5); expected positive numbers"),
        ("memory_temporal_positional_encoding", ..., "memory_temporal_positional_encoding", "Field required"),
        ("memory_temporal_positional_encoding", [], "document", "has 0 rows; expected 4"),
        ("memory_temporal_positional_encoding", [[]] * 4, "document", "rows of different lengths"),
        ("memory_temporal_positional_encoding", [*TABLE[:3], [0.0]], "document", "rows of different lengths"),
        (
            "memory_temporal_positional_encoding",
            [*TABLE[:3], [float("nan")] * 16],
            "memory_temporal_positional_encoding.3.0",
            "got nan",
        ),
        ("mask_prompt_downsample", {"weight": KERNEL}, "mask_prompt_downsample.bias", "Field required"),
        ("mask_prompt_downsample", {"weight": KERNEL[:3], "bias": 0}, "mask_prompt_downsample.weight", "at least 4"),
        (
            "mask_prompt_downsample",
            {"weight": [*KERNEL[:3], [0.0]], "bias": 0},
            "mask_prompt_downsample",
            "weight must be 4 rows of 4 numbers",
        ),
        ("mask_prompt_downsample", {"weight": KERNEL, "bias": "b"}, "mask_prompt_downsample.bias", "got 'b'"),
    ],
)
def test_constants_with_a_wrong_field(unsigned: Path, field: str, value: Any, named: str, got: str) -> None:
    edit_json(unsigned / "constants.json", **{field: value})
    message = refusal(unsigned, BundleContractError, "constants.json")
    assert f"constants.json: {named}: " in message
    assert got in message


def _manifest_cases() -> dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]]:
    """What is done to the manifest, the field that is named, and what is said of it."""
    first = "onnx/mask_decoder.onnx"
    return {
        "newer": (lambda m: m.update(schema_version=2), "schema_version", "Input should be 1; got 2"),
        "no version": (lambda m: m.pop("schema_version"), "schema_version", "Field required"),
        "version as text": (lambda m: m.update(schema_version="1"), "schema_version", "got '1'"),
        "name": (lambda m: m.update(name=7), "name", "got 7"),
        "precision": (lambda m: m.update(precision="int8"), "precision", "'fp16' or 'fp32'; got 'int8'"),
        "unknown field": (lambda m: m.update(author="me"), "author", "got 'me'"),
        "no source": (lambda m: m.pop("source"), "source", "Field required"),
        "source hash": (lambda m: m["source"].update(sha256="abc"), "source.sha256", "got 'abc'"),
        "dimension": (lambda m: m["dimensions"].update(hidden_size="C"), "dimensions.hidden_size", "got 'C'"),
        "too few files": (lambda m: m["files"].pop(first), "document", "files lists ["),
        "no constants": (lambda m: m["files"].pop("constants.json"), "document", "files lists ["),
        "too many files": (
            lambda m: m["files"].update({"../../etc/passwd": m["files"][first]}),
            "document",
            "files lists ['../../etc/passwd'",
        ),
        "size": (lambda m: m["files"][first].update(size=-1), f"files.{first}.size", "got -1"),
        "hash": (lambda m: m["files"][first].update(sha256="A" * 64), f"files.{first}.sha256", "got 'AAAA"),
        "too few graphs": (lambda m: m["graphs"].pop("pointer_tpos"), "document", "graphs lists ["),
        "unknown graph": (
            lambda m: m["graphs"].update(extra=m["graphs"]["pointer_tpos"]),
            "graphs.extra.[key]",
            "got 'extra'",
        ),
    }


@pytest.mark.parametrize("case", _manifest_cases())
def test_a_manifest_with_a_wrong_field(bundle: Path, case: str) -> None:
    change, named, got = _manifest_cases()[case]
    manifest = json.loads((bundle / "manifest.json").read_text())
    change(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    message = refusal(bundle, BundleContractError, "manifest.json")
    assert f"manifest.json: {named}: " in message
    assert got in message
    if got.endswith("["):
        assert "; expected ['" in message


# ---- devices ---------------------------------------------------------------------------------------------------


def test_an_unknown_device(built: Path) -> None:
    with pytest.raises(DeviceError, match=r"got the device 'tpu'; expected 'auto', 'cpu' or 'cuda'"):
        sam2track.load(built, device="tpu")  # type: ignore[arg-type]


@pytest.mark.skipif(resolve_device("auto") == "cuda", reason="there is a GPU")
def test_cuda_that_is_not_there(built: Path) -> None:
    with pytest.raises(DeviceError, match=r"CUDA was asked for, but .*; or use the device 'cpu'"):
        sam2track.load(built, device="cuda")
