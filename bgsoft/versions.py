"""Versions of what bgsoft runs on, without importing any of it."""

from __future__ import annotations

import platform
from importlib import metadata

from bgsoft import __version__

__all__ = ["library_versions"]

_DISTRIBUTIONS = (
    "av",
    "numpy",
    "opencv-python-headless",
    "onnxruntime",
    "onnxruntime-gpu",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "PyNvVideoCodec",
)


def library_versions() -> dict[str, str]:
    """Version by distribution name; what is not installed is left out."""
    versions = {"bgsoft": __version__, "python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
