"""Writes one ONNX graph, operator by operator.

`GraphWriter` holds what every graph of the bundle has in common: the precision, float32 at the border,
constants stored once, names in order of writing (so that building twice gives the same bytes). Values are
the names of ONNX tensors. Opset 17, and one operator of ONNX Runtime's own: everything used here has kernels
in its CPU, CUDA and WebGPU providers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from sam2track.build.network import Weight
from sam2track.errors import CheckpointError

OPSET = 17
RUNTIME_DOMAIN = "com.microsoft"  # ONNX Runtime's own operators
IR_VERSION = 8

Value: TypeAlias = str
Dim: TypeAlias = "int | str"


class Precision(str, Enum):
    """What the graphs compute in; their float inputs and outputs are float32 either way."""

    FP16 = "fp16"
    FP32 = "fp32"


# What one block of rows may hold between: about a CPU's cache, or what a GPU hardly notices.
_BLOCK_BYTES = {Precision.FP32: 16 << 20, Precision.FP16: 64 << 20}


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """How large an attention is: `queries` and `keys` each for `batch` heads or windows."""

    batch: int
    queries: int
    keys: int


class GraphWriter:
    """An ONNX graph being written.

    Args:
        name: Name of the graph.
        precision: What it computes in.
    """

    def __init__(self, name: str, precision: Precision) -> None:
        self.name = name
        self.precision = precision
        self._compute_type = TensorProto.FLOAT16 if precision is Precision.FP16 else TensorProto.FLOAT
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._known: list[onnx.ValueInfoProto] = []
        self._casts: dict[tuple[Value, int], Value] = {}

    # -- border ---------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[Dim], dtype: int = TensorProto.FLOAT) -> Value:
        """A required input, as given (float32 for floats); `compute` brings it to the compute type."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def optional_input(self, name: str, shape: Sequence[Dim], default: NDArray[Any]) -> Value:
        """An input that a caller may leave out: an ONNX initializer that a feed of this name overrides."""
        dtype = helper.np_dtype_to_tensor_dtype(default.dtype)
        self._initializers[name] = numpy_helper.from_array(default, name)
        return self.input(name, shape, dtype)

    def output(self, name: str, value: Value, shape: Sequence[Dim], *, computed: bool = True) -> None:
        """Declares an output; `computed` values are in the compute type and are brought to float32."""
        if computed and self.precision is Precision.FP16:
            self._node("Cast", [value], output=name, to=TensorProto.FLOAT)
        else:
            self._node("Identity", [value], output=name)
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def compute(self, value: Value) -> Value:
        """A float32 value brought to the compute type."""
        return self._cast(value, self._compute_type) if self.precision is Precision.FP16 else value

    def full(self, value: Value) -> Value:
        """A value of the compute type brought to float32."""
        return self._cast(value, TensorProto.FLOAT) if self.precision is Precision.FP16 else value

    # -- constants ------------------------------------------------------------------------------------

    def weight(self, array: Weight) -> Value:
        """A constant of the compute type.

        float32 compute keeps a float16 checkpoint in float16 and widens it when the session is made
        (constant folding does it once): half the bytes on disk, the same numbers.
        """
        if self.precision is Precision.FP16:
            return self._store(_to_half(array))
        if array.dtype == np.float16:
            return self._cast(self._store(array), TensorProto.FLOAT)
        return self._store(array.astype(np.float32))

    def full_weight(self, array: Weight) -> Value:
        """A constant that stays float32 (or is widened to it) whatever the graph computes in."""
        if array.dtype == np.float16:
            return self._cast(self._store(array), TensorProto.FLOAT)
        return self._store(array.astype(np.float32))

    def ints(self, *values: int) -> Value:
        """A 1-D int64 constant (shapes, axes, indices)."""
        return self._store(np.array(values, np.int64))

    def _store(self, array: NDArray[Any]) -> Value:
        """Each distinct constant is stored once: its name is its content."""
        array = np.ascontiguousarray(array)
        key = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]
        name = f"const_{key}"
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    # -- operators ------------------------------------------------------------------------------------

    def _node(self, op_type: str, inputs: Sequence[Value], *, output: str | None = None, **attributes: Any) -> Value:
        name = f"{op_type.lower()}_{len(self._nodes)}"
        result = output or name
        self._nodes.append(helper.make_node(op_type, list(inputs), [result], name=name, **attributes))
        return result

    def op(self, op_type: str, *inputs: Value, **attributes: Any) -> Value:
        """Any operator with one output."""
        return self._node(op_type, inputs, **attributes)

    def runtime_op(self, op_type: str, *inputs: Value, shape: Sequence[int | None], **attributes: Any) -> Value:
        """An operator of ONNX Runtime's own; ONNX does not know the shape of its result, `shape` says it."""
        result = self._node(op_type, inputs, domain=RUNTIME_DOMAIN, **attributes)
        self._known.append(helper.make_tensor_value_info(result, self._compute_type, shape))
        return result

    def _cast(self, value: Value, dtype: int) -> Value:
        """Casts are remembered, so that a value is cast to a type once."""
        if (value, dtype) not in self._casts:
            self._casts[value, dtype] = self._node("Cast", [value], to=dtype)
        return self._casts[value, dtype]

    def split(self, value: Value, sizes: Sequence[int], *, axis: int = 0) -> list[Value]:
        """Parts of these sizes along an axis."""
        if len(sizes) == 1:
            return [value]
        name = f"split_{len(self._nodes)}"
        outputs = [f"{name}_{part}" for part in range(len(sizes))]
        self._nodes.append(helper.make_node("Split", [value, self.ints(*sizes)], outputs, name=name, axis=axis))
        return outputs

    def add(self, left: Value, right: Value) -> Value:
        """Element-wise sum, broadcast."""
        return self._node("Add", [left, right])

    def mul(self, left: Value, right: Value) -> Value:
        """Element-wise product, broadcast."""
        return self._node("Mul", [left, right])

    def scale(self, value: Value, factor: float) -> Value:
        """Product with a number, in the compute type."""
        return self.mul(value, self._number(factor))

    def _number(self, value: float) -> Value:
        return self.weight(np.array(value, np.float32))

    def matmul(self, left: Value, right: Value) -> Value:
        """Matrix product over the last two axes."""
        return self._node("MatMul", [left, right])

    def reshape(self, value: Value, *shape: int) -> Value:
        """Reshape; 0 keeps a dimension, -1 infers one."""
        return self._node("Reshape", [value, self.ints(*shape)])

    def transpose(self, value: Value, *perm: int) -> Value:
        """Permutation of the axes."""
        return self._node("Transpose", [value], perm=list(perm))

    def concat(self, *values: Value, axis: int) -> Value:
        """Concatenation along an axis."""
        if len(values) == 1:
            return values[0]
        return self._node("Concat", values, axis=axis)

    def slice(self, value: Value, start: Value, end: Value, *, axis: int) -> Value:
        """value[start:end] along an axis; start and end are 1-D int64 of one element."""
        return self._node("Slice", [value, start, end, self.ints(axis)])

    def linear(self, tokens: Value, weight: Weight, bias: Weight | None = None) -> Value:
        """tokens (n, in) @ weight (out, in)^T + bias (out,): a linear layer in PyTorch's layout."""
        inputs = [tokens, self.weight(weight)]
        if bias is not None:
            inputs.append(self.weight(_checked_bias(weight, bias)))
        return self._node("Gemm", inputs, transB=1)

    def linear_columns(self, tokens: Value, weight: Weight, bias: Weight) -> Value:
        """The transpose (out, n) of `linear`, computed directly: channels first without a transpose."""
        column = self.weight(_checked_bias(weight, bias)[:, None])
        return self._node("Gemm", [self.weight(weight), tokens, column], transB=1)

    def conv(self, value: Value, weight: Weight, bias: Weight, **attributes: Any) -> Value:
        """2-D convolution in PyTorch's layout."""
        return self._node("Conv", [value, self.weight(weight), self.weight(_checked_bias(weight, bias))], **attributes)

    def layer_norm(self, value: Value, weight: Weight, bias: Weight, *, eps: float) -> Value:
        """Layer norm over the last axis, in float32: squares of float16 activations overflow."""
        normed = self._node(
            "LayerNormalization",
            [self.full(value), self.full_weight(weight), self.full_weight(bias)],
            axis=-1,
            epsilon=eps,
        )
        return self.compute(normed)

    def gelu(self, value: Value) -> Value:
        """Exact GELU from Erf, which every provider has.

        Written as ONNX Runtime looks for it (x / sqrt 2, not x * sqrt 0.5), so that it fuses the five nodes.
        """
        erf = self._node("Erf", [self._node("Div", [value, self._number(np.sqrt(2.0))])])
        return self.scale(self.mul(value, self.add(erf, self._number(1.0))), 0.5)

    def relu(self, value: Value) -> Value:
        """max(value, 0)."""
        return self._node("Relu", [value])

    def activation(self, name: str, value: Value) -> Value:
        """An activation by its name in the checkpoint's config."""
        activations = {"gelu": self.gelu, "relu": self.relu}
        if name not in activations:
            raise CheckpointError(f"activation {name!r} is not supported; expected one of {sorted(activations)}")
        return activations[name](value)

    def attention(
        self, query: Value, key: Value, value: Value, *, shape: AttentionShape, scale: float | None = None
    ) -> Value:
        """softmax(query @ key^T * scale) @ value; ONNX Runtime takes transposes and scale into the products.

        The queries are taken in blocks: the scores of all at once would take 30 MB in memory attention at an
        input of 512, and 470 MB at 1024.

        Args:
            query: (n, batch, d).
            key: (m, batch, d).
            value: (m, batch, v), or (m, 1, v) for all.
            shape: batch, n and m, to keep the scores small.
            scale: Usually d ** -0.5; none if the query is scaled already.

        Returns:
            (n, batch, v).
        """
        columns, values = self.transpose(key, 1, 2, 0), self.transpose(value, 1, 0, 2)

        def attend(part: Value) -> Value:
            part = self.transpose(part, 1, 0, 2)
            scores = self.matmul(part if scale is None else self.scale(part, scale), columns)
            return self.transpose(self.matmul(self._node("Softmax", [scores], axis=-1), values), 1, 0, 2)

        return self.in_blocks(query, shape.queries, shape.batch * shape.queries * shape.keys, attend)

    def in_blocks(self, value: Value, rows: int, size: int, operation: Callable[[Value], Value]) -> Value:
        """An operation on each row alone, in as many equal blocks of rows as keep what is between in the cache.

        Args:
            value: (rows, ...).
            rows: How many.
            size: Numbers that the operation holds between for all rows.
            operation: One block to its result.
        """
        room = _BLOCK_BYTES[self.precision]
        blocks = next(n for n in range(1, rows + 1) if rows % n == 0 and (n == rows or 4 * size / n <= room))
        parts = self.split(value, [rows // blocks] * blocks)
        return self.concat(*(operation(part) for part in parts), axis=0)

    # -- the finished graph -----------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """The finished model, checked."""
        constants = list(self._initializers.values())
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, constants, value_info=self._known
        )
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain == RUNTIME_DOMAIN for node in self._nodes):
            opsets.append(helper.make_opsetid(RUNTIME_DOMAIN, 1))
        model = helper.make_model(graph, opset_imports=opsets, producer_name="sam2track")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model


def pointwise(kernel: Weight) -> Weight:
    """The matrix (out, in) of a 1x1 convolution's kernel (out, in, 1, 1)."""
    if kernel.shape[2:] != (1, 1):
        raise ValueError(f"a kernel has shape {kernel.shape}; expected (out, in, 1, 1), a 1x1 convolution")
    return kernel[:, :, 0, 0]


def _checked_bias(weight: Weight, bias: Weight) -> Weight:
    # A bias of another length may broadcast without an error.
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"a bias has shape {bias.shape} beside a weight of {weight.shape}; expected one an output")
    return bias


def tokens_of(g: GraphWriter, features: Value, channels: int) -> Value:
    """(1, channels, height, width) -> (height * width, channels)."""
    return g.transpose(g.reshape(features, channels, -1), 1, 0)


def _to_half(array: Weight) -> NDArray[np.float16]:
    largest = float(np.max(np.abs(array))) if array.size else 0.0
    if largest > np.finfo(np.float16).max:
        raise CheckpointError(
            f"a weight of magnitude {largest:.3g} does not fit float16 (largest 65504); build with precision fp32"
        )
    return array.astype(np.float16)
