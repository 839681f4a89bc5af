"""What holds a render up, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bgsoft.settings.config import EncodeConfig

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


def find_bottleneck(
    load: Mapping[str, float],
    cpu_load: float,
    cores: int,
    backends: Mapping[str, str],
    encode: EncodeConfig,
) -> dict[str, Any] | None:
    """Name the stage that the others wait for.

    Args:
        load: Share of the time that each stage is busy, 0–1.
        cpu_load: Share of all cores' time that was used, 0–1.
        cores: That the process may use.
        backends: What runs each of decode, infer, composite and encode.
        encode: The encoder's settings.

    Returns:
        ``stage`` (``cpu`` where all cores are busy and no stage is), ``load`` (share of the time
        that its thread, or all cores, are busy) and ``text``; None where there are no figures.
    """
    if not load:
        return None
    # On a GPU, its stream's time is shared by the picture stages; on the CPU, the thread's.
    threads = {
        "decode": load.get("decode", 0.0),
        "picture": min(1.0, sum(load.get(stage, 0.0) for stage in _PICTURE)),
        "encode": load.get("encode", 0.0),
    }
    thread, share = max(threads.items(), key=lambda item: item[1])
    stage = max(_PICTURE, key=lambda s: load.get(s, 0.0)) if thread == "picture" else thread
    advice = _advice(stage, backends, encode)
    faster = f"; faster: {advice}" if advice else ""
    saturated = cpu_load >= _CORES_BUSY
    if saturated and share < _BUSY:
        text = (
            f"CPU-bound: all {cores} cores are busy {_percent(cpu_load)} of the time, and of the "
            f"stages most in {stage} ({_percent(share)} of its thread's time)"
        )
        return {"stage": "cpu", "load": cpu_load, "text": text + faster}
    if thread == "picture":
        text = (
            f"{stage}-bound: the picture stages together are busy {_percent(share)} of "
            f"the time, {_WORKERS[stage]} the most ({_percent(load.get(stage, 0.0))})"
        )
    else:
        text = f"{stage}-bound: {_WORKERS[stage]} is busy {_percent(share)} of the time"
    if saturated:
        text += f", and all {cores} cores {_percent(cpu_load)}"
    return {"stage": stage, "load": share, "text": text + faster}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _advice(stage: str, backends: Mapping[str, str], encode: EncodeConfig) -> str:
    """What would make a stage faster; empty where nothing is known to."""
    on_gpu = backends.get("composite") == "cuda"
    options: list[str] = []
    if stage == "encode" and backends.get("encode") == "nvenc":
        options += [] if (encode.speed or "").upper() == "P1" else ["--speed P1"]
    elif stage == "encode":
        options += [] if encode.speed == "ultrafast" else ["--speed ultrafast"]
        options.append("--encode nvenc")
    elif stage == "decode":
        options += [] if backends.get("decode") == "nvdec" else ["--decode nvdec"]
    elif stage == "segment":
        options.append("--mask-every 2")
        more = {"cpu": "--infer cuda", "cuda": "--precision fp16"}
        options += filter(None, [more.get(backends.get("infer", ""))])
    elif stage == "face":
        options.append("--face off")
    elif stage == "matte":
        options += ["--refine none"] if on_gpu else ["--refine none", "--composite cuda"]
    else:
        options.append("a smaller --strength" if on_gpu else "--composite cuda")
    return ", or ".join(options)
