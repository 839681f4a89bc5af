"""Decoders and encoders, each alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bgsoft.bench.cases import Case, Sampler
from bgsoft.bench.workshop import Workshop, ignore_event
from bgsoft.compare.pictures import vmaf_of_frames
from bgsoft.compare.vmaf import find_ffmpeg
from bgsoft.config import (
    CompositeBackend,
    DecodeBackend,
    EncodeBackend,
    RenderConfig,
)
from bgsoft.decode.base import DecodeSettings
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder, encoder_speeds
from bgsoft.errors import BgsoftError
from bgsoft.frame import Frame
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.selftest.stages import to_device
from bgsoft.stages import StageBuilder

__all__ = ["codec_cases"]

_DECODE_WARM_UP = 10
_DECODE_BLOCK = 10
"""Frames of one sample: threaded decoders hand them out in bursts."""
_ENCODE_WARM_UP = 5
_QUICK_SPEEDS = ("ultrafast", "veryfast", "12", "9", "8", "5", "P1", "P4")
_SLOWEST = ("placebo",)
"""Left out: it gains nothing over the preset before it, at a third of its speed."""
_NVENC_SPEEDS = tuple(f"P{number}" for number in range(1, 8))


def codec_cases(shop: Workshop, *, quick: bool) -> Iterator[Case]:
    """Both decoders, and every speed of the codec's encoders.

    Args:
        shop: What they are measured on.
        quick: Two speeds, and no VMAF.
    """
    for backend in (DecodeBackend.CPU, DecodeBackend.NVDEC):
        yield Case(
            "decode",
            shop.info.codec,
            backend.value,
            partial(_decode, shop, backend),
            reason=shop.missing("decode", backend.value),
        )
    encode = shop.config.encode
    choice = choose_encoder(encode, container_for(shop.config.output), shop.info, PictureKind.COLOR)
    speeds = [s for s in encoder_speeds(choice.codec) or ("",) if s not in _SLOWEST]
    yield from _encode_cases(shop, EncodeBackend.CPU, choice.encoder, speeds, quick)
    yield from _encode_cases(shop, EncodeBackend.NVENC, "nvenc", list(_NVENC_SPEEDS), quick)


def _encode_cases(
    shop: Workshop, backend: EncodeBackend, encoder: str, speeds: Sequence[str], quick: bool
) -> Iterator[Case]:
    for speed in speeds:
        if quick and speed and speed not in _QUICK_SPEEDS:
            continue
        extra = {"bitrate_kbps": None, "vmaf": None, "vmaf_reason": None}
        case = Case(
            "encode",
            f"{encoder} {speed}".strip(),
            backend.value,
            lambda _stack: list,
            details={"encoder": encoder, "speed": speed or None},
            extra=extra,
            reason=shop.missing("encode", backend.value),
        )
        case.make = partial(_encode, shop, backend, speed or None, extra, quick)
        yield case


def _decode(shop: Workshop, backend: DecodeBackend, stack: ExitStack) -> Sampler:
    on_gpu = backend is DecodeBackend.NVDEC
    composite = CompositeBackend.CUDA if on_gpu else CompositeBackend.CPU
    config = replace(shop.config.backends, decode=backend, composite=composite)
    builder = StageBuilder(config, ignore_event)
    stack.callback(builder.close)
    settings = DecodeSettings(duration_seconds=shop.config.duration_seconds)
    ring = builder.make_ring(shop.info.format)

    def sample() -> list[float]:
        samples: list[float] = []
        begun = time.perf_counter()
        with builder.open_decoder(shop.config.input, settings) as decoder:
            frames = decoder.frames(ring)
            while block := _take(frames, ring, _DECODE_BLOCK if samples else _DECODE_WARM_UP):
                samples.append(block)
                if len(samples) > 2 and time.perf_counter() - begun > shop.seconds:
                    break
            frames.close()  # type: ignore[attr-defined]  # decoders' frames() are generators
        return samples[1:] or samples

    return sample


def _take(frames: Iterator[Frame], ring: Any, count: int) -> float | None:
    """Milliseconds a frame for so many frames; None where fewer are left."""
    started = time.perf_counter()
    taken = 0
    for frame in islice(frames, count):
        if frame.ready is not None:
            frame.ready.synchronize()
        ring.release(frame)
        taken += 1
    return 1000 * (time.perf_counter() - started) / count if taken == count else None


def _encode(
    shop: Workshop,
    backend: EncodeBackend,
    speed: str | None,
    extra: dict[str, Any],
    quick: bool,
    stack: ExitStack,
) -> Sampler:
    on_gpu = backend is EncodeBackend.NVENC
    config = replace(
        shop.config,
        encode=replace(shop.config.encode, speed=speed),
        backends=replace(
            shop.config.backends,
            encode=backend,
            composite=CompositeBackend.CUDA if on_gpu else CompositeBackend.CPU,
        ),
    )
    builder = StageBuilder(config.backends, ignore_event)
    stack.callback(builder.close)
    frames = shop.composited
    fed = [to_device(frame) for frame in frames] if on_gpu else frames
    path = shop.folder / f"encode-{backend}-{speed or 'default'}{shop.config.output.suffix}"
    warm = False

    def sample() -> list[float]:
        nonlocal warm
        count = len(fed) if warm else _ENCODE_WARM_UP
        seconds = _encode_file(builder, shop, config, fed[:count], path)
        if warm and extra["bitrate_kbps"] is None:
            _judge(shop, path, extra, quick)
        warm = True
        return [1000 * seconds / min(count, len(fed))]

    return sample


def _encode_file(
    builder: StageBuilder, shop: Workshop, config: RenderConfig, frames: Sequence[Frame], path: Path
) -> float:
    """Encode some frames; returns the seconds from the first one to the last packet."""
    with Muxer(path, container_for(path), shop.info, copy_tracks=False) as muxer:
        encoder = builder.open_encoder(muxer, config.encode, shop.info)
        try:
            started = time.perf_counter()
            for frame in frames:
                encoder.encode(frame)
            encoder.finish()
            seconds = time.perf_counter() - started
            muxer.finish()
        finally:
            encoder.close()
    return seconds


def _judge(shop: Workshop, path: Path, extra: dict[str, Any], quick: bool) -> None:
    """Bit rate of an encoded file, and its likeness to the frames that went in."""
    frames = shop.composited
    ticks = frames[-1].pts - frames[0].pts
    seconds = float(ticks * shop.info.time_base) * len(frames) / max(1, len(frames) - 1)
    extra["bitrate_kbps"] = path.stat().st_size * 8 / 1000 / seconds if seconds else None
    if quick:
        extra["vmaf_reason"] = "left out by --quick"
        return
    try:
        extra["vmaf"] = vmaf_of_frames(find_ffmpeg(), frames, path)
    except (BgsoftError, ValueError) as exc:
        extra["vmaf_reason"] = str(exc)
