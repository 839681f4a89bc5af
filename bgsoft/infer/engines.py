"""TensorRT's engines, kept from run to run: building one takes about a minute."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bgsoft.errors import BackendUnavailableError
from bgsoft.models.cache import cache_folder, locked

__all__ = ["engine_key", "with_engines"]

T = TypeVar("T")

_VOLATILE = frozenset({"user_compute_stream", "device_id", "trt_cuda_graph_enable"})
"""Options that the same engine serves."""


def engine_key(
    *,
    model_sha256: str,
    options: Mapping[str, str],
    versions: Mapping[str, str],
    gpu_name: str,
    compute_capability: str,
) -> str:
    """Name of the folder that holds the engines for exactly this combination.

    Args:
        model_sha256: Of the model file.
        options: The provider's options; those that make no other engine don't count.
        versions: Version by name of every library that has a hand in an engine, and of no other.
        gpu_name: As the driver calls it.
        compute_capability: e.g. ``90``.

    Returns:
        32 hexadecimal digits.
    """
    kept = {name: value for name, value in options.items() if name not in _VOLATILE}
    parts: list[Any] = [model_sha256, kept, dict(versions), gpu_name, compute_capability]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def with_engines(key: str, load: Callable[[dict[str, str]], T], tell: Callable[[str], None]) -> T:
    """Load a model with the engines that are kept for it, or build and keep them.

    Processes that want the same engines wait for each other. Engines appear in their folder once
    they are complete; ones that do not load all the same are deleted and built once more. A cache
    that cannot be written to is done without.

    Args:
        key: From :func:`engine_key`.
        load: Makes the session; takes the provider's further options.
        tell: Told, in words, before an engine is built, and of what went wrong with kept ones.

    Raises:
        BackendUnavailableError: The model does not load, with new engines either.
    """
    folder = cache_folder() / "engines" / key
    building = folder.with_suffix(".building")
    with contextlib.ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.with_suffix(".lock")))
            if folder.exists():
                try:
                    return load(_options(folder))
                except BackendUnavailableError as exc:
                    tell(f"the kept TensorRT engine does not load; building it anew: {exc.message}")
                shutil.rmtree(folder)
            else:
                tell("building the TensorRT engine, once, about a minute")
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
        except OSError as exc:
            tell(
                f"the TensorRT engine cannot be kept in {folder.parent} ({exc.strerror}): "
                "building it for this run alone, about a minute"
            )
            return load({})
        session = load(_options(building))
        with contextlib.suppress(OSError):
            building.rename(folder)
        return session


def _options(folder: Path) -> dict[str, str]:
    return {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(folder),
    }
