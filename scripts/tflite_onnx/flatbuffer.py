"""Read the parts of a TFLite model file that the converter needs.

A FlatBuffers file is a tree of tables; each table starts with a signed offset to its vtable,
which lists where each field lies (zero when the field has its default). The format is fixed
(https://flatbuffers.dev/internals/), so a few ``struct`` reads do, and neither TensorFlow nor
generated classes are needed. Field numbers follow the order of declaration in TensorFlow's
``tensorflow/compiler/mlir/lite/schema/schema.fbs``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TENSOR_DTYPES = {0: "<f4", 1: "<f2", 2: "<i4", 4: "<i8"}

_BUILTIN_NAMES = {
    0: "ADD",
    1: "AVERAGE_POOL_2D",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    6: "DEQUANTIZE",
    14: "LOGISTIC",
    17: "MAX_POOL_2D",
    18: "MUL",
    19: "RELU",
    21: "RELU6",
    22: "RESHAPE",
    23: "RESIZE_BILINEAR",
    34: "PAD",
    40: "MEAN",
    54: "PRELU",
    117: "HARD_SWISH",
}
_CUSTOM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of the graph, constant or not."""

    index: int
    """Position in the subgraph's tensor list."""
    name: str
    """Name given by the exporter; unique only by convention."""
    shape: tuple[int, ...]
    """Static shape, NHWC for images, as stored (batch is 1)."""
    data: Array | None
    """The constant's values, float32, float16, int32 or int64; None when computed at run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator with the options the converter uses, defaults filled in."""

    kind: str
    """Built-in name (``CONV_2D``) or the custom operator's own name."""
    inputs: tuple[int, ...]
    """Tensor indices; -1 stands for an omitted optional input."""
    outputs: tuple[int, ...]
    """Tensor indices."""
    options: dict[str, int]
    """Options by name; enumerations and booleans as integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The one subgraph of a TFLite model, operators in execution order."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class _Table:
    """A FlatBuffers table at a position in a buffer."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - struct.unpack_from("<i", buffer, position)[0]
        self._vtable_bytes = struct.unpack_from("<H", buffer, self._vtable)[0]

    def _field(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry >= self._vtable_bytes:
            return None
        offset = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        return self._position + offset if offset else None

    def _target(self, position: int) -> int:
        return position + int(struct.unpack_from("<I", self._buffer, position)[0])

    def scalar(self, number: int, code: str, default: int = 0) -> int:
        position = self._field(number)
        if position is None:
            return default
        return int(struct.unpack_from("<" + code, self._buffer, position)[0])

    def table(self, number: int) -> _Table | None:
        position = self._field(number)
        return None if position is None else _Table(self._buffer, self._target(position))

    def tables(self, number: int) -> list[_Table]:
        position = self._field(number)
        if position is None:
            return []
        start = self._target(position)
        count = struct.unpack_from("<I", self._buffer, start)[0]
        return [_Table(self._buffer, self._target(start + 4 + 4 * item)) for item in range(count)]

    def vector(self, number: int, dtype: str) -> Array:
        position = self._field(number)
        if position is None:
            return np.empty(0, dtype)
        start = self._target(position)
        count = struct.unpack_from("<I", self._buffer, start)[0]
        return np.frombuffer(self._buffer, dtype, count, start + 4)

    def text(self, number: int) -> str:
        return self.vector(number, "u1").tobytes().decode("utf-8")


def _conv_options(table: _Table) -> dict[str, int]:
    return {
        "padding": table.scalar(0, "b"),
        "stride_w": table.scalar(1, "i"),
        "stride_h": table.scalar(2, "i"),
        "activation": table.scalar(3, "b"),
        "dilation_w": table.scalar(4, "i", 1),
        "dilation_h": table.scalar(5, "i", 1),
    }


def _depthwise_options(table: _Table) -> dict[str, int]:
    return {
        "padding": table.scalar(0, "b"),
        "stride_w": table.scalar(1, "i"),
        "stride_h": table.scalar(2, "i"),
        "multiplier": table.scalar(3, "i"),
        "activation": table.scalar(4, "b"),
        "dilation_w": table.scalar(5, "i", 1),
        "dilation_h": table.scalar(6, "i", 1),
    }


def _pool_options(table: _Table) -> dict[str, int]:
    return {
        "padding": table.scalar(0, "b"),
        "stride_w": table.scalar(1, "i"),
        "stride_h": table.scalar(2, "i"),
        "filter_w": table.scalar(3, "i"),
        "filter_h": table.scalar(4, "i"),
        "activation": table.scalar(5, "b"),
    }


def _resize_options(table: _Table) -> dict[str, int]:
    return {"align_corners": table.scalar(2, "b"), "half_pixel": table.scalar(3, "b")}


def _concat_options(table: _Table) -> dict[str, int]:
    return {"axis": table.scalar(0, "i"), "activation": table.scalar(1, "b")}


def _activation_option(table: _Table) -> dict[str, int]:
    return {"activation": table.scalar(0, "b")}


_OPTION_READERS: dict[str, Callable[[_Table], dict[str, int]]] = {
    "ADD": _activation_option,
    "MUL": _activation_option,
    "CONV_2D": _conv_options,
    "DEPTHWISE_CONV_2D": _depthwise_options,
    "AVERAGE_POOL_2D": _pool_options,
    "MAX_POOL_2D": _pool_options,
    "RESIZE_BILINEAR": _resize_options,
    "CONCATENATION": _concat_options,
}


def _custom_options(raw: bytes) -> dict[str, int]:
    """Options of MediaPipe's transposed convolution: TfLiteTransposeConvParams, a C struct."""
    padding, stride_w, stride_h = struct.unpack_from("<iii", raw)
    return {"padding": padding, "stride_w": stride_w, "stride_h": stride_h}


def _kind(code: _Table) -> str:
    # Old files store the code in a byte (field 0), new ones in field 3; the larger one counts.
    builtin = max(code.scalar(0, "b"), code.scalar(3, "i"))
    if builtin == _CUSTOM:
        return code.text(1)
    return _BUILTIN_NAMES.get(builtin, f"BUILTIN_{builtin}")


def _operator(table: _Table, kinds: list[str]) -> Operator:
    kind = kinds[table.scalar(0, "I")]
    options: dict[str, int] = {}
    stored = table.table(4)
    if kind in _OPTION_READERS and stored is not None:
        options = _OPTION_READERS[kind](stored)
    custom = table.vector(5, "u1").tobytes()
    if custom:
        options = _custom_options(custom)
    return Operator(
        kind=kind,
        inputs=tuple(int(i) for i in table.vector(1, "<i4")),
        outputs=tuple(int(i) for i in table.vector(2, "<i4")),
        options=options,
    )


def _tensor(table: _Table, index: int, buffers: list[_Table]) -> Tensor:
    shape = tuple(int(n) for n in table.vector(0, "<i4"))
    raw = buffers[table.scalar(2, "I")].vector(0, "u1")
    data = None
    if raw.size:
        kind = table.scalar(1, "b")
        if kind not in _TENSOR_DTYPES:
            raise ValueError(f"tensor {index} has TFLite element type {kind}, which is not read")
        data = np.frombuffer(raw, _TENSOR_DTYPES[kind]).reshape(shape)
    return Tensor(index=index, name=table.text(3), shape=shape, data=data)


def read_graph(model: bytes) -> Graph:
    """Parse a TFLite file.

    Args:
        model: The whole file.

    Returns:
        Its one subgraph, constants as views of ``model``.

    Raises:
        ValueError: Not a TFLite version 3 file, several subgraphs, or an unread element type.
    """
    if model[4:8] != b"TFL3":
        raise ValueError("not a TFLite model: the file identifier is not TFL3")
    root = _Table(model, struct.unpack_from("<I", model)[0])
    subgraphs = root.tables(2)
    if len(subgraphs) != 1:
        raise ValueError(f"expected one subgraph, found {len(subgraphs)}")
    kinds = [_kind(code) for code in root.tables(1)]
    buffers = root.tables(4)
    graph = subgraphs[0]
    return Graph(
        tensors=tuple(_tensor(t, i, buffers) for i, t in enumerate(graph.tables(0))),
        operators=tuple(_operator(t, kinds) for t in graph.tables(3)),
        inputs=tuple(int(i) for i in graph.vector(1, "<i4")),
        outputs=tuple(int(i) for i in graph.vector(2, "<i4")),
    )
