"""Record what MediaPipe's own inference makes of some images, for the golden test."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mediapipe as mp
import numpy as np
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


def golden_images(crop: Image, window: tuple[int, int, int, int, int]) -> list[Image]:
    """Three images from one crop: unchanged, mirrored, at half brightness.

    Args:
        crop: (256, 256, 3) RGB.
        window: Top, left, height, width and step of the part taken.
    """
    top, left, height, width, step = window
    part = crop[top : top + height : step, left : left + width : step]
    return [part, part[:, ::-1], part // 2]


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
