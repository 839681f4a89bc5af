"""Settles what is free in an ONNX file before it is loaded: input shapes, and inputs of one number.

CUDA graphs want nothing left on the host, and TensorRT takes no float that decides a shape. With
numbers and shapes written into the file, ONNX Runtime folds all of that away, and tells the shapes
of the outputs. Only the messages on the way to the inputs are read; the field numbers are those of
``onnx.proto``, which never change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from bgsoft.errors import ModelError

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER, _GRAPH_INPUT = 5, 11
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR = 1
_TENSOR_TYPE_ELEMENT, _TENSOR_TYPE_SHAPE = 1, 2
_SHAPE_DIM, _DIM_VALUE = 1, 1
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_FORMATS = {1: "<f", 10: "<e", 11: "<d"}
"""Element type → how one is packed: float, float16, double."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_Field = tuple[int, int, bytes]
"""Number, wire type, and what follows the tag (without a length)."""


def bake(
    path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, float]
) -> bytes:
    """The file with some of its inputs settled.

    Args:
        path: ONNX file.
        shapes: Shape of each input that stays one.
        constants: Inputs that become numbers of the model; those that it does not have are passed
            over.

    Raises:
        ModelError: The file cannot be read, or is no ONNX file.
    """
    try:
        model = list(_fields(path.read_bytes()))
        baked = b"".join(
            _field(number, kind, _graph(value, shapes, constants))
            if number == _MODEL_GRAPH
            else _field(number, kind, value)
            for number, kind, value in model
        )
    except OSError as exc:
        raise ModelError(f"cannot read {path}: {exc.strerror}", path=path) from exc
    except (ValueError, IndexError, KeyError, struct.error) as exc:
        raise ModelError(f"{path.name} is no ONNX model that can be used", path=path) from exc
    return baked


def _graph(
    graph: bytes, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, float]
) -> bytes:
    parts = []
    for number, kind, value in _fields(graph):
        if number == _GRAPH_INPUT:
            name = _first(value, _VALUE_NAME).decode()
            element = _number(_first(_first(value, _VALUE_TYPE), _TYPE_TENSOR))
            if name in constants:
                number, value = _GRAPH_INITIALIZER, _constant(name, element, constants[name])
            elif name in shapes:
                value = _value_info(name, element, shapes[name])
        parts.append(_field(number, kind, value))
    return b"".join(parts)


def _number(tensor_type: bytes) -> int:
    """The element type of a ``TypeProto.Tensor``."""
    return _varint(_first(tensor_type, _TENSOR_TYPE_ELEMENT), 0)[0]


def _value_info(name: str, element: int, shape: tuple[int, ...]) -> bytes:
    dims = (_field(_DIM_VALUE, _VARINT, _as_varint(size)) for size in shape)
    packed = b"".join(_field(_SHAPE_DIM, _BYTES, dim) for dim in dims)
    tensor = _field(_TENSOR_TYPE_ELEMENT, _VARINT, _as_varint(element))
    tensor += _field(_TENSOR_TYPE_SHAPE, _BYTES, packed)
    kind = _field(_TYPE_TENSOR, _BYTES, tensor)
    return _field(_VALUE_NAME, _BYTES, name.encode()) + _field(_VALUE_TYPE, _BYTES, kind)


def _constant(name: str, element: int, value: float) -> bytes:
    return (
        _field(_TENSOR_DIMS, _VARINT, _as_varint(1))
        + _field(_TENSOR_TYPE, _VARINT, _as_varint(element))
        + _field(_TENSOR_NAME, _BYTES, name.encode())
        + _field(_TENSOR_RAW, _BYTES, struct.pack(_FORMATS[element], value))
    )


def _first(message: bytes, wanted: int) -> bytes:
    """The value of the first field of a number; raises KeyError where there is none."""
    for number, _, value in _fields(message):
        if number == wanted:
            return value
    raise KeyError(wanted)


def _fields(message: bytes) -> Iterator[_Field]:
    """The fields of a message, in order; raises ValueError where it ends too early."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind, start = tag & 7, at
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            size, start = _varint(message, at)
            at = start + size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(message):
            raise ValueError("cut off")
        yield tag >> 3, kind, message[start:at]


def _field(number: int, kind: int, value: bytes) -> bytes:
    length = _as_varint(len(value)) if kind == _BYTES else b""
    return _as_varint(number << 3 | kind) + length + value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value, shift = 0, 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
