"""Small detectors of the family ``boxes``: they find all that is red, and all that is blue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEEN = 0.3
"""Least difference of red and green, or of blue, in the box, from 0 to 1."""


def write_detector(
    path: Path,
    size: tuple[int, int] = (320, 320),
    *,
    layout: str = "yolov8",
    batch: int | str = 1,
    half: bool = False,
    last: bool = False,
    gain: float = 1.0,
    keys: str = "",
    input_keys: str = "",
    sidecar: str | None = None,
) -> Path:
    """Write a network and its sidecar.

    It has one box for each of its classes, red and blue; the score is the most colour in it.

    Args:
        path: The ONNX file.
        size: Width and height of its input.
        layout: Of its output.
        batch: Of its input; a name is a free axis.
        half: It takes and gives float16.
        last: Its input is NHWC.
        gain: Of its scores.
        keys: Lines of ``[boxes]``.
        input_keys: Lines of ``[input]``.
        sidecar: All of the sidecar; None: a right one.
    """
    width, height = size
    kind, dtype = (TensorProto.FLOAT16, np.float16) if half else (TensorProto.FLOAT, np.float32)
    weights = np.array([[1, -1, 0], [0, -1, 1]])[..., None, None]
    across, down = np.arange(width)[None, None, None], np.arange(height)[None, None, :, None]
    floats = {
        "weights": weights,
        "gain": gain,
        "steep": 1000,
        "seen": 1000 * SEEN,
        "zero": 0,
        "one": 1,
        "half": 0.5,
        "width": width,
        "height": height,
        "to_right": across + 1,
        "to_left": width - across,
        "to_bottom": down + 1,
        "to_top": height - down,
        "own": np.eye(2)[None, :, None],
    }
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, inputs: str, output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(kind, inputs.split(), [output], **attributes))

    def most(of: str, output: str, *axes: int) -> None:
        add("ReduceMax", of, output, axes=axes, keepdims=1)

    if last:
        add("Transpose", "picture", "first", perm=[0, 3, 1, 2])
    add("Conv", f"{'first' if last else 'picture'} weights", "differences")
    add("Max", "differences zero", "colours")
    add("Mul", "colours steep", "steeper")
    add("Sub", "steeper seen", "lower")
    add("Clip", "lower zero one", "inside")
    most("inside", "columns", 2)
    most("inside", "rows", 3)
    for side, plane in zip(
        ("right", "left", "bottom", "top"), ("columns", "columns", "rows", "rows"), strict=True
    ):
        add("Mul", f"{plane} to_{side}", f"all_{side}")
        most(f"all_{side}", f"most_{side}", 2, 3)
    for first, second, whole, at, length in (
        ("left", "right", "width", "x", "w"),
        ("top", "bottom", "height", "y", "h"),
    ):
        add("Sub", f"{whole} most_{first}", first)
        add("Sub", f"most_{second} {first}", length)
        add("Add", f"most_{second} {first}", f"twice_{at}")
        add("Mul", f"twice_{at} half", at)
    most("colours", "top_colour", 2, 3)
    add("Mul", "top_colour gain", "score")
    add("Mul", "score own", "scores")
    parts, count = "x y w h scores", 6
    if layout == "yolov5":
        add("Mul", "score zero", "none")
        add("Add", "none one", "object")
        parts, count = "x y w h object scores", 7
    add("Concat", parts, "deep", axis=3)
    add("Reshape", "deep shape", "by_box" if layout == "yolov8" else "found")
    if layout == "yolov8":
        add("Transpose", "by_box", "found", perm=[0, 2, 1])
    constants = {name: np.asarray(value, dtype) for name, value in floats.items()}
    constants["shape"] = np.array([0, 2, count], np.int64)
    taken = [batch, height, width, 3] if last else [batch, 3, height, width]
    made = [batch, 2, count] if layout == "yolov5" else [batch, count, 2]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("picture", kind, taken)],
        [helper.make_tensor_value_info("found", kind, made)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(path))
    path.with_suffix(".toml").write_text(
        sidecar
        or f'family = "boxes"\n[input]\nwidth = {width}\nheight = {height}\n{input_keys}\n'
        f'[boxes]\nlayout = "{layout}"\nclasses = ["red", "blue"]\n{keys}\n'
    )
    return path
