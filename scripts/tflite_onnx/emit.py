"""Write a TFLite graph as an ONNX graph: NCHW, dynamic batch, float16 weights.

Layout is settled at conversion time: kernels are stored transposed, so no Transposes are left.
Padding is written out as numbers, since TensorFlow's SAME puts the odd pixel at the end. The batch
dimension is ``N``.

Weights stay float16, as published, each followed by a Cast to float32. Such a Cast reads a
constant only, so ONNX Runtime folds it when it creates a session (basic optimisation level, before
graphs are handed to any provider): inference computes in float32, and only the file is small.
A graph in half precision has no such Casts: it takes, computes and gives float16 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tflite_onnx.graph import Array, Graph, Operator
from tflite_onnx.specs import Output

OPSET = 17
"""Oldest operator set the project allows; has all that is used here."""
IR_VERSION = 8
"""File format version that came with opset 17, so that older runtimes accept the file."""
BATCH = "N"
"""Name of the free dimension."""

_SAME_PADDING = 0
_SMALL_PICTURE = 32
"""Rows and columns, at most; with 48 cuDNN has kernels for depthwise convolutions ready."""
_READY_SIZE = 5
"""Size of the depthwise kernels that cuDNN has ready for small pictures, too."""
_PLAIN = {
    "ADD": "Add",
    "HARD_SWISH": "HardSwish",
    "LOGISTIC": "Sigmoid",
    "MUL": "Mul",
    "RELU": "Relu",
}
"""Operators that ONNX has under another name."""


class OnnxEmitter:
    """Turns the operators of one graph into ONNX nodes, in execution order."""

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[Output],
        *,
        half: bool = False,
        blocked: bool = True,
        widened: bool = False,
    ) -> None:
        """Start an empty ONNX graph.

        Args:
            graph: The parsed model, with one image input, NHWC.
            outputs: One for each output of the graph, in its order.
            half: Compute in float16, input and outputs included.
            blocked: Write PRelu in operators that have kernels for the blocked layouts of ONNX
                Runtime's CPU provider; False writes ONNX's own PRelu, for GPUs, and no biases
                of 0.
            widened: Write depthwise convolutions of small pictures as cuDNN has them ready.

        Raises:
            ValueError: Not one input, or the number of outputs differs.
        """
        if len(graph.inputs) != 1 or len(graph.outputs) != len(outputs):
            raise ValueError(
                f"expected 1 input and {len(outputs)} outputs, "
                f"found {len(graph.inputs)} and {len(graph.outputs)}"
            )
        self._graph = graph
        self._outputs = tuple(outputs)
        self._half = half
        self._blocked = blocked
        self._widened = widened
        self._type = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self._values: dict[int, str] = {graph.inputs[0]: "image"}
        self._constants: dict[int, Array] = {
            t.index: t.data for t in graph.tensors if t.data is not None
        }
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._handlers: dict[str, Callable[[Operator], None]] = {
            "AVERAGE_POOL_2D": self._average_pool,
            "CONV_2D": self._conv,
            "Convolution2DTransposeBias": self._transposed_conv,
            "DEPTHWISE_CONV_2D": self._depthwise_conv,
            "DEQUANTIZE": self._dequantize,
            "MAX_POOL_2D": self._max_pool,
            "MEAN": self._mean,
            "PAD": self._pad_channels,
            "PRELU": self._prelu,
            "RESIZE_BILINEAR": self._resize,
            **dict.fromkeys(_PLAIN, self._plain),
        }

    def emit(self, name: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Convert the whole graph and check it.

        Args:
            name: Name of the ONNX graph.
            metadata: Written to the model's ``metadata_props``.

        Returns:
            The model, valid and with shapes that strict shape inference confirms.

        Raises:
            ValueError: An operator, or one of its options, has no conversion here.
        """
        for operator in self._graph.operators:
            handler = self._handlers.get(operator.kind)
            if handler is None:
                raise ValueError(f"no conversion for TFLite operator {operator.kind}")
            if operator.options.get("activation", 0):
                raise ValueError(f"{operator.kind} has a fused activation, which is not converted")
            handler(operator)
        for output, index in zip(self._outputs, self._graph.outputs, strict=True):
            self._publish(output, index)
        _, height, width, channels = self._shape(self._graph.inputs[0])
        image = helper.make_tensor_value_info("image", self._type, [BATCH, channels, height, width])
        results = [
            helper.make_tensor_value_info(o.name, self._type, [BATCH, *o.shape])
            for o in self._outputs
        ]
        graph = helper.make_graph(self._nodes, name, [image], results, self._initializers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="bgsoft",
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        return model

    def _shape(self, index: int) -> tuple[int, ...]:
        return self._graph.tensors[index].shape

    def _node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        node = helper.make_node(op, list(inputs), [output], name=f"{output}/{op}", **attributes)
        self._nodes.append(node)
        return output

    def _source(self, operator: Operator) -> str:
        return self._values[operator.inputs[0]]

    def _result(self, operator: Operator) -> str:
        name = f"{operator.kind.lower()}_{operator.outputs[0]}"
        self._values[operator.outputs[0]] = name
        return name

    def _constant(self, name: str, values: Array) -> str:
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _weight(self, name: str, values: Array) -> str:
        if values.dtype != np.float16:
            raise ValueError(f"{name} is {values.dtype}, expected the published float16")
        if self._half:
            return self._constant(name, values)
        stored = self._constant(f"{name}_fp16", values)
        return self._node("Cast", [stored], name, to=TensorProto.FLOAT)

    def _publish(self, output: Output, index: int) -> None:
        """Give a graph output its public name, reshaped where TFLite keeps it 1x1 spatial."""
        value = self._values[index]
        _, *rest = self._shape(index)
        nchw = (rest[2], rest[0], rest[1]) if len(rest) == 3 else tuple(rest)
        if nchw == output.shape:
            producer = next(n for n in self._nodes if n.output[0] == value)
            producer.output[0] = output.name
            return
        if len(rest) == 3 and rest[:2] != [1, 1]:
            raise ValueError(f"output {output.name} would need a transpose")
        if len(output.shape) == 1:
            self._node("Flatten", [value], output.name, axis=1)
            return
        shape = self._constant(f"{output.name}_shape", np.array([0, *output.shape], np.int64))
        self._node("Reshape", [value, shape], output.name)

    def _dequantize(self, operator: Operator) -> None:
        # Float16 constants: read where they are used, so that they stay float16 in the file.
        self._constants[operator.outputs[0]] = self._constants[operator.inputs[0]]

    def _plain(self, operator: Operator) -> None:
        inputs = [self._values[i] for i in operator.inputs]
        self._node(_PLAIN[operator.kind], inputs, self._result(operator))

    def _pads(self, operator: Operator, kernel: tuple[int, int]) -> list[int]:
        """Padding in ONNX order (top, left, bottom, right), the odd pixel last."""
        if operator.options["padding"] != _SAME_PADDING:
            return [0, 0, 0, 0]
        before, after = [], []
        source, target = self._shape(operator.inputs[0]), self._shape(operator.outputs[0])
        for axis, stride in enumerate(_strides(operator)):
            needed = (target[axis + 1] - 1) * stride + kernel[axis] - source[axis + 1]
            before.append(max(needed, 0) // 2)
            after.append(max(needed, 0) - before[-1])
        return before + after

    def _emit_conv(self, operator: Operator, kernel: Array, group: int, margin: int = 0) -> None:
        """``margin``: weights of 0 around the kernel's."""
        if (operator.options["dilation_h"], operator.options["dilation_w"]) != (1, 1):
            raise ValueError("dilated convolutions are not converted")
        name = self._result(operator)
        pads = self._pads(operator, (kernel.shape[2], kernel.shape[3]))
        kernel = np.pad(kernel, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
        bias = self._constants[operator.inputs[2]]
        biases: list[str] = []
        if self._blocked or bias.any():  # on a GPU to add it is a kernel of its own
            biases.append(self._weight(f"{name}_bias", bias))
        self._node(
            "Conv",
            [self._source(operator), self._weight(f"{name}_kernel", kernel), *biases],
            name,
            kernel_shape=list(kernel.shape[2:]),
            strides=_strides(operator),
            pads=[pad + margin for pad in pads],
            group=group,
        )

    def _conv(self, operator: Operator) -> None:
        # (out, height, width, in) to (out, in, height, width)
        kernel = self._constants[operator.inputs[1]].transpose(0, 3, 1, 2)
        self._emit_conv(operator, kernel, group=1)

    def _depthwise_conv(self, operator: Operator) -> None:
        """One kernel a channel.

        For small pictures cuDNN's heuristic chooses, of 3x3, kernels that it compiles when they are
        first run, 0.25 s each; with zeros around them it has ready ones, and a run of Face Mesh
        takes 0.47 ms, not 0.43 (8 faces, H100). Selfie Segmentation has none of those that
        are compiled.
        """
        # (1, height, width, channel) to (channel, 1, height, width)
        kernel = self._constants[operator.inputs[1]].transpose(3, 0, 1, 2)
        if operator.options["multiplier"] != 1:
            raise ValueError("depthwise convolutions with a multiplier are not converted")
        small = max(self._shape(operator.inputs[0])[1:3]) <= _SMALL_PICTURE
        margin = max(0, (_READY_SIZE - kernel.shape[2]) // 2) if small and self._widened else 0
        self._emit_conv(operator, kernel, group=kernel.shape[0], margin=margin)

    def _transposed_conv(self, operator: Operator) -> None:
        # (out, height, width, in) to (in, out, height, width). The kernel equals the stride, so
        # output blocks don't overlap and SAME and VALID padding agree.
        kernel = self._constants[operator.inputs[1]].transpose(3, 0, 1, 2)
        if list(kernel.shape[2:]) != _strides(operator):
            raise ValueError("transposed convolutions whose blocks overlap are not converted")
        name = self._result(operator)
        bias = self._weight(f"{name}_bias", self._constants[operator.inputs[2]])
        self._node(
            "ConvTranspose",
            [self._source(operator), self._weight(f"{name}_kernel", kernel), bias],
            name,
            kernel_shape=list(kernel.shape[2:]),
            strides=_strides(operator),
        )

    def _average_pool(self, operator: Operator) -> None:
        size = (operator.options["filter_h"], operator.options["filter_w"])
        if size != self._shape(operator.inputs[0])[1:3]:
            raise ValueError("only global average pooling is converted")
        self._node("GlobalAveragePool", [self._source(operator)], self._result(operator))

    def _mean(self, operator: Operator) -> None:
        axes = sorted(int(a) for a in self._constants[operator.inputs[1]].reshape(-1))
        if axes != [1, 2] or len(self._shape(operator.outputs[0])) != 4:
            raise ValueError("only the mean over height and width is converted")
        self._node("GlobalAveragePool", [self._source(operator)], self._result(operator))

    def _max_pool(self, operator: Operator) -> None:
        size = (operator.options["filter_h"], operator.options["filter_w"])
        self._node(
            "MaxPool",
            [self._source(operator)],
            self._result(operator),
            kernel_shape=list(size),
            strides=_strides(operator),
            pads=self._pads(operator, size),
        )

    def _prelu(self, operator: Operator) -> None:
        """Slope a, one a channel: PRelu, or ``a x + (1 - a) relu(x)`` for blocked layouts.

        ONNX Runtime's CPU kernel for PRelu knows no blocked layout, so every PRelu costs two
        reorderings and a slow broadcast. Scaled by depthwise convolutions the whole network stays
        blocked and Face Mesh runs four times as fast. ``1 - a`` is stored as float32, since
        rounding it to float16 would move the result.

        On a GPU those convolutions are the slow part: a run of 8 faces takes 2.88 ms with them and
        0.56 ms with PRelu (H100, CUDA provider, convolutions chosen by cuDNN's heuristic, CUDA
        graph); the results agree to 1e-4.
        """
        slope = self._constants[operator.inputs[1]].reshape(-1, 1, 1)
        name = self._result(operator)
        source = self._source(operator)
        if not self._blocked:
            self._node("PRelu", [source, self._weight(f"{name}_slope", slope)], name)
            return
        slope = slope[..., None]
        complement = np.float32(1) - slope.astype(np.float32)
        if self._half:
            complement = complement.astype(np.float16)
        channels = slope.shape[0]
        positive = self._node("Relu", [source], f"{name}_positive")
        scaled = [
            self._node(
                "Conv",
                [value, weight],
                f"{name}_{part}",
                kernel_shape=[1, 1],
                group=channels,
            )
            for part, value, weight in (
                ("all", source, self._weight(f"{name}_slope", slope)),
                ("rest", positive, self._constant(f"{name}_complement", complement)),
            )
        ]
        self._node("Add", scaled, name)

    def _pad_channels(self, operator: Operator) -> None:
        """Append zero channels, by a 1x1 convolution with an identity kernel.

        It keeps ONNX Runtime's blocked layout, which Pad leaves.
        """
        paddings = self._constants[operator.inputs[1]]
        if paddings[:3].any() or paddings[3, 0]:
            raise ValueError("only padding at the end of the channels is converted")
        channels = [self._shape(i)[3] for i in (operator.outputs[0], operator.inputs[0])]
        identity = np.eye(*channels, dtype=np.float16)[:, :, None, None]
        name = self._result(operator)
        kernel = self._weight(f"{name}_kernel", identity)
        self._node("Conv", [self._source(operator), kernel], name, kernel_shape=[1, 1])

    def _resize(self, operator: Operator) -> None:
        if operator.options["align_corners"] or not operator.options["half_pixel"]:
            raise ValueError("only resizing with half-pixel centres is converted")
        small, large = self._shape(operator.inputs[0]), self._shape(operator.outputs[0])
        factors = [1.0, 1.0, large[1] / small[1], large[2] / small[2]]
        name = self._result(operator)
        scales = self._constant(f"{name}_scales", np.array(factors, np.float32))
        self._node(
            "Resize",
            [self._source(operator), "", scales],
            name,
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )


def _strides(operator: Operator) -> list[int]:
    return [operator.options["stride_h"], operator.options["stride_w"]]
