"""Write bgsoft's file of YuNet from OpenCV Zoo's (needs ``onnx``): ``convert_yunet.py IN OUT``.

The weights stay as they are. The batch becomes free, and the twelve outputs become one, ``faces``
(batch, predictions, 16): class score, object score, box and five key points of each prediction,
grid after grid (strides 8, 16, 32), row by row.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import onnx
import onnx.version_converter
from onnx import TensorProto, helper

SOURCE_SHA256 = "ebafce4e3c118d6554634be5c27ab333b4c047a9a8c3faf1d7cf93101c22f0f0"
STRIDES = (8, 16, 32)
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


def main(source: str, target: str) -> None:
    data = Path(source).read_bytes()
    if hashlib.sha256(data).hexdigest() != SOURCE_SHA256:
        sys.exit(f"{source} is not face_detection_yunet_2026may.onnx of OpenCV Zoo")
    made = convert(data)
    Path(target).write_bytes(made)
    print(len(made), hashlib.sha256(made).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
