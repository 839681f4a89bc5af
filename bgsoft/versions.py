"""Versions of what bgsoft runs on."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from bgsoft import __version__

__all__ = ["LIBRARIES", "installed_version", "installed_versions", "library_versions"]

LIBRARIES = {
    "av": ("av",),
    "numpy": ("numpy",),
    "cv2": ("opencv-python-headless", "opencv-python"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
    "PyNvVideoCodec": ("PyNvVideoCodec",),
    "pynvml": ("nvidia-ml-py",),
}
"""Module → the distributions that it may come from."""


def library_versions() -> dict[str, str]:
    """Version by module name, of the modules in use; nothing is imported for it.

    Asked of the modules themselves: reading package metadata takes longer than ten frames.
    """
    versions = {"bgsoft": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def installed_version(name: str) -> str | None:
    """Version of one of :data:`LIBRARIES`, by its package; None where there is none."""
    for distribution in LIBRARIES[name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def installed_versions() -> dict[str, str]:
    """Version by module name, of all that a render may use, in use or not."""
    found = library_versions()
    for name in LIBRARIES:
        version = found.get(name) or installed_version(name)
        if version is not None:
            found[name] = version
    return found
