"""The embedded models: where each comes from, and what it publishes."""

from __future__ import annotations

from dataclasses import dataclass

CONVERTER_VERSION = "2"
"""Raised whenever the bytes of a written model change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How one output of a TFLite graph is published."""

    name: str
    """Name in the ONNX graph."""
    shape: tuple[int, ...]
    """Shape without the batch dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSpec:
    """The published package that holds the models."""

    requirement: str
    """Name and version for pip."""
    sha256: str
    """Hash of the file for CPython 3.11, manylinux_2_28, x86-64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model."""

    name: str
    """Name in the catalogue."""
    file: str
    """File name under ``bgsoft/models/data``."""
    fp16_file: str | None = None
    """Where the same model in half precision goes; None: nowhere."""
    gpu_file: str | None = None
    """Where the same model in operators that are fast on GPUs goes; None: ``file`` is."""
    cuda_file: str | None = None
    """Where the same model in those of ONNX Runtime's CUDA provider goes; None: as GPUs have it."""
    tflite: str
    """Path in the wheel."""
    tflite_sha256: str
    """Hash of that file."""
    size: tuple[int, int]
    """Input (height, width) in pixels."""
    value_range: tuple[float, float]
    """Input values that 8-bit 0 and 255 map to."""
    outputs: tuple[Output, ...]
    """In the TFLite graph's order."""


WHEEL = WheelSpec(
    requirement="mediapipe==0.10.21",
    sha256="05dc4a9e593655a79558d05d6227d31018c2537a4bd3362b51e230cf22aecfe3",
)

MODELS = (
    ModelSpec(
        name="selfie-general",
        file="selfie_general.onnx",
        fp16_file="selfie_general_fp16.onnx",
        cuda_file="selfie_general_cuda.onnx",
        tflite="mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
        tflite_sha256="9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c",
        size=(256, 256),
        value_range=(0.0, 1.0),
        outputs=(Output(name="mask", shape=(1, 256, 256)),),
    ),
    ModelSpec(
        name="selfie-landscape",
        file="selfie_landscape.onnx",
        fp16_file="selfie_landscape_fp16.onnx",
        cuda_file="selfie_landscape_cuda.onnx",
        tflite="mediapipe/modules/selfie_segmentation/selfie_segmentation_landscape.tflite",
        tflite_sha256="a77d03f4659b9f6b6c1f5106947bf40e99d7655094b6527f214ea7d451106edd",
        size=(144, 256),
        value_range=(0.0, 1.0),
        outputs=(Output(name="mask", shape=(1, 144, 256)),),
    ),
    ModelSpec(
        name="face-mesh",
        file="face_mesh.onnx",
        gpu_file="face_mesh_gpu.onnx",
        tflite="mediapipe/modules/face_landmark/face_landmark.tflite",
        tflite_sha256="1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814",
        size=(192, 192),
        value_range=(0.0, 1.0),
        outputs=(
            Output(name="landmarks", shape=(468, 3)),
            Output(name="presence", shape=(1,)),
        ),
    ),
)
