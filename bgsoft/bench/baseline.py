"""Comparison with earlier results, by more than noise."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, errors_as, os_errors_as, translated
from bgsoft.untrusted import parse_json

SCHEMA = "bgsoft-bench/1"
_MIN_NOISE = 0.03
"""Smallest assumed noise, as a share. Machines differ by this from one hour to the next, however
steady the samples."""

_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a comparison with results of another form."""


def load(path: Path) -> dict[str, Any]:
    """Read results that were written by ``--json``, and check that they can be compared.

    Raises:
        ConfigError: The file is missing, or contains something else.
    """
    with (
        os_errors_as(ConfigError, f"cannot read --baseline {path}", path=path),
        errors_as((ValueError,), ConfigError, f"cannot read --baseline {path} as JSON", path=path),
    ):
        results = parse_json(path.read_bytes())
    foreign = ConfigError(
        f"cannot use --baseline {path}: bgsoft bench --json did not write it", path=path
    )
    with translated(*_DAMAGED, to=lambda _: foreign):
        if results["schema"] != SCHEMA:
            raise foreign
        json.dumps(compare(results, results, ""), allow_nan=False)
    return dict(results)


def compare(now: Mapping[str, Any], before: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return ``baseline`` of the results; nothing is compared if clip or settings differ."""
    another = list(_differences(now, before, _MEASUREMENT))
    elsewhere = list(_differences(now, before, _MACHINE))
    earlier = {} if another else {figure[0]: figure for figure in _figures(before)}
    rows = []
    for what, value, samples, unit in _figures(now):
        if what not in earlier:
            continue
        _, old, old_samples, _ = earlier[what]
        # Positive means slower: fewer frames a second, or more milliseconds a frame.
        change = (old / value if unit == "frames/s" else value / old) - 1
        allowed = max(_MIN_NOISE, noise(samples) + noise(old_samples))
        row = {"what": what, "before": old, "after": value, "unit": unit}
        row |= {"change_pct": 100 * change, "noise_pct": 100 * allowed}
        row["verdict"] = "slower" if change > allowed else "faster" if change < -allowed else "same"
        rows.append(row)
    notes = another + elsewhere
    return {"file": file, "comparable": not another, "notes": notes, "rows": rows}


def slower_than(comparison: Mapping[str, Any], percent: float) -> list[str]:
    """Name the figures that are slower by more than noise and by more than ``percent``."""
    return [
        row["what"]
        for row in comparison["rows"]
        if row["verdict"] == "slower" and row["change_pct"] > percent
    ]


def noise(samples: Sequence[float]) -> float:
    """Return the difference that is within the noise of samples, relative to their median.

    It is half the span of their middle half, or half of all if there are three or fewer. The spread
    of samples is used, not the error of their median: causes of differences between runs (other
    programs, temperature) affect all samples of a run together.
    """
    middle = statistics.median(samples or [0.0])
    if not middle:
        return 0.0
    if len(samples) <= 3:
        return (max(samples) - min(samples)) / 2 / abs(middle)
    low, _, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / abs(middle)


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, float, list[float], str]]:
    """Yield (name, median, samples, unit) of every measurement."""
    for phase in results["phases"]:
        name = f"phase {phase['id']} ({phase['name']})"
        if phase["fps"]:
            yield name, float(phase["fps"]), phase["fps_samples"], "frames/s"
        for stage, milliseconds in phase["stage_ms"].items():
            samples = [run["stage_ms"][stage] for run in phase["runs"]]
            if milliseconds:
                yield f"{name}: {stage}", float(milliseconds), samples, "ms"
    for row in results["transcodes"]:
        if row["run_fps"]:
            yield row["name"], float(row["run_fps"]), row["run_fps_samples"], "frames/s"


_MEASUREMENT = {"clip": ("name", "width", "height", "frames", "codec"), "settings": ("render",)}
_MACHINE = {"hardware": ("cpu", "usable_cores", "gpu")}


def _differences(
    now: Mapping[str, Any], before: Mapping[str, Any], sections: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yield each key in which the two differ."""
    for section, keys in sections.items():
        for key in keys:
            one, other = (_plain(results[section].get(key)) for results in (now, before))
            if one != other:
                yield f"{section}: {key} differs" + (
                    "" if isinstance(one, dict) else f" ({other} then, {one} now)"
                )


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value, default=str))
