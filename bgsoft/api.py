"""The Python interface: one call that takes what the command line takes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.options import OPTIONS, settings_from_options
from bgsoft.presets import DEFAULT_PRESET, build_config
from bgsoft.rendering import render as render_config
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.suggest import did_you_mean

__all__ = ["render"]

_SWITCHES = ("overwrite", "skip_existing", "require_gpu", "small_faces")
_OTHERS = ("preset", "start", "duration", "matte_out", "face_data")
_KEYWORDS = frozenset({*OPTIONS, *_SWITCHES, *_OTHERS})
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


def render(
    input: str | PathLike[str],
    output: str | PathLike[str],
    *,
    preset: str | None = DEFAULT_PRESET,
    start: float = 0.0,
    duration: float | None = None,
    matte_out: str | PathLike[str] | None = None,
    face_data: str | PathLike[str] | None = None,
    overwrite: bool = False,
    skip_existing: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    **options: Any,
) -> RenderReport:
    """Render one video, as ``bgsoft render`` does.

    Args:
        input: Video to read.
        output: Video to write; its suffix chooses the container.
        preset: A preset's name or TOML file; None: the bare defaults.
        start: Seconds of the input to leave out at its beginning.
        duration: Seconds to render at most; None: to the end.
        matte_out: Also write the matte as a grey video here.
        face_data: Also write the faces of every frame here, as ``.jsonl`` or ``.npz``.
        overwrite: Replace an existing output; otherwise it is an error.
        skip_existing: Where the output exists, do nothing and say so in the report.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread.
        cancel: Set it, from any thread, to stop the render.
        **options: The command line's other flags, with underscores: ``effect="bokeh"``,
            ``strength=3``, ``min_area=0.01``, ``codec="hevc"`` and so on.

    Returns:
        What was done.

    Raises:
        TypeError: An option is unknown.
        ConfigError: A value is out of range, or fits neither input nor output.
        BgsoftError: As :func:`bgsoft.rendering.render`.
    """
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"render() has no option {name!r}{did_you_mean(name, OPTIONS)}")
    try:
        if overwrite and skip_existing:
            raise ConfigError("--overwrite and --skip-existing exclude each other")
        config = build_config(
            Path(input),
            Path(output),
            preset=preset,
            flags=settings_from_options(options, from_text=False),
            start_seconds=float(start),
            duration_seconds=None if duration is None else float(duration),
            overwrite=overwrite,
            matte_out=None if matte_out is None else Path(matte_out),
            face_data=None if face_data is None else Path(face_data),
        )
        return render_config(
            config,
            skip_existing=skip_existing,
            on_progress=on_progress,
            on_event=on_event,
            cancel=cancel,
        )
    except BgsoftError as exc:
        exc.message = _in_keywords(exc.message)
        exc.args = (exc.message,)
        raise


def _in_keywords(message: str) -> str:
    """A message that speaks of flags, in words of Python."""

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if name not in _KEYWORDS:
            return match[0]
        return f"{name}=True" if name in _SWITCHES else name

    return _FLAG.sub(keyword, message)
