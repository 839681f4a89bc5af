"""ONNX files without the onnx package: reads inputs and outputs, and fixes free shapes.

Field numbers are those of ``onnx.proto``, which never change.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bgsoft.errors import ModelError, os_errors_as, translated
from bgsoft.records import NamedTuple

MODEL_GRAPH = 7
GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 5, 11, 12
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR = 1
_TENSOR_TYPE_ELEMENT, _TENSOR_TYPE_SHAPE = 1, 2
_SHAPE_DIM, _DIM_VALUE, _DIM_NAME = 1, 1, 2
TENSOR_NAME = 8
TENSOR_DIMS, TENSOR_TYPE, TENSOR_RAW = 1, 2, 9
_VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""
_ALL_BITS = (1 << 64) - 1
_FORMATS = {1: "<f", 10: "<e", 11: "<d"}
"""Element type → struct format: float, float16, double."""

Message = bytes | memoryview
Field = tuple[int, int, Message]
"""Number, wire type, and the contents after the tag (without a length)."""


class Signature(NamedTuple):
    """The inputs and outputs of a model, in the file's order."""

    inputs: Mapping[str, tuple[int, ...]]
    """Shape by name; 0 for a free axis."""
    outputs: tuple[str, ...]


def read_signature(path: Path) -> Signature:
    """Return the inputs and outputs of a model, without weights that are listed as inputs.

    Raises:
        ModelError: The file cannot be read, or is not an ONNX file.
    """
    with reading(path):
        graph = first(mapped(path), MODEL_GRAPH)
        weights, inputs, outputs = set[str](), {}, []
        for number, _, value in fields(graph):
            if number == GRAPH_INITIALIZER:
                weights.add(text(first(value, TENSOR_NAME)))
            elif number == GRAPH_INPUT:
                inputs[text(first(value, _VALUE_NAME))] = shape_of(value)
            elif number == GRAPH_OUTPUT:
                outputs.append(text(first(value, _VALUE_NAME)))
        taken = {name: shape for name, shape in inputs.items() if name not in weights}
        if not taken or not outputs:
            raise KeyError("input")
    return Signature(taken, tuple(outputs))


def mapped(path: Path) -> memoryview:
    """Map a file's bytes into memory, until the last view is gone; weights are not read."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of a file that is unreadable or not ONNX into a ModelError."""
    error = ModelError(f"cannot use {path.name}: it is not a valid ONNX model", path=path)
    other = translated(ValueError, IndexError, KeyError, struct.error, to=lambda _: error)
    with os_errors_as(ModelError, f"cannot read {path}", path=path), other:
        yield


def shape_of(value_info: Message) -> tuple[int, ...]:
    """Return the shape of a tensor, 0 for free axes; empty where the model gives none."""
    sizes = (
        next((varint(size, 0)[0] for number, _, size in fields(dim) if number == _DIM_VALUE), 0)
        for dim in _dims(value_info)
    )
    return tuple(size if size < 1 << 63 else 0 for size in sizes)  # -1 may mean a free axis


def _dims(value_info: Message) -> list[Message]:
    """Return the axes of a tensor."""
    tensor = first(first(value_info, _VALUE_TYPE), _TYPE_TENSOR)
    return [
        dim
        for number, _, shape in fields(tensor)
        if number == _TENSOR_TYPE_SHAPE
        for axis, _, dim in fields(shape)
        if axis == _SHAPE_DIM
    ]


