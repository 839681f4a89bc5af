"""Finds the batch size, queue depth and encoder threads that suit this machine and clip."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bgsoft.bench.process import Run, run_render
from bgsoft.bench.sampling import MIN_NOISE, interleaved, median, noise
from bgsoft.config import RenderConfig
from bgsoft.errors import BgsoftError
from bgsoft.workers import usable_cores

__all__ = ["candidates", "chosen_preset", "tune"]

_RING_SLOTS = (4, 8, 16, 32)
_BATCHES = (1, 2, 4, 8, 16)
_AUTO = {"threads": 0, "ring_slots": None, "batch": None}
"""The settings in the order they are tried, what matters most first, each with the value that
leaves it to the program."""


def candidates(setting: str, cores: int, on_gpu: bool) -> list[int | None]:
    """The values to try, the automatic one first.

    Args:
        setting: ``threads``, ``ring_slots`` or ``batch``.
        cores: That the process may use.
        on_gpu: Whether frames are composited on the GPU; elsewhere there are no batches.
    """
    if setting == "threads":
        counts = {1, max(1, cores // 2), cores, cores + cores // 2, 2 * cores}
        return [0, *sorted(count for count in counts if count <= 64)]
    if setting == "ring_slots":
        return [None, *_RING_SLOTS]
    return [None, *_BATCHES] if on_gpu else [None]


def tune(
    config: RenderConfig,
    folder: Path,
    *,
    rounds: int,
    measure: Callable[[RenderConfig, Path], Run] = run_render,
    tell: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Try one setting after another, each with what was best before it.

    A value wins over the automatic one only by more than the noise of both.

    Args:
        config: What to render, with the backends that are to be tuned.
        folder: For the outputs.
        rounds: Runs of each value that count; one more goes before them and is dropped.
        measure: Runs one render.
        tell: Told what is being done.

    Returns:
        As the results have it under ``tune``.

    Raises:
        BgsoftError: A render failed with every setting left to the program.
    """
    cores = usable_cores()
    config = replace(config, output=folder / f"tune{config.output.suffix}")
    first = measure(config, folder)  # warm-up, and which backends run
    on_gpu = first.report["stages"]["composite"]["backend"] == "cuda"
    cpu_encoder = first.report["stages"]["encode"]["backend"] == "cpu"
    trials: list[dict[str, Any]] = []
    chosen: dict[str, int | None] = {}
    baseline: float | None = None
    for setting in _AUTO:
        values = candidates(setting, cores, on_gpu)
        if len(values) == 1 or (setting == "threads" and not cpu_encoder):
            continue  # nothing to choose from
        samples = _measure(config, setting, values, rounds, folder, measure, tell)
        trials += [
            {"setting": setting, "value": value, "fps": median(rates), "samples": rates}
            for value, rates in samples.items()
        ]
        if baseline is None:
            baseline = median(samples[values[0]])
        chosen[setting] = _best(samples, values[0])
        config = _with(config, setting, chosen[setting])
    return {
        "baseline_fps": baseline,
        "trials": trials,
        "chosen": chosen,
        "preset": chosen_preset(config.preset, chosen),
    }


def _with(config: RenderConfig, setting: str, value: int | None) -> RenderConfig:
    changed: dict[str, Any] = {setting: value}
    return replace(config, backends=replace(config.backends, **changed))


def _measure(
    config: RenderConfig,
    setting: str,
    values: Sequence[int | None],
    rounds: int,
    folder: Path,
    measure: Callable[[RenderConfig, Path], Run],
    tell: Callable[[str], None],
) -> dict[int | None, list[float]]:
    """Frames a second of every value that works; the first has to."""
    samples: dict[int | None, list[float]] = {value: [] for value in values}

    def told(number: int) -> None:
        what = "warm-up" if number == 0 else f"round {number} of {rounds}"
        tell(f"tune: {setting}, {what}")

    for number, value in interleaved(list(values), rounds + 1, told):
        if value not in samples:
            continue
        try:
            fps = measure(_with(config, setting, value), folder).fps
            if number > 0:  # a cold machine would speak against the value that comes first
                samples[value].append(fps)
        except BgsoftError:
            if value == values[0]:
                raise
            del samples[value]  # too deep for this GPU's memory, or too small for the batch
    return samples


def _best(samples: dict[int | None, list[float]], automatic: int | None) -> int | None:
    """The fastest value, if it beats the automatic one by more than noise."""
    base = median(samples[automatic]) or 0.0
    best = max(samples, key=lambda value: median(samples[value]) or 0.0)
    gain = (median(samples[best]) or 0.0) / base - 1 if base else 0.0
    allowed = max(MIN_NOISE, noise(samples[best]) + noise(samples[automatic]))
    return best if gain > allowed else automatic


def chosen_preset(parent: str | None, chosen: dict[str, int | None]) -> str:
    """The settings as a preset file.

    Args:
        parent: Name of the preset that they were found with.
        chosen: Setting → value.
    """
    lines = ['description = "Tuned by bgsoft bench --tune"']
    if parent is not None:
        lines.append(f"extends = {json.dumps(parent)}")
    lines += ["", "[backends]"]
    for setting, value in chosen.items():
        note = "  # the automatic choice is as fast" if value == _AUTO[setting] else ""
        lines.append(f"{setting} = {json.dumps('auto' if value is None else value)}{note}")
    return "\n".join(lines) + "\n"
