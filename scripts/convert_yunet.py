"""Write bgsoft's file of YuNet from OpenCV Zoo's: ``convert_yunet.py IN`` (needs ``onnx``).

The weights stay unchanged. The batch becomes free, and the twelve outputs become one, ``faces``
(batch, predictions, 16). Each prediction has class score, object score, box and five key points.
They are in order of grids (strides 8, 16, 32), row by row.

``yunet_gpu.onnx`` is the same network with dense convolutions in place of depthwise ones: for those
cuDNN compiles kernels, which delays the first frame by more than a second. Their weights are a
diagonal times the depthwise ones, multiplied when the file is loaded.

``yunet_smoothed.onnx`` and ``yunet_smoothed_gpu.onnx`` blur the picture first and standardise its
contrast, for faces in noise and in the dark. Only the first layers are new.

``convert_yunet.py IN --record`` writes the results of OpenCV from OpenCV Zoo's file instead, for
``tests/golden``. They are the network's outputs in OpenCV's own runtime, and the faces of its
``FaceDetectorYN``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

SOURCE_SHA256 = "ebafce4e3c118d6554634be5c27ab333b4c047a9a8c3faf1d7cf93101c22f0f0"
STRIDES = (8, 16, 32)
ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "bgsoft" / "models" / "data"
BLUR_SIGMA_PX, BLUR_RADIUS_PX = 1.75, 6
"""In scenes of ``measure_hidden.py``, one more blurred face is open with a sigma of 2.0, and three
more face-frames in dark noise with 1.25."""
CONTRAST, BRIGHTNESS = 64.0, 128.0
"""Standard deviation and mean of a picture's values (0 to 255) after smoothing."""
GOLDEN = ROOT / "tests" / "golden"
MIN_SCORE, MAX_OVERLAP, MAX_FACES = 0.1, 0.3, 5000
VALUES = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}


