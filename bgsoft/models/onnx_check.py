"""Safety check of a user's ONNX file, before ONNX Runtime reads it.

It rejects operators that are not ONNX's or ONNX Runtime's own, weights outside the model's folder,
and tensors larger than their data in the file, or than those of any network.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bgsoft.errors import ModelError
from bgsoft.models.onnx_file import (
    BYTES,
    GRAPH_INITIALIZER,
    GRAPH_INPUT,
    GRAPH_OUTPUT,
    MODEL_GRAPH,
    TENSOR_DIMS,
    TENSOR_NAME,
    TENSOR_RAW,
    TENSOR_TYPE,
    Message,
    fields,
    first,
    mapped,
    reading,
    shape_of,
    text,
    varint,
)

MAX_SAMPLES = 1 << 26
"""Limit of samples in an input, an output or an intermediate tensor: 256 MB of float32."""
_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}
_SIZED = {"ConstantOfShape", "Expand", "Tile", "Resize", "Upsample", "Pad", "Range"}
"""Operators whose output's size may be a number in the file."""
_MODEL_FUNCTION = 25
_FUNCTION_NAME, _FUNCTION_NODE, _FUNCTION_DOMAIN = 1, 7, 10
_GRAPH_NODE, _GRAPH_SPARSE = 1, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_KIND, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_ATTRIBUTE_NUMBERS = 7, 8
_SPARSE_PARTS = (1, 2)
_TENSOR_NUMBERS = 4, 7
"""Fields of floats, and of whole numbers."""
_TENSOR_DATA, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_FLOAT, _INT64 = 1, 7
_MAX_DEPTH = 16
_FEW_BYTES = 256
"""Size of a tensor that may contain another's size."""


def check_model(path: Path) -> list[Path]:
    """Return the other files that hold a model's weights, in order.

    Raises:
        ModelError: The model must not be loaded; the message is the reason.
    """
    check = _Check(path)
    with reading(path):
        check.run(mapped(path))
    return sorted(check.weights)


