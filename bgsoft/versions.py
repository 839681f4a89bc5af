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
    from importlib import metadata  # 20 ms, which a render does not need

    for distribution in LIBRARIES[name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
