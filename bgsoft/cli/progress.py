"""Output of a render: a live bar, plain lines or JSON objects, and a final summary."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.cli.console import Console, rich_console
from bgsoft.errors import ConfigError
from bgsoft.exitcodes import ExitCode, one_line
from bgsoft.outputs import DASH
from bgsoft.pipes import DEV_STDOUT
from bgsoft.report import Event, Phase, Progress, RenderReport
from bgsoft.settings.config import DEFAULT_STRENGTH_PCT, LENGTH_EFFECTS, EffectKind, RenderConfig
from bgsoft.settings.options import parse_choice

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


_PLAIN_SECONDS = 30.0
_REDRAWS_A_SECOND = 4
"""Redraws take time from the render."""
_BAR_CELLS = 24


class ProgressKind(StrEnum):
    """Form of the progress display."""

    AUTO = "auto"
    """Rich on a terminal, otherwise plain."""
    RICH = "rich"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


def read_progress(text: str, *, quiet: bool) -> ProgressKind:
    """Parse ``--progress``; ``auto`` is resolved.

    Raises:
        ConfigError: It is unknown, or contradicts ``--quiet``.
    """
    kind = parse_choice(ProgressKind, text, "--progress")
    if quiet and kind in (ProgressKind.RICH, ProgressKind.PLAIN):
        raise ConfigError(f"cannot combine --quiet and --progress {kind}: choose one")
    if kind is not ProgressKind.AUTO:
        return kind
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return ProgressKind.RICH if live else ProgressKind.PLAIN


def check_stdout(report: Path | None, kind: ProgressKind, video: Path | None = None) -> None:
    """Raise ConfigError if progress would be mixed with a report or a video on stdout."""
    if video == DEV_STDOUT and kind is ProgressKind.JSON:
        raise ConfigError(
            "cannot combine --progress json and a video on stdout: write one to a file"
        )
    if report == DASH and kind is ProgressKind.JSON:
        raise ConfigError("cannot combine --report - and --progress json: both go to stdout")


def make_view(
    kind: ProgressKind, console: Console, *, quiet: bool = False, verbose: bool = False
) -> ProgressView:
    """Return the view for a kind that :func:`read_progress` returned."""
    if kind is ProgressKind.JSON:
        return JsonView(console)
    if quiet:
        return ProgressView()
    if kind is ProgressKind.RICH:
        return RichView(console, verbose=verbose)
    if kind is ProgressKind.PLAIN:
        return PlainView(console, verbose=verbose)
    return PlainView(console, verbose=verbose, lines=False, whole=sys.stderr.isatty())


class ProgressView:
    """Shows a render; this base class shows nothing. Methods are called from any thread."""

    def start(self, config: RenderConfig) -> None:
        """Show the start of a render."""

    def progress(self, progress: Progress) -> None:
        """Show the number of encoded frames."""

    def event(self, event: Event) -> None:
        """Show an event."""

    def done(self, report: RenderReport) -> None:
        """Show a successful end."""

    def failed(self, exc: BaseException, code: ExitCode) -> None:
        """Handle a failure, whose message the caller prints."""


class PlainView(ProgressView):
    """Prints lines on stderr that name their file: progress at times, and a line at the end.

    Args:
        console: Receives the lines.
        verbose: Also print scene cuts and the whole summary.
        lines: False: print no progress and no names.
        whole: Print the whole summary, though not verbose.
    """

    def __init__(
        self, console: Console, *, verbose: bool = False, lines: bool = True, whole: bool = False
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._lines = lines
        self._whole = whole or verbose
        self._name = ""
        self._reported: set[tuple[str, str]] = set()
        self._waiting: list[Event] | None = []
        self._lock = threading.Lock()
        self._last_seconds = 0.0

    def start(self, config: RenderConfig) -> None:
        if self._lines:
            self._name = f"{config.input}: "

    def progress(self, progress: Progress) -> None:
        if not progress.frames:
            return
        if progress.phase is Phase.RENDER:
            self._show_waiting()
        if progress.elapsed_seconds < self._last_seconds:
            self._last_seconds = 0.0  # another phase
        if self._lines and progress.elapsed_seconds - self._last_seconds >= _PLAIN_SECONDS:
            self._last_seconds = progress.elapsed_seconds
            self._console.err(self._name + "  ".join(progress_parts(progress)))

    def event(self, event: Event) -> None:
        key = (event.kind, event.message)
        with self._lock:
            if key in self._reported or (event.kind == "scene-cut" and not self._verbose):
                return
            self._reported.add(key)
            if self._waiting is not None:
                # Until a frame is finished, the render may still fail with one line. Notices about
                # a video that is never written would hide it.
                self._waiting.append(event)
                return
        self._console.err(self._name + event_text(event))

    def _show_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
        for event in waiting:
            self._console.err(self._name + event_text(event))

    def done(self, report: RenderReport) -> None:
        self._show_waiting()
        for event in report.events:  # events that were not reported during the render
            self.event(event)
        if not self._whole:
            self._console.err(summary_line(report))
            return
        for line in _summary_lines(report, verbose=self._verbose):
            self._console.err(line)

    def failed(self, exc: BaseException, code: ExitCode) -> None:
        for note in _notes(exc):
            self._console.err(f"notice: {note}")


class RichView(PlainView):
    """Draws a live bar on stderr, with event lines above it, and prints a summary at the end."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        super().__init__(console, verbose=verbose, lines=False, whole=True)
        self._live = contextlib.ExitStack()
        self._bars: Bars | None = None

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        if not progress.frames:
            return
        if self._bars is None:
            # Loading rich earlier would delay the first frame.
            self._bars = self._live.enter_context(live_bars(self._console, _BAR_CELLS))
            self._bars.add_task("", total=None, text="")
        parts = progress_parts(progress)
        loads = "\n" + parts.pop() if progress.load else ""
        text = "  ".join(parts) + loads
        self._bars.update(
            self._bars.task_ids[0], total=progress.total, completed=progress.frames, text=text
        )

    def done(self, report: RenderReport) -> None:
        self._live.close()
        super().done(report)

    def failed(self, exc: BaseException, code: ExitCode) -> None:
        self._live.close()
        super().failed(exc, code)


