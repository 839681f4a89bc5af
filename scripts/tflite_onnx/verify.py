"""Compare the ONNX models with MediaPipe's own inference, and record its results for a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cv2
import mediapipe as mp
import numpy as np
import onnxruntime as ort
import skimage.data
from mediapipe.python import packet_creator, packet_getter
from mediapipe.python._framework_bindings import calculator_graph, resource_util
from numpy.typing import NDArray

from tflite_onnx.specs import MODELS, ModelSpec

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]

GOLDEN_CROP = (slice(0, 256), slice(96, 352))
"""Head and shoulders in NASA's portrait of Eileen Collins (public domain), 512 x 512."""
GOLDEN_WINDOWS = {
    "selfie-general": (0, 0, 256, 256, 1),
    "selfie-landscape": (40, 0, 144, 256, 1),
    "blazeface-short": (0, 0, 256, 256, 2),
    "face-mesh": (16, 32, 192, 192, 1),
}
"""Part of the golden crop that each model sees: top, left, height, width, step; never resampled,
so that no image library's rounding enters the test."""


class MediaPipeRuntime:
    """Runs one TFLite model through MediaPipe's calculators, raw tensors out."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._received: dict[str, Floats] = {}
        self._timestamp = 0
        resource_util.set_resource_dir(str(Path(mp.__file__).parents[1]))
        self._graph = calculator_graph.CalculatorGraph(graph_config=_graph_text(spec))
        for index in range(len(spec.outputs)):
            self._graph.observe_output_stream(f"values_{index}", self._receive)
        self._graph.start_run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._graph.close_all_packet_sources()
        self._graph.wait_until_done()

    def _receive(self, name: str, packet: Any) -> None:
        self._received[name] = np.array(packet_getter.get_float_list(packet), np.float32)

    def run(self, image: Image) -> list[Floats]:
        """Infer one image.

        Args:
            image: (H, W, 3) RGB of exactly the model's size, so that MediaPipe resizes nothing.

        Returns:
            One array for each output, shaped as the ONNX model has it, without batch.
        """
        if image.shape != (*self._spec.size, 3):
            raise ValueError(f"{self._spec.name} takes {self._spec.size}, got {image.shape}")
        frame = packet_creator.create_image_frame(
            data=np.ascontiguousarray(image), image_format=mp.ImageFormat.SRGB
        )
        self._graph.add_packet_to_input_stream("image", frame.at(self._timestamp))
        self._timestamp += 1
        self._graph.wait_until_idle()
        return [
            self._received.pop(f"values_{index}").reshape(output.shape)
            for index, output in enumerate(self._spec.outputs)
        ]


def _graph_text(spec: ModelSpec) -> str:
    height, width = spec.size
    low, high = spec.value_range
    count = range(len(spec.outputs))
    parts = " ".join(f'output_stream: "part_{i}"' for i in count)
    ranges = " ".join(f"ranges {{ begin: {i} end: {i + 1} }}" for i in count)
    results = "\n".join(f'output_stream: "values_{i}"' for i in count)
    readers = "\n".join(
        f"""node {{
          calculator: "TensorsToFloatsCalculator"
          input_stream: "TENSORS:part_{i}"
          output_stream: "FLOATS:values_{i}"
        }}"""
        for i in count
    )
    return f"""
        input_stream: "image"
        {results}
        node {{
          calculator: "ImageToTensorCalculator"
          input_stream: "IMAGE:image"
          output_stream: "TENSORS:input"
          options {{ [mediapipe.ImageToTensorCalculatorOptions.ext] {{
            output_tensor_width: {width} output_tensor_height: {height}
            output_tensor_float_range {{ min: {low} max: {high} }}
          }} }}
        }}
        node {{
          calculator: "InferenceCalculator"
          input_stream: "TENSORS:input"
          output_stream: "TENSORS:output"
          options {{ [mediapipe.InferenceCalculatorOptions.ext] {{
            model_path: "{spec.tflite}" delegate {{ xnnpack {{ }} }}
          }} }}
        }}
        node {{
          calculator: "SplitTensorVectorCalculator"
          input_stream: "output"
          {parts}
          options {{ [mediapipe.SplitVectorCalculatorOptions.ext] {{ {ranges} }} }}
        }}
        {readers}
    """


def onnx_input(spec: ModelSpec, images: Iterable[Image]) -> Floats:
    """Images as the ONNX model takes them: (N, 3, H, W) float32 in its value range."""
    low, high = spec.value_range
    batch = np.stack([image.transpose(2, 0, 1) for image in images]).astype(np.float32)
    return batch * np.float32((high - low) / 255) + np.float32(low)


def golden_images(crop: Image, window: tuple[int, int, int, int, int]) -> list[Image]:
    """Three images from one crop: as it is, mirrored, at half brightness.

    Args:
        crop: (256, 256, 3) RGB.
        window: Top, left, height, width and step of the part taken.
    """
    top, left, height, width, step = window
    part = crop[top : top + height : step, left : left + width : step]
    return [part, part[:, ::-1], part // 2]


def _fit(image: Image, spec: ModelSpec) -> Image:
    """The largest centred part with the model's aspect ratio, reduced to the model's size."""
    height, width = image.shape[:2]
    ratio = spec.size[1] / spec.size[0]
    part_h, part_w = min(height, round(width / ratio)), min(width, round(height * ratio))
    top, left = (height - part_h) // 2, (width - part_w) // 2
    part = image[top : top + part_h, left : left + part_w]
    return np.asarray(cv2.resize(part, spec.size[::-1], interpolation=cv2.INTER_AREA), np.uint8)


def _face(image: Image) -> Image | None:
    """The square around the first face, half as large again as its box, as Face Mesh wants it."""
    with mp.solutions.face_detection.FaceDetection(min_detection_confidence=0.5) as detector:
        found = detector.process(image).detections
    if not found:
        return None
    box = found[0].location_data.relative_bounding_box
    height, width = image.shape[:2]
    half = 0.75 * max(box.width * width, box.height * height)
    x, y = (box.xmin + box.width / 2) * width, (box.ymin + box.height / 2) * height
    top, left = max(round(y - half), 0), max(round(x - half), 0)
    return image[top : round(y + half), left : round(x + half)]


def _read(path: Path) -> Image:
    picture = cv2.imread(str(path))
    if picture is None:
        raise SystemExit(f"{path}: not an image that OpenCV reads")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def _images_for(spec: ModelSpec, photographs: list[Image]) -> list[Image]:
    images = golden_images(skimage.data.astronaut()[GOLDEN_CROP], GOLDEN_WINDOWS[spec.name])
    for photograph in photographs:
        part = _face(photograph) if spec.name == "face-mesh" else photograph
        if part is not None:
            images.append(_fit(part, spec))
    return images


def verify(folder: Path, paths: list[Path]) -> int:
    """Compare every float32 file with MediaPipe's runtime and print a table.

    Args:
        folder: Where the ONNX files lie.
        paths: Photographs of people, besides the public-domain portrait that always takes part.

    Returns:
        1 when any difference is over its output's tolerance, else 0.
    """
    photographs = [_read(path) for path in paths]
    failed = False
    print(
        f"{'file':21} {'output':10} {'images':>6} {'max diff':>9} {'mean diff':>9} {'allowed':>8}"
    )
    for spec in MODELS:
        images = _images_for(spec, photographs)
        with MediaPipeRuntime(spec) as runtime:
            expected = [runtime.run(image) for image in images]
        for file in filter(None, (spec.file, spec.gpu_file)):
            session = ort.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
            found = session.run([o.name for o in spec.outputs], {"image": onnx_input(spec, images)})
            for index, output in enumerate(spec.outputs):
                truth = np.stack([results[index] for results in expected])
                difference = np.abs(found[index] - truth)
                over = not float(difference.max()) <= output.tolerance
                failed |= over
                print(
                    f"{file:21} {output.name:10} {len(images):6} {difference.max():9.2e} "
                    f"{difference.mean():9.2e} {output.tolerance:8.0e}{'  OVER' if over else ''}"
                    f"   [values {truth.min():.3g} to {truth.max():.3g}]"
                )
    return int(failed)


def record(path: Path) -> None:
    """Write the golden test's image, windows and MediaPipe's results to an npz file.

    Masks are stored as uint16, 65535 for 1 (an error of at most 8e-6); the rest as float32.
    """
    crop = skimage.data.astronaut()[GOLDEN_CROP]
    arrays: dict[str, Any] = {"image": crop}
    for spec in MODELS:
        window = GOLDEN_WINDOWS[spec.name]
        arrays[f"{spec.name}/window"] = np.array(window, np.int32)
        with MediaPipeRuntime(spec) as runtime:
            results = [runtime.run(image) for image in golden_images(crop, window)]
        for index, output in enumerate(spec.outputs):
            values = np.stack([r[index] for r in results])
            if output.name == "mask":
                values = np.round(values * 65535).astype(np.uint16)
            arrays[f"{spec.name}/{output.name}"] = values
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {path.stat().st_size:,} bytes")
