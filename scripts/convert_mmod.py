"""Write bgsoft's file of dlib's face detector: ``convert_mmod.py IN`` (needs ``onnx``).

IN is ``mmod_human_face_detector.dat`` of https://github.com/davisking/dlib-models at ``fd81b630``,
unpacked with ``bunzip2``. It is a convolutional network that was trained with max-margin object
detection (King, 2015, arXiv:1502.00046). Its batch normalisations become part of its convolutions.
The score of the middle of the picture becomes its one output; the weights stay unchanged.

``convert_mmod.py IN --record`` writes dlib's scores instead, for ``tests/golden``. It needs dlib,
as in ``dlib-bin``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SOURCE_SHA256 = "be467b1a76f482693de3b0f6a1ff91d092319be71523d4d4b0628f6a53fcb87a"
ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "bgsoft" / "models" / "data" / "mmod.onnx"
GOLDEN = ROOT / "tests" / "golden"
LAYERS = (
    *((16, 3, 5, 2), (32, 16, 5, 2), (32, 32, 5, 2)),
    *((45, 32, 5, 1), (45, 45, 5, 1), (45, 45, 5, 1)),
    (1, 45, 9, 1),
)
"""Channels out and in, side of the kernel, and stride. All but the last have a normalisation."""
EPSILON = 1e-4
"""Added to variances; the file names it."""
SIDE, MIDDLE = 144, (4, 11)
"""Side of the input, and the cells of the score map along each axis that count, of 15."""


class Reader:
    """Reads numbers of a file of dlib, from one place on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def find(self, name: bytes) -> None:
        """Go to behind a name."""
        self._at = self._data.index(name, self._at) + len(name)

    def skip(self, count: int) -> None:
        """Read whole numbers for nothing."""
        for _ in range(count):
            self._integer()

    def _integer(self) -> int:
        size = self._data[self._at] & 0x0F
        value = int.from_bytes(self._data[self._at + 1 : self._at + 1 + size], "little")
        self._at += 1 + size
        return value

    def tensor(self) -> NDArray[np.float32]:
        """Read a tensor, flat."""
        version, *sides = (self._integer() for _ in range(5))
        if version != 2:
            raise ValueError(f"a tensor has version {version}, not 2")
        count = int(np.prod(sides))
        values = np.frombuffer(self._data, "<f4", count, self._at)
        self._at += values.nbytes
        return values


def convert(source: bytes) -> bytes:
    """The ONNX file, with a free batch."""
    reader = Reader(source)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    last = "image"
    for at, (out, channels, side, stride) in enumerate(LAYERS):
        reader.find(b"con_4")
        flat = reader.tensor()
        weights, bias = np.split(flat, [out * channels * side * side])
        weights = weights.reshape(out, channels, side, side)
        is_last = at == len(LAYERS) - 1
        if not is_last:
            reader.find(b"bn_con2")
            gamma, beta = np.split(reader.tensor(), 2)
            reader.skip(10)  # shapes of gamma and beta
            _, _, means, variances = (reader.tensor() for _ in range(4))
            scale = gamma / np.sqrt(variances + np.float32(EPSILON))
            weights = weights * scale[:, None, None, None]
            bias = (bias - means) * scale + beta
        names = [f"weights_{at}", f"bias_{at}"]
        for name, values in zip(names, (weights, bias), strict=True):
            constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        pads = [0 if stride > 1 else side // 2] * 4
        convolved = f"convolved_{at}"
        nodes.append(
            helper.make_node("Conv", [last, *names], [convolved], strides=[stride] * 2, pads=pads)
        )
        last = convolved
        if not is_last:
            last = f"positive_{at}"
            nodes.append(helper.make_node("Relu", [convolved], [last]))
    for name, values in (("first", [MIDDLE[0]] * 2), ("end", [MIDDLE[1]] * 2), ("axes", [2, 3])):
        constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
    nodes.append(helper.make_node("Slice", [last, "first", "end", "axes"], ["middle"]))
    nodes.append(helper.make_node("ReduceMax", ["middle"], ["score"], axes=[2, 3], keepdims=0))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])
    graph = helper.make_graph(nodes, "mmod", [image], [score], constants)
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="bgsoft")
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def record(source: Path) -> None:
    """Write what dlib sees in three versions of the image of ``models.npz``."""
    import cv2
    import dlib

    with np.load(GOLDEN / "models.npz") as archive:
        picture = cv2.resize(archive["image"], (200, 200), interpolation=cv2.INTER_AREA)
    face = picture[12 : 12 + SIDE, 28 : 28 + SIDE]
    images = np.stack([face, face[:, ::-1], face // 2])
    detector = dlib.cnn_face_detection_model_v1(str(source))
    scores = [detector(image)[0].confidence for image in images]
    np.savez_compressed(GOLDEN / "mmod.npz", images=images, scores=scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--record", action="store_true", help="rewrite tests/golden/mmod.npz")
    options = parser.parse_args()
    data = options.source.read_bytes()
    if hashlib.sha256(data).hexdigest() != SOURCE_SHA256:
        sys.exit(f"{options.source} is not mmod_human_face_detector.dat of dlib-models")
    if options.record:
        record(options.source)
        return
    made = convert(data)
    TARGET.write_bytes(made)
    print(TARGET.name, len(made), hashlib.sha256(made).hexdigest())


if __name__ == "__main__":
    main()
