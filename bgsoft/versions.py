"""Versions of what a render ran on."""

from __future__ import annotations

import platform
import sys

from bgsoft import __version__

__all__ = ["library_versions"]

_MODULES = ("av", "numpy", "cv2", "onnxruntime", "cupy", "PyNvVideoCodec")


def library_versions() -> dict[str, str]:
    """Version by module name, of the modules in use; nothing is imported for it.

    Asked of the modules themselves: reading package metadata takes longer than ten frames.
    """
    versions = {"bgsoft": __version__, "python": platform.python_version()}
    for name in _MODULES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions
