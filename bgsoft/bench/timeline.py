"""One traced render: how full the queues were, and what the GPU did, over time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bgsoft.bench.process import run_render
from bgsoft.config import RenderConfig

__all__ = ["read_timeline", "traced_render"]

_QUEUES = ("decoded", "finished", "slots in use")
_POINTS = 300


def traced_render(
    config: RenderConfig, phase: int | None, folder: Path, trace: Path
) -> dict[str, Any]:
    """Render once with a trace.

    Args:
        config: What to render.
        phase: Which phase it is; None: none of them.
        folder: For the output.
        trace: Where the trace is written.

    Returns:
        As the results have it under ``timeline``.

    Raises:
        BgsoftError: The render failed.
    """
    run_render(config, folder, "--trace", str(trace))
    return read_timeline(json.loads(trace.read_text(encoding="utf-8")), phase)


def read_timeline(trace: Mapping[str, Any], phase: int | None) -> dict[str, Any]:
    """Counters of a trace as curves over a common time.

    Args:
        trace: As :meth:`bgsoft.pipeline.trace.TraceRecorder.to_dict` makes it.
        phase: Which phase was traced.
    """
    counters: dict[str, list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            at = (event["ts"] / 1e6, event["args"]["value"])
            counters.setdefault(event["name"], []).append(at)
    queues = {name: counters.pop(name) for name in _QUEUES if name in counters}
    slots = trace["otherData"]["ring_slots"]
    depth = max(1, slots // 2)
    return {
        "phase": phase,
        **_curves(queues),
        "capacity": {"decoded": depth, "finished": depth, "slots in use": slots},
        "gpu": _curves(counters) if counters else None,
    }


def _curves(counters: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """The last value of every counter at evenly spaced times, from the first sample on."""
    if not counters:
        return {"t_s": [], "counters": {}}
    sampled = {name: np.array(samples).T for name, samples in counters.items()}
    start = min(times[0] for times, _ in sampled.values())
    end = max(times[-1] for times, _ in sampled.values())
    at = np.linspace(start, end, min(_POINTS, max(map(len, counters.values()))))
    return {
        "t_s": (at - start).tolist(),
        "counters": {
            name: values[np.searchsorted(times, at, side="right").clip(1) - 1].tolist()
            for name, (times, values) in sampled.items()
        },
    }
