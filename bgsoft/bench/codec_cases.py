"""Decoders and encoders, each alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bgsoft.bench.cases import Case, Sampler
from bgsoft.bench.context import BenchContext
from bgsoft.compare.pictures import vmaf_of_frames
from bgsoft.compare.vmaf import find_ffmpeg
from bgsoft.config import CompositeBackend, DecodeBackend, EncodeBackend
from bgsoft.decode.base import DecodeSettings
from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import choose_encoder, encoder_speeds
from bgsoft.errors import BgsoftError
from bgsoft.frame import Frame
from bgsoft.media.containers import container_for
from bgsoft.pipeline.ring import FrameRing
from bgsoft.selftest.stages import encode_file, to_device
from bgsoft.stages import StageBuilder

_DECODE_BLOCK = 10
"""Frames of one sample: threaded decoders hand them out in bursts."""
_ENCODE_WARM_UP = 5
_QUICK_SPEEDS = ("", "ultrafast", "veryfast", "12", "9", "8", "5", "P1", "P4")
_SLOWEST = ("placebo",)
"""Left out: it gains nothing over the preset before it, at a third of its speed."""
_NVENC_SPEEDS = tuple(f"P{number}" for number in range(1, 8))


def codec_cases(context: BenchContext, *, quick: bool) -> Iterator[Case]:
    """Both decoders, and every speed of the codec's encoders; if quick, few and no VMAF."""
    for backend in (DecodeBackend.CPU, DecodeBackend.NVDEC):
        yield Case(
            "decode",
            context.info.codec,
            backend.value,
            partial(_decode, context, backend),
            reason=context.missing("decode", backend.value),
        )
    container = container_for(context.config.output)
    choice = choose_encoder(context.config.encode, container, context.info, PictureKind.COLOR)
    speeds = {
        EncodeBackend.CPU: (choice.encoder, encoder_speeds(choice.codec) or ("",)),
        EncodeBackend.NVENC: ("nvenc", _NVENC_SPEEDS),
    }
    for place, (encoder, names) in speeds.items():
        for speed in names:
            if speed in _SLOWEST or (quick and speed not in _QUICK_SPEEDS):
                continue
            extra = {"bitrate_kbps": None, "vmaf": None, "vmaf_reason": None}
            yield Case(
                "encode",
                f"{encoder} {speed}".strip(),
                place.value,
                partial(_encode, context, place, speed or None, extra, quick),
                details={"encoder": encoder, "speed": speed or None},
                extra=extra,
                reason=context.missing("encode", place.value),
            )


def _builder(context: BenchContext, on_gpu: bool, stack: ExitStack, **chosen: Any) -> StageBuilder:
    """Builds one codec; its frames are where it works."""
    composite = CompositeBackend.CUDA if on_gpu else CompositeBackend.CPU
    config = replace(context.config.backends, composite=composite, **chosen)
    builder = StageBuilder(config, lambda _event: None)
    stack.callback(builder.close)
    return builder


def _decode(context: BenchContext, backend: DecodeBackend, stack: ExitStack) -> Sampler:
    builder = _builder(context, backend is DecodeBackend.NVDEC, stack, decode=backend)
    settings = DecodeSettings(duration_seconds=context.config.duration_seconds)
    ring = builder.make_ring(context.info.format)

    def sample() -> list[float]:
        samples: list[float] = []
        begun = time.perf_counter()
        with builder.open_decoder(context.config.input, settings) as decoder:
            frames = decoder.frames(ring)
            while block := _take(frames, ring):
                samples.append(block)
                if len(samples) > 2 and time.perf_counter() - begun > context.seconds:
                    break
            frames.close()  # type: ignore[attr-defined]  # decoders' frames() are generators
        return samples[1:] or samples  # the first block warms up

    return sample


def _take(frames: Iterator[Frame], ring: FrameRing) -> float | None:
    """Milliseconds a frame of the next block; None where fewer frames are left."""
    started = time.perf_counter()
    taken = 0
    for frame in islice(frames, _DECODE_BLOCK):
        if frame.ready is not None:
            frame.ready.synchronize()
        ring.release(frame)
        taken += 1
    milliseconds = 1000 * (time.perf_counter() - started)
    return milliseconds / taken if taken == _DECODE_BLOCK else None


def _encode(
    context: BenchContext,
    backend: EncodeBackend,
    speed: str | None,
    extra: dict[str, Any],
    quick: bool,
    stack: ExitStack,
) -> Sampler:
    on_gpu = backend is EncodeBackend.NVENC
    builder = _builder(context, on_gpu, stack, encode=backend)
    settings = replace(context.config.encode, speed=speed)
    frames = [to_device(frame) for frame in context.composited] if on_gpu else context.composited
    name = f"encode-{backend}-{speed or 'default'}{context.config.output.suffix}"
    path, info = context.folder / name, context.info
    warm = False

    def sample() -> list[float]:
        nonlocal warm
        fed = frames if warm else frames[:_ENCODE_WARM_UP]
        _, seconds = encode_file(
            path, fed, info, lambda muxer: builder.open_encoder(muxer, settings, info)
        )
        if warm and extra["bitrate_kbps"] is None:
            _judge(context, path, extra, quick)
        warm = True
        return [1000 * seconds / len(fed)]

    return sample


def _judge(context: BenchContext, path: Path, extra: dict[str, Any], quick: bool) -> None:
    """Bit rate of an encoded file, and its likeness to the frames that went in."""
    frames = context.composited
    ticks = frames[-1].pts - frames[0].pts
    seconds = float(ticks * context.info.time_base) * len(frames) / max(1, len(frames) - 1)
    extra["bitrate_kbps"] = path.stat().st_size * 8 / 1000 / seconds if seconds else None
    if quick:
        extra["vmaf_reason"] = "left out by --quick"
        return
    try:
        extra["vmaf"] = vmaf_of_frames(find_ffmpeg(), frames, path)
    except (BgsoftError, ValueError) as exc:
        extra["vmaf_reason"] = str(exc)
