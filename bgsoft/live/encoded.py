"""Recordings and streams: frames are encoded at once, without look-ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.container import OutputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from bgsoft.diagnose.clips import stream_info
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import EncoderChoice, choose_encoder
from bgsoft.encode.cpu import CpuEncoder
from bgsoft.encode.options import with_options
from bgsoft.errors import ConfigError, EncodeError, OutputError, UnsupportedFormatError
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.live.queued import Fitter, QueuedSink
from bgsoft.media.containers import CONTAINERS, Container, with_extension
from bgsoft.media.info import VideoInfo
from bgsoft.media.pyav import TAG_OPTIONS, pyav_errors_as
from bgsoft.outputs import AtomicOutput, writing
from bgsoft.settings.config import Codec, EffectKind, RenderConfig
from bgsoft.suggestions import network_address

_KEY_SECONDS = 2
"""Time between key frames: the longest wait of a viewer who joins a stream."""
_TIMEOUT_US = "5000000"
_MPEGTS = next(container for container in CONTAINERS if container.muxer == "mpegts")
_RECORDINGS = [each for each in CONTAINERS if Codec.H264 in each.codecs and not each.numbers_frames]
_STREAMS = {
    "udp": (_MPEGTS, {"pkt_size": "1316"}),
    "srt": (_MPEGTS, {"pkt_size": "1316"}),
    "rtmp": (
        Container(name="RTMP", muxer="flv", extensions=(), codecs=frozenset({Codec.H264})),
        {"flvflags": "no_duration_filesize", "rw_timeout": _TIMEOUT_US},
    ),
    "rtsp": (
        Container(
            name="RTSP", muxer="rtsp", extensions=(), codecs=frozenset({Codec.H264, Codec.HEVC})
        ),
        {"rtsp_transport": "tcp", "timeout": _TIMEOUT_US},
    ),
}
_AT_ONCE: dict[str, dict[str, str]] = {
    "libx264": {"tune": "zerolatency"},
    "libx265": {"tune": "zerolatency"},
    "libsvtav1": {"svtav1-params": "pred-struct=1"},
    "libvpx-vp9": {"deadline": "realtime", "lag-in-frames": "0"},
}
"""Options that make an encoder return a packet for each frame."""
_ANY_SOURCE = FrameFormat(width=1280, height=720)
_WHOLE_AT_ANY_TIME = {"mp4": "+hybrid_fragmented", "mov": "+hybrid_fragmented"}
"""Options for a file that is readable up to where it ends, and is not rewritten when closed."""


class _LiveMuxer:
    """The :class:`bgsoft.encode.base.PacketTaker` of one output, without other tracks.

    Args:
        target: FFmpeg's name of the output.
        name: The user's name.
        muxer: FFmpeg's name of the container.
        info: The source.
        options: Options of the muxer.
    """

    def __init__(
        self, target: str, name: str, muxer: str, info: VideoInfo, options: dict[str, str]
    ) -> None:
        self.info = info
        self.messages: Counter[str] = Counter()
        self._name = name
        self._first: int | None = None
        with self._writing():
            self._output: OutputContainer = av.open(
                target, "w", format=muxer, container_options=options, **TAG_OPTIONS
            )

    def _writing(self) -> AbstractContextManager[None]:
        if network_address(self._name) is None:
            return writing(Path(self._name), None, av.FFmpegError)
        return pyav_errors_as(OutputError, f"cannot send to {self._name}")

    def add_encoder(self, encoder: str, **settings: Any) -> VideoStream:
        stream = self._output.add_stream(
            encoder, rate=self.info.nominal_rate, time_base=self.info.time_base, **settings
        )
        assert isinstance(stream, VideoStream)
        return stream

    def timestamp(self, pts: int) -> int:
        if self._first is None:
            self._first = pts
        return pts - self._first

    def write_video(self, packets: Iterable[Packet[Any]]) -> None:
        with self._writing():
            for packet in packets:
                self._output.mux_one(packet)

    def finish(self) -> None:
        """Write the rest, and close the output."""
        with self._writing():
            self._output.close()

    def close(self) -> None:
        """Close the output without finishing it."""
        with suppress(av.FFmpegError, OSError):
            self._output.close()


class EncodedSink(QueuedSink):
    """A file or a stream. It keeps the size of its first frame; others are scaled to fit.

    Args:
        target: A path, whose suffix chooses the container, or an address.
        config: Codec and effect.
        info: Returns the source, once it is known.
        overwrite: Whether an existing file may be replaced.
        inputs: Files that are read, which must not be replaced.
        report: Receives a line when a stream disconnects, when it is back, and when a file is
            complete.
        missed: Returns the number of frames that were dropped before they came here.

    Raises:
        OutputError: The file cannot be written, or exists.
        ConfigError, UnsupportedFormatError: There is no such stream or container, or these settings
            cannot encode any source.
    """

    def __init__(
        self,
        target: str,
        config: RenderConfig,
        info: Callable[[], VideoInfo | None],
        *,
        overwrite: bool = False,
        inputs: Iterable[Path] = (),
        report: Callable[[str], None] = lambda _line: None,
        missed: Callable[[], int] = lambda: 0,
    ) -> None:
        self._config, self._info, self._missed = config, info, missed
        self._frames = 0
        self._first_seconds = self._last_seconds = 0.0
        """Times of the first and of the last frame that were written."""
        self._target = target
        self._file: AtomicOutput | None = None
        self._muxer: _LiveMuxer | None = None
        self._encoder: CpuEncoder | None = None
        address = network_address(target)
        if address is None:
            container = with_extension(Path(target).suffix.lower(), _RECORDINGS)
            if container is None:
                text = f"cannot record to {target}: its suffix must be .mkv, .mp4, .mov or .ts"
                raise UnsupportedFormatError(text, stage="encode")
            self._container = container
            movflags = _WHOLE_AT_ANY_TIME.get(self._container.muxer)
            self._options = {} if movflags is None else {"movflags": movflags}
        else:
            scheme = address.partition(":")[0].lower()
            if scheme not in _STREAMS:
                raise ConfigError(
                    f"--to {target} must be a path, or an address of {', '.join(_STREAMS)}"
                )
            self._container, self._options = _STREAMS[scheme]
        self._kind = (
            PictureKind.COLOR_ALPHA if config.effect.kind is EffectKind.ALPHA else PictureKind.COLOR
        )
        self._check_encoding()
        if address is None:
            self._file = AtomicOutput(Path(target), overwrite=overwrite, inputs=inputs, keeps=True)
            for kept in self._file.left:
                report(f"an unfinished recording of an earlier run is kept as {kept}")
            self._target = f"file:{self._file.temporary}"
        super().__init__(target, report)

    def _check_encoding(self) -> None:
        """Find settings that would fail with any first frame."""
        try:
            self._choose(stream_info(_ANY_SOURCE))
        except ConfigError:
            if self._config.encode.codec is not Codec.AUTO:
                raise
            with suppress(ConfigError):  # ten bits may select another codec, which knows them
                self._choose(stream_info(replace(_ANY_SOURCE, layout=PixelLayout.P010)))
                return
            raise

    def _write(self, frame: Frame) -> None:
        if self._encoder is None:
            self._begin(frame)
        assert self._encoder is not None
        fitted = self._fitter.fit(frame)
        is_scaled = fitted.format.luma_shape != frame.format.luma_shape
        if is_scaled and self._kind is PictureKind.COLOR_ALPHA:
            raise EncodeError("cannot scale the alpha channel: the picture size has changed")
        self._encoder.encode(fitted)
        self._frames, self._last_seconds = self._frames + 1, frame.time_seconds

    def _begin(self, frame: Frame) -> None:
        info = self._info()
        assert info is not None  # a frame has come
        info = replace(info, format=frame.format, time_base=frame.time_base)
        self._fitter, self._first_seconds = Fitter(info), frame.time_seconds
        choice = self._choose(info)
        options = {**self._options, "flush_packets": "1"}
        muxer = _LiveMuxer(self._target, self.name, self._container.muxer, info, options)
        self._muxer, self._encoder = muxer, CpuEncoder(muxer, choice)

    def _comes_back(self, exc: OutputError) -> bool:
        # An address may come back, unless its protocol is unknown or cannot hold the codec.
        return self._file is None and not isinstance(exc.__cause__, (LookupError, ValueError))

    def _choose(self, info: VideoInfo) -> EncoderChoice:
        encode = self._config.encode
        threads = self._config.backends.threads
        choice = choose_encoder(encode, self._container, info, self._kind, threads)
        more = dict(_AT_ONCE.get(choice.encoder, {}))
        rate = min(info.nominal_rate, Fraction(240))
        more["g"] = str(max(1, round(_KEY_SECONDS * rate)))
        choice = replace(choice, options=choice.options | more, at_once=True)
        return with_options(choice, encode, info) if encode.encoder_option else choice

    def _finish(self) -> None:
        if self._encoder is not None and self._muxer is not None:
            self._encoder.finish()
            self._muxer.finish()
            if self._file is not None:
                self._file.commit()
                self._report(f"{self.name}: {self._summary()}")
        if self._file is not None:
            self._file.close()

    def _summary(self) -> str:
        """Return the number of frames, the length and the losses of a complete recording."""
        seconds, lost = self._last_seconds - self._first_seconds, self.dropped + self._missed()
        text = f"{self._frames} frame{'' if self._frames == 1 else 's'} in {seconds:.1f} s"
        if seconds > 0:
            text += f": {(self._frames - 1) / seconds:.1f} frames/s"
        return f"{text}, {lost} dropped" if lost else text

    def _abandon(self) -> str:
        muxer, self._muxer = self._muxer, None
        if muxer is not None:
            muxer.close()
        if self._file is None:
            self._encoder = None
            return ""
        self._file.close()
        return str(self._file.kept or "")
