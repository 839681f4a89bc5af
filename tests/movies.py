"""Films with other tracks, rendered again and compared."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import OutputContainer
from av.stream import Stream

from bgsoft.media.mux import Muxer
from bgsoft.media.probe import probe
from bgsoft.media.pyav import TAG_OPTIONS
from bgsoft.media.writer import CopyOptions
from bgsoft.report import Event
from tests.outside import ffmpeg
from tests.rendering import encode_frames
from tests.synthetic import Plane, VideoSpec, made_once, regular_times, write_video

FAST = {"preset": "ultrafast", "crf": "20", "threads": "1"}


RATE = 48_000


CHAPTERS = [
    (Fraction(0), Fraction(1, 2), "opening"),
    (Fraction(1, 2), Fraction(3, 2), "middle"),
    (Fraction(3, 2), Fraction(2), "end"),
]


VP9 = VideoSpec(
    codec="libvpx-vp9", times=regular_times(5), options={"cpu-used": "8", "deadline": "realtime"}
)


def film(seconds: int = 2, start: Fraction | int = 0) -> VideoSpec:
    return VideoSpec(times=regular_times(25 * seconds, start=start), options=FAST)


def shown_pts(path: Path) -> list[int]:
    with av.open(str(path), mode="r", **TAG_OPTIONS) as container:
        return [frame.pts for frame in container.decode(video=0) if frame.pts is not None]


def rerender(
    source: Path, target: Path, *, start: float = 0.0, duration: float | None = None, **options: Any
) -> tuple[Muxer, list[Event]]:
    """Encode drawn frames with the source's timestamps and copy its other tracks."""
    info = probe(source)
    events: list[Event] = []
    pts = shown_pts(source)
    first = (info.start_pts or 0) * info.time_base + Fraction(str(start))
    kept = [
        value
        for value in pts
        if value * info.time_base >= first
        and (duration is None or value * info.time_base < first + Fraction(str(duration)))
    ]
    muxer = encode_frames(
        target,
        info,
        kept,
        copied=CopyOptions(start_seconds=start, duration_seconds=duration, **options),
        on_event=events.append,
    )
    assert sorted(muxer.video_pts) == kept
    return muxer, events


def sound(path: Path) -> tuple[float, Plane]:
    """(time of the first sample in seconds, (samples,) mono) of the first audio track."""
    with av.open(str(path), mode="r") as container:
        frames = list(container.decode(audio=0))
        first = frames[0]
        assert first.pts is not None
        assert first.time_base is not None
        samples = [frame.to_ndarray() for frame in frames]
        if not first.format.is_planar:
            samples = [block.reshape(-1, first.layout.nb_channels).T for block in samples]
        joined = np.concatenate(samples, axis=1)[0].astype(np.float64)
        if first.format.name.startswith("s16"):
            joined /= 32768
        return float(first.pts * first.time_base), joined