class JsonView(ProgressView):
    """Prints one JSON object a line; ``type`` is start, progress, event, done or error."""

    def __init__(self, console: Console) -> None:
        self._write = console.json

    def start(self, config: RenderConfig) -> None:
        self._write("start", input=config.input, output=config.output, preset=config.preset)

    def progress(self, progress: Progress) -> None:
        self._write("progress", **dataclasses.asdict(progress))

    def event(self, event: Event) -> None:
        self._write("event", **dataclasses.asdict(event))

    def done(self, report: RenderReport) -> None:
        self._write("done", report=report.to_dict())

    def failed(self, exc: BaseException, code: ExitCode) -> None:
        self._write("error", exit_code=int(code), message=one_line(exc), notes=_notes(exc))


def _notes(exc: BaseException) -> list[str]:
    """Return the files that an error leaves behind on purpose."""
    return list(getattr(exc, "__notes__", ()))


@contextlib.contextmanager
def live_bars(console: Console, cells: int) -> Iterator[Bars]:
    """Draw bars on stderr, each with a name and a ``text``; erase them at the end."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(cells),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
        console=rich_console(stderr=True),
        refresh_per_second=_REDRAWS_A_SECOND,
        transient=True,
    )
    bars.start()
    console.live = bars.console
    try:
        yield bars
    finally:
        with contextlib.suppress(OSError):  # the terminal was closed
            bars.stop()
        console.live = None


def progress_parts(progress: Progress) -> list[str]:
    """Format progress: share done, frames, speed, time left, load of each stage."""
    parts = [f"{progress.frames} frames"]
    if progress.total:
        share = min(1.0, progress.frames / progress.total)
        parts = [f"{share:4.0%}", f"{progress.frames}/{progress.total} frames"]
    if progress.phase is Phase.SEARCH:
        parts.insert(0, "finding the main people:")
    digits = 1 if progress.fps >= 1 or not progress.fps else 2
    parts.append(f"{progress.fps:.{digits}f} frames/s")
    if progress.eta_seconds is not None:
        parts.append(f"{clock(progress.eta_seconds)} left")
    if progress.load:
        loads = " ".join(f"{stage} {load:.0%}" for stage, load in progress.load.items())
        parts.append(f"busy: {loads}")
    return parts


def event_text(event: Event) -> str:
    """Format an event in one line."""
    where = f" (frame {event.frame})" if event.frame is not None else ""
    return f"{event.kind}: {event.message}{where}"


def clock(seconds: float) -> str:
    """Format a time, e.g. ``1:02``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def summary_line(report: RenderReport) -> str:
    """Format the output's name and the speed."""
    return f"{report.output}: {'exists, skipped' if report.skipped else _speed_text(report)}"


