"""Hostile ONNX files: damaged, with other operators, absurd tensors, and data elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bgsoft.exitcodes import ExitCode
from tests.hostile.case import Case, Stock, mangled, render
from tests.hostile.data import SIDECAR

_REFUSED = frozenset({ExitCode.UNAVAILABLE, ExitCode.USAGE})


def ones() -> onnx.ModelProto:
    """A model that takes everything for a person."""

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("ReduceMean", ["x"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["grey", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "one"], ["y"]),
    ]
    numbers = {"zero": np.array([0.0], np.float32), "one": np.array([1.0], np.float32)}
    graph = helper.make_graph(
        nodes,
        "ones",
        [value("x", "b", 3, 16, 16)],
        [value("y", "b", 1, 16, 16)],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _case(
    stock: Stock, folder: Path, data: bytes, what: str, rng: random.Random, *, refused: bool = True
) -> Case:
    path = folder / "own.onnx"
    path.write_bytes(data)
    if not path.with_suffix(".toml").exists():
        path.with_suffix(".toml").write_text(SIDECAR)
    run = render(stock, folder, stock.clip(rng, ".mp4"), "--model", str(path))
    return Case(what=f"model: {what}", run=run, codes=_REFUSED if refused else None)


def damaged(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """Its bytes are damaged."""
    data = ones().SerializeToString()
    for _ in range(rng.randrange(1, 4)):
        data = mangled(rng, data)
    return _case(stock, folder, data, "damaged", rng, refused=False)


def elsewhere(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """Its weights are said to lie in another file, outside of its folder."""
    outside = folder.parent / "weights.bin"
    (folder / "link.bin").symlink_to(stock.secret)
    location = rng.choice(
        (str(stock.secret), f"../{stock.secret.name}", "../../../etc/passwd", "/dev/zero",
         "link.bin", "sub/../../weights.bin", f"file://{outside}", "", ".", "gone.bin",
         "\\\\host\\share", "http://127.0.0.1/a")
    )  # fmt: skip
    model = ones()
    place = rng.choice(("initializer", "attribute", "branch", "sparse"))
    tensor = TensorProto(name="one", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    graph = model.graph
    keep = [each for each in graph.initializer if each.name != "one"]
    del graph.initializer[:]
    graph.initializer.extend(keep)
    if place == "initializer":
        graph.initializer.append(tensor)
    elif place == "sparse":
        indices = numpy_helper.from_array(np.array([0], np.int64), "at")
        graph.sparse_initializer.add(values=tensor, indices=indices, dims=[1])
    elif place == "attribute":
        graph.node.insert(0, helper.make_node("Constant", [], ["one"], value=tensor))
    else:
        inner = helper.make_node("Constant", [], ["made"], value=tensor)
        info = helper.make_tensor_value_info("made", TensorProto.FLOAT, [1])
        branch = helper.make_graph([inner], "branch", [], [info])
        truth = numpy_helper.from_array(np.array(True), "truth")
        graph.initializer.append(truth)
        node = helper.make_node("If", ["truth"], ["one"], then_branch=branch, else_branch=branch)
        graph.node.insert(0, node)
    data = model.SerializeToString()
    return _case(stock, folder, data, f"{place} lies in {location!r}", rng)


def foreign_operator(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """It wants operators that are not ONNX's."""
    domain = rng.choice(("com.example", "ai.onnx.contrib", "custom", "org.pytorch.aten"))
    model = ones()
    model.opset_import.add(domain=domain, version=1)
    model.graph.node[1].domain = domain
    model.graph.node[1].op_type = rng.choice(("Mul", "PyOp", "ATen", "Exec"))
    return _case(stock, folder, model.SerializeToString(), f"operator of {domain}", rng)


def absurd_tensor(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """It has, wants or makes a tensor that no machine has room for."""
    size = rng.choice((100_000, 1_000_000, 2**31 - 1, 2**31, 2**40, 2**62))
    model, graph = ones(), None
    graph = model.graph
    sidecar = SIDECAR
    how = rng.choice(("weights", "input", "batch", "output", "fill", "enlarge", "tile", "typed"))
    if how == "weights":
        graph.initializer[0].dims[:] = [size, size]
    elif how == "typed":
        tensor = TensorProto(name="one", data_type=rng.choice((0, 8, 20, 99)), dims=[size])
        graph.initializer[1].CopyFrom(tensor)
    elif how == "input":
        for axis in (2, 3):
            graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
        sidecar = SIDECAR.replace("= 16", f"= {size}")
    elif how == "batch":
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    elif how == "output":
        for axis in (2, 3):
            graph.output[0].type.tensor_type.shape.dim[axis].dim_value = size
    else:
        shape = {"fill": [size, size], "tile": [1, 1, size, size], "enlarge": [1, 1, 1e6, 1e6]}[how]
        kind = np.float32 if how == "enlarge" else np.int64
        graph.initializer.append(numpy_helper.from_array(np.array(shape, kind), "shape"))
        graph.node[2].output[0] = "small"
        if how == "fill":
            graph.node.append(helper.make_node("ConstantOfShape", ["shape"], ["large"]))
            graph.node.append(helper.make_node("ReduceMax", ["large"], ["most"], keepdims=0))
            graph.node.append(helper.make_node("Add", ["small", "most"], ["y"]))
        elif how == "tile":
            graph.node.append(helper.make_node("Tile", ["small", "shape"], ["y"]))
        else:
            graph.node.append(helper.make_node("Resize", ["small", "", "shape"], ["y"]))
    (folder / "own.toml").write_text(sidecar)
    return _case(stock, folder, model.SerializeToString(), f"{how} of {size}", rng)


MAKERS: dict[Callable[[random.Random, Path, Stock], Case], int] = {
    damaged: 12,
    elsewhere: 6,
    foreign_operator: 2,
    absurd_tensor: 8,
}
