"""What an ONNX file says goes in and comes out, read without loading it.

Only the messages on the way there are read; the field numbers are those of ``onnx.proto``, which
never change.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bgsoft.errors import ModelError, os_errors_as, translated

MODEL_GRAPH = 7
GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 5, 11, 12
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR = 1
TENSOR_TYPE_ELEMENT, TENSOR_TYPE_SHAPE = 1, 2
SHAPE_DIM, DIM_VALUE = 1, 1
TENSOR_NAME = 8
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

Message = bytes | memoryview
Field = tuple[int, int, Message]
"""Number, wire type, and what follows the tag (without a length)."""


class Signature(NamedTuple):
    """The inputs and outputs of a model, in the file's order."""

    inputs: Mapping[str, tuple[int, ...]]
    """Shape by name; 0 for an axis that is free."""
    outputs: tuple[str, ...]


def read_signature(path: Path) -> Signature:
    """The inputs and outputs of a model; weights that are listed as inputs are none.

    Raises:
        ModelError: The file cannot be read, or is no ONNX file.
    """
    with reading(path):
        with path.open("rb") as file:
            # Unmapped with the last view of it. Weights, the most of a file, are not touched.
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        graph = first(model, MODEL_GRAPH)
        weights, inputs, outputs = set[str](), {}, []
        for number, _, value in fields(graph):
            if number == GRAPH_INITIALIZER:
                weights.add(text(first(value, TENSOR_NAME)))
            elif number == GRAPH_INPUT:
                inputs[text(first(value, VALUE_NAME))] = _shape(value)
            elif number == GRAPH_OUTPUT:
                outputs.append(text(first(value, VALUE_NAME)))
        taken = {name: shape for name, shape in inputs.items() if name not in weights}
        if not taken or not outputs:
            raise KeyError("input")
    return Signature(taken, tuple(outputs))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of a file that cannot be read, or is something else, become a ModelError."""
    error = ModelError(f"{path.name} is no ONNX model that can be used", path=path)
    other = translated(ValueError, IndexError, KeyError, struct.error, to=lambda _: error)
    with os_errors_as(ModelError, f"cannot read {path}", path=path), other:
        yield


def _shape(value_info: Message) -> tuple[int, ...]:
    """Of a tensor; empty where none is given."""
    tensor = first(first(value_info, VALUE_TYPE), TYPE_TENSOR)
    dims = [
        dim
        for number, _, shape in fields(tensor)
        if number == TENSOR_TYPE_SHAPE
        for axis, _, dim in fields(shape)
        if axis == SHAPE_DIM
    ]
    sizes = (
        next((varint(size, 0)[0] for number, _, size in fields(dim) if number == DIM_VALUE), 0)
        for dim in dims
    )
    return tuple(size if size < 1 << 63 else 0 for size in sizes)  # some write -1 for free axes


def text(message: Message) -> str:
    """A string field's value; raises ValueError where it is none."""
    return str(message, "utf-8")


def first(message: Message, wanted: int) -> Message:
    """The value of the first field of a number; raises KeyError where there is none."""
    for number, _, value in fields(message):
        if number == wanted:
            return value
    raise KeyError(wanted)


def fields(message: Message) -> Iterator[Field]:
    """The fields of a message, in order; raises ValueError where it ends too early."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind, start = tag & 7, at
        if kind == VARINT:
            _, at = varint(message, at)
        elif kind == BYTES:
            size, start = varint(message, at)
            at = start + size
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(message):
            raise ValueError("cut off")
        yield tag >> 3, kind, message[start:at]


def varint(message: Message, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value, shift = 0, 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
