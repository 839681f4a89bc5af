"""The bottleneck of a render, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bgsoft.report import PICTURE_STAGES
from bgsoft.settings.config import EncodeConfig

_BUSY = 0.85
"""Share of busy time from which a thread has no useful slack."""
_CORES_BUSY = 0.9
_WORKERS = {
    "decode": "the decoder",
    "segment": "the model",
    "face": "face protection",
    "matte": "the matte stage",
    "composite": "the effect",
    "encode": "the encoder",
}
_ADVICE = {
    ("decode", "cpu"): ["--decode nvdec"],
    ("segment", "cpu"): ["--mask-every 2", "--infer cuda"],
    ("segment", "cuda"): ["--mask-every 2", "--precision fp16"],
    ("segment", "tensorrt"): ["--mask-every 2"],
    ("face", "cpu"): ["--face off"],
    ("face", "cuda"): ["--face off"],
    ("matte", "cpu"): ["--refine none", "--composite cuda"],
    ("matte", "cuda"): ["--refine none"],
    ("composite", "cpu"): ["--composite cuda"],
    ("composite", "cuda"): ["a smaller --strength"],
    ("encode", "cpu"): ["--speed ultrafast", "--encode nvenc"],
    ("encode", "nvenc"): ["--speed P1"],
}
"""(stage, its backend) → changes that would make it faster."""
_BACKEND_OF = {"segment": "infer", "face": "composite", "matte": "composite"}


def find_bottleneck(
    load: Mapping[str, float],
    cpu_load: float,
    cores: int,
    backends: Mapping[str, str],
    encode: EncodeConfig,
) -> dict[str, Any] | None:
    """Find the stage that the others wait for.

    Args:
        load: Share of busy time of each stage, 0–1.
        cpu_load: Share of used time of all cores, 0–1.
        cores: Number of cores that the process may use.
        backends: Backend of each of decode, infer, composite and encode.
        encode: The encoder's settings.

    Returns:
        ``stage`` (``cpu`` if all cores are busy and no stage is), ``load`` (share of busy time of
        its thread, or of all cores) and ``text``; None without figures.
    """
    if not load:
        return None
    stage = max(PICTURE_STAGES, key=lambda name: load.get(name, 0.0))
    threads = {name: load.get(name, 0.0) for name in ("decode", "encode")}
    threads[stage] = min(1.0, sum(load.get(name, 0.0) for name in PICTURE_STAGES))
    stage, share = max(threads.items(), key=lambda item: item[1])
    advice = [
        words
        for words in _ADVICE.get((stage, backends.get(_BACKEND_OF.get(stage, stage), "")), ())
        if words.lower() != f"--speed {encode.speed}".lower()
    ]
    faster = f"; faster: {', or '.join(advice)}" if advice else ""
    saturated = cpu_load >= _CORES_BUSY
    if saturated and share < _BUSY:
        text = (
            f"CPU-bound: all {cores} cores are busy {cpu_load:.0%} of the time, and of the "
            f"stages most in {stage} ({share:.0%} of its thread's time)"
        )
        return {"stage": "cpu", "load": cpu_load, "text": _spaced(text + faster)}
    text = f"{stage}-bound: {_WORKERS[stage]} is busy {share:.0%} of the time"
    if stage in PICTURE_STAGES:
        text = (
            f"{stage}-bound: the picture stages together are busy {share:.0%} of "
            f"the time, {_WORKERS[stage]} the most ({load.get(stage, 0.0):.0%})"
        )
    if saturated:
        text += f", and all {cores} cores {cpu_load:.0%}"
    return {"stage": stage, "load": share, "text": _spaced(text + faster)}


def _spaced(text: str) -> str:
    return text.replace("%", " %")
