from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bgsoft.errors import ModelError
from bgsoft.models.catalog import EMBEDDED, resolve
from bgsoft.models.onnx_check import check_model
from tests.hostile.case import Stock
from tests.hostile.data import SIDECAR
from tests.hostile.models import absurd_tensor, ones


def written(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "own.onnx"
    path.write_bytes(model.SerializeToString())
    path.with_suffix(".toml").write_text(SIDECAR)
    return path


@pytest.mark.parametrize("path", sorted(EMBEDDED.glob("*.onnx")), ids=lambda path: path.name)
def test_good_files_pass(path: Path) -> None:
    check_model(path)


def test_weights_next_to_the_model_are_its_own(tmp_path: Path) -> None:
    model = ones()
    large = numpy_helper.from_array(np.ones(4096, np.float32), "spare")
    model.graph.initializer.append(large)
    path = tmp_path / "own.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="own.data")
    assert (tmp_path / "own.data").stat().st_size >= 4 * 4096
    check_model(path)
    (tmp_path / "own.data").write_bytes(b"x")
    with pytest.raises(ModelError, match="too short"):
        check_model(path)
    (tmp_path / "own.data").unlink()
    with pytest.raises(ModelError, match="missing"):
        check_model(path)


@pytest.mark.parametrize(
    "location", ["/etc/hostname", "../w.bin", "sub/../../w.bin", "link.bin", ""]
)
def test_weights_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    model = ones()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(ModelError, match="are outside its folder"):
        resolve(str(written(folder, model)))


def test_operators_of_others_are_refused(tmp_path: Path) -> None:
    model = ones()
    model.graph.node[1].domain = "com.example"
    with pytest.raises(ModelError, match=r"operator com\.example\.Mul"):
        resolve(str(written(tmp_path, model)))
    body = [helper.make_node("Mul", ["a", "b"], ["c"])]
    opsets = [helper.make_opsetid("", 17)]
    own = helper.make_function("com.example", "Mul", ["a", "b"], ["c"], body, opsets)
    model.functions.append(own)
    check_model(written(tmp_path, model))  # what it defines itself is not another's


@pytest.mark.parametrize("seed", range(40))
def test_absurd_tensors_are_refused_before_they_are_made(tmp_path: Path, seed: int) -> None:
    clip = tmp_path / "in.mp4"
    stock = Stock(clips=[clip], ones=clip, secret=clip, port=1)
    case = absurd_tensor(random.Random(seed), tmp_path, stock)
    with pytest.raises(ValueError if "input" in case.what else ModelError):
        resolve(str(tmp_path / "own.onnx"))


def test_axes_are_not_multiplied_as_whole_numbers(tmp_path: Path) -> None:
    """The product of that many axes has as many digits, and would take minutes."""
    model = ones()
    model.graph.initializer[0].dims[:] = [2**62] * 20 + [0]
    with pytest.raises(ModelError, match="the data of tensor zero is missing"):
        check_model(written(tmp_path, model))
    model = ones()
    for _ in range(20):
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=2**62)
    with pytest.raises(ModelError, match="a tensor of inf numbers is too large"):
        check_model(written(tmp_path, model))
