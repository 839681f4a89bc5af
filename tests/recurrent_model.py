"""A tiny model of Robust Video Matting's contract, whose every number is known.

The first state follows the picture's grey at full size, half way a frame; alpha is that state. The
second counts frames on a grid that the ratio decides; the others stay zero. ``fgr`` is ``src``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bgsoft.models.catalog import ResolvedModel, resolve


def write_model(folder: Path, *, ratio_input: bool = True) -> Path:
    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    constants = {
        "half": np.array(0.5, np.float32),
        "one": np.array(1, np.float32),
        "zero": np.array(0, np.float32),
        "ones": np.ones(2, np.float32),
        "channels": np.array([1], np.int64),
    }
    ratio = value("downsample_ratio", 1)
    if not ratio_input:
        constants["downsample_ratio"] = np.array([0.25], np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["src"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("Add", ["grey", "r1i"], ["sum"]),
        helper.make_node("Mul", ["sum", "half"], ["r1o"]),
        helper.make_node("Clip", ["r1o", "zero", "one"], ["pha"]),
        helper.make_node("Identity", ["src"], ["fgr"]),
        helper.make_node(
            "Concat", ["ones", "downsample_ratio", "downsample_ratio"], ["scales"], axis=0
        ),
        helper.make_node("Resize", ["grey", "", "scales"], ["small"], mode="linear"),
        helper.make_node("Mul", ["small", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "r2i"], ["count"]),
        helper.make_node("Add", ["count", "one"], ["r2o"]),
        helper.make_node("Add", ["nothing", "r3i"], ["r3o"]),
        helper.make_node("Add", ["nothing", "r4i"], ["r4o"]),
    ]
    free = ("b", "c", "h", "w")
    states = [value(f"r{k}i", *(f"r{k}i_{axis}" for axis in free)) for k in range(1, 5)]
    outputs = [value("fgr", "b", 3, "height", "width"), value("pha", "b", 1, "height", "width")]
    outputs += [value(f"r{k}o", *(f"r{k}o_{axis}" for axis in free)) for k in range(1, 5)]
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [value("src", "b", 3, "height", "width"), *states, *([ratio] if ratio_input else [])],
        outputs,
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "tiny.onnx"
    onnx.save(model, str(path))
    path.with_suffix(".toml").write_text('family = "recurrent"\nlicence = "MIT"\n')
    return path


def recurrent_model(folder: Path) -> ResolvedModel:
    return resolve(str(write_model(folder)))


def expected_alphas(greys: list[float]) -> list[float]:
    alphas, before = [], 0.0
    for grey in greys:
        before = (before + grey) / 2
        alphas.append(before)
    return alphas
