"""What of bgsoft has been run on which hardware, and what has not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HARDWARE_RUNS", "HardwareRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareRun:
    """One part of bgsoft."""

    part: str
    ran_on: str
    """``never`` where no hardware that has it could be had."""
    how: str
    """What was checked, and against what."""


_H100 = "NVIDIA H100"

HARDWARE_RUNS = (
    HardwareRun(
        part="CPU: every stage",
        ran_on="x86-64, Linux",
        how="all tests",
    ),
    HardwareRun(
        part="NVDEC: H.264, HEVC, VP9",
        ran_on=_H100,
        how="frames and timestamps equal to the CPU's; AV1 never, that GPU refuses it",
    ),
    HardwareRun(
        part="inference on CUDA, as CUDA graphs",
        ran_on=_H100,
        how="masks against the CPU's",
    ),
    HardwareRun(
        part="inference on CUDA in fp16",
        ran_on=_H100,
        how="masks against fp32",
    ),
    HardwareRun(
        part="matte and effects (CuPy kernels)",
        ran_on=_H100,
        how="every kernel against its CPU reference",
    ),
    HardwareRun(
        part="recurrent models on CUDA",
        ran_on=_H100,
        how="mattes of rvm-mobilenetv3 and of a small model of its contract against the CPU's",
    ),
    HardwareRun(
        part="faces on the GPU",
        ran_on=_H100,
        how="finder and effects against the CPU's",
    ),
    HardwareRun(
        part="inference on TensorRT",
        ran_on="never",
        how=(
            "options, loading of the libraries and the keeping of engines run in ONNX Runtime "
            "itself, over stand-ins for TensorRT"
        ),
    ),
    HardwareRun(
        part="GPU monitor (NVML)",
        ran_on=_H100,
        how="figures in the report",
    ),
    HardwareRun(
        part="NVENC: H.264, HEVC, AV1",
        ran_on="never",
        how=(
            "written from its documentation; settings, capabilities, muxing and the refusal of a "
            "GPU without NVENC tested"
        ),
    ),
)
"""An H100 has no NVENC. ``scripts/verify_gpu.py`` checks the rest where the hardware has it."""
