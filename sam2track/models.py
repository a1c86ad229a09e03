"""Known models and where they are: a name, a folder or a bundle becomes a `Model`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sam2track.errors import BundleContractError, BundleError, BundleNotFoundError
from sam2track.graphs import OnnxGraphs
from sam2track.onnx_graph import Device, resolve_device
from sam2track.spec import GRAPH_NAMES, Constants, GraphName, Manifest, file_sha256, graph_path, read_json, verify_file
from sam2track.types import Graphs

BUILT_IN = ("nano",)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk, verified but not opened.

    Attributes:
        name: The model's name.
        folder: Where its graphs are.
        constants: Validated `constants.json`.
        manifest: Validated `manifest.json`; None in a bundle published without one.
    """

    name: str
    folder: Path
    constants: Constants
    manifest: Manifest | None

    @property
    def sha256(self) -> str:
        """One sha256 over the sha256 of every graph: what exactly made a mask."""
        lines = [
            f"{self.manifest.files[graph_path(name)].sha256 if self.manifest else file_sha256(path)}\n"
            for name, path in self.graph_paths.items()
        ]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def graph_paths(self) -> Mapping[GraphName, Path]:
        """One file a graph."""
        return {name: self.folder / graph_path(name) for name in GRAPH_NAMES}


@dataclass(frozen=True, slots=True)
class Model:
    """An opened model: immutable, may be shared by trackers and threads.

    Attributes:
        bundle: What was opened.
        graphs: The five graphs.
        provider: The ONNX Runtime execution provider in use.
    """

    bundle: Bundle
    graphs: Graphs
    provider: str

    @property
    def name(self) -> str:
        """The model's name."""
        return self.bundle.name

    @property
    def constants(self) -> Constants:
        """The model's numbers."""
        return self.bundle.constants


def load(model: str | os.PathLike[str] = "nano", *, device: Device = "auto", num_threads: int = 0) -> Model:
    """Opens a model.

    Args:
        model: "nano", the built-in model, or a bundle's folder.
        device: "cpu", "cuda", or "auto": CUDA if it is there. Built-in models compute in float32 on the
            CPU and in float16 on a GPU.
        num_threads: CPU threads of each graph; 0 lets ONNX Runtime decide.

    Returns:
        The model, ready for `sam2track.Tracker`.

    Raises:
        BundleNotFoundError: There is no such model or folder, or a file of it is missing.
        BundleIntegrityError: A file differs from the manifest.
        BundleContractError: A file does not follow the contract.
        DeviceError: The device was asked for and is not there.

    Example:
        >>> import sam2track
        >>> sam2track.load("nano", device="cpu").name
        'nano'
    """
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"got {model!r:.80} as a model; expected a name such as 'nano', or a bundle's folder")
    bundle = find_bundle(model, device)
    graphs = OnnxGraphs(bundle.graph_paths, bundle.constants, device=device, num_threads=num_threads)
    if bundle.manifest is not None:
        _check_signatures(bundle.manifest, graphs)
    return Model(bundle, graphs, graphs.provider)


def _check_signatures(manifest: Manifest, graphs: OnnxGraphs) -> None:
    """A manifest must not say of the graphs what is not so."""
    for name, got in graphs.signatures().items():
        spec = manifest.graphs[name]
        said = {
            "input": {tensor.name: tensor.shape for tensor in spec.inputs if not tensor.optional},
            "optional": {tensor.name: tensor.shape for tensor in spec.inputs if tensor.optional},
            "output": {tensor.name: tensor.shape for tensor in spec.outputs},
        }
        for kind, shapes in said.items():
            if shapes != got[kind]:
                raise BundleContractError(
                    f"manifest.json: graphs.{name}: {kind} tensors are {shapes}; the graph has {got[kind]}. "
                    "Build or download the bundle again."
                )


def _check_dimensions(manifest: Manifest, constants: Constants, path: Path) -> None:
    for field in ("image_size", "memory_size", "memory_frames"):
        said, expected = getattr(manifest.dimensions, field), getattr(constants, field)
        if said != expected:
            raise BundleContractError(f"{path}: dimensions.{field} is {said}; constants.json leads to {expected}")


def find_bundle(model: str | os.PathLike[str], device: Device = "auto") -> Bundle:
    """Finds a model's files and verifies them, without opening the graphs; raises as `load` does."""
    try:
        return _find_bundle(model, device)
    except BundleError:
        raise
    except OSError as error:
        raise BundleNotFoundError(
            f"the model {str(model)!r} cannot be read: {error.strerror or error}; check its name and permissions"
        ) from error


def _find_bundle(model: str | os.PathLike[str], device: Device) -> Bundle:
    if model in BUILT_IN:
        precision = "fp16" if resolve_device(device) == "cuda" else "fp32"
        root = _built_in_root()
        return read_bundle(root / "graphs" / f"{model}-{precision}", constants=root / "constants" / f"{model}.json")
    folder = Path(model)
    if not folder.is_dir():
        raise BundleNotFoundError(
            f"there is no model {str(model)!r}; expected one of {list(BUILT_IN)} or the folder of a bundle"
        )
    return read_bundle(folder)


def read_bundle(folder: Path, *, constants: Path | None = None) -> Bundle:
    """Validates a bundle's JSON files and checks its other files against the manifest, if it has one."""
    constants_path = constants or folder / "constants.json"
    manifest_path = folder / "manifest.json"
    manifest = read_json(manifest_path, Manifest) if manifest_path.exists() else None
    if manifest is not None:
        for relative, expected in manifest.files.items():
            verify_file(constants_path if relative == "constants.json" else folder / relative, expected)
    values = read_json(constants_path, Constants)
    if manifest is not None:
        _check_dimensions(manifest, values, manifest_path)
    bundle = Bundle(manifest.name if manifest else folder.name, folder, values, manifest)
    for path in bundle.graph_paths.values():
        if not path.is_file():
            raise BundleNotFoundError(f"{path} is missing; build or download the bundle again")
    return bundle


def _built_in_root() -> Path:
    """The folder that holds `graphs/` and `constants/`: inside an installed package, or the checkout."""
    package = Path(__file__).parent
    installed = package / "_models"
    return installed if installed.is_dir() else package.parent
