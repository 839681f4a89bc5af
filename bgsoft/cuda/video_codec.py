"""PyNvVideoCodec, loaded when it is needed, and its errors as reasons.

It is imported only here; the wheel looks for the driver's NVENC library as it is imported and
raises ``RuntimeError`` where that is missing.
"""

from __future__ import annotations

import functools
import importlib
import re
from enum import Enum, auto
from typing import Any

from bgsoft.cuda.driver import driver_version
from bgsoft.errors import BackendUnavailableError
from bgsoft.facts import Facts
from bgsoft.startup import span

__all__ = [
    "FIRST_GPU_ONLY",
    "Refusal",
    "codec_errors",
    "engine_facts",
    "nvenc_reason",
    "nvenc_refusal",
    "vendor_text",
    "video_codec",
]

FIRST_GPU_ONLY = (
    "PyNvVideoCodec asks the first GPU for its capabilities whichever it is told to: set "
    "CUDA_VISIBLE_DEVICES to the GPU that is to be used"
)
_MISSING = "PyNvVideoCodec is missing: pip install '.[gpu]'"

# PyNvVideoCodec's messages run: function, "Error code : N", "Error Type : text", source line.
_CODE = re.compile(r"Error code\s*:\s*(\d+)")
_TEXT = re.compile(r"Error Type\s*:\s*(\S.*)")

# NVENCSTATUS (nvEncodeAPI.h of the Video Codec SDK 13.0), those that opening a session answers
# with. A full session table is told by 10 as documented, and by 21 in practice.
_NVENC_STATUS = {
    1: "this GPU has no NVENC",
    2: "this GPU has no NVENC",
    8: "NVENC refuses these settings",
    10: "NVENC is out of memory, or its sessions are all in use",
    12: "this GPU's NVENC lacks a feature that was asked for",
    15: "the NVIDIA driver is too old for this PyNvVideoCodec",
    21: "the NVENC sessions of this GPU are all in use",
}
_NO_NVENC = (1, 2)
"""NV_ENC_ERR_NO_ENCODE_DEVICE and NV_ENC_ERR_UNSUPPORTED_DEVICE."""
_BUSY = (10, 21)


class Refusal(Enum):
    """How lasting a refusal of NVENC's is."""

    NO_ENGINE = auto()
    """This GPU has no NVENC, whatever it is asked for."""
    BUSY = auto()
    """It may be another answer in a moment."""
    OTHER = auto()


@functools.cache
def video_codec() -> Any:
    """The ``PyNvVideoCodec`` module.

    Raises:
        BackendUnavailableError: It is not installed, or does not find the driver's libraries.
    """
    try:
        with span("import PyNvVideoCodec"):
            return importlib.import_module("PyNvVideoCodec")
    except ModuleNotFoundError as exc:
        raise BackendUnavailableError(_MISSING) from exc
    except (ImportError, OSError, RuntimeError) as exc:
        raise BackendUnavailableError(f"PyNvVideoCodec does not start: {vendor_text(exc)}") from exc


def codec_errors() -> tuple[type[Exception], ...]:
    """What PyNvVideoCodec raises; its own two have no base in common but Exception."""
    module = video_codec()
    return (module.PyNvVCException, module.PyNvVCExceptionUnsupported, RuntimeError, ValueError)


def vendor_text(exc: BaseException) -> str:
    """What an error says, in one line."""
    text = str(exc)
    found = _TEXT.search(text)
    if found:
        return found.group(1).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(exc).__name__)


def nvenc_reason(exc: BaseException) -> str:
    """Why NVENC refused, in words where its status is known."""
    found = _CODE.search(str(exc))
    known = _NVENC_STATUS.get(int(found.group(1))) if found else None
    return f"{known} (status {found.group(1)})" if known and found else vendor_text(exc)


def nvenc_refusal(exc: BaseException) -> Refusal:
    """How lasting the refusal is that an error tells of."""
    found = _CODE.search(str(exc))
    status = int(found.group(1)) if found else None
    if status in _NO_NVENC:
        return Refusal.NO_ENGINE
    return Refusal.BUSY if status in _BUSY else Refusal.OTHER


@functools.cache
def engine_facts(gpu: int) -> Facts:
    """What is known of a GPU's NVDEC and NVENC.

    Args:
        gpu: CUDA device number.
    """
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(gpu)["name"].decode()
    circumstances = {
        "driver": driver_version() or "unknown",
        "PyNvVideoCodec": str(getattr(video_codec(), "__version__", "unknown")),
    }
    return Facts(f"video engines of {name}", circumstances)
