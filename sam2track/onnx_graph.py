"""One ONNX graph: opened under ONNX Runtime, checked against the contract, run.

The only file that imports onnxruntime, and the only one that knows the execution provider.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import BundleContractError, BundleNotFoundError, DeviceError, GraphError, NonFiniteError
from sam2track.spec import Contract, GraphName, Shape
from sam2track.types import FloatArray

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger("sam2track")

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
_DTYPES = {"float": np.float32, "int32": np.int32, "int64": np.int64, "bool": np.bool_, "float16": np.float16}
# Every other input, and every output, is float32.
_INPUT_TYPES = {"input_labels": ("int32", "int64"), "binarize": ("float", "bool", "int32", "int64")}
_FATAL_ONLY = 4
MAX_THREADS = 256


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    type: str  # as ONNX Runtime writes it: float, int64
    shape: Shape

    def array(self, value: Any) -> NDArray[Any]:
        """The value as this input takes it: its type, and its shape where that is fixed."""
        array = np.asarray(value, _DTYPES.get(self.type))
        return array.reshape(self.shape) if all(isinstance(dim, int) for dim in self.shape) else array


class Graph:
    """One ONNX graph: required and optional inputs by name, outputs by name."""

    def __init__(self, name: GraphName, session: onnxruntime.InferenceSession) -> None:
        self.name = name
        self._session = session
        self.inputs = {tensor.name: _tensor(tensor) for tensor in session.get_inputs()}
        self.optional = {tensor.name: _tensor(tensor) for tensor in session.get_overridable_initializers()}
        self.outputs = {tensor.name: _tensor(tensor) for tensor in session.get_outputs()}

    @property
    def providers(self) -> list[str]:
        """Execution providers in use, the preferred one first."""
        return list(self._session.get_providers())

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[FloatArray]:
        """Runs the graph.

        Raises:
            GraphError: ONNX Runtime could not run it.
            NonFiniteError: An output has NaN or infinity.
        """
        tensors = {**self.inputs, **self.optional}
        arrays = {name: tensors[name].array(value) for name, value in feeds.items()}
        try:
            results: list[FloatArray] = self._session.run(list(outputs), arrays)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise GraphError(f"the graph {self.name} could not be run: {str(error).splitlines()[0]:.200}") from error
        with np.errstate(all="ignore"):
            for name, result in zip(outputs, results, strict=True):
                # One quick pass over the data: a sum is finite only if every term is (and it does not overflow).
                if not np.isfinite(result.sum()) and not np.isfinite(result).all():
                    raise NonFiniteError(
                        f"the graph {self.name} returned values that are not finite in {name}; "
                        "if the bundle computes in fp16, try one built with precision fp32"
                    )
        return results


def runtime_version() -> tuple[str, list[str]]:
    """ONNX Runtime's version and the execution providers of this build."""
    import onnxruntime

    return onnxruntime.__version__, list(onnxruntime.get_available_providers())


def resolve_device(device: Device) -> Literal["cpu", "cuda"]:
    """The device that will be used.

    Raises:
        DeviceError: CUDA was asked for and is not there; says what is missing.
    """
    if device == "cpu":
        return "cpu"
    if device not in ("auto", "cuda"):
        raise DeviceError(f"got the device {device!r}; expected 'auto', 'cpu' or 'cuda'")
    _, available = runtime_version()
    missing = None
    if "CUDAExecutionProvider" not in available:
        missing = f"this ONNX Runtime has {available}; install onnxruntime-gpu (and uninstall onnxruntime)"
        if _both_runtimes_installed():
            log.warning("onnxruntime hides onnxruntime-gpu: uninstall both, then install onnxruntime-gpu")
    elif not _cuda_devices():
        missing = "no NVIDIA GPU or driver was found"
    if missing is None:
        return "cuda"
    if device == "cuda":
        raise DeviceError(f"CUDA was asked for, but {missing}; or use the device 'cpu'")
    return "cpu"


def _both_runtimes_installed() -> bool:
    """Two packages that share a folder: the one installed last wins, and CUDA may be gone."""
    from importlib.metadata import packages_distributions

    return {"onnxruntime", "onnxruntime-gpu"} <= set(packages_distributions().get("onnxruntime", ()))


