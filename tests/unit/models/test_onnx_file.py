"""Numbers and shapes that are written into an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from bgsoft.errors import ModelError
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.models.onnx_file import bake, free_axes, varint
from tests.outside_models import save_network
from tests.recurrent_model import write_model

STATES = {f"r{k}i": (1, 1, 1, 1) for k in range(1, 5)}


def test_the_file_says_what_was_left_out(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    before = onnx.load(str(path)).graph
    baked = onnx.load_from_string(bake(path, {"src": (1, 3, 300, 5)}, {"downsample_ratio": 0.375}))
    onnx.checker.check_model(baked)
    inputs = {
        node.name: [dim.dim_value or dim.dim_param for dim in node.type.tensor_type.shape.dim]
        for node in baked.graph.input
    }
    assert list(inputs) == ["src", "r1i", "r2i", "r3i", "r4i"]
    assert inputs["src"] == [1, 3, 300, 5]
    assert inputs["r1i"] == ["r1i_b", "r1i_c", "r1i_h", "r1i_w"]
    values = {each.name: numpy_helper.to_array(each) for each in baked.graph.initializer}
    assert values["downsample_ratio"].tolist() == [0.375]
    assert len(values) == len(before.initializer) + 1
    assert [node.SerializeToString() for node in baked.graph.node] == [
        node.SerializeToString() for node in before.node
    ]


def test_the_runtime_knows_all_shapes(tmp_path: Path) -> None:
    baked = bake(
        write_model(tmp_path), {"src": (1, 3, 32, 64), **STATES}, {"downsample_ratio": 0.25}
    )
    session = ort.InferenceSession(baked, providers=["CPUExecutionProvider"])
    shapes = {node.name: node.shape for node in session.get_outputs()}
    assert shapes["pha"] == shapes["r1o"] == [1, 1, 32, 64]
    assert shapes["r2o"] == [1, 1, 8, 16]


def test_free_axes_are_reported_with_their_sizes(tmp_path: Path) -> None:
    found = free_axes(write_model(tmp_path), {"src": (1, 3, 32, 64), "r1i": (1, 16, 4, 8)})
    own = {"r1i_b": 1, "r1i_c": 16, "r1i_h": 4, "r1i_w": 8}
    assert {name: found[name] for name in own} == own
    assert 3 not in found.values()  # the model says that itself


@pytest.mark.parametrize("names", ["n??", "???", "nhw"])
def test_axes_may_be_called_alike(tmp_path: Path, names: str) -> None:
    """Some exporters give all unknown axes the same name."""
    nodes, shape = [helper.make_node("Neg", ["x"], ["y"])], (*names, 3)
    path = save_network(tmp_path / "alike.onnx", nodes, {"x": shape, "y": shape})
    network = CpuNetwork(path, {"x": (1, 8, 16, 3)})
    network.inputs["x"].fill(2)
    network.run()
    np.testing.assert_array_equal(network.outputs["y"], np.full((1, 8, 16, 3), -2))
    network.close()


def test_what_the_file_has_no_input_for_is_passed_over(tmp_path: Path) -> None:
    path = write_model(tmp_path, ratio_input=False)
    shapes = {"src": (1, 3, 8, 8)}
    assert bake(path, shapes, {"downsample_ratio": 0.5}) == bake(path, shapes, {})


@pytest.mark.parametrize("content", [b"\x3a\xff\xff\x7f", b"GIF89a;", b"\x3a\x02\x5a\x00"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"no\.onnx: it is not a valid ONNX model"):
        bake(path, {}, {"downsample_ratio": 1})


def test_numbers_have_64_bits() -> None:
    assert varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
    assert varint(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)
    with pytest.raises(ValueError, match="without an end"):
        varint(b"\xff" * 400 + b"\x01", 0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        bake(tmp_path / "none.onnx", {}, {})
