"""Sources of live pictures: cameras, network streams, pipes, and files played in real time.

A network address is opened only if the user named it as a source, and only by its own protocol's
demuxer; its data cannot lead to another address. Reading never waits longer than
:attr:`Patience.read_seconds`, except for cameras, whose driver may not return.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.clock import StageClock
from bgsoft.closing import Closing
from bgsoft.errors import (
    BgsoftError,
    ConfigError,
    DecodeError,
    OpenError,
    UnsupportedFormatError,
    translated,
)
from bgsoft.live.policy import Deadline, LagMeter, skip_at
from bgsoft.media.endpoints import EndpointKind, source_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.pipe import MAX_READ_ERRORS, PipeInput
from bgsoft.media.probe import DEINTERLACED, describe
from bgsoft.media.pyav import PYAV_ERRORS, TAG_OPTIONS
from bgsoft.media.source import MAX_PIXELS, open_input, select_video_stream
from bgsoft.pipes import input_name
from bgsoft.records import NamedTuple, dataclass
from bgsoft.suggestions import network_address

LIVE_TICKS = 90_000
"""Units of a stream's clock in a second, as in MPEG."""
_STAYS_INTERLACED = "interlaced picture not deinterlaced"
_ARRIVALS = 64
"""Number of packets whose arrival is remembered: more than any decoder keeps back."""


class SourceKind(StrEnum):
    """Kind of a source: how it is opened, and what its end means."""

    CAMERA = "camera"
    NETWORK = "network"
    PIPE = "pipe"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class _Protocol:
    demuxer: str
    protocols: str
    """Protocols of FFmpeg that it needs."""
    options: dict[str, str] = field(default_factory=dict)


