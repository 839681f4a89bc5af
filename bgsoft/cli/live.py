"""``bgsoft live``: the picture pipeline on cameras and streams, in real time."""

from __future__ import annotations

import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bgsoft.cli import flags
from bgsoft.records import dataclass
from bgsoft.settings.options import OPTIONS, PICTURE_SECTIONS

_EPILOG = "Ctrl-C stops at once and finishes recordings.\n\n" + flags.examples(
    "live /dev/video0 --to /dev/video10",
    "live rtsp://camera.local/main --to door.mkv --share door",
    "live clip.mp4 --loop --preview",
    "live udp://127.0.0.1:5000 --to srt://studio.local:9000 --stats",
    "live --config cameras.toml --stats json",
)
_BRIEF = ("effect", "strength", "background", "matte", "face", "subjects")
"""Settings of a render in the short help."""
_SECTIONS = (*PICTURE_SECTIONS, "encode")
_MACHINE = ("infer", "composite", "gpu", "require_gpu", "precision", "threads")
_OF_SOURCES = ("size", "rate", "input_format", "realtime", "loop")
_STATS = ("text", "json")
_ANY_PORT = "0"
_SWITCH_SECONDS = 0.0005
"""Interval after which a thread yields the interpreter. With Python's 5 ms, each of eight streams
on an H100 dropped a frame every few seconds; with this, none."""


class LiveCommand(flags.GroupedCommand):
    """A command with two flags that may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the default value to a flag that stands without one."""
        given: list[str] = []
        for at, arg in enumerate(args):
            given.append(arg)
            follows = args[at + 1] if at + 1 < len(args) else ""
            if arg == "--stats" and follows not in _STATS:
                given.append(_STATS[0])
            elif arg == "--preview" and not follows.isdecimal():
                given.append(_ANY_PORT)
        return super().parse_args(ctx, given)


_sink = partial(flags.option, panel="Where frames go")
_input = partial(flags.option, panel="Source")
_TO = (
    "A recording (.mkv .mp4 .ts), a stream (rtmp:// srt:// udp:// rtsp://) or a virtual camera"
    " (/dev/videoN). Repeatable."
)
_PAGE = "Serve a page with source, matte, result and sliders. [default port: any]"
_Text = str | None
"""Type of flags that may be left out."""


@dataclass(frozen=True, kw_only=True)
class LiveFlags:
    """Arguments and flags of the command, without settings of a render."""

    source: Annotated[
        _Text,
        typer.Argument(
            metavar="SOURCE",
            help="Camera (/dev/video0), stream (rtsp:// srt:// udp:// rtmp://), pipe (-), or a"
            " file with --realtime or --loop.",
        ),
        flags.Brief("Camera (/dev/video0), stream (rtsp:// …), pipe or file."),
    ] = None
    preset: flags.Preset = None
    to: Annotated[
        list[str] | None,
        _sink(_TO, metavar="TARGET"),
        flags.Brief("A recording, a stream or a virtual camera."),
    ] = None
    share: Annotated[
        _Text, _sink("Share frames with other programs under this name.", metavar="NAME")
    ] = None
    preview: Annotated[
        int | None,
        _sink(_PAGE, metavar="[PORT]", min=0, max=65535),
        flags.Brief("Serve a page with sliders."),
    ] = None
    overwrite: Annotated[
        bool, _sink("Replace existing recordings and traces.", "--overwrite", "-y")
    ] = False
    size: Annotated[_Text, _input("Size to request from a camera.", metavar="WxH")] = None
    rate: Annotated[
        float | None, _input("Frame rate to request from a camera.", metavar="FPS"), flags.Brief()
    ] = None
    input_format: Annotated[
        _Text, _input("Format to request from a camera.", metavar="mjpeg|yuyv"), flags.Brief()
    ] = None
    realtime: Annotated[bool, _input("Play a file at its own speed.", "--realtime")] = False
    loop: Annotated[bool, _input("Play a file repeatedly at its own speed.", "--loop")] = False
    config: Annotated[
        Path | None, _input("Run the sources listed in a file.", metavar="FILE.toml")
    ] = None
    stats: Annotated[
        _Text,
        flags.option("Print statistics every 5 s; json: on stdout.", metavar="[text|json]"),
        flags.Brief("Print statistics every 5 s; json: on stdout."),
    ] = None
    trace: Annotated[
        Path | None,
        flags.option("Write a timeline of the threads, at the end.", metavar="FILE.json"),
        flags.Brief(),
    ] = None
    quiet: flags.Quiet = False
    verbose: flags.Verbose = False


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    names = [name for name, option in OPTIONS.items() if option.section in _SECTIONS]
    names += _MACHINE
    flags.add_command(
        app, live, LiveFlags, epilog=_EPILOG, settings=names, brief_settings=_BRIEF, cls=LiveCommand
    )


def live(own: LiveFlags, settings: dict[str, Any]) -> int:
    """Change the background of a camera or stream in real time.

    Late frames are dropped and counted.
    """
    from bgsoft.cli.console import Console
    from bgsoft.cli.guard import go_on_in_child
    from bgsoft.cli.signals import StopSignals
    from bgsoft.exitcodes import exit_code, one_line
    from bgsoft.infer.providers import require_runtime
    from bgsoft.settings.user import read_user_config

    console = Console()

    def report(text: str) -> None:
        if not own.quiet:
            console.err(text)

    cameras = _cameras(own)
    user = read_user_config()
    require_runtime()
    go_on_in_child(f"continue {', '.join(str(camera.source) for camera in cameras)}")
    from bgsoft.live.figures import stats_line
    from bgsoft.live.run import LiveOptions, run_live

    options = LiveOptions(flags=settings, user=user, overwrite=own.overwrite, trace=own.trace)

    def on_stats(figures: dict[str, Any]) -> None:
        if own.stats == "json":
            console.json("stats", **figures)
        elif own.stats is not None:
            console.err(stats_line(figures))

    sys.setswitchinterval(_SWITCH_SECONDS)
    with StopSignals() as stop:
        failures = run_live(cameras, options, cancel=stop.cancel, report=report, on_stats=on_stats)
    for failure in failures:
        if own.verbose:
            traceback.print_exception(failure)
        if own.quiet or not failure.is_reported:
            console.error(one_line(failure))
    return exit_code(failures[0]) if failures else 0


def _cameras(own: LiveFlags) -> list[Any]:
    """Return the sources, from a file or from the flags."""
    from bgsoft.errors import ConfigError
    from bgsoft.live.cameras import CameraConfig, read_cameras

    if own.stats is not None and own.stats not in _STATS:
        raise ConfigError(f"--stats must be {' or '.join(_STATS)}, not {own.stats!r}")
    if own.config is None:
        if own.source is None:
            raise ConfigError("cannot start: name a SOURCE, or several in a file with --config")
        given = {name: getattr(own, name) for name in ("share", "preview", "preset", *_OF_SOURCES)}
        camera = CameraConfig(name=own.source, source=own.source, to=tuple(own.to or ()), **given)
        return [camera]
    for name in ("source", "to", "share", "preview", *_OF_SOURCES):
        if getattr(own, name) not in (None, [], False):
            flag = "SOURCE" if name == "source" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"cannot combine {flag} and --config: write it into the file")
    return read_cameras(own.config, preset=own.preset)
