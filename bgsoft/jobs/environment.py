"""What worker processes need in their environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bgsoft.cuda.driver import driver_problem
from bgsoft.cuda.mps import shared_gpus
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.settings.config import BackendConfig


@contextmanager
def worker_environment(
    config: BackendConfig, workers: int, gpus: int, on_notice: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Variables for workers, as long as the block takes.

    Args:
        config: Where their stages may run.
        workers: How many there are.
        gpus: How many GPUs they are dealt over; 0: the settings name one.
        on_notice: Called with the reason where several workers have to take turns on a GPU.
    """
    if workers <= max(1, gpus) or not may_use_gpu(config) or driver_problem(0) is not None:
        yield {}
        return
    with shared_gpus(on_notice) as variables:
        yield variables