def providers_for(device: Device) -> list[str]:
    """ONNX Runtime's execution providers for a device, the preferred one first; raises as `resolve_device`."""
    return (
        ["CUDAExecutionProvider", "CPUExecutionProvider"]
        if resolve_device(device) == "cuda"
        else ["CPUExecutionProvider"]
    )


def _cuda_devices() -> int:
    """Number of CUDA devices, asked of the driver: ONNX Runtime would write to stderr if there is none."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@lru_cache(maxsize=1)
def _share_cpu_arena() -> bool:
    """One arena for all graphs of the process, growing by what is asked for.

    Each graph would otherwise keep an arena of its own, as large as its largest moment and rounded up to a power
    of two, although only one graph runs at a time: 590 instead of 420 MB for the full-size network at 512. Sessions
    of the host program do not use it unless they ask for it as well.
    """
    import onnxruntime

    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    same_as_requested, default = 1, -1
    arena = {"max_mem": 0, "arena_extend_strategy": same_as_requested}
    arena |= {"initial_chunk_size_bytes": default, "max_dead_bytes_per_chunk": default}
    try:
        onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(arena))
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        # The host program has registered one already: as good. Anything else is no reason to fail.
        log.debug("ONNX Runtime's shared arena: %s", error)
        return "already" in str(error).lower()
    return True


def open_session(path: Path, providers: list[str], num_threads: int) -> onnxruntime.InferenceSession:
    """Opens a graph file.

    Raises:
        DeviceError: There cannot be so many threads.
        BundleNotFoundError: The file is missing.
        BundleContractError: ONNX Runtime cannot read it.
    """
    import onnxruntime

    if not 0 <= num_threads <= MAX_THREADS:
        raise DeviceError(f"got num_threads {num_threads}; expected 0 (ONNX Runtime decides) to {MAX_THREADS}")
    if not path.is_file():
        raise BundleNotFoundError(f"{path} is missing; build or download the bundle again")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    # Five graphs run in turn, each with threads of its own. Left to themselves these go on spinning after a run and
    # take the cores from the next graph, the video codecs and the host program: 92 instead of 22 ms a frame for the
    # built-in model on two cores.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if _share_cpu_arena():
        options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False  # it sets a block aside for each graph, beside the arena
    options.log_severity_level = _FATAL_ONLY  # errors come as exceptions; the library never writes to stderr
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise BundleContractError(
            f"{path} cannot be opened as an ONNX graph: {str(error).splitlines()[0]:.200}. "
            "Build or download the bundle again."
        ) from error


def _tensor(tensor: onnxruntime.NodeArg) -> _Tensor:
    return _Tensor(
        tensor.name,
        tensor.type.removeprefix("tensor(").removesuffix(")"),
        tuple(dim if dim is not None else "?" for dim in tensor.shape),
    )


def check_contract(graph: Graph, contract: Contract, path: Path) -> None:
    """Raises BundleContractError if the graph's inputs and outputs are not those of the contract."""
    for kind, expected, got in (
        ("input", contract.inputs, graph.inputs),
        ("output", contract.outputs, graph.outputs),
    ):
        for name, shape in expected.items():
            if name not in got:
                raise BundleContractError(f"{path}: {kind} {name!r} is missing; it has {sorted(got)}")
            if not _fits(got[name].shape, shape):
                raise BundleContractError(
                    f"{path}: {kind} {name!r} has shape {list(got[name].shape)}; expected {list(shape)}"
                )
            types = _INPUT_TYPES.get(name, ("float",)) if kind == "input" else ("float",)
            if got[name].type not in types:
                raise BundleContractError(
                    f"{path}: {kind} {name!r} has the type {got[name].type}; expected {' or '.join(types)}"
                )
    unknown = sorted(set(graph.inputs) - set(contract.inputs))
    if unknown:
        raise BundleContractError(
            f"{path}: requires the unknown input {unknown[0]!r}; expected {sorted(contract.inputs)}"
        )


def fixed_dim(dim: int | str) -> int:
    """A dimension that must be a number; 0 fits no contract."""
    return dim if isinstance(dim, int) else 0


def _fits(got: Shape, expected: Shape) -> bool:
    if expected == ("...",):
        return True
    return len(got) == len(expected) and all(
        isinstance(a, str) or isinstance(b, str) or a == b for a, b in zip(got, expected, strict=True)
    )
