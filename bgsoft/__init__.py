"""Softens, replaces or cuts out the background behind people in videos.

    import bgsoft
    report = bgsoft.render("in.mp4", "out.mp4", effect="bokeh", strength=3)

Importing this package loads nothing heavy; the names below are loaded when first used.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without the 10 ms that typing takes

__version__ = "0.3.0"

__all__ = [
    "BgsoftError",
    "Event",
    "Frames",
    "Processor",
    "Progress",
    "RenderConfig",
    "RenderReport",
    "RenderedFrame",
    "__version__",
    "errors",
    "frames",
    "live",
    "process",
    "render",
    "render_config",
]

if TYPE_CHECKING:
    from typing import Any

    from bgsoft import errors, live
    from bgsoft.api import frames, process, render
    from bgsoft.chunks.run import render_config
    from bgsoft.errors import BgsoftError
    from bgsoft.rendering.frames import Frames, RenderedFrame
    from bgsoft.rendering.processor import Processor
    from bgsoft.report import Event, Progress, RenderReport
    from bgsoft.settings.config import RenderConfig

# Settings that libraries read from the environment. All are set here, before a render has threads:
# in the C library, setting a variable while another thread reads one can crash the process. Recent
# official builds of ONNX Runtime send usage data to Microsoft and store an identifier in the user's
# cache; that is disabled. OpenCV's own limit of a picture is a billion pixels, 3 GB. SVT-AV1 prints
# to stderr what FFmpeg's log contains too.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(1 << 27))
os.environ.setdefault("SVT_LOG", "0")

_HOME = {
    "BgsoftError": ("bgsoft.errors", "BgsoftError"),
    "Frames": ("bgsoft.rendering.frames", "Frames"),
    "Processor": ("bgsoft.rendering.processor", "Processor"),
    "Event": ("bgsoft.report", "Event"),
    "Progress": ("bgsoft.report", "Progress"),
    "RenderConfig": ("bgsoft.settings.config", "RenderConfig"),
    "RenderReport": ("bgsoft.report", "RenderReport"),
    "RenderedFrame": ("bgsoft.rendering.frames", "RenderedFrame"),
    "frames": ("bgsoft.api", "frames"),
    "process": ("bgsoft.api", "process"),
    "render": ("bgsoft.api", "render"),
    "render_config": ("bgsoft.chunks.run", "render_config"),
}


_MODULES = ("errors", "live")


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"bgsoft.{name}")
    module, attribute = _HOME[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
