"""Stages measured alone: what a case is, and how cases are run in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bgsoft.bench.sampling import interleaved, median, percentile
from bgsoft.errors import BackendUnavailableError, BgsoftError

Sampler = Callable[[], list[float]]
"""Takes some samples: milliseconds a frame. The first call warms up, and is dropped."""

_SLOW_SECONDS = 4.0
"""A case whose round takes longer has one round: the slowest encoder presets."""


@dataclass(slots=True, eq=False)
class Case:
    """One stage, on one backend, with one setting."""

    group: str
    """``decode``, ``preprocess``, ``segment``, ``face``, ``matte``, ``effect``, ``encode`` or
    ``copy``."""
    name: str
    backend: str
    make: Callable[[ExitStack], Sampler]
    """Sets the stage up; what has to be closed goes on the stack."""
    details: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """More keys of the result; the sampler may fill them."""
    reason: str | None = None
    """Why it cannot be measured here."""
    samples: list[float] = field(default_factory=list)
    slow: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For the results."""
        mean = sum(self.samples) / len(self.samples) if self.samples else None
        return {
            "group": self.group,
            "name": self.name,
            "backend": self.backend,
            "details": self.details,
            "available": bool(self.samples),
            "reason": self.reason,
            "unit": "frame",
            "median_ms": median(self.samples),
            "p95_ms": percentile(self.samples, 0.95),
            "mean_ms": mean,
            "fps": 1000 / mean if mean else None,
            "samples_ms": self.samples,
            **self.extra,
        }

    def guarded(self, action: Callable[[], Any]) -> Any:
        """What an action returns; None, with the reason set, where it cannot be done."""
        try:
            return action()
        except BackendUnavailableError as exc:
            self.reason = exc.message
        except BgsoftError as exc:
            self.reason = f"failed: {exc}"
        except Exception as exc:  # whatever a vendor's library raises is the answer
            self.reason = f"failed: {type(exc).__name__}: {exc}"
        return None


def repeat(
    once: Callable[[], object],
    wait: Callable[[], object] | None = None,
    *,
    frames: int = 1,
    seconds: float,
    least: int = 5,
) -> Sampler:
    """A sampler that calls a function again and again.

    Args:
        once: One call of the stage.
        wait: Waits for the device. The calls between two waits make one sample, as in a render,
            where the host runs ahead of the device; None: every call is a sample.
        frames: That a call works on.
        seconds: For one round.
        least: Samples in one round, however long they take.
    """
    calls = 1 if wait is None else 8

    def sample() -> list[float]:
        samples: list[float] = []
        begun = time.perf_counter()
        while len(samples) < least or time.perf_counter() - begun < seconds:
            started = time.perf_counter()
            for _ in range(calls):
                once()
            if wait is not None:
                wait()
            samples.append(1000 * (time.perf_counter() - started) / calls / frames)
        return samples

    return sample


def run_cases(
    cases: Sequence[Case], rounds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Set every case up, and sample all of them in turns; results in the order of the cases."""
    with ExitStack() as stack:
        tell("stages: set-up")
        samplers = [(c, c.guarded(partial(c.make, stack))) for c in cases if c.reason is None]
        for counts, (case, sampler) in interleaved(samplers, rounds, "stages", tell):
            if case.reason is not None or case.slow:
                continue
            started = time.perf_counter()
            samples = case.guarded(sampler)
            if counts:
                case.samples += samples or []
                case.slow = time.perf_counter() - started > _SLOW_SECONDS
    return [case.to_dict() for case in cases]
