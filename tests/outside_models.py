"""Small models with the inputs and outputs of others' models, whose results are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bgsoft.analysis.reduce import Reducer
from bgsoft.frame import Frame
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.settings.config import MatteQuality
from bgsoft.threads import LanePool

INPUT = "input.1"
SIDECAR = """
family = "single-shot"
licence = "MIT"
[input]
width = {size}
height = {size}
"""


def masks_of(
    model: ResolvedModel,
    frames: list[Frame],
    backend: str = "cpu",
    gpu: Any = None,
    on_notice: Any = lambda _text: None,
) -> list[np.ndarray]:
    """Masks of frames on the host, all in one batch."""
    pool = LanePool(len(frames))
    factory = HostSegmenterFactory(backend, frames[0].format, pool, gpu)
    made = factory.create(NetworkLoader(model, on_notice=on_notice), MatteQuality.STANDARD)
    made.start()
    reduced = Reducer(frames[0].format, pool).reduce(frames)
    masks = [mask.copy() for mask in made.masks(frames, reduced)]
    made.close()
    pool.close()
    return masks


def save_network(
    path: Path,
    nodes: list[onnx.NodeProto],
    shapes: dict[str, tuple[int | str | None, ...]],
    constants: dict[str, np.ndarray] | None = None,
    type: int = TensorProto.FLOAT,
) -> Path:
    """Write a network; ``shapes`` are its input's, the first one, and its outputs'."""
    values = [helper.make_tensor_value_info(name, type, shape) for name, shape in shapes.items()]
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "outside", values[:1], values[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return path


def write_grey(
    path: Path, size: int, *, sigmoid: bool, batch: int | str = 1, half: bool = False
) -> None:
    """Write a model that returns the mean of the input's channels, or its sigmoid.

    Like rembg's models, it has a fixed batch, an input with a name of its own, and three outputs;
    the mask is the first, and the others have other sizes.
    """
    nodes = [
        helper.make_node("ReduceMean", [INPUT], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sigmoid" if sigmoid else "Identity", ["mean"], ["d0"]),
        helper.make_node("Identity", ["mean"], ["d1"]),
        helper.make_node("MaxPool", [INPUT], ["d2"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    one, pooled = (batch, 1, size, size), (batch, 3, size // 2, size // 2)
    shapes = {INPUT: (batch, 3, size, size), "d0": one, "d1": one, "d2": pooled}
    save_network(path, nodes, shapes, {}, TensorProto.FLOAT16 if half else TensorProto.FLOAT)


def write_swapped(path: Path, width: int, height: int) -> None:
    """Write a model that takes channels last and returns which values are positive.

    The batch is free. The outputs are ``background`` and ``y``.
    """
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["y"], axes=[3], keepdims=1),
        helper.make_node("Neg", ["y"], ["background"]),
    ]
    plane = ("n", height, width, 1)
    save_network(path, nodes, {"x": ("n", height, width, 3), "background": plane, "y": plane}, {})


def write_short(path: Path, size: int, *, batch: int, axis: int, end: int) -> None:
    """Write a grey model whose output ends early along an axis, which only a run shows."""
    nodes = [
        helper.make_node("ReduceMean", [INPUT], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Slice", ["mean", "start", "end", "axis"], ["d0"]),
    ]
    numbers = {"start": 0, "end": end, "axis": axis}
    constants = {name: np.array([number]) for name, number in numbers.items()}
    shapes = {INPUT: (batch, 3, size, size), "d0": ("n", "c", "h", "w")}
    save_network(path, nodes, shapes, constants)


def write_fixed_inside(path: Path, size: int) -> None:
    """Write a grey model of any size that fails on pictures of other sizes than this."""
    nodes = [
        helper.make_node("ReduceMean", [INPUT], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Reshape", ["mean", "shape"], ["d0"]),
    ]
    shapes: dict[str, tuple[int | str, ...]] = {INPUT: (1, 3, "h", "w"), "d0": (1, 1, size, size)}
    # ONNX Runtime does not infer a shape that is a sum.
    nodes.insert(1, helper.make_node("Add", ["rows", "columns"], ["shape"]))
    rows, columns = np.array([1, 1, size, 0]), np.array([0, 0, 0, size])
    save_network(path, nodes, shapes, {"rows": rows, "columns": columns})


def write_mixed(path: Path, size: int = 32, *, batch: int | str = "batch") -> Path:
    """Write a model that returns the grey by an 8-bit convolution, for which CUDA has no kernel.

    It has a sidecar. Greys differ by at most half a 255th.
    """
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [INPUT], ["codes", "step", "zero"]),
        helper.make_node("ConvInteger", ["codes", "ones", "zero"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["whole", "step"], ["threefold"]),
        helper.make_node("Mul", ["threefold", "third"], ["mask"]),
    ]
    shapes: dict[str, tuple[int | str, ...]] = {
        INPUT: (batch, 3, size, size),
        "mask": (batch, 1, size, size),
    }
    third = np.array(1 / 3, np.float32)
    save_network(path, nodes, shapes, {"ones": np.ones((1, 3, 1, 1), np.uint8), "third": third})
    path.with_suffix(".toml").write_text(SIDECAR.format(size=size))
    return path
