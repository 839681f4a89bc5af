"""Versions of the libraries in use."""

from __future__ import annotations

import platform
import sys

from bgsoft import __version__

LIBRARIES = {
    "av": ("av",),
    "numpy": ("numpy",),
    "cv2": ("opencv-python-headless", "opencv-python"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
    "PyNvVideoCodec": ("PyNvVideoCodec",),
    "pynvml": ("nvidia-ml-py",),
}
"""Module → the distributions that may contain it."""


def library_versions() -> dict[str, str]:
    """Return versions by name of modules in use; nothing is imported for it.

    The modules themselves are asked: reading package metadata takes longer than ten frames.
    """
    versions = {"bgsoft": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def installed_version(name: str) -> str | None:
    """Return the version of one of :data:`LIBRARIES`, by its package; None if not installed."""
    from importlib import metadata  # 20 ms, not needed by a render

    for distribution in LIBRARIES[name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
