"""What the always-on metrics cost: with them and without, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bgsoft.bench.sampling import median
from bgsoft.bench.workshop import Workshop, ignore_event
from bgsoft.errors import BackendUnavailableError
from bgsoft.pipeline.metrics import Metrics, StageClock
from bgsoft.selftest.parity import HostSide
from bgsoft.stages import Machine

__all__ = ["measure_overhead"]

_BLOCKS_PER_FRAME = 5
"""decode, segment, matte, composite, encode."""
_LOOP = 20_000
_BATCH, _BATCHES = 8, 200
_NOTHING = nullcontext()


class _Switch:
    """Whether clocks measure now."""

    on = True


class _SwitchedClock(StageClock):
    """Measures only while the switch is on."""

    __slots__ = ("switch",)

    def __init__(self, name: str, switch: _Switch) -> None:
        super().__init__(name)
        self.switch = switch

    def measure(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return StageClock.measure(self) if self.switch.on else _NOTHING


class _SwitchedMetrics(Metrics):
    """Clocks of one render that can be switched off together."""

    __slots__ = ("switch",)

    def __init__(self) -> None:
        super().__init__()
        self.switch = _Switch()

    def stage(self, name: str) -> StageClock:
        return self.stages.setdefault(name, _SwitchedClock(name, self.switch))


def measure_overhead(shop: Workshop, frame_ms: float | None, pairs: int) -> dict[str, Any]:
    """Measure the clocks alone, and the same picture stages with and without them.

    Args:
        shop: Has the frames.
        frame_ms: Time of a frame in phase 0; None: not measured.
        pairs: Passes over the frames, each frame once with and once without.

    Returns:
        ``block_ns``: one measured block, less an empty one; ``us_per_frame``: of all blocks of a
        frame; ``share``: of ``frame_ms``; ``ab_ratio``: the median of CPU time with metrics over
        without (``ab_samples``: pass by pass); ``frames``: processed on each side;
        ``device_us_per_frame``: what the GPU's clocks cost the host, None where there is none.
    """
    block_ns = _block_ns()
    us = _BLOCKS_PER_FRAME * block_ns / 1000
    ratios = _turns(shop, pairs)
    return {
        "block_ns": block_ns,
        "blocks_per_frame": _BLOCKS_PER_FRAME,
        "us_per_frame": us,
        "share": None if frame_ms is None else us / 1000 / frame_ms,
        "ab_ratio": median(ratios),
        "ab_samples": ratios,
        "frames": pairs * len(shop.frames),
        "device_us_per_frame": _device_us(shop),
    }


def _device_us(shop: Workshop) -> float | None:
    """Host microseconds a frame for the GPU's clocks, in batches; None without a GPU."""
    try:
        device = shop.device()
    except BackendUnavailableError:
        return None
    from bgsoft.pipeline.device_execution import DeviceTimer

    timer, clock = DeviceTimer(), StageClock("x")
    spent = 0
    with device.use(device.new_stream()):
        for number in range(_BATCHES + 1):
            if number == 1:  # events are made in the first turn, and used again
                spent = 0
            started = time.thread_time_ns()
            timer.mark(None)
            for _ in range(1 + 2 * _BATCH):  # the model once, matte and composite for each frame
                timer.mark(clock)
            timer.end()
            spent += time.thread_time_ns() - started
            device.synchronize()
        timer.flush()
    return spent / 1000 / _BATCHES / _BATCH


def _block_ns() -> float:
    """Nanoseconds of one measured block more than of an unmeasured one, least of several."""

    def loop(measure: Callable[[], AbstractContextManager[None]]) -> int:
        started = time.thread_time_ns()
        for _ in range(_LOOP):
            with measure():
                pass
        return time.thread_time_ns() - started

    switch = _Switch()
    switch.on = False
    clock, silent = StageClock("x"), _SwitchedClock("x", switch)
    with_clock, without = [], []
    for _ in range(5):
        with_clock.append(loop(clock.measure))
        without.append(loop(silent.measure))
    return (min(with_clock) - min(without)) / _LOOP


def _turns(shop: Workshop, passes: int) -> list[float]:
    """CPU time of the typical frame with metrics over that without, for each pass.

    The switch is turned for every frame, on one and the same set of stages: a machine that
    slows down, or buffers that lie better in the cache, cannot favour either side.
    """
    place = HostSide().place
    frames = [place(frame) for frame in shop.frames]
    metrics = _SwitchedMetrics()
    stages = Machine(shop.config.backends, ignore_event).make_host_stages(
        shop.config, shop.info, shop.model, metrics, lambda _frame: None
    )
    stages.start()
    ratios = []
    for number in range(passes + 1):
        spent: dict[bool, list[int]] = {True: [], False: []}
        for index, frame in enumerate(frames):
            first = (index + number) % 2 == 0
            for on in (first, not first):
                metrics.switch.on = on
                started = time.thread_time_ns()
                stages.process(frame)
                spent[on].append(time.thread_time_ns() - started)
        if number > 0:  # the first pass warms up
            ratios.append(statistics.median(spent[True]) / statistics.median(spent[False]))
    stages.close()
    return ratios