def free_axes(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the names of a model's free axes, with their sizes for these input shapes.

    Names that stand for several sizes, such as ``?`` for all axes, are left out.

    Raises:
        ModelError: The file cannot be read, or is not an ONNX file.
    """
    sizes: dict[str, set[int]] = {}
    with reading(path):
        for number, _, value in fields(first(mapped(path), MODEL_GRAPH)):
            if number != GRAPH_INPUT:
                continue
            shape = shapes.get(text(first(value, _VALUE_NAME)), ())
            for dim, size in zip(_dims(value), shape, strict=False):
                for name in (name for number, _, name in fields(dim) if number == _DIM_NAME):
                    sizes.setdefault(text(name), set()).add(size)
    return {name: found.pop() for name, found in sizes.items() if len(found) == 1}


def text(message: Message) -> str:
    """Return the value of a string field; raises ValueError if it is not text."""
    return str(message, "utf-8")


def first(message: Message, wanted: int) -> Message:
    """Return the value of the first field of a number; raises KeyError if there is none."""
    for number, _, value in fields(message):
        if number == wanted:
            return value
    raise KeyError(wanted)


def fields(message: Message) -> Iterator[Field]:
    """Yield the fields of a message, in order; raises ValueError if it is truncated."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind, start = tag & 7, at
        if kind == _VARINT:
            _, at = varint(message, at)
        elif kind == BYTES:
            size, start = varint(message, at)
            at = start + size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(message):
            raise ValueError("truncated")
        yield tag >> 3, kind, message[start:at]


def varint(message: Message, at: int) -> tuple[int, int]:
    """Return a 64-bit number and its end; raises ValueError if it is too long."""
    value, shift = 0, 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _ALL_BITS, at
        shift += 7
    raise ValueError("a number without an end")


def bake(
    path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, float]
) -> bytes:
    """Return the file with fixed input shapes, and with some inputs replaced by numbers.

    A CUDA graph allows no work on the host, and TensorRT no float that decides a shape. With fixed
    numbers and shapes, ONNX Runtime folds such parts away, and infers the shapes of the outputs.
    Constants that are not inputs are ignored.

    Raises:
        ModelError: The file cannot be read, or is not an ONNX file.
    """
    with reading(path):
        model = bytearray()
        for number, kind, value in fields(path.read_bytes()):
            fixed = _graph(value, shapes, constants) if number == MODEL_GRAPH else value
            model += _field(number, kind, fixed)
        return bytes(model)


def _graph(
    graph: Message, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, float]
) -> bytes:
    parts = []
    for number, kind, value in fields(graph):
        if number == GRAPH_INPUT:
            name = text(first(value, _VALUE_NAME))
            tensor = first(first(value, _VALUE_TYPE), _TYPE_TENSOR)
            element = varint(first(tensor, _TENSOR_TYPE_ELEMENT), 0)[0]
            if name in constants:
                number, value = GRAPH_INITIALIZER, _constant(name, element, constants[name])
            elif name in shapes:
                value = _value_info(name, element, shapes[name])
        parts.append(_field(number, kind, value))
    return b"".join(parts)


def _value_info(name: str, element: int, shape: tuple[int, ...]) -> bytes:
    dims = (_field(_DIM_VALUE, _VARINT, _as_varint(size)) for size in shape)
    packed = b"".join(_field(_SHAPE_DIM, BYTES, dim) for dim in dims)
    tensor = _field(_TENSOR_TYPE_ELEMENT, _VARINT, _as_varint(element))
    tensor += _field(_TENSOR_TYPE_SHAPE, BYTES, packed)
    kind = _field(_TYPE_TENSOR, BYTES, tensor)
    return _field(_VALUE_NAME, BYTES, name.encode()) + _field(_VALUE_TYPE, BYTES, kind)


def _constant(name: str, element: int, value: float) -> bytes:
    return (
        _field(TENSOR_DIMS, _VARINT, _as_varint(1))
        + _field(TENSOR_TYPE, _VARINT, _as_varint(element))
        + _field(TENSOR_NAME, BYTES, name.encode())
        + _field(TENSOR_RAW, BYTES, struct.pack(_FORMATS[element], value))
    )


def _field(number: int, kind: int, value: Message) -> bytes:
    length = _as_varint(len(value)) if kind == BYTES else b""
    return _as_varint(number << 3 | kind) + length + value


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
