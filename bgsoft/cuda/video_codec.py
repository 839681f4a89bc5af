"""PyNvVideoCodec, loaded when it is needed, its errors as reasons, and what its engines can do.

It is imported only here; the wheel looks for the driver's NVENC library as it is imported and
raises ``RuntimeError`` where that is missing.
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
    "PyNvVideoCodec asks the first GPU for its capabilities whichever it is told to: set "
    "CUDA_VISIBLE_DEVICES to the GPU that is to be used"
)
_MISSING = "PyNvVideoCodec is missing: pip install '.[gpu]'"

# PyNvVideoCodec's messages run: function, "Error code : N", "Error Type : text", source line.
_CODE = re.compile(r"Error code\s*:\s*(\d+)")
_TEXT = re.compile(r"Error Type\s*:\s*(\S.*)")

# NVENCSTATUS (nvEncodeAPI.h of the Video Codec SDK 13.0), those that opening a session answers
# with. A full session table is 10 as documented, and 21 in practice.
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
"""It may be another answer in a moment."""


@functools.cache
def video_codec() -> Any:
    """The ``PyNvVideoCodec`` module; raises BackendUnavailableError where it does not load."""
    try:
        with span("import PyNvVideoCodec"):
            return importlib.import_module("PyNvVideoCodec")
    except ModuleNotFoundError as exc:
        raise BackendUnavailableError(_MISSING) from exc
    except (ImportError, OSError, RuntimeError) as exc:
        raise BackendUnavailableError(f"PyNvVideoCodec does not start: {vendor_text(exc)}") from exc


def codec_errors() -> tuple[type[Exception], ...]:
    """PyNvVideoCodec's errors; its own two have no base in common but Exception."""
    module = video_codec()
    return (module.PyNvVCException, module.PyNvVCExceptionUnsupported, RuntimeError, ValueError)


def vendor_text(exc: BaseException) -> str:
    """An error's message, in one line."""
    found = _TEXT.search(str(exc))
    if found:
        return found.group(1).strip()
    lines = (line.strip() for line in str(exc).splitlines())
    return next(filter(None, lines), type(exc).__name__)


def nvenc_reason(exc: BaseException) -> str:
    """Why NVENC refused, in words where its status is known."""
    status = _status(exc)
    known = _NVENC_STATUS.get(status)
    return f"{known} (status {status})" if known else vendor_text(exc)


def _status(exc: BaseException) -> int:
    """NVENC's status that an error reports; 0 where there is none."""
    found = _CODE.search(str(exc))
    return int(found.group(1)) if found else 0


def codec_errors_as(
    error: Callable[..., BgsoftError],
    text: str,
    *also: type[Exception],
    reason: Callable[[Exception], str] = vendor_text,
    **where: Any,
) -> AbstractContextManager[None]:
    """:func:`bgsoft.errors.errors_as` of PyNvVideoCodec's, and of others that are named."""
    return errors_as((*codec_errors(), *also), error, text, reason=reason, **where)


@functools.cache
def engine_capabilities(gpu: int) -> CapabilityCache:
    """Known capabilities of the NVDEC and NVENC of a GPU, by its CUDA number."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(gpu)["name"].decode()
    circumstances = {
        "driver": driver_version() or "unknown",
        "PyNvVideoCodec": str(getattr(video_codec(), "__version__", "unknown")),
    }
    return CapabilityCache(f"video engines of {name}", circumstances)


def decoder_caps(gpu: int, codec: str, bit_depth: int) -> Mapping[str, int] | None:
    """NVDEC's answer for 4:2:0 streams of a codec.

    Asked once for all runs, as the question makes a context of its own; a refusal is asked for
    once a process.

    Args:
        gpu: CUDA device number.
        codec: In PyNvVideoCodec's ``cudaVideoCodec``, e.g. ``HEVC``.
        bit_depth: 8 or 10.

    Returns:
        None for another than the first GPU that this process sees: PyNvVideoCodec would ask that.

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
        reason = f"NVDEC does not answer: {vendor_text(exc)}"
        cache.put(name, reason, lasting=False)
        raise BackendUnavailableError(reason, stage="decode") from exc
    caps = {key: value for key, value in answer.items() if isinstance(value, int)}
    cache.put(name, caps)
    return caps


def encoder_caps(gpu: int, codec: str) -> Mapping[str, int]:
    """Capabilities of NVENC for ``h264``, ``hevc`` or ``av1``, in PyNvVideoCodec's words.

    Asked once for all runs, as a question makes a context of its own, and a refusal leaves it
    there; what may be otherwise the next time is asked for once a process.

    Raises:
        BackendUnavailableError: It has no NVENC, or none for this codec; or it is not the first GPU
            that this process sees.
    """
    if gpu != 0:
        # To make an encoder there would ask the first GPU as well, and fail by what that lacks.
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
            cache.put(whole, reason)  # none at all, for any codec
        elif status not in _BUSY:
            cache.put(name, reason, lasting=False)
        raise BackendUnavailableError(reason, stage="encode") from exc
    finally:
        # Where NVENC refuses, the question's own context stays behind, and is the current one.
        cupy.cuda.runtime.setDevice(gpu)
    cache.put(name, caps)
    return caps


def _known_caps(cache: CapabilityCache, *names: str) -> Mapping[str, int] | None:
    """The first answer that is known; raises where it is a refusal."""
    known = next(filter(None, map(cache.get, names)), None)
    if isinstance(known, str):
        raise BackendUnavailableError(known)
    return known if isinstance(known, dict) else None