def convert(source: bytes) -> bytes:
    """The ONNX file with one output and a free batch."""
    model = onnx.load_from_string(source)
    graph = model.graph
    (image,) = graph.input
    axes = image.type.tensor_type.shape.dim
    axes[0].dim_param = "batch"
    reshaped = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for node in [*graph.node]:
        if node.op_type == "Constant" and node.output[0] in reshaped:
            graph.node.remove(node)
    for tensor in [each for each in graph.initializer if each.name in reshaped]:
        graph.initializer.remove(tensor)
    names = []
    for node in graph.node:
        if node.op_type == "Reshape":
            consumer = next((n for n in graph.node if node.output[0] in n.input), None)
            output = node.output[0] if consumer is None else consumer.output[0]
            values = VALUES[output.split("_")[0]]
            shape = f"shape_{output}"
            # 0 keeps the batch, where Reshape is of opset 5 or later.
            graph.initializer.append(
                helper.make_tensor(shape, TensorProto.INT64, [3], [0, -1, values])
            )
            node.input[1] = shape
    for stride in STRIDES:
        parts = [f"{name}_{stride}" for name in VALUES]
        graph.node.append(helper.make_node("Concat", parts, [f"grid_{stride}"], axis=2))
        names.append(f"grid_{stride}")
    graph.node.append(helper.make_node("Concat", names, ["faces"], axis=1))
    del graph.output[:]
    shape = ["batch", "predictions", sum(VALUES.values())]
    graph.output.append(helper.make_tensor_value_info("faces", TensorProto.FLOAT, shape))
    del graph.value_info[:]
    model.producer_name = "bgsoft"
    model = onnx.version_converter.convert_version(model, 17)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def record(source: Path) -> None:
    """Write what OpenCV sees in three versions of the image of ``models.npz``."""
    with np.load(GOLDEN / "models.npz") as archive:
        image = archive["image"][..., ::-1]
    network = cv2.dnn.readNet(str(source))
    detector = cv2.FaceDetectorYN.create(
        str(source), "", image.shape[1::-1], MIN_SCORE, MAX_OVERLAP, MAX_FACES
    )
    names = network.getUnconnectedOutLayersNames()
    rows, faces = [], []
    for version in (image, image[:, ::-1], image // 2):
        network.setInput(cv2.dnn.blobFromImage(np.ascontiguousarray(version[::2, ::2])))
        outputs = dict(zip(names, network.forward(names), strict=True))
        grids = [
            np.concatenate(
                [outputs[f"{name}_{stride}"].reshape(-1, each) for name, each in VALUES.items()], 1
            )
            for stride in STRIDES
        ]
        rows.append(np.concatenate(grids))
        (face,) = detector.detect(np.ascontiguousarray(version))[1]
        faces.append(face)
    np.savez_compressed(GOLDEN / "yunet.npz", rows=np.stack(rows), faces=np.stack(faces))


def with_dense_convolutions(source: bytes) -> bytes:
    """The same network without depthwise convolutions."""
    model = onnx.load_from_string(source)
    graph = model.graph
    shapes = {each.name: [*each.dims] for each in graph.initializer}
    diagonals: set[int] = set()
    first: list[onnx.NodeProto] = []
    for node in graph.node:
        group = next((a for a in node.attribute if a.name == "group" and a.i > 1), None)
        if node.op_type != "Conv" or group is None:
            continue
        channels, weights = group.i, node.input[1]
        if shapes[weights][:2] != [channels, 1]:
            raise ValueError(f"{node.name} is not depthwise")
        if channels not in diagonals:
            diagonals.add(channels)
            values = np.eye(channels, dtype=np.float32)[:, :, None, None]
            graph.initializer.append(numpy_helper.from_array(values, f"diagonal_{channels}"))
        dense = f"{weights}_dense"
        first.append(helper.make_node("Mul", [weights, f"diagonal_{channels}"], [dense]))
        node.input[1], group.i = dense, 1
    nodes = [*first, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def smoothed(source: bytes) -> bytes:
    """The same network after a Gaussian blur and a standard mean and deviation.

    The picture's edge is repeated. One level is added to the deviation, which may be 0.
    """
    model = onnx.load_from_string(source)
    graph = model.graph
    (image,) = graph.input
    for node in graph.node:
        node.input[:] = ["smoothed" if name == image.name else name for name in node.input]
    offsets = np.arange(-BLUR_RADIUS_PX, BLUR_RADIUS_PX + 1)
    weights = np.exp(-((offsets / BLUR_SIGMA_PX) ** 2) / 2)
    kernel = np.eye(3)[..., np.newaxis] * weights / weights.sum()
    border = 2 * [0, 0, BLUR_RADIUS_PX, BLUR_RADIUS_PX]
    constants = {
        "blur_border": np.array(border, np.int64),
        "blur_down": kernel[:, :, :, np.newaxis].astype(np.float32),
        "blur_across": kernel[:, :, np.newaxis].astype(np.float32),
        "least_deviation": np.float32(1),
        "contrast": np.float32(CONTRAST),
        "brightness": np.float32(BRIGHTNESS),
        "black": np.float32(0),
        "white": np.float32(255),
    }
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    whole = {"axes": [1, 2, 3], "keepdims": 1}
    first = [
        helper.make_node("Pad", [image.name, "blur_border"], ["bordered"], mode="edge"),
        helper.make_node("Conv", ["bordered", "blur_down"], ["blurred_down"]),
        helper.make_node("Conv", ["blurred_down", "blur_across"], ["blurred"]),
        helper.make_node("ReduceMean", ["blurred"], ["mean"], **whole),
        helper.make_node("Sub", ["blurred", "mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "centred"], ["squared"]),
        helper.make_node("ReduceMean", ["squared"], ["variance"], **whole),
        helper.make_node("Sqrt", ["variance"], ["deviation"]),
        helper.make_node("Add", ["deviation", "least_deviation"], ["divisor"]),
        helper.make_node("Div", ["contrast", "divisor"], ["gain"]),
        helper.make_node("Mul", ["centred", "gain"], ["stretched"]),
        helper.make_node("Add", ["stretched", "brightness"], ["shifted"]),
        helper.make_node("Clip", ["shifted", "black", "white"], ["smoothed"]),
    ]
    nodes = [*first, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--record", action="store_true", help="rewrite tests/golden/yunet.npz")
    options = parser.parse_args()
    data = options.source.read_bytes()
    if hashlib.sha256(data).hexdigest() != SOURCE_SHA256:
        sys.exit(f"{options.source} is not face_detection_yunet_2026may.onnx of OpenCV Zoo")
    if options.record:
        record(options.source)
        return
    plain = convert(data)
    for stem, network in (("yunet", plain), ("yunet_smoothed", smoothed(plain))):
        for name, made in ((stem, network), (f"{stem}_gpu", with_dense_convolutions(network))):
            (DATA / f"{name}.onnx").write_bytes(made)
            print(name, len(made), hashlib.sha256(made).hexdigest())


if __name__ == "__main__":
    main()
