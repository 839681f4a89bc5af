"""The GPU as its driver and the CUDA libraries describe it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bgsoft.errors import BackendUnavailableError

__all__ = ["DecodeCaps", "EncodeCaps", "GpuInfo", "decode_caps", "encode_caps", "gpu_info"]

_DECODED = (
    ("H264", "H.264", 8),
    ("HEVC", "HEVC", 8),
    ("HEVC", "HEVC", 10),
    ("VP9", "VP9", 8),
    ("VP9", "VP9", 10),
    ("AV1", "AV1", 8),
    ("AV1", "AV1", 10),
)
_ENCODED = ("h264", "hevc", "av1")
_CUDNN_LIBRARY = "libcudnn.so.9"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """A CUDA device and the libraries around it; None for what is not there."""

    name: str
    memory_bytes: int
    compute_capability: str
    """e.g. ``9.0``."""
    driver: str | None
    """Version of the kernel module."""
    driver_cuda: str
    """Newest CUDA that the driver speaks."""
    runtime: str
    """CUDA runtime that CuPy uses."""
    nvrtc: str | None
    """Compiler of the kernels."""
    cudnn: str | None
    tensorrt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCaps:
    """What NVDEC answers for a codec in 4:2:0."""

    codec: str
    bit_depth: int
    supported: bool
    max_size: str | None = None
    """e.g. ``4096x4096``."""
    reason: str | None = None
    """Where it gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeCaps:
    """What NVENC answers for a codec."""

    codec: str
    supported: bool
    features: dict[str, int] = field(default_factory=dict)
    """In PyNvVideoCodec's words."""
    reason: str | None = None


def gpu_info(gpu: int, driver: str | None) -> GpuInfo:
    """Describe a device.

    Args:
        gpu: CUDA device number.
        driver: Version of the kernel module, where known.

    Raises:
        ImportError: There is no CuPy.
        BackendUnavailableError: The device does not start.
    """
    import cupy

    from bgsoft.cuda.device import CudaDevice

    device = CudaDevice(gpu)
    runtime = cupy.cuda.runtime
    digits = cupy.cuda.Device(gpu).compute_capability
    _preload()
    return GpuInfo(
        name=device.name,
        memory_bytes=int(runtime.memGetInfo()[1]),
        compute_capability=f"{digits[:-1]}.{digits[-1]}",
        driver=driver,
        driver_cuda=_cuda_version(runtime.driverGetVersion()),
        runtime=_cuda_version(runtime.runtimeGetVersion()),
        nvrtc=_quiet(lambda: ".".join(map(str, cupy.cuda.nvrtc.getVersion()))),
        cudnn=_quiet(_cudnn_version),
        tensorrt=_quiet(_tensorrt_version),
    )


def _preload() -> None:
    """Load CUDA's libraries from NVIDIA's packages, as a session would."""
    try:
        from bgsoft.infer.providers import preload_libraries

        preload_libraries()
    except ImportError:
        return  # no ONNX Runtime: nothing will use them


def _quiet(question: Callable[[], str]) -> str | None:
    """The answer, or None where the library or what is asked of it is missing."""
    try:
        return question()
    except Exception:  # a description of a machine goes on without a figure
        return None


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cudnn_version() -> str:
    library: Any = ctypes.CDLL(_CUDNN_LIBRARY)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = library.cudnnGetVersion()  # 9 and later: major · 10000 + minor · 100 + patch
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _tensorrt_version() -> str:
    from bgsoft.infer.providers import missing_provider, tensorrt_version

    missing = missing_provider("tensorrt")
    if missing is not None:
        raise OSError(missing.reason)
    return tensorrt_version()


def decode_caps(gpu: int) -> list[DecodeCaps]:
    """Ask NVDEC for every codec that bgsoft gives it."""
    from bgsoft.cuda.video_codec import decoder_caps

    found = []
    for codec, label, depth in _DECODED:
        try:
            caps = decoder_caps(gpu, codec, depth)
        except BackendUnavailableError as exc:
            answer = DecodeCaps(codec=label, bit_depth=depth, supported=False, reason=exc.message)
        else:
            if caps is None:
                return []  # nobody can be asked
            supported = bool(caps.get("supported", 1))
            size = f"{caps['width_max']}x{caps['height_max']}" if supported else None
            answer = DecodeCaps(codec=label, bit_depth=depth, supported=supported, max_size=size)
        found.append(answer)
    return found


def encode_caps(gpu: int) -> list[EncodeCaps]:
    """Ask NVENC for every codec that bgsoft asks of it."""
    from bgsoft.cuda.video_codec import encoder_caps

    found = []
    for codec in _ENCODED:
        try:
            features = {name: int(value) for name, value in encoder_caps(gpu, codec).items()}
        except BackendUnavailableError as exc:
            found.append(EncodeCaps(codec=codec, supported=False, reason=exc.message))
        else:
            found.append(EncodeCaps(codec=codec, supported=True, features=features))
    return found