class _Check:
    """The check of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.weights = set[Path]()
        """Files with tensors, in the model's folder."""
        self._functions = set[str]()
        self._numbers: dict[str, float] = {}
        """Product of the numbers in each small tensor, by its name."""

    def run(self, model: Message) -> None:
        functions = [value for number, _, value in fields(model) if number == _MODEL_FUNCTION]
        self._functions = {
            f"{_word(each, _FUNCTION_DOMAIN)}.{_word(each, _FUNCTION_NAME)}" for each in functions
        }
        for function in functions:
            self._nodes(function, _FUNCTION_NODE, 0)
        self._graph(first(model, MODEL_GRAPH), 0)

    def _refuse(self, reason: str) -> ModelError:
        return ModelError(f"cannot use {self._path.name}: {reason}", path=self._path)

    def _graph(self, graph: Message, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise self._refuse("its graphs are nested too deeply")
        for number, _, value in fields(graph):
            if number == GRAPH_INITIALIZER:
                self._tensor(value, _word(value, TENSOR_NAME))
            elif number in (GRAPH_INPUT, GRAPH_OUTPUT):
                with suppress(KeyError):  # another type than a tensor, or none
                    samples = math.prod(map(float, filter(None, shape_of(value))))
                    if samples > MAX_SAMPLES:
                        raise self._refuse(f"a tensor of {samples:.0e} numbers is too large")
            elif number == _GRAPH_SPARSE:
                self._sparse(value)
        self._nodes(graph, _GRAPH_NODE, depth)

    def _nodes(self, parent: Message, wanted: int, depth: int) -> None:
        for number, _, node in fields(parent):
            if number != wanted:
                continue
            domain, kind = _word(node, _NODE_DOMAIN), _word(node, _NODE_KIND)
            if domain not in _DOMAINS and f"{domain}.{kind}" not in self._functions:
                raise self._refuse(f"its operator {domain}.{kind} is not part of ONNX")
            made = _word(node, _NODE_OUTPUT)
            inputs = []
            for field, _, value in fields(node):
                if field == _NODE_INPUT:
                    inputs.append(text(value))
                elif field == _NODE_ATTRIBUTE:
                    self._attribute(value, made, depth)
            if domain in ("", "ai.onnx") and kind in _SIZED:
                count = max((self._numbers.get(name, 0.0) for name in inputs), default=0.0)
                if count > MAX_SAMPLES:
                    raise self._refuse(f"a node ({kind}) makes a tensor of {count:.0e} numbers")

    def _attribute(self, attribute: Message, made: str, depth: int) -> None:
        self._numbers[made] = _product(attribute, *_ATTRIBUTE_NUMBERS)
        for number, kind, value in fields(attribute):
            if kind != BYTES:
                continue
            if number in _ATTRIBUTE_TENSORS:
                self._tensor(value, made)
            elif number in _ATTRIBUTE_GRAPHS:
                self._graph(value, depth + 1)
            elif number in _ATTRIBUTE_SPARSE:
                self._sparse(value)

    def _sparse(self, sparse: Message) -> None:
        for number, _, value in fields(sparse):
            if number in _SPARSE_PARTS:
                self._tensor(value, "")

    def _tensor(self, tensor: Message, name: str) -> None:
        samples, available, location = 1.0, len(tensor), 0
        elsewhere: dict[str, str] = {}
        for number, _, value in fields(tensor):
            if number == TENSOR_DIMS:
                samples *= math.prod(
                    map(float, _integers(value))
                )  # integers would grow without limit
            elif number == _TENSOR_LOCATION:
                location = varint(value, 0)[0]
            elif number == _TENSOR_DATA:
                elsewhere[_word(value, _ENTRY_KEY)] = _word(value, _ENTRY_VALUE)
        if elsewhere or location:
            available = self._outside(elsewhere)
        if not 0 <= samples <= 8 * available:  # the smallest types have one bit
            raise self._refuse(f"the data of tensor {name or 'without a name'} is missing")
        if len(tensor) <= _FEW_BYTES:
            self._numbers[name] = _product(tensor, *_TENSOR_NUMBERS)

    def _outside(self, elsewhere: dict[str, str]) -> int:
        """Return the size in bytes of the file that holds a tensor's data."""
        location, folder = elsewhere.get("location", ""), self._path.resolve().parent
        place = (folder / location).resolve()
        if not location or Path(location).is_absolute() or not place.is_relative_to(folder):
            raise self._refuse(f"its weights are outside its folder: {location!r}")
        if not place.is_file():
            raise self._refuse(f"the file of its weights is missing: {location!r}")
        size = place.stat().st_size
        if sum(int(elsewhere.get(key) or 0) for key in ("offset", "length")) > size:
            raise self._refuse(f"{location} is too short for its weights")
        self.weights.add(place)
        return size


def _word(message: Message, wanted: int) -> str:
    """Return the first text field of a number; empty if there is none."""
    return next((text(value) for number, _, value in fields(message) if number == wanted), "")


def _integers(value: Message) -> Iterator[int]:
    """Yield one number, or several packed ones."""
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        yield number - (1 << 64) if number >= 1 << 63 else number


def _product(message: Message, floats: int, integers: int) -> float:
    """Return the product of the numbers in a small tensor or an attribute; 0 if it has none.

    ``floats`` and ``integers`` are the numbers of their fields.
    """
    kind, numbers, raw = _FLOAT, list[float](), b""
    for number, _, value in fields(message):
        if number == TENSOR_TYPE:
            kind = varint(value, 0)[0]
        elif number == TENSOR_RAW:
            raw = bytes(value)
        elif number == integers:
            numbers += map(float, _integers(value))
        elif number == floats:
            numbers += struct.unpack(f"<{len(value) // 4}f", value)
    if kind in (_FLOAT, _INT64):
        form, size = ("f", 4) if kind == _FLOAT else ("q", 8)
        numbers += struct.unpack(f"<{len(raw) // size}{form}", raw)
    return math.prod(max(1.0, abs(each)) for each in numbers) if numbers else 0.0
