"""Rewrite a model for ONNX Runtime's CUDA provider: the same results by fewer kernels.

These networks are small: a run takes as long as its kernels are many, and this provider has one for
every operator, and one more for the bias of every convolution. So biases are moved to where they
cost nothing, and what cuDNN does in one kernel becomes one operator, ``FusedConv`` of ONNX Runtime.
Results differ by float32 rounding.
"""

from __future__ import annotations

from itertools import starmap
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

_LINEAR = {"Add", "GlobalAveragePool", "Resize"}
"""An addition to all samples of a channel is the same before and behind them."""
_DOMAIN = "com.microsoft"
_AXES = "rows_and_columns"


class CudaRewriter:
    """Rewrites one model as :class:`tflite_onnx.emit.OnnxEmitter` has written it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = onnx.ModelProto()
        self._model.CopyFrom(onnx.shape_inference.infer_shapes(model))
        graph = self._model.graph
        self._shapes = {
            each.name: [axis.dim_value for axis in each.type.tensor_type.shape.dim]
            for each in graph.value_info
        }
        del graph.value_info[:]
        self._constants: dict[str, NDArray[Any]] = {
            each.name: numpy_helper.to_array(each) for each in graph.initializer
        }
        self._nodes: list[NodeProto] = []
        for node in graph.node:
            if node.op_type == "Cast":  # of a weight
                weight = self._constants.pop(node.input[0])
                self._constants[node.output[0]] = weight.astype(np.float32)
            else:
                self._nodes.append(node)

    def rewritten(self) -> onnx.ModelProto:
        """The model rewritten."""
        self._even_pads()
        self._rearrange()
        self._move_biases()
        self._give_biases_a_channel()
        self._sum()
        self._fuse()
        return self._written()

    def _even_pads(self) -> None:
        """Widen kernels by zeros until both sides of a picture are padded alike.

        Otherwise ONNX Runtime makes more than is asked for, and copies a part of it.
        """
        for node in self._nodes:
            attributes = _attributes(node)
            if node.op_type != "Conv" or "pads" not in attributes:
                continue
            top, left, bottom, right = attributes["pads"]
            above, before = max(0, bottom - top), max(0, right - left)
            if not above and not before:
                continue
            kernel = np.pad(
                self._constants[node.input[1]], ((0, 0), (0, 0), (above, 0), (before, 0))
            )
            self._constants[node.input[1]] = kernel
            attributes["pads"] = [top + above, left + before, bottom, right]
            attributes["kernel_shape"] = kernel.shape[2:]
            del node.attribute[:]
            node.attribute.extend(starmap(helper.make_attribute, attributes.items()))

    def _rearrange(self) -> None:
        """Make a transposed convolution whose blocks do not overlap one of single samples, and
        their channels blocks; cuDNN's own takes 144 µs for 8 masks.

        It is followed by an activation, which then is done between the two.
        """
        for node in [each for each in self._nodes if each.op_type == "ConvTranspose"]:
            weight, bias = (self._constants[name] for name in node.input[1:])
            channels, made, rows, columns = weight.shape
            (following,) = self._users(node.output[0])
            if made != 1 or rows != columns:
                raise ValueError("only transposed convolutions to one channel are rearranged")
            kernel = weight.reshape(channels, rows * columns).T[:, :, None, None]
            self._constants[node.input[1]] = kernel
            self._constants[node.input[2]] = np.repeat(bias, rows * columns)
            at, name = self._nodes.index(node), following.output[0]
            self._nodes[at] = helper.make_node(
                "Conv", node.input, node.output, name=node.name, kernel_shape=[1, 1]
            )
            following.output[0] = f"{name}_blocks"
            spread = helper.make_node(
                "DepthToSpace", following.output, [name], name=f"{name}/spread", blocksize=rows
            )
            self._nodes.insert(self._nodes.index(following) + 1, spread)

    def _move_biases(self) -> None:
        """Add the biases of convolutions to those behind them, where all between is linear."""
        owed: dict[str, NDArray[np.float32]] = {}
        """Missing part of the values, by channel."""
        for node in self._nodes:
            target = node.output[0]
            if node.op_type in _LINEAR:
                shares = [owed[name] for name in node.input if name in owed]
                if shares:
                    owed[target] = np.sum(shares, axis=0)
            elif node.op_type == "Conv":
                bias = self._constants[node.input[2]] if len(node.input) > 2 else None
                if node.input[0] in owed:
                    moved = self._constants[node.input[1]][:, :, 0, 0] @ owed[node.input[0]]
                    bias = moved if bias is None else bias + moved
                if bias is None:
                    continue
                if self._can_owe(target):
                    owed[target] = bias
                    self._set_bias(node, None)
                else:
                    self._set_bias(node, bias)

    def _can_owe(self, name: str) -> bool:
        """Whether every use of a value can make up for what all samples of a channel lack."""
        users = self._users(name)
        return bool(users) and all(
            _is_pointwise(node) if node.op_type == "Conv"
            else node.op_type in _LINEAR and self._can_owe(node.output[0])
            for node in users
        )  # fmt: skip

    def _give_biases_a_channel(self) -> None:
        """Make the bias of a convolution a weight of its own, for a channel that is always 1.

        The convolution before makes that one, which has a bias and Relu behind it.
        """
        for node in self._nodes:
            relu = self._maker(node.input[0])
            if not _is_pointwise(node) or len(node.input) < 3 or self._activated(node):
                continue
            if relu is None or relu.op_type != "Relu" or len(self._users(relu.output[0])) > 1:
                continue
            first = self._maker(relu.input[0])
            if first is None or not _is_pointwise(first) or len(self._users(first.output[0])) > 1:
                continue
            weight, bias = (self._constants[name] for name in node.input[1:])
            self._constants[node.input[1]] = np.append(weight, bias[:, None, None, None], axis=1)
            self._set_bias(node, None)
            weight, bias = (self._constants[name] for name in first.input[1:])
            self._constants[first.input[1]] = np.append(weight, np.zeros_like(weight[:1]), axis=0)
            self._set_bias(first, np.append(bias, np.float32(1)))

    def _sum(self) -> None:
        """Make means of channels their sums, and divide the weights behind.

        cuDNN's mean takes 15 to 60 µs, ONNX Runtime's sum about 5; its own mean divides in a
        second kernel.
        """
        for node in [each for each in self._nodes if each.op_type == "Add"]:
            makers, users = map(self._maker, node.input), self._users(node.output[0])
            of_means = all(each and each.op_type == "GlobalAveragePool" for each in makers)
            if of_means and len(users) == 1 and _is_pointwise(users[0]):
                self._apply_singly(node, users[0])
        for at, node in enumerate(self._nodes):
            users = self._users(node.output[0])
            divided = bool(users) and all(map(_is_pointwise, users))
            if node.op_type != "GlobalAveragePool" or not divided:
                continue
            self._constants[_AXES] = np.array([2, 3])
            names = [node.input[0], _AXES]
            self._nodes[at] = helper.make_node("ReduceSum", names, node.output, name=node.name)
            samples = np.float32(np.prod(self._shapes[node.input[0]][2:]))
            for user in users:
                self._constants[user.input[1]] = self._constants[user.input[1]] / samples

    def _apply_singly(self, total: NodeProto, user: NodeProto) -> None:
        """Apply a convolution to each of two means instead of to their sum, and add the results.

        The means may be of pictures of two sizes.
        """
        one, other = total.input
        made = [f"{user.output[0]}_{part}" for part in ("one", "other")]
        weight = self._constants[user.input[1]]
        self._constants[f"{made[0]}_kernel"], self._constants[f"{made[1]}_kernel"] = weight, weight
        parts = [
            helper.make_node("Conv", inputs, [name], name=name, **_attributes(user))
            for name, inputs in (
                (made[0], [one, f"{made[0]}_kernel"]),
                (made[1], [other, f"{made[1]}_kernel", *user.input[2:]]),
            )
        ]
        parts.append(helper.make_node("Add", made, user.output, name=user.name))
        at = self._nodes.index(user)
        self._nodes[at : at + 1] = parts
        self._nodes.remove(total)

    def _fuse(self) -> None:
        """Make a convolution, what is added to it, and Relu one operator."""
        for node in [each for each in self._nodes if each.op_type == "Conv"]:
            following = self._activated(node)
            if not following:
                continue
            inputs = list(node.input)
            if len(following) > 1:
                inputs += [name for name in following[0].input if name != node.output[0]]
            fused = helper.make_node(
                "FusedConv",
                inputs,
                following[-1].output,
                name=following[-1].name,
                domain=_DOMAIN,
                activation="Relu",
                **_attributes(node),
            )
            self._nodes[self._nodes.index(following[-1])] = fused
            for gone in (node, *following[:-1]):
                self._nodes.remove(gone)

    def _activated(self, node: NodeProto) -> list[NodeProto]:
        """Operators fused with a convolution with a bias: Relu, or Add and Relu, or nothing.

        Add only behind those of one sample a channel: ONNX Runtime fails where cuDNN has no such
        kernel, which it has for all ways to multiply matrices.
        """
        following: list[NodeProto] = []
        users = self._users(node.output[0])
        if len(node.input) == 3 and len(users) == 1 and users[0].op_type == "Add":
            if not _is_pointwise(node):
                return []
            following, users = users, self._users(users[0].output[0])
        is_fused = len(node.input) == 3 and len(users) == 1 and users[0].op_type == "Relu"
        return [*following, users[0]] if is_fused else []

    def _users(self, name: str) -> list[NodeProto]:
        return [node for node in self._nodes if name in node.input]

    def _maker(self, name: str) -> NodeProto | None:
        return next((node for node in self._nodes if name in node.output), None)

    def _set_bias(self, node: NodeProto, bias: NDArray[np.float32] | None) -> None:
        weights = node.input[:2]
        del node.input[:]
        node.input.extend(weights)
        if bias is not None:
            name = f"{node.output[0]}_moved_bias"
            self._constants[name] = bias.astype(np.float32)
            node.input.append(name)

    def _written(self) -> onnx.ModelProto:
        """Weights in float16, where they still are what was published."""
        graph = self._model.graph
        del graph.node[:], graph.initializer[:]
        for name in dict.fromkeys(name for node in self._nodes for name in node.input):
            values = self._constants.get(name)
            if values is None:
                continue
            half = values.astype(np.float16)
            if values.dtype == np.float32 and np.array_equal(half, values):
                graph.initializer.append(numpy_helper.from_array(half, f"{name}_fp16"))
                graph.node.append(
                    helper.make_node("Cast", [f"{name}_fp16"], [name], to=TensorProto.FLOAT)
                )
            else:
                graph.initializer.append(numpy_helper.from_array(values, name))
        graph.node.extend(self._nodes)
        self._model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
        onnx.checker.check_model(self._model)
        return self._model


def _is_pointwise(node: NodeProto) -> bool:
    """Whether it mixes the channels of each sample, and nothing else."""
    attributes = _attributes(node)
    return (
        node.op_type == "Conv"
        and attributes["kernel_shape"] == [1, 1]
        and attributes.get("group", 1) == 1
    )


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}
