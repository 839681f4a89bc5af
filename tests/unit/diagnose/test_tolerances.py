"""Tolerances that this hardware cannot show are derived."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bgsoft.analysis.reduce import Reducer
from bgsoft.diagnose.clips import draw_frame
from bgsoft.diagnose.parity import mask_tolerance
from bgsoft.models.catalog import resolve
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.settings.config import Precision

_TF32_SPLIT = 2.0**13 + 1
"""By Veltkamp's splitting, it leaves 11 of float32's 24 significant bits, as TF32 does."""


def with_tf32_convolutions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what flows into convolutions rounded; its weights have 11 bits already."""
    rounded: dict[str, str] = {}
    nodes = []
    for node in model.graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            name = node.input[0]
            if name not in rounded:
                rounded[name] = f"{name}.tf32"
                nodes += [
                    helper.make_node("Mul", [name, "tf32.split"], [f"{name}.scaled"]),
                    helper.make_node("Sub", [f"{name}.scaled", name], [f"{name}.rest"]),
                    helper.make_node("Sub", [f"{name}.scaled", f"{name}.rest"], [rounded[name]]),
                ]
            node.input[0] = rounded[name]
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    split = helper.make_tensor("tf32.split", TensorProto.FLOAT, [], [_TF32_SPLIT])
    model.graph.initializer.append(split)
    return model


def test_tf32_needs_a_tolerance_of_its_own_and_keeps_it() -> None:
    resolved = resolve("selfie-general")
    spec = resolved.spec
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    whole = onnx.load(str(resolved.path))
    exact, tf32 = (
        ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        for model in (whole, with_tf32_convolutions(onnx.load(str(resolved.path))))
    )
    worst = 0.0
    for index in (0, 7, 20):
        frame = draw_frame(index, 1280, 720)
        tensor: NDArray[np.float32] = np.empty((3, spec.height, spec.width), np.float32)
        (grid,) = Reducer(frame.format).reduce([frame])
        Preprocessor(spec, frame.format).write(grid, tensor[None])
        one, other = (s.run([spec.output], {spec.input: tensor[None]})[0] for s in (exact, tf32))
        worst = max(worst, float(np.abs(one - other).max()))
    assert mask_tolerance("cuda", Precision.FP32) < worst
    assert worst < mask_tolerance("tensorrt", Precision.FP32)
