"""What holds a render up, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bgsoft.config import EncodeConfig

__all__ = ["Bottleneck", "find_bottleneck"]

_BUSY = 0.85
"""A thread that is busy for so much of the time has no slack worth naming."""
_CORES_BUSY = 0.9
_PICTURE = ("segment", "face", "matte", "composite")
"""Stages that share one thread."""
_WORKERS = {
    "decode": "the decoder",
    "segment": "the model",
    "face": "face protection",
    "matte": "the matte stage",
    "composite": "the effect",
    "encode": "the encoder",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The stage that the others wait for."""

    stage: str
    """A stage, or ``cpu`` where all cores are busy and none of the stages is."""
    load: float
    """Share of the time that its thread, or all cores, are busy, 0–1."""
    text: str


def find_bottleneck(
    load: Mapping[str, float],
    cpu_load: float,
    cores: int,
    backends: Mapping[str, str],
    encode: EncodeConfig,
) -> Bottleneck | None:
    """Name it.

    Args:
        load: Share of the time that each stage is busy, 0–1.
        cpu_load: Share of all cores' time that was used, 0–1.
        cores: That the process may use.
        backends: What runs each of decode, infer, composite and encode.
        encode: The encoder's settings.

    Returns:
        None where there are no figures.
    """
    if not load:
        return None
    picture = sum(load.get(stage, 0.0) for stage in _PICTURE)
    # On a GPU, its stream's time is shared by the three; on the CPU, the thread's.
    threads = {
        "decode": load.get("decode", 0.0),
        "picture": min(1.0, picture),
        "encode": load.get("encode", 0.0),
    }
    thread = max(threads, key=lambda name: threads[name])
    share = threads[thread]
    stage = max(_PICTURE, key=lambda s: load.get(s, 0.0)) if thread == "picture" else thread
    faster = _advice(stage, backends, encode)
    saturated = cpu_load >= _CORES_BUSY
    if saturated and share < _BUSY:
        text = (
            f"CPU-bound: all {cores} cores are busy {_percent(cpu_load)} of the time, and of the "
            f"stages most in {stage} ({_percent(share)} of its thread's time)"
        )
        return Bottleneck(stage="cpu", load=cpu_load, text=_with(text, faster))
    if thread == "picture":
        text = (
            f"{stage}-bound: the picture stages together are busy {_percent(share)} of "
            f"the time, {_WORKERS[stage]} the most ({_percent(load.get(stage, 0.0))})"
        )
    else:
        text = f"{stage}-bound: {_WORKERS[stage]} is busy {_percent(share)} of the time"
    if saturated:
        text += f", and all {cores} cores {_percent(cpu_load)}"
    return Bottleneck(stage=stage, load=share, text=_with(text, faster))


def _with(text: str, faster: str | None) -> str:
    return f"{text}; faster: {faster}" if faster else text


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _advice(stage: str, backends: Mapping[str, str], encode: EncodeConfig) -> str | None:
    """What would make a stage faster."""
    if stage == "encode":
        if backends.get("encode") == "nvenc":
            return "--speed P1" if (encode.speed or "").upper() != "P1" else None
        speed = None if encode.speed == "ultrafast" else "--speed ultrafast"
        return ", or ".join(part for part in (speed, "--encode nvenc") if part)
    if stage == "decode":
        return None if backends.get("decode") == "nvdec" else "--decode nvdec"
    if stage == "segment":
        options = ["--mask-every 2"]
        infer = backends.get("infer")
        if infer == "cpu":
            options.append("--infer cuda")
        elif infer == "cuda":
            options.append("--precision fp16")
        return ", or ".join(options)
    if stage == "face":
        return "--face off"
    if stage == "matte":
        gpu = backends.get("composite") != "cuda"
        return "--refine none" + (", or --composite cuda" if gpu else "")
    return "a smaller --strength" if backends.get("composite") == "cuda" else "--composite cuda"
