"""The parts of a TFLite model file that the converter needs, read with the package ``tflite``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[Any]

_DTYPES = {
    tflite.TensorType.FLOAT32: "<f4",
    tflite.TensorType.FLOAT16: "<f2",
    tflite.TensorType.INT32: "<i4",
    tflite.TensorType.INT64: "<i8",
}
_ACTIVATION = {"activation": "FusedActivationFunction"}
_STRIDES = {"padding": "Padding", "stride_w": "StrideW", "stride_h": "StrideH"}
_DILATION = {"dilation_w": "DilationWFactor", "dilation_h": "DilationHFactor"}
_POOL = {"filter_w": "FilterWidth", "filter_h": "FilterHeight"}
_OPTIONS = {
    "ADD": (tflite.AddOptions, _ACTIVATION),
    "MUL": (tflite.MulOptions, _ACTIVATION),
    "CONV_2D": (tflite.Conv2DOptions, _STRIDES | _DILATION | _ACTIVATION),
    "DEPTHWISE_CONV_2D": (
        tflite.DepthwiseConv2DOptions,
        _STRIDES | _DILATION | _ACTIVATION | {"multiplier": "DepthMultiplier"},
    ),
    "AVERAGE_POOL_2D": (tflite.Pool2DOptions, _STRIDES | _POOL | _ACTIVATION),
    "MAX_POOL_2D": (tflite.Pool2DOptions, _STRIDES | _POOL | _ACTIVATION),
    "RESIZE_BILINEAR": (
        tflite.ResizeBilinearOptions,
        {"align_corners": "AlignCorners", "half_pixel": "HalfPixelCenters"},
    ),
}
"""Class of an operator's options, and the getters of those that the converter uses."""


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


def _indices(vector: Any) -> tuple[int, ...]:
    """A vector of integers; flatbuffers gives 0 for an empty one."""
    return tuple(map(int, vector)) if isinstance(vector, np.ndarray) else ()


def _tensor(model: Any, stored: Any, index: int) -> Tensor:
    shape = _indices(stored.ShapeAsNumpy())
    raw = model.Buffers(stored.Buffer()).DataAsNumpy()
    data = None
    if isinstance(raw, np.ndarray) and raw.size:
        if stored.Type() not in _DTYPES:
            raise ValueError(f"tensor {index} has element type {stored.Type()}, which is not read")
        data = np.frombuffer(raw, _DTYPES[stored.Type()]).reshape(shape)
    return Tensor(index=index, name=stored.Name().decode(), shape=shape, data=data)


def _operator(model: Any, stored: Any) -> Operator:
    code = model.OperatorCodes(stored.OpcodeIndex())
    # Old files store the code in a byte, new ones in an integer; the larger one counts.
    builtin = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
    options: dict[str, int] = {}
    if builtin == tflite.BuiltinOperator.CUSTOM:
        kind = code.CustomCode().decode()
        # MediaPipe's transposed convolution: TfLiteTransposeConvParams, a C struct.
        values = struct.unpack_from("<iii", stored.CustomOptionsAsNumpy().tobytes())
        options = dict(zip(_STRIDES, values, strict=True))
    else:
        kind = tflite.opcode2name(builtin)
        table = stored.BuiltinOptions()
        if kind in _OPTIONS and table is not None:
            cls, getters = _OPTIONS[kind]
            found = cls()
            found.Init(table.Bytes, table.Pos)
            options = {name: int(getattr(found, getter)()) for name, getter in getters.items()}
    return Operator(
        kind=kind,
        inputs=_indices(stored.InputsAsNumpy()),
        outputs=_indices(stored.OutputsAsNumpy()),
        options=options,
    )


def read_graph(content: bytes) -> Graph:
    """Parse a TFLite file.

    Args:
        content: The whole file.

    Returns:
        Its one subgraph, constants as views of ``content``.

    Raises:
        ValueError: Not a TFLite version 3 file, several subgraphs, or an unread element type.
    """
    if not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise ValueError("not a TFLite model: the file identifier is not TFL3")
    model = tflite.Model.GetRootAs(content, 0)
    if model.SubgraphsLength() != 1:
        raise ValueError(f"expected one subgraph, found {model.SubgraphsLength()}")
    graph = model.Subgraphs(0)
    return Graph(
        tensors=tuple(_tensor(model, graph.Tensors(i), i) for i in range(graph.TensorsLength())),
        operators=tuple(
            _operator(model, graph.Operators(i)) for i in range(graph.OperatorsLength())
        ),
        inputs=_indices(graph.InputsAsNumpy()),
        outputs=_indices(graph.OutputsAsNumpy()),
    )
