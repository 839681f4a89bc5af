"""Write a TFLite graph as an ONNX graph: NCHW, dynamic batch, float16 weights.

Everything that ONNX expresses directly is mapped one to one. Layout is settled at conversion
time: kernels are stored transposed, so no Transpose is left except where an output's documented
order is channels-last (the detector's anchors). Padding is written out as explicit numbers, since
TensorFlow's SAME puts the odd pixel at the end.

Weights stay float16, as Google published them, each followed by a Cast to float32 of the
initializer alone. ONNX Runtime folds those Casts when a session is created, so inference computes
in float32 with float32 weights; only the file is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tflite_onnx.flatbuffer import Array, Graph, Operator

OPSET = 17
"""Oldest operator set with everything used here; read by any ONNX Runtime since 1.12."""
IR_VERSION = 8
"""File format version that came with opset 17, so that old runtimes accept the file."""
VARIANT = {"hswish": "native", "pad": "pad", "deconv": "convtranspose", "prelu": "native", "gap":"gap"}

_ACTIVATIONS = {1: "Relu"}


class OnnxEmitter:
    """Turns operators into ONNX nodes, one at a time, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[int, str] = {}
        self._constants: dict[int, Array] = {
            t.index: t.data for t in graph.tensors if t.data is not None
        }
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._handlers: dict[str, Callable[[Operator], None]] = {
            "ADD": self._binary,
            "MUL": self._binary,
            "AVERAGE_POOL_2D": self._average_pool,
            "MEAN": self._mean,
            "CONCATENATION": self._concatenation,
            "CONV_2D": self._conv,
            "DEPTHWISE_CONV_2D": self._conv,
            "Convolution2DTransposeBias": self._transposed_conv,
            "DEQUANTIZE": self._dequantize,
            "HARD_SWISH": self._hard_swish,
            "LOGISTIC": self._logistic,
            "MAX_POOL_2D": self._max_pool,
            "PAD": self._pad,
            "PRELU": self._prelu,
            "RELU": self._relu,
            "RESHAPE": self._reshape,
            "RESIZE_BILINEAR": self._resize,
        }

    # -- plumbing

    def _shape(self, index: int) -> tuple[int, ...]:
        return self._graph.tensors[index].shape

    def _name(self, index: int) -> str:
        return self._values[index]

    def _node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(
            helper.make_node(op, list(inputs), [output], name=f"{output}/{op}", **attributes)
        )
        return output

    def _result(self, operator: Operator) -> str:
        index = operator.outputs[0]
        name = self._values.get(index) or f"t{index}"
        self._values[index] = name
        return name

    def _initializer(self, name: str, values: Array) -> str:
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _weight(self, name: str, values: Array) -> str:
        self._initializer(name + "_fp16", values)
        return self._node("Cast", [name + "_fp16"], name, to=TensorProto.FLOAT)

    # -- operators

    def _dequantize(self, operator: Operator) -> None:
        self._constants[operator.outputs[0]] = self._constants[operator.inputs[0]]

    def _binary(self, operator: Operator) -> None:
        op = {"ADD": "Add", "MUL": "Mul"}[operator.kind]
        self._node(op, [self._name(i) for i in operator.inputs], self._result(operator))

    def _same_pads(self, operator: Operator, kernel: tuple[int, int]) -> list[int]:
        if operator.options["padding"] == 1:
            return [0, 0, 0, 0]
        before, after = [], []
        source, target = self._shape(operator.inputs[0]), self._shape(operator.outputs[0])
        strides = (operator.options["stride_h"], operator.options["stride_w"])
        for axis in range(2):
            total = (target[axis + 1] - 1) * strides[axis] + kernel[axis] - source[axis + 1]
            total = max(total, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        return before + after

    def _conv(self, operator: Operator) -> None:
        source, kernel, bias = operator.inputs
        values = self._constants[kernel]
        group = 1
        if operator.kind == "DEPTHWISE_CONV_2D":
            values = values.transpose(3, 0, 1, 2)  # (1, kh, kw, C) to (C, 1, kh, kw)
            group = values.shape[0]
        else:
            values = values.transpose(0, 3, 1, 2)  # (out, kh, kw, in) to (out, in, kh, kw)
        size = (values.shape[2], values.shape[3])
        out = self._result(operator)
        self._node(
            "Conv",
            [self._name(source), self._weight(out + "_w", values),
             self._weight(out + "_b", self._constants[bias])],
            out,
            kernel_shape=list(size),
            strides=[operator.options["stride_h"], operator.options["stride_w"]],
            pads=self._same_pads(operator, size),
            group=group,
        )

    def _transposed_conv(self, operator: Operator) -> None:
        source, kernel, bias = operator.inputs
        values = self._constants[kernel]
        out = self._result(operator)
        if VARIANT["deconv"] == "d2s":
            o, kh, kw, c = values.shape
            w = values.transpose(1, 2, 0, 3).reshape(kh * kw * o, c, 1, 1)
            x = self._node("Conv", [self._name(source), self._weight(out + "_w", w), self._weight(out + "_b", np.repeat(self._constants[bias], kh * kw))], out + "_c", kernel_shape=[1, 1])
            self._node("DepthToSpace", [x], out, blocksize=2, mode="DCR")
            return
        values = values.transpose(3, 0, 1, 2)  # (out, kh, kw, in) to (in, out, kh, kw)
        self._node(
            "ConvTranspose",
            [self._name(source), self._weight(out + "_w", values),
             self._weight(out + "_b", self._constants[bias])],
            out,
            kernel_shape=[values.shape[2], values.shape[3]],
            strides=[operator.options["stride_h"], operator.options["stride_w"]],
        )

    def _average_pool(self, operator: Operator) -> None:
        self._node(
            "GlobalAveragePool", [self._name(operator.inputs[0])], self._result(operator)
        )

    def _mean(self, operator: Operator) -> None:
        self._average_pool(operator)

    def _max_pool(self, operator: Operator) -> None:
        o = operator.options
        self._node("MaxPool", [self._name(operator.inputs[0])], self._result(operator),
                   kernel_shape=[o["filter_h"], o["filter_w"]], strides=[o["stride_h"], o["stride_w"]])

    def _hard_swish(self, operator: Operator) -> None:
        x = self._name(operator.inputs[0]); out = self._result(operator)
        if VARIANT["hswish"] == "native":
            self._node("HardSwish", [x], out)
        else:
            g = self._node("HardSigmoid", [x], out + "_g", alpha=1 / 6, beta=0.5)
            self._node("Mul", [x, g], out)

    def _logistic(self, operator: Operator) -> None:
        self._node("Sigmoid", [self._name(operator.inputs[0])], self._result(operator))

    def _relu(self, operator: Operator) -> None:
        self._node("Relu", [self._name(operator.inputs[0])], self._result(operator))

    def _prelu(self, operator: Operator) -> None:
        out = self._result(operator)
        a = self._constants[operator.inputs[1]].transpose(2, 0, 1)
        x = self._name(operator.inputs[0])
        if VARIANT["prelu"] == "native":
            self._node("PRelu", [x, self._weight(out + "_slope", a)], out)
        else:
            r = self._node("Relu", [x], out+"_r")
            c = a.shape[0]
            p = self._node("Conv", [x, self._weight(out+"_sl", a.reshape(c,1,1,1))], out+"_p", kernel_shape=[1,1], group=c)
            q = self._node("Conv", [r, self._weight(out+"_sm", (1-a.astype(np.float32)).astype(np.float16).reshape(c,1,1,1))], out+"_q", kernel_shape=[1,1], group=c)
            self._node("Add", [p,q], out)

    def _pad(self, operator: Operator) -> None:
        source, paddings = operator.inputs
        p = self._constants[paddings]
        p = p[[0, 3, 1, 2]]
        out = self._result(operator)
        if VARIANT["pad"] == "pad":
            self._node("Pad", [self._name(source), self._initializer(out + "_pads", p.T.reshape(-1).astype(np.int64))], out)
        else:
            ci = self._shape(source)[3]; co = self._shape(operator.outputs[0])[3]
            w = np.eye(co, ci, dtype=np.float16).reshape(co, ci, 1, 1)
            self._node("Conv", [self._name(source), self._weight(out + "_w", w)], out, kernel_shape=[1, 1])

    def _resize(self, operator: Operator) -> None:
        s = self._shape(operator.inputs[0]); t = self._shape(operator.outputs[0])
        out = self._result(operator)
        sc = self._initializer(out + "_s", np.array([1, 1, t[1] / s[1], t[2] / s[2]], np.float32))
        assert operator.options["half_pixel"]
        self._node("Resize", [self._name(operator.inputs[0]), "", sc], out, mode="linear",
                   coordinate_transformation_mode="half_pixel")

    def _reshape(self, operator: Operator) -> None:
        out = self._result(operator)
        x = self._node("Transpose", [self._name(operator.inputs[0])], out + "_t", perm=[0, 2, 3, 1])
        t = self._shape(operator.outputs[0])
        self._node("Reshape", [x, self._initializer(out + "_shape", np.array([0, *t[1:]], np.int64))], out)

    def _concatenation(self, operator: Operator) -> None:
        self._node("Concat", [self._name(i) for i in operator.inputs], self._result(operator), axis=1)

    def emit(self) -> onnx.ModelProto:
        g = self._graph
        for i in g.inputs: self._values[i] = "image"
        for o in g.operators:
            self._handlers[o.kind](o)
        s = self._shape(g.inputs[0])
        outs = [helper.make_tensor_value_info(self._values[i], 1, None) for i in g.outputs]
        gr = helper.make_graph(self._nodes, "g", [helper.make_tensor_value_info("image", 1, ["N", s[3], s[1], s[2]])], outs, self._initializers)
        return helper.make_model(gr, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