def _summary_lines(report: RenderReport, *, verbose: bool = False) -> list[str]:
    """Format a render's summary; its events were printed before."""
    if report.skipped:
        return [summary_line(report)]
    lines = [_speed_text(report)]
    if report.concealed_frames:
        lines.append(f"{report.concealed_frames} damaged frames were concealed")
    lines.append(_effect_text(report.settings))
    if report.settings.get("config_file") is not None:
        lines.append(f"your defaults: {report.settings['config_file']}")
    if report.pixel_format is not None:
        lines.append(f"encoded as {report.pixel_format}")
    if report.model is not None:
        lines.append(f"model {report.model.name} (licence {report.model.licence})")
    for name, stage in report.stages.items():
        if stage.backend != "off":
            device = "" if stage.device == stage.backend else f" on {stage.device}"
            why = f"  ({stage.fallback_reason})" if verbose and stage.fallback_reason else ""
            speed = f"{stage.ms_per_frame:.2f} ms/frame"
            lines.append(f"{name:<9} {stage.backend}{device} {speed}{why}")
    faces = report.faces
    if faces is not None:
        lines.append(f"faces: {faces['tracks']} followed, in {faces['frames_with_faces']} frames")
        if faces["missed_frames"]:
            lines[-1] += f"; the mask had missed one in {faces['missed_frames']} of them"
    if report.detector is not None:
        counts = ", ".join(
            f"{name} {counted['boxes']}" for name, counted in report.detector["classes"].items()
        )
        frames = report.detector["frames"]
        lines.append(f"detector {report.detector['model']}: {counts}; hidden in {frames} frames")
    for audio in report.audio:
        reason = f" ({audio.reason})" if audio.reason else ""
        lines.append(f"audio {audio.track}: {audio.codec} {audio.action}{reason}")
    return [report.output, *(f"  {line}" for line in lines)]


def _speed_text(report: RenderReport) -> str:
    if report.frames_encoded == 1:  # a photograph has no speed
        return f"1 frame in {report.wall_s:.1f} s"
    text = f"{report.frames_encoded} frames in {report.wall_s:.1f} s: {report.fps:.1f} frames/s"
    if report.wall_s > 0 and report.duration_s > 0:
        text += f", {report.duration_s / report.wall_s:.2f} times real time"
    return text


def _effect_text(settings: Mapping[str, Any]) -> str:
    """Format the effect and its lengths, e.g. ``blur strength 2.5 % = 27 px``."""
    effect, matte, places = settings["effect"], settings["matte"], settings["hide"]["regions"]

    def length(percent: float) -> str:
        pixels = percent * settings["height"] / 100
        return f"{percent:g} % = {pixels:.{0 if abs(pixels) >= 10 else 1}f} px"

    kind, strength = EffectKind(effect["kind"]), effect["strength"]
    parts = [f"effect {kind}"]
    if kind in LENGTH_EFFECTS:
        parts = [f"{kind} strength {length(strength)}"]
    elif kind in DEFAULT_STRENGTH_PCT:
        parts = [f"{kind} strength {strength:g} %"]
    for name in ("expand", "feather"):
        if matte[f"{name}_pct"]:
            parts.append(f"{name} {length(matte[f'{name}_pct'])}")
    if places:
        parts.append(f"{len(places)} place{'s' if len(places) > 1 else ''} hidden")
    return ", ".join(parts)
