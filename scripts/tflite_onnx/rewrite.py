"""Rewrites of TFLite graphs that compute the same numbers with less work.

In real arithmetic all are identities; in floats only rounding differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tflite_onnx.graph import Graph, Operator, Tensor

_BLOCK = 16
"""Channels that ONNX Runtime's CPU kernels work on at once, where registers hold 512 bits; where
they hold 256, it is half as many."""


def rewritten(graph: Graph) -> Graph:
    """The graph after all rewrites; none touches one without its pattern."""
    graph = convolve_before_resize(graph)
    graph = average_before_resize(graph)
    graph = convolve_before_sum(graph)
    return widen_channels(graph)


def _is_pointwise(graph: Graph, operator: Operator) -> bool:
    if operator.kind != "CONV_2D":
        return False
    kernel = graph.tensors[operator.inputs[1]].shape
    strides = (operator.options["stride_h"], operator.options["stride_w"])
    return kernel[1:3] == (1, 1) and strides == (1, 1)


def convolve_before_resize(graph: Graph) -> Graph:
    """Swap every bilinear resize with the 1x1 convolution that alone reads its result.

    The two commute: the convolution mixes channels and adds a constant, the resize mixes pixels
    with weights that sum to one. Convolving first costs a quarter when the resize doubles, and the
    resize handles only the channels that come out.

    Args:
        graph: Any graph; one without the pattern comes back equal.

    Returns:
        The graph with one new tensor for each swapped pair.
    """
    tensors = list(graph.tensors)
    operators = list(graph.operators)
    for resize in [o for o in operators if o.kind == "RESIZE_BILINEAR"]:
        readers = [o for o in operators if resize.outputs[0] in o.inputs]
        if len(readers) != 1 or not _is_pointwise(graph, readers[0]):
            continue
        conv = readers[0]
        small = tensors[resize.inputs[0]].shape
        channels = tensors[conv.outputs[0]].shape[3]
        between = Tensor(
            index=len(tensors),
            name=f"{tensors[conv.outputs[0]].name}/before_resize",
            shape=(*small[:3], channels),
            data=None,
        )
        tensors.append(between)
        operators.remove(resize)
        position = operators.index(conv)
        operators[position : position + 1] = [
            replace(conv, inputs=(resize.inputs[0], *conv.inputs[1:]), outputs=(between.index,)),
            replace(resize, inputs=(between.index, *resize.inputs[1:]), outputs=conv.outputs),
        ]
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _resized(operators: Sequence[Operator], index: int) -> tuple[int, Operator] | None:
    """Of a tensor that adds a bilinear resize to another: that other, and the resize."""
    makers = {output: operator for operator in operators for output in operator.outputs}
    add = makers.get(index)
    if add is None or add.kind != "ADD" or sum(index in o.inputs for o in operators) != 1:
        return None
    other, last = add.inputs
    resize = makers.get(last)
    return (other, resize) if resize is not None and resize.kind == "RESIZE_BILINEAR" else None


def _without_unread(graph: Graph, operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """The operators whose results something reads."""
    kept: list[Operator] = []
    read = set(graph.outputs)
    for operator in reversed(operators):
        if read.intersection(operator.outputs):
            read.update(operator.inputs)
            kept.insert(0, operator)
    return tuple(kept)


def average_before_resize(graph: Graph) -> Graph:
    """Make the mean of a sum with an enlarged picture from the means of its parts.

    Doubling with half-pixel centres keeps the mean, so the picture is averaged while it
    is small, and the sum is never made.
    """
    tensors, operators = list(graph.tensors), list(graph.operators)
    for pool in [o for o in operators if o.kind in ("AVERAGE_POOL_2D", "MEAN")]:
        found = _resized(operators, pool.inputs[0])
        if found is None:
            continue
        other, resize = found
        small, large = (tensors[i].shape for i in (resize.inputs[0], resize.outputs[0]))
        if large[1:3] != (2 * small[1], 2 * small[2]):
            continue
        sides = {"filter_h": small[1], "filter_w": small[2]}
        mean = tensors[pool.outputs[0]]
        parts = [replace(mean, index=len(tensors) + each) for each in range(2)]
        tensors += parts
        position = operators.index(pool)
        operators[position : position + 1] = [
            replace(pool, inputs=(other, *pool.inputs[1:]), outputs=(parts[0].index,)),
            replace(
                pool,
                inputs=(resize.inputs[0], *pool.inputs[1:]),
                outputs=(parts[1].index,),
                options=pool.options | sides,
            ),
            Operator(
                kind="ADD",
                inputs=(parts[0].index, parts[1].index),
                outputs=pool.outputs,
                options={},
            ),
        ]
    return replace(graph, tensors=tuple(tensors), operators=_without_unread(graph, operators))


def convolve_before_sum(graph: Graph) -> Graph:
    """Convolve what is added to an enlarged picture alone, and the picture while it is small.

    A 1x1 convolution of a sum is the sum of two, and commutes with the resize. ONNX Runtime's
    convolution adds another picture to its result on the way out.
    """
    tensors, operators = list(graph.tensors), list(graph.operators)
    for conv in [o for o in operators if _is_pointwise(graph, o)]:
        found = _resized(operators, conv.inputs[0])
        if found is None:
            continue
        other, resize = found
        kernel, result = conv.inputs[1], tensors[conv.outputs[0]]
        channels = result.shape[3]
        small = (*tensors[resize.inputs[0]].shape[:3], channels)
        new = [
            Tensor(index=len(tensors) + at, name=f"{result.name}/{name}", shape=shape, data=data)
            for at, (name, shape, data) in enumerate(
                (
                    ("no_bias", (channels,), np.zeros(channels, np.float16)),
                    ("small", small, None),
                    ("resized", result.shape, None),
                    ("other", result.shape, None),
                )
            )
        ]
        tensors += new
        no_bias, less, more, rest = (tensor.index for tensor in new)
        position = operators.index(conv)
        operators[position : position + 1] = [
            replace(conv, inputs=(resize.inputs[0], kernel, no_bias), outputs=(less,)),
            replace(resize, inputs=(less, *resize.inputs[1:]), outputs=(more,)),
            replace(conv, inputs=(other, *conv.inputs[1:]), outputs=(rest,)),
            Operator(kind="ADD", inputs=(rest, more), outputs=conv.outputs, options={}),
        ]
    return replace(graph, tensors=tuple(tensors), operators=_without_unread(graph, operators))


def widen_channels(graph: Graph) -> Graph:
    """Fill up the channels of a network that pads them, with zeros, to whole blocks.

    ONNX Runtime computes whole blocks anyway, but leaves its blocked layout for what does not
    fill them; and most of the padding becomes none.
    """
    tensors = list(graph.tensors)
    stored = {o.outputs[0]: o.inputs[0] for o in graph.operators if o.kind == "DEQUANTIZE"}
    fixed = {*graph.inputs, *graph.outputs}

    def widen(index: int, *axes: int) -> None:
        index = stored.get(index, index)
        tensor = tensors[index]
        shape = tuple(
            -(-length // _BLOCK) * _BLOCK if axis in axes else length
            for axis, length in enumerate(tensor.shape)
        )
        data = tensor.data
        if data is not None:
            more = [(0, new - old) for new, old in zip(shape, tensor.shape, strict=True)]
            data = np.pad(data, more)
        tensors[index] = replace(tensor, shape=shape, data=data)

    operators: list[Operator] = []
    same: dict[int, int] = {}
    for operator in graph.operators:
        operator = replace(operator, inputs=tuple(same.get(i, i) for i in operator.inputs))
        source, result = operator.inputs[0], operator.outputs[0]
        outer = result not in fixed and len(tensors[result].shape) == 4
        if operator.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            across = (0,) if outer and operator.kind == "CONV_2D" else ()
            widen(operator.inputs[1], *across, *(() if source in fixed else (3,)))
            widen(operator.inputs[2], *((0,) if outer else ()))
        if outer and operator.kind != "DEQUANTIZE":
            widen(result, 3)
        if operator.kind == "PAD" and tensors[source].shape == tensors[result].shape:
            same[result] = source
        else:
            operators.append(operator)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))
