"""PyNvVideoCodec, loaded when it is needed, and its errors as reasons.

It is imported only here; the wheel looks for the driver's NVENC library as it is imported and
raises ``RuntimeError`` where that is missing.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from bgsoft.errors import BackendUnavailableError

__all__ = ["codec_errors", "has_no_nvenc", "nvenc_reason", "vendor_text", "video_codec"]

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


@functools.cache
def video_codec() -> Any:
    """The ``PyNvVideoCodec`` module.

    Raises:
        BackendUnavailableError: It is not installed, or does not find the driver's libraries.
    """
    try:
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


def has_no_nvenc(exc: BaseException) -> bool:
    """Whether an error says that this GPU has no NVENC, whatever it is asked for."""
    found = _CODE.search(str(exc))
    return found is not None and int(found.group(1)) in _NO_NVENC
