"""What NVENC can encode, as the GPU tells it."""

from __future__ import annotations

from collections.abc import Mapping

from bgsoft.cuda.video_codec import (
    FIRST_GPU_ONLY,
    Refusal,
    codec_errors,
    engine_facts,
    nvenc_reason,
    nvenc_refusal,
    video_codec,
)
from bgsoft.errors import BackendUnavailableError

__all__ = ["encoder_caps"]

_NO_NVENC = "nvenc"
"""The fact that there is none, whatever the codec."""


def encoder_caps(gpu: int, codec: str) -> Mapping[str, int]:
    """What a GPU's NVENC can do for a codec, in PyNvVideoCodec's words.

    Asked once for all runs, as a question makes a context of its own, and a refusal leaves it
    there; what may be otherwise the next time is asked for once a process.

    Args:
        gpu: CUDA device number.
        codec: ``h264``, ``hevc`` or ``av1``.

    Raises:
        BackendUnavailableError: It has no NVENC, or none for this codec; or it is not the first GPU
            that this process sees.
    """
    if gpu != 0:
        # To make an encoder there would ask the first GPU as well, and fail by what that lacks.
        raise BackendUnavailableError(f"NVENC: {FIRST_GPU_ONLY}", stage="encode")
    facts = engine_facts(gpu)
    name = f"{_NO_NVENC} {codec}"
    known = facts.get(_NO_NVENC) or facts.get(name)
    if isinstance(known, str):
        raise BackendUnavailableError(known, stage="encode")
    if isinstance(known, dict):
        return known
    import cupy

    module = video_codec()
    try:
        caps = {k: int(v) for k, v in module.GetEncoderCaps(gpuid=gpu, codec=codec).items()}
    except codec_errors() as exc:
        reason = f"NVENC: {nvenc_reason(exc)}"
        refusal = nvenc_refusal(exc)
        if refusal is Refusal.NO_ENGINE:
            facts.put(_NO_NVENC, reason)
        elif refusal is not Refusal.BUSY:
            facts.put(name, reason, lasting=False)
        raise BackendUnavailableError(reason, stage="encode") from exc
    finally:
        # Where NVENC refuses, the question's own context stays behind, and is the current one.
        cupy.cuda.runtime.setDevice(gpu)
    facts.put(name, caps)
    return caps
