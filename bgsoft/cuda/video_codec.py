"""PyNvVideoCodec: import, translation of its errors, and capabilities of its engines.

Only this module imports it. The import loads the driver's NVENC library, and raises
``RuntimeError`` if that is missing.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from bgsoft.cuda.capability_cache import CapabilityCache
from bgsoft.cuda.driver import driver_version
from bgsoft.errors import BackendUnavailableError, BgsoftError, errors_as
from bgsoft.startup import span

_FIRST_GPU_ONLY = (
    "PyNvVideoCodec always reads the capabilities of the first GPU; set "
    "CUDA_VISIBLE_DEVICES to the GPU to use"
)
_MISSING = "PyNvVideoCodec is missing: pip install '.[gpu]'"

# Form of PyNvVideoCodec's messages: function, "Error code : N", "Error Type : text", source line.
_CODE = re.compile(r"Error code\s*:\s*(\d+)")
_TEXT = re.compile(r"Error Type\s*:\s*(\S.*)")

# NVENCSTATUS (nvEncodeAPI.h of the Video Codec SDK 13.0), values that opening a session returns.
# A full session table is 10 in the documentation, and 21 in practice.
_NVENC_STATUS = {
    1: "this GPU has no NVENC",
    2: "this GPU has no NVENC",
    8: "NVENC rejects these settings",
    10: "NVENC is out of memory, or its sessions are all in use",
    12: "this GPU's NVENC lacks a requested feature",
    15: "the NVIDIA driver is too old for this PyNvVideoCodec",
    21: "the NVENC sessions of this GPU are all in use",
}
_NO_NVENC = (1, 2)
"""NV_ENC_ERR_NO_ENCODE_DEVICE and NV_ENC_ERR_UNSUPPORTED_DEVICE."""
_BUSY = (10, 21)
"""The answer may change in a moment."""


@functools.cache
def video_codec() -> Any:
    """Return the ``PyNvVideoCodec`` module, or raise BackendUnavailableError."""
    try:
        with span("import PyNvVideoCodec"):
            return importlib.import_module("PyNvVideoCodec")
    except ModuleNotFoundError as exc:
        raise BackendUnavailableError(_MISSING) from exc
    except (ImportError, OSError, RuntimeError) as exc:
        raise BackendUnavailableError(f"cannot load PyNvVideoCodec: {vendor_text(exc)}") from exc


def codec_errors() -> tuple[type[Exception], ...]:
    """Return PyNvVideoCodec's error types; its own two have no common base but Exception."""
    module = video_codec()
    return (module.PyNvVCException, module.PyNvVCExceptionUnsupported, RuntimeError, ValueError)


def vendor_text(exc: BaseException) -> str:
    """Return an error's message in one line."""
    found = _TEXT.search(str(exc))
    if found:
        return found.group(1).strip()
    lines = (line.strip() for line in str(exc).splitlines())
    return next(filter(None, lines), type(exc).__name__)


def nvenc_reason(exc: BaseException) -> str:
    """Return why NVENC has failed, in words if its status is known."""
    status = _status(exc)
    known = _NVENC_STATUS.get(status)
    return f"{known} (status {status})" if known else vendor_text(exc)


def _status(exc: BaseException) -> int:
    """Return NVENC's status from an error; 0 if there is none."""
    found = _CODE.search(str(exc))
    return int(found.group(1)) if found else 0


def codec_errors_as(
    error: Callable[..., BgsoftError],
    text: str,
    *also: type[Exception],
    reason: Callable[[Exception], str] = vendor_text,
    **where: Any,
) -> AbstractContextManager[None]:
    """Turn errors of PyNvVideoCodec, and other named ones, into ours; see ``errors_as``."""
    return errors_as((*codec_errors(), *also), error, text, reason=reason, **where)


@functools.cache
def engine_capabilities(gpu: int) -> CapabilityCache:
    """Return the cached capabilities of NVDEC and NVENC of a GPU, by its CUDA number."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(gpu)["name"].decode()
    circumstances = {
        "driver": driver_version() or "unknown",
        "PyNvVideoCodec": str(getattr(video_codec(), "__version__", "unknown")),
    }
    return CapabilityCache(f"video engines of {name}", circumstances)


def decoder_caps(gpu: int, codec: str, bit_depth: int) -> Mapping[str, int] | None:
    """Return NVDEC's capabilities for 4:2:0 streams of a codec.

    The query creates a context of its own, so its answer is cached on disk; an error is cached for
    this process.

    Args:
        gpu: CUDA device number.
        codec: Name in PyNvVideoCodec's ``cudaVideoCodec``, e.g. ``HEVC``.
        bit_depth: 8 or 10.

    Returns:
        None for any but the first visible GPU: PyNvVideoCodec would query that one.

    Raises:
        BackendUnavailableError: The driver has no NVDEC library, or does not answer.
    """
    module = video_codec()
    if gpu != 0:
        return None
    cache = engine_capabilities(gpu)
    name = f"nvdec {codec} {bit_depth}"
    known = _known_caps(cache, name)
    if known is not None:
        return known
    try:
        answer = module.GetDecoderCaps(
            gpuid=gpu, codec=getattr(module.cudaVideoCodec, codec), bitdepth=bit_depth
        )
    except codec_errors() as exc:
        reason = f"cannot query NVDEC: {vendor_text(exc)}"
        cache.put(name, reason, lasting=False)
        raise BackendUnavailableError(reason, stage="decode") from exc
    caps = {key: value for key, value in answer.items() if isinstance(value, int)}
    cache.put(name, caps)
    return caps


def encoder_caps(gpu: int, codec: str) -> Mapping[str, int]:
    """Return capabilities of NVENC for ``h264``, ``hevc`` or ``av1``, in PyNvVideoCodec's words.

    The query creates a context of its own, and an error leaves it behind, so answers are cached on
    disk. Those that may change are cached for this process.

    Raises:
        BackendUnavailableError: There is no NVENC, or none for this codec; or it is not the first
            visible GPU.
    """
    if gpu != 0:
        # Creating an encoder there would query the first GPU too, and fail by its limits.
        raise BackendUnavailableError(f"NVENC: {_FIRST_GPU_ONLY}", stage="encode")
    cache = engine_capabilities(gpu)
    whole, name = "nvenc", f"nvenc {codec}"
    known = _known_caps(cache, whole, name)
    if known is not None:
        return known
    import cupy

    module = video_codec()
    try:
        caps = {k: int(v) for k, v in module.GetEncoderCaps(gpuid=gpu, codec=codec).items()}
    except codec_errors() as exc:
        reason = f"NVENC: {nvenc_reason(exc)}"
        status = _status(exc)
        if status in _NO_NVENC:
            cache.put(whole, reason)  # there is no NVENC for any codec
        elif status not in _BUSY:
            cache.put(name, reason, lasting=False)
        raise BackendUnavailableError(reason, stage="encode") from exc
    finally:
        # After an error, the query's own context stays, and is current.
        cupy.cuda.runtime.setDevice(gpu)
    cache.put(name, caps)
    return caps


def _known_caps(cache: CapabilityCache, *names: str) -> Mapping[str, int] | None:
    """Return the first cached answer; raises a cached error."""
    known = next(filter(None, map(cache.get, names)), None)
    if isinstance(known, str):
        raise BackendUnavailableError(known)
    return known if isinstance(known, dict) else None