def assert_in_step(
    source: Path, target: Path, *, skip: float = 0.05, within: int = RATE // 1000
) -> None:
    """Assert that sound and picture are as far apart in the target as in the source.

    ``within`` is the tolerance in samples; Matroska's clock of 1 ms needs the default.
    """
    pieces = []
    for path in (source, target):
        start, samples = sound(path)
        with av.open(str(path), mode="r") as container:
            picture = next(container.decode(video=0))
            assert picture.pts is not None
            assert picture.time_base is not None
            begin = float(picture.pts * picture.time_base) - start
        pieces.append(samples[round((begin + skip) * RATE) :][: RATE // 2])
    assert np.std(pieces[0]) > 0.05, "silence compares equal to anything"
    assert abs(lag(*pieces)) <= within


def lag(a: Plane, b: Plane) -> int:
    """The shift, up to 480 samples each way, at which two pieces of sound agree best."""
    size = min(len(a), len(b))
    spectrum = np.fft.rfft(a[:size], 2 * size) * np.conj(np.fft.rfft(b[:size], 2 * size))
    return int(np.argmax(np.fft.irfft(spectrum)[np.r_[-480:480]])) - 480


def payloads(path: Path, kind: str, track: int = 0) -> list[bytes]:
    with av.open(str(path), mode="r") as container:
        stream = getattr(container.streams, kind)[track]
        return [bytes(packet) for packet in container.demux(stream) if packet.size]


@made_once
def chirp(path: Path, *, video: VideoSpec | None, codec: str = "pcm_s16le", **options: Any) -> Path:
    """A film whose sound matches a copy of itself at one offset only."""
    noise = np.random.default_rng(5).uniform(-0.5, 0.5, 2 * RATE)
    # Smoothed, so that lossy codecs keep it.
    noise = np.convolve(noise, np.ones(24) / 24, "same").astype(np.float32) * 4
    clip = path.with_name("clip.mkv")
    spec = video or film()
    write_video(clip, spec)
    with (
        av.open(str(clip), mode="r") as source,
        av.open(str(path), "w", container_options=options) as output,
    ):
        stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
        packets: list[Any] = [p for p in source.demux(source.streams.video[0]) if p.size]
        for packet in packets:
            packet.stream = stream
        audio = output.add_stream(codec, rate=RATE, layout="mono")
        audio.codec_context.open()
        step = audio.codec_context.frame_size or 1024
        for begin in range(0, 2 * RATE, step):
            block = noise[begin : begin + step]
            name = audio.codec_context.format.name
            values = (block * 32767).astype(np.int16) if name.startswith("s16") else block
            frame = av.AudioFrame.from_ndarray(values[None], format=name, layout="mono")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = begin + round(spec.times[0] * RATE)
            packets += audio.encode(frame)
        packets += audio.encode(None)
        for packet in sorted(packets, key=lambda p: float(p.dts * p.time_base)):
            output.mux(packet)
    return path


def remux(
    source: Path,
    target: Path,
    change: Callable[[list[Stream], OutputContainer], object] = lambda _streams, _output: None,
    keep: Callable[[av.Packet[Any]], bool] = lambda _packet: True,
) -> Path:
    """Copy a file's packets, but for those that are not kept.

    Args:
        source: The file.
        target: The copy.
        change: Called with the copy's streams before any packet.
        keep: Whether a packet is kept.
    """
    with av.open(str(source), mode="r") as before, av.open(str(target), "w") as after:
        streams = [after.add_stream_from_template(s, opaque=True) for s in before.streams]
        change(list(streams), after)
        for packet in before.demux():
            if packet.size and keep(packet):
                packet.stream = streams[packet.stream_index]
                after.mux(packet)
    return target


@made_once
def write_vp8_with_hidden_frames(path: Path) -> Path:
    """Write 75 frames, and pictures that are not shown, since only later ones need them."""
    drawn = ("-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3", "-c:v", "libvpx")
    options = ("-b:v", "300k", "-enc_time_base", "1/1000", "-auto-alt-ref", "1")
    for number in "12":
        log = ("-pass", number, "-passlogfile", path.with_name("log"))
        ffmpeg(*drawn, "-lag-in-frames", "25", *options, *log, path)
    return path


def packet_times(path: Path) -> list[float]:
    """Return when the packets of the first audio track are played, in seconds."""
    with av.open(str(path), mode="r") as container:
        return [
            float(packet.pts * packet.time_base)
            for packet in container.demux(audio=0)
            if packet.pts is not None and packet.time_base is not None
        ]


def told(events: list[Event]) -> str:
    return "; ".join(event.message for event in events)


def film_with_a_gap(folder: Path, codec: str = "pcm_s16le") -> tuple[Path, Path]:
    """A film, and the same without the sound between 0.4 and 0.8 seconds."""
    whole, source = folder / "whole.mkv", folder / "in.mkv"
    chirp(whole, video=film(), codec=codec)

    def keep(packet: av.Packet[Any]) -> bool:
        heard = packet.stream.type == "audio" and packet.pts is not None
        return not (heard and 0.4 < packet.pts * packet.time_base < 0.8)

    return whole, remux(whole, source, keep=keep)
