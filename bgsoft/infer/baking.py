"""Settles what is free in an ONNX file before it is loaded: input shapes, and inputs of one number.

CUDA graphs want nothing left on the host, and TensorRT takes no float that decides a shape. With
numbers and shapes written into the file, ONNX Runtime folds all of that away, and tells the shapes
of the outputs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from bgsoft.models.onnx_file import (
    BYTES,
    DIM_VALUE,
    GRAPH_INITIALIZER,
    GRAPH_INPUT,
    MODEL_GRAPH,
    SHAPE_DIM,
    TENSOR_NAME,
    TENSOR_TYPE_ELEMENT,
    TENSOR_TYPE_SHAPE,
    TYPE_TENSOR,
    VALUE_NAME,
    VALUE_TYPE,
    VARINT,
    Message,
    fields,
    first,
    reading,
    text,
    varint,
)

_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_RAW = 1, 2, 9
_FORMATS = {1: "<f", 10: "<e", 11: "<d"}
"""Element type → how one is packed: float, float16, double."""


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
    with reading(path):
        model = list(fields(path.read_bytes()))
        return b"".join(
            _field(number, kind, _graph(value, shapes, constants))
            if number == MODEL_GRAPH
            else _field(number, kind, value)
            for number, kind, value in model
        )


def _graph(
    graph: Message, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, float]
) -> bytes:
    parts = []
    for number, kind, value in fields(graph):
        if number == GRAPH_INPUT:
            name = text(first(value, VALUE_NAME))
            element = _number(first(first(value, VALUE_TYPE), TYPE_TENSOR))
            if name in constants:
                number, value = GRAPH_INITIALIZER, _constant(name, element, constants[name])
            elif name in shapes:
                value = _value_info(name, element, shapes[name])
        parts.append(_field(number, kind, value))
    return b"".join(parts)


def _number(tensor_type: Message) -> int:
    """The element type of a ``TypeProto.Tensor``."""
    return varint(first(tensor_type, TENSOR_TYPE_ELEMENT), 0)[0]


def _value_info(name: str, element: int, shape: tuple[int, ...]) -> bytes:
    dims = (_field(DIM_VALUE, VARINT, _as_varint(size)) for size in shape)
    packed = b"".join(_field(SHAPE_DIM, BYTES, dim) for dim in dims)
    tensor = _field(TENSOR_TYPE_ELEMENT, VARINT, _as_varint(element))
    tensor += _field(TENSOR_TYPE_SHAPE, BYTES, packed)
    kind = _field(TYPE_TENSOR, BYTES, tensor)
    return _field(VALUE_NAME, BYTES, name.encode()) + _field(VALUE_TYPE, BYTES, kind)


def _constant(name: str, element: int, value: float) -> bytes:
    return (
        _field(_TENSOR_DIMS, VARINT, _as_varint(1))
        + _field(_TENSOR_TYPE, VARINT, _as_varint(element))
        + _field(TENSOR_NAME, BYTES, name.encode())
        + _field(_TENSOR_RAW, BYTES, struct.pack(_FORMATS[element], value))
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
