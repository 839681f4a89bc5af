"""How many files are rendered at a time, and on which GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from bgsoft.cuda.driver import driver_problem
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.jobs.task import CORES_A_TASK, TASKS_A_GPU
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.settings.config import BackendConfig
from bgsoft.workers import usable_cores

_LEAST_BY_CORES = 2
"""On two cores: while one file begins or ends, the other keeps them busy."""


def read_gpus(text: str | None) -> list[int]:
    """The GPUs that ``--gpu 0,1`` names; none where it is not given.

    Raises:
        ConfigError: It is no list of numbers, or names one twice.
        BackendUnavailableError: One is not there.
    """
    if text is None:
        return []
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigError(f"--gpu must be numbers like 0 or 0,1, not {text!r}")
    gpus = [int(part) for part in parts]
    if len(set(gpus)) < len(gpus):
        raise ConfigError(f"--gpu names a GPU twice: {text}")
    for gpu in gpus:
        problem = driver_problem(gpu)
        if problem is not None:
            raise BackendUnavailableError(f"--gpu {gpu}: {problem}")
    return gpus


def default_workers(config: BackendConfig, gpus: Sequence[int]) -> int:
    """Files at a time, unless ``--jobs`` is given."""
    cores = usable_cores()
    by_cores = min(cores, max(_LEAST_BY_CORES, cores // CORES_A_TASK))
    if not may_use_gpu(config) or driver_problem(0) is not None:
        return by_cores
    return min(by_cores, TASKS_A_GPU * max(1, len(gpus)))