# A sender that starts again may give its stream another number; it is the same one.
_MPEGTS = {"merge_pmt_versions": "1"}
_PROTOCOLS = {
    "rtsp": _Protocol("rtsp", "rtsp,rtp,udp,tcp", {"rtsp_flags": "prefer_tcp"}),
    "rtsps": _Protocol("rtsp", "rtsp,rtsps,rtp,srtp,tls,udp,tcp", {"rtsp_flags": "prefer_tcp"}),
    "srt": _Protocol("mpegts", "srt", _MPEGTS),
    # Late data is lost, without an error.
    "udp": _Protocol("mpegts", "udp", {"overrun_nonfatal": "1", **_MPEGTS}),
    "rtmp": _Protocol("flv", "rtmp,tcp"),
    "rtmps": _Protocol("flv", "rtmp,rtmps,tls,tcp"),
}
_LOW_LATENCY = {"probesize": str(1 << 20), "analyzeduration": "500000", "fpsprobesize": "0"}
"""Little is read before the first frame. That part is kept (no ``nobuffer``): it may hold the only
key frame for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Longest waits of a stream for its source and its stages."""

    open_seconds: float = 5.0
    """Time in which a source must answer."""
    read_seconds: float = 3.0
    """Time in which it must send its next packet."""
    hang_seconds: float = 10.0
    """Time in which the stages must return a frame, and a sink must take it."""

    @property
    def sign_seconds(self) -> float:
        """Time without a sign after which a driver or library is considered hanging."""
        return 2 * (self.open_seconds + self.read_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source as the user named it."""

    name: str
    kind: SourceKind
    size: str | None = None
    """WIDTHxHEIGHT to request from a camera."""
    rate: float | None = None
    """Frames per second to request from a camera."""
    input_format: str | None = None
    """``mjpeg`` or ``yuyv``."""
    loop: bool = False
    patience: Patience = Patience()

    @property
    def files(self) -> tuple[Path, ...]:
        """The user's files that are read."""
        return (Path(self.name),) if self.kind is SourceKind.FILE else ()

    @property
    def comes_back(self) -> bool:
        """True if it is opened again after its end or a failure."""
        return self.kind in (SourceKind.CAMERA, SourceKind.NETWORK)


_CAMERA_FORMATS = {"mjpeg": "mjpeg", "yuyv": "yuyv422"}


def parse_source(
    name: str,
    *,
    size: str | None = None,
    rate: float | None = None,
    input_format: str | None = None,
    realtime: bool = False,
    loop: bool = False,
) -> SourceSpec:
    """Return the source that a name stands for.

    Raises:
        ConfigError: The name is invalid, or an option has no effect on it.
        OpenError: It would be a file, and does not exist.
    """
    kind = _kind(name)
    camera = {"--size": size, "--rate": rate, "--input-format": input_format}
    idle = [flag for flag, value in camera.items() if value is not None]
    if kind is SourceKind.CAMERA:
        if input_format is not None and input_format not in _CAMERA_FORMATS:
            known = " or ".join(_CAMERA_FORMATS)
            raise ConfigError(f"--input-format must be {known}, not {input_format!r}")
        if size is not None and not _is_size(size):
            raise ConfigError(f"--size must be WIDTHxHEIGHT, not {size!r}")
        if rate is not None and not 1 <= rate <= 1000:
            raise ConfigError(f"--rate must be between 1 and 1000, not {rate:g}")
        idle = []
    if kind is not SourceKind.FILE:
        idle += [flag for flag, on in (("--realtime", realtime), ("--loop", loop)) if on]
    elif not (realtime or loop):
        if not Path(name).exists():
            raise OpenError(f"cannot stream {name}: it does not exist", path=Path(name))
        raise ConfigError(
            f"cannot stream {name}: it is a file; add --realtime or --loop, or use render"
        )
    if idle:
        needs = "a file" if idle[0] in ("--realtime", "--loop") else "a camera (/dev/videoN)"
        raise ConfigError(f"cannot use {idle[0]} with {name}: it needs {needs}")
    return SourceSpec(
        name=name, kind=kind, size=size, rate=rate, input_format=input_format, loop=loop
    )


def _is_size(text: str) -> bool:
    width, x, height = text.partition("x")
    return bool(x) and width.isdecimal() and height.isdecimal() and int(width) * int(height) > 0


def _kind(name: str) -> SourceKind:
    address = network_address(name)
    if address is not None:
        scheme = address.partition(":")[0].lower()
        if scheme not in _PROTOCOLS:
            raise ConfigError(
                f"{name} must be a file, a camera, or an address of {', '.join(_PROTOCOLS)}"
            )
        return SourceKind.NETWORK
    if name.startswith("/dev/video"):
        return SourceKind.CAMERA
    is_pipe = source_for(input_name(Path(name))).kind is EndpointKind.PIPE
    return SourceKind.PIPE if is_pipe else SourceKind.FILE


class Picture(NamedTuple):
    """A decoded picture of a source."""

    frame: VideoFrame
    info: VideoInfo
    """Properties shared by all pictures of an opening."""
    seconds: float | None
    """Time on the source's own clock; None: unknown."""
    captured_ns: int
    """Time of its arrival, :func:`time.monotonic_ns`; for a file, when it was due."""


class Feed(Closing):
    """One opening of a source, up to its end or a fault.

    Args:
        spec: The source.
        stop: Set it to end reading.
        clock: Measures the time of decoding.

    Raises:
        OpenError: It does not exist, is in use, does not answer, or has no video.
        UnsupportedFormatError: There is no decoder, demuxer or protocol for it.
    """

    def __init__(self, spec: SourceSpec, stop: threading.Event, clock: StageClock) -> None:
        self.skipped = 0
        """Number of frames that were not decoded, because they came too late."""
        self.damaged = 0
        """Number of packets that could not be read or decoded."""
        self._info: VideoInfo | None = None
        """Known once the first picture has come."""
        self._spec, self._stop, self._clock = spec, stop, clock
        self._pipe: PipeInput | None = None
        self._lag, self._deadline = LagMeter(), Deadline()
        self._waited = 0.0
        """Seconds of the longest wait for a packet since the last frame."""
        try:
            with translated(*PYAV_ERRORS, to=self._explain):
                self._container = self._open()
            self._stream = select_video_stream(self._container, Path(spec.name))
        except BaseException:
            self.close()
            raise
        self._codec = self._stream.codec_context
        # Each frame thread would keep one frame back.
        self._codec.thread_type = "SLICE"
        self._seen = time.monotonic()
        """Time of the last frame; before the first, of the last packet."""

    def _open(self) -> InputContainer:
        spec, decoding = self._spec, {"max_pixels": str(MAX_PIXELS)}
        if spec.kind is SourceKind.FILE:
            return open_input(Path(spec.name))
        if spec.kind is SourceKind.PIPE:
            self._pipe = PipeInput(input_name(Path(spec.name)), self._stop)
            piped = open_input(self._pipe, **_LOW_LATENCY)
            self._pipe.go_on()
            return piped
        if spec.kind is SourceKind.CAMERA:
            asked = {"video_size": spec.size, "input_format": spec.input_format}
            options = {key: value for key, value in asked.items() if value is not None}
            if spec.input_format is not None:
                options["input_format"] = _CAMERA_FORMATS[spec.input_format]
            if spec.rate is not None:
                options["framerate"] = str(Fraction(spec.rate).limit_denominator(1001))
            demuxer = "v4l2"
        else:
            protocol = _PROTOCOLS[spec.name.partition(":")[0].lower()]
            demuxer = protocol.demuxer
            options = {"protocol_whitelist": protocol.protocols, **protocol.options, **_LOW_LATENCY}
        container: InputContainer = av.open(
            spec.name,
            "r",
            format=demuxer,
            options=decoding,
            container_options=options,
            timeout=(spec.patience.open_seconds, spec.patience.read_seconds),
            **TAG_OPTIONS,
        )
        return container

    def pictures(self) -> Iterator[Picture]:
        """Yield pictures when they arrive.

        Raises:
            DecodeError: It cannot be read further.
            OpenError: It has stalled.
        """
        if self._spec.kind is SourceKind.FILE:
            yield from self._paced()
        else:
            yield from self._decoded()

    def _decoded(self) -> Iterator[Picture]:
        arrivals: dict[int | None, int] = {}
        for packet in self._packets():
            now = time.monotonic_ns()
            arrivals[packet.pts] = now
            if len(arrivals) > _ARRIVALS:
                del arrivals[next(iter(arrivals))]
            for frame in self._decode(packet):
                seconds = None if frame.time is None else float(frame.time)
                arrived = arrivals.get(frame.pts, now)
                waited, self._waited = self._waited, 0.0
                if seconds is None or self._in_time(
                    self._lag.note(time.monotonic(), seconds, waited)
                ):
                    yield Picture(frame, self._checked(frame), seconds, arrived)

    def _paced(self) -> Iterator[Picture]:
        """Yield a file's pictures when they are due, repeatedly with ``--loop``."""
        due = time.monotonic()
        while True:
            first = last = None
            for packet in self._packets():
                for frame in self._decode(packet):
                    seconds = float(frame.time or 0.0)
                    if first is None:
                        first = seconds
                        due -= first
                    elif last is not None and seconds < last:  # its clock was reset
                        due += last + self._interval - seconds
                    last, at = seconds, due + seconds
                    if not self._in_time(time.monotonic() - at):
                        continue
                    if self._stop.wait(max(0.0, at - time.monotonic())):
                        return
                    yield Picture(frame, self._checked(frame), seconds, round(at * 1e9))
            if last is None:
                raise DecodeError(f"cannot decode {self._spec.name}: it has no intact frame")
            if not self._spec.loop:
                return
            due += last + self._interval
            with translated(*PYAV_ERRORS, to=self._explain):
                self._container.seek(0)
                self._codec.flush_buffers()

    @property
    def _interval(self) -> float:
        """Return the time from one frame to the next, in seconds."""
        assert self._info is not None
        return float(1 / self._info.nominal_rate)

    def _packets(self) -> Iterator[Packet[Any]]:
        """Yield packets of the video; read errors are counted, and end it if they continue."""
        errors, asked = 0, time.monotonic()
        # Of all streams, as other packets may come without end.
        is_network = self._spec.kind is SourceKind.NETWORK
        wanted = () if is_network else (self._stream,)
        # PyAV raises IndexError where a damaged MPEG-TS shows new streams midway.
        with translated(*PYAV_ERRORS, IndexError, to=self._explain):
            while not self._stop.is_set():
                try:
                    for packet in self._container.demux(*wanted):
                        errors, now = 0, time.monotonic()
                        self._waited = max(self._waited, now - asked)
                        asked = now
                        if self._stop.is_set():
                            return
                        if packet.stream is self._stream:
                            if self._info is None:
                                self._seen = now
                            if packet.size or self._spec.kind is SourceKind.FILE:
                                yield packet
                                asked = time.monotonic()
                        # Its packets may be those of another codec, after a sender's return.
                        if is_network and now - self._seen > self._frame_seconds:
                            raise OpenError(f"cannot read {self._spec.name}: no video comes")
                    return
                except av.error.ExitError:
                    raise
                except (av.FFmpegError, IndexError) as exc:
                    self.damaged += 1
                    errors += 1
                    if errors >= MAX_READ_ERRORS or isinstance(exc, OSError):
                        raise

    @property
    def _frame_seconds(self) -> float:
        """Return the longest time without a frame; key frames may be far apart."""
        patience, skips = self._spec.patience, self._codec.skip_frame != "DEFAULT"
        return patience.sign_seconds if skips else patience.read_seconds

    def _decode(self, packet: Packet[VideoStream]) -> list[VideoFrame]:
        try:
            with self._clock:
                frames = self._codec.decode(packet)
        except av.FFmpegError:
            self.damaged += 1
            return []
        if frames:
            self._seen = time.monotonic()
        if not frames and packet.size and self._codec.skip_frame != "DEFAULT":
            self.skipped += 1
        return frames

    def _in_time(self, lag_seconds: float) -> bool:
        """Return whether a picture with this delay is wanted; longer delays skip more decoding."""
        wanted = skip_at(lag_seconds, self._codec.skip_frame)
        if wanted != self._codec.skip_frame:
            self._codec.skip_frame = wanted
        in_time = self._deadline.allows(time.monotonic(), lag_seconds)
        self.skipped += not in_time
        return in_time

    def _checked(self, frame: VideoFrame) -> VideoInfo:
        """Return a picture's properties; sources may change their size."""
        info = self._info
        if info is None or (frame.width, frame.height) != (info.coded_width, info.coded_height):
            path = Path(self._spec.name)
            with translated(
                ValueError, to=lambda exc: DecodeError(f"cannot use the pictures of {path}: {exc}")
            ):
                found = describe(path, self._container, self._stream, [frame])
            # Deinterlacing would delay frames.
            notices = [text.replace(DEINTERLACED, _STAYS_INTERLACED) for text in found.notices]
            # The clock is ours: the source's may jump.
            self._info = info = replace(
                found,
                time_base=Fraction(1, LIVE_TICKS),
                start_pts=0,
                notices=tuple(notices),
            )
        return info

    def _explain(self, exc: Exception) -> BgsoftError:
        """Return the error for FFmpeg's error of a source."""
        name, number = self._spec.name, getattr(exc, "errno", None)
        if isinstance(exc, av.error.ProtocolNotFoundError):
            scheme = name.partition(":")[0]
            return UnsupportedFormatError(f"cannot open {name}: this build of PyAV has no {scheme}")
        if isinstance(exc, av.error.ExitError):
            return OpenError(f"cannot read {name}: it sends nothing")
        if number == errno.EBUSY:
            return OpenError(f"cannot open {name}: it is in use by another program")
        if self._spec.kind is SourceKind.CAMERA and number == errno.EINVAL:
            return OpenError(
                f"cannot open {name}: it has no such size, rate or format; see v4l2-ctl"
            )
        if isinstance(exc, FileNotFoundError):
            is_camera = self._spec.kind is SourceKind.CAMERA
            remedy = "; list cameras with ls /dev/video*" if is_camera else ""
            return OpenError(f"cannot open {name}: it does not exist{remedy}")
        reason = getattr(exc, "strerror", None) or exc
        return OpenError(f"cannot read {name}: {str(reason)[:1].lower()}{str(reason)[1:]}")

    def close(self) -> None:
        with suppress(*PYAV_ERRORS):
            if hasattr(self, "_container"):
                self._container.close()
        if self._pipe is not None:
            self._pipe.close()
