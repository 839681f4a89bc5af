"""Finds the batch size, queue depth and encoder threads that suit this machine and clip."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bgsoft.bench.process import run_render
from bgsoft.bench.sampling import MIN_NOISE, interleaved, median, noise
from bgsoft.config import RenderConfig
from bgsoft.errors import BgsoftError
from bgsoft.workers import usable_cores

_AUTO = {"threads": 0, "ring_slots": None, "batch": None}
"""The settings in the order they are tried, what matters most first, each with the value that
leaves it to the program."""


def candidates(setting: str, cores: int, *, on_gpu: bool, cpu_encoder: bool) -> list[int | None]:
    """The values to try, the automatic one first; that alone where there is nothing to choose.

    Args:
        setting: ``threads``, ``ring_slots`` or ``batch``.
        cores: That the process may use.
        on_gpu: Whether frames are composited on the GPU; elsewhere there are no batches.
        cpu_encoder: Whether the encoder has threads.
    """
    if setting == "threads":
        counts = {1, max(1, cores // 2), cores, cores + cores // 2, 2 * cores}
        return [0, *sorted(count for count in counts if count <= 64 and cpu_encoder)]
    if setting == "ring_slots":
        return [None, 4, 8, 16, 32]
    return [None, 1, 2, 4, 8, 16] if on_gpu else [None]


def tune(
    config: RenderConfig, folder: Path, *, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Try one setting after another, each with what was best before it.

    A value wins over the automatic one only by more than the noise of both.

    Returns:
        As the results have it under ``tune``.

    Raises:
        BgsoftError: A render failed with every setting left to the program.
    """
    config = replace(config, output=folder / f"tune{config.output.suffix}")
    stages = run_render(config, folder).report["stages"]  # it warms up, too
    on_gpu = stages["composite"]["backend"] == "cuda"
    cpu_encoder = stages["encode"]["backend"] == "cpu"
    trials: list[dict[str, Any]] = []
    chosen: dict[str, int | None] = {}
    for setting, automatic in _AUTO.items():
        values = candidates(setting, usable_cores(), on_gpu=on_gpu, cpu_encoder=cpu_encoder)
        if len(values) == 1:
            continue
        samples = _measure(config, setting, values, rounds, folder, tell)
        trials += [
            {"setting": setting, "value": value, "fps": median(rates), "samples": rates}
            for value, rates in samples.items()
        ]
        chosen[setting] = _best(samples, automatic)
        config = _with(config, setting, chosen[setting])
    return {
        "baseline_fps": trials[0]["fps"],
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
    tell: Callable[[str], None],
) -> dict[int | None, list[float]]:
    """Frames a second of every value that works; the first has to."""
    samples: dict[int | None, list[float]] = {value: [] for value in values}
    for counts, value in interleaved(values, rounds, f"tune: {setting}", tell):
        if value not in samples:
            continue
        try:
            fps = run_render(_with(config, setting, value), folder).fps
        except BgsoftError:
            if value == values[0]:
                raise
            del samples[value]  # too deep for this GPU's memory, or too small for the batch
        else:
            samples[value] += [fps] if counts else []
    return samples


def _best(samples: dict[int | None, list[float]], automatic: int | None) -> int | None:
    """The fastest value, if it beats the automatic one by more than noise."""
    base = median(samples[automatic]) or 0.0
    best = max(samples, key=lambda value: median(samples[value]) or 0.0)
    gain = (median(samples[best]) or 0.0) / base - 1 if base else 0.0
    allowed = max(MIN_NOISE, noise(samples[best]) + noise(samples[automatic]))
    return best if gain > allowed else automatic


def chosen_preset(parent: str | None, chosen: dict[str, int | None]) -> str:
    """The settings as a preset file, on top of the preset that they were found with."""
    lines = ['description = "Tuned by bgsoft bench --tune"']
    if parent is not None:
        lines.append(f"extends = {json.dumps(parent)}")
    lines += ["", "[backends]"]
    for setting, value in chosen.items():
        note = "  # the automatic choice is as fast" if value == _AUTO[setting] else ""
        lines.append(f"{setting} = {json.dumps('auto' if value is None else value)}{note}")
    return "\n".join(lines) + "\n"
