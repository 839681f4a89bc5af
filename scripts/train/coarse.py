"""The network that finds people first, in PyTorch, to make masks of training pictures with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

SIDE = 256
"""Of the square that it sees, in pixels."""


class CoarseNetwork(nn.Module):
    """Runs the embedded ``selfie-general``.

    Args:
        path: Its ONNX file, which has few kinds of operators.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        self._input, self._output = graph.input[0].name, graph.output[0].name
        self._constants = {
            each.name: torch.tensor(numpy_helper.to_array(each)).float()
            for each in graph.initializer
        }
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        for node in graph.node:
            attributes = {
                each.name: onnx.helper.get_attribute_value(each) for each in node.attribute
            }
            inputs = [name for name in node.input if name]
            if node.op_type == "Resize":
                # On the host: the size of the result depends on them.
                attributes["scales"] = self._constants.pop(inputs.pop()).tolist()[2:]
            self._nodes.append((node.op_type, inputs, node.output[0], attributes))

    def _apply(self, fn: Any, recurse: bool = True) -> CoarseNetwork:
        self._constants = {name: fn(value) for name, value in self._constants.items()}
        return self

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        """Masks (N, 1, 256, 256) of (N, 3, 256, 256) R'G'B', both 0 to 1."""
        values = {**self._constants, self._input: pictures}
        for kind, inputs, output, attributes in self._nodes:
            operands = [values[name] for name in inputs]
            values[output] = _run(kind, operands, attributes)
        return values[self._output]


def _run(kind: str, operands: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    x, *others = operands
    match kind:
        case "Conv" | "ConvTranspose":
            top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
            strides, groups = attributes.get("strides", (1, 1)), attributes.get("group", 1)
            weight, bias = others[0], others[1] if len(others) > 1 else None
            if kind == "Conv":
                x = functional.pad(x, (left, right, top, bottom))
                return functional.conv2d(x, weight, bias, strides, 0, 1, groups)
            x = functional.conv_transpose2d(x, weight, bias, strides, 0, 0, groups)
            return x[..., top : x.shape[2] - bottom, left : x.shape[3] - right]
        case "Relu":
            return x.relu()
        case "Sigmoid":
            return x.sigmoid()
        case "HardSwish":
            return functional.hardswish(x)
        case "Add":
            return x + others[0]
        case "Mul":
            return x * others[0]
        case "GlobalAveragePool":
            return x.mean((2, 3), keepdim=True)
        case "Cast":
            return x
        case "Resize":
            rows, columns = attributes["scales"]
            size = round(x.shape[2] * rows), round(x.shape[3] * columns)
            return functional.interpolate(x, size, mode="bilinear", align_corners=False)
    raise ValueError(f"cannot run the operator {kind}: it is not one of the network's")
