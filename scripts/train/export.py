"""Write the trained refiner as the ONNX file that is embedded.

::

    python scripts/train/export.py run/weights.pt bgsoft/models/data/refiner.onnx

All shapes but the batch's are fixed, batch norms are folded into convolutions, and weights are
float16, cast once when the file is loaded. Prints what the catalogue wants to know.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from network import Refiner
from onnx import ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor, nn

_OPSET = 17
_SIDE = 256
"""Of the embedded network's square. It is trained at 320; at 256 its figures are the same, in 0.6
of the time."""
_MIN_HALVED = 16
"""Values of a tensor, below which half precision would save nothing."""


class _Masks(nn.Module):
    """The embedded network: opacity in place of logits."""

    def __init__(self, refiner: Refiner) -> None:
        super().__init__()
        self._refiner = refiner

    def forward(self, image: Tensor, coarse: Tensor) -> Tensor:
        return self._refiner(image, coarse)[0].sigmoid()


def _padding_folded(model: ModelProto) -> None:
    """Move each padding node of zeros into the convolution behind it."""
    graph = model.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    padded = {node.output[0]: node for node in graph.node if node.op_type == "Pad"}
    for node in graph.node:
        pad = padded.get(node.input[0]) if node.op_type == "Conv" else None
        if pad is None:
            continue
        (pads,) = (each for each in node.attribute if each.name == "pads")
        amounts = constants[pad.input[1]]
        assert not any(pads.ints)
        assert not amounts[[0, 1, 4, 5]].any()
        pads.ints[:] = amounts[[2, 3, 6, 7]].tolist()
        node.input[0] = pad.input[0]
        graph.node.remove(pad)


def _halved(model: ModelProto) -> None:
    """Store weights as float16, each with a cast that is done once, on loading."""
    graph = model.graph
    casts: list[NodeProto] = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < _MIN_HALVED:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        casts.append(helper.make_node("Cast", [f"{name}_half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _optimized(path: Path) -> ModelProto:
    """The file with constants computed and batch norms folded, in ONNX's own operators."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write the refiner as ONNX.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    refiner = Refiner()
    refiner.load_state_dict(torch.load(options.weights, map_location="cpu", weights_only=True))
    example = torch.rand(1, 3, _SIDE, _SIDE), torch.rand(1, 1, _SIDE, _SIDE)
    model = _Masks(refiner).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "refiner.onnx"
        torch.onnx.export(
            model,
            example,
            path,
            input_names=["image", "coarse"],
            output_names=["mask"],
            opset_version=_OPSET,
            dynamic_axes={name: {0: "batch"} for name in ("image", "coarse", "mask")},
            dynamo=False,
        )
        exported = _optimized(path)
    _padding_folded(exported)
    _halved(exported)
    del exported.opset_import[:]
    exported.opset_import.append(helper.make_operatorsetid("", _OPSET))
    exported.producer_name, exported.producer_version = "bgsoft", ""
    onnx.checker.check_model(exported, full_check=True)
    onnx.save(exported, options.output)
    session = onnxruntime.InferenceSession(options.output, providers=["CPUExecutionProvider"])
    inputs = {name: each.numpy() for name, each in zip(("image", "coarse"), example, strict=True)}
    (found,) = session.run(None, inputs)
    with torch.no_grad():
        difference = np.abs(found - model(*example).numpy()).max()
    kinds = sorted({node.op_type for node in exported.graph.node})
    data = options.output.read_bytes()
    print(f"bytes = {len(data)}\nsha256 = {hashlib.sha256(data).hexdigest()}")
    print(f"operators: {', '.join(kinds)}\nlargest difference from PyTorch: {difference:.1e}")


if __name__ == "__main__":
    main()
