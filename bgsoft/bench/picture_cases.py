"""The stages between decoder and encoder, each alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import cv2
import numpy as np

from bgsoft.bench.cases import Case, Sampler, repeat
from bgsoft.bench.face_cases import face_cases
from bgsoft.bench.network_cases import network_case
from bgsoft.bench.workshop import Workshop
from bgsoft.config import EffectConfig, EffectKind, MatteConfig, MatteStyle, Precision, Refine
from bgsoft.frame import Frame
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.single import network_shapes
from bgsoft.selftest.parity import CudaSide, HostSide, Side

__all__ = ["picture_cases"]

_BATCHES = (1, 4, 8)
_PLACES = ("cpu", "cuda")
_MATTES = (
    ("soft, guided", MatteConfig(refine=Refine.GUIDED)),
    ("soft", MatteConfig(refine=Refine.NONE)),
    ("obs", MatteConfig(style=MatteStyle.OBS)),
)


def picture_cases(shop: Workshop, *, quick: bool) -> Iterator[Case]:
    """Preprocessing, models, mattes, effects and copies.

    Args:
        shop: What they are measured on.
        quick: Batches of 1 only.
    """
    for place in _PLACES:
        yield Case("preprocess", "reduce", place, partial(_reduce, shop, place))
        if shop.model.spec.family == "single-shot":
            yield Case("preprocess", "preprocess", place, partial(_preprocess, shop, place))
    yield from _segment_cases(shop, _BATCHES[:1] if quick else _BATCHES)
    yield from face_cases(shop)
    for label, matte in _MATTES:
        for place in _PLACES:
            yield Case("matte", label, place, partial(_matte, shop, place, matte))
    for kind in EffectKind:
        if kind is EffectKind.MATTE:
            continue  # it leaves the picture as it is
        for place in _PLACES:
            yield Case("effect", kind.value, place, partial(_effect, shop, place, kind))
    yield Case("copy", "host to GPU", "cuda", partial(_upload, shop))
    yield Case("copy", "GPU to host", "cuda", partial(_download, shop))


def _side(shop: Workshop, place: str, stack: ExitStack) -> Side:
    if place == "cpu":
        return HostSide()
    device = shop.device()
    stack.enter_context(device.use(_default_stream()))
    return CudaSide(device)


def _default_stream() -> Any:
    import cupy

    return cupy.cuda.Stream.null


def _sampler(shop: Workshop, place: str, once: Callable[[], object], **more: Any) -> Sampler:
    return repeat(once, shop.waiter(place), seconds=shop.seconds, **more)


def _reduce(shop: Workshop, place: str, stack: ExitStack) -> Sampler:
    side = _side(shop, place, stack)
    frame, reducer = side.place(shop.frames[0]), side.reducer(shop.info.format)
    return _sampler(shop, place, lambda: reducer.reduce([frame])[0])


def _preprocess(shop: Workshop, place: str, stack: ExitStack) -> Sampler:
    side = _side(shop, place, stack)
    format, spec = shop.info.format, shop.model.spec
    reduced = side.reducer(format).reduce([side.place(shop.frames[0])])[0]
    shape = network_shapes(spec)[spec.input]
    preprocessor: Any
    if place == "cpu":
        from bgsoft.segment.preprocess import CpuPreprocessor

        preprocessor, tensor = CpuPreprocessor(spec, format), np.empty(shape[1:], np.float32)
    else:
        import cupy

        from bgsoft.segment.cuda import CudaPreprocessor

        preprocessor, tensor = CudaPreprocessor(spec, format), cupy.empty(shape, np.float32)
    return _sampler(shop, place, lambda: preprocessor.write(reduced, tensor))


def _segment_cases(shop: Workshop, batches: tuple[int, ...]) -> Iterator[Case]:
    spec = shop.model.spec
    family = FAMILIES[spec.family]
    if family.in_order:
        batches = (1,)
    wirings = {batch: family.wiring(spec, shop.info.format, batch) for batch in batches}
    for backend in ("cpu", "cuda", "tensorrt"):
        for precision in Precision:
            for batch, wiring in wirings.items():
                yield Case(
                    "segment",
                    f"{spec.name} {precision} batch {batch}",
                    backend,
                    partial(network_case, shop, shop.model, backend, precision, wiring),
                    details={"precision": precision.value, "batch": batch},
                    reason=shop.missing("infer", backend),
                )


def _matte(shop: Workshop, place: str, config: MatteConfig, stack: ExitStack) -> Sampler:
    side = _side(shop, place, stack)
    format = shop.info.format
    frame, mask = side.place(shop.frames[0]), side.place_array(shop.mask)
    reduced, matter = side.reducer(format).reduce([frame])[0], side.matte_stage(config, format)
    return _sampler(shop, place, lambda: matter.refine([mask], [frame], [reduced])[0])


def _effect(shop: Workshop, place: str, kind: EffectKind, stack: ExitStack) -> Sampler:
    side = _side(shop, place, stack)
    format = shop.info.format
    frame, mask = side.place(shop.frames[0]), side.place_array(shop.mask)
    reduced = side.reducer(format).reduce([frame])[0]
    matte = side.matte_stage(MatteConfig(), format).refine([mask], [frame], [reduced])[0]
    config = EffectConfig(kind=kind, background=_background(shop, kind))
    compositor = side.compositor(config, format)
    stack.callback(compositor.close)
    ticks = frame.duration or shop.frames[1].pts - shop.frames[0].pts
    moving: Frame = copy.copy(frame)

    def once() -> None:
        moving.pts += ticks  # a background video goes on
        compositor.apply([moving], [matte], [reduced])

    return _sampler(shop, place, once)


def _background(shop: Workshop, kind: EffectKind) -> str | None:
    """A colour, or a file of the frame's size with some detail in it."""
    if kind is EffectKind.COLOR:
        return "#0a8f3c"
    if kind is EffectKind.VIDEO:
        return str(shop.config.input)
    if kind is not EffectKind.IMAGE:
        return None
    path = shop.folder / "background.png"
    if not path.exists():
        coarse = np.random.default_rng(3).integers(0, 255, (9, 16, 3)).astype(np.uint8)
        size = (shop.info.format.width, shop.info.format.height)
        cv2.imwrite(str(path), cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC))
    return str(path)


def _upload(shop: Workshop, stack: ExitStack) -> Sampler:
    device = shop.device()
    import cupy

    from bgsoft.cuda.device import device_planes
    from bgsoft.cuda.pinned import pinned_planes
    from bgsoft.pipeline.copies import DeviceUpload

    format = shop.info.format
    upload, done = DeviceUpload(device), cupy.cuda.Event(disable_timing=True)
    source, target = pinned_planes(format, 0), device_planes(format, 0)
    return _sampler(shop, "cuda", lambda: upload.start(source, target, done))


def _download(shop: Workshop, stack: ExitStack) -> Sampler:
    device = shop.device()
    from bgsoft.encode.base import PictureKind
    from bgsoft.pipeline.copies import HostDownload

    download = HostDownload(device, shop.info.format, PictureKind.COLOR)
    frame = CudaSide(device).place(shop.frames[0])
    return _sampler(shop, "cuda", lambda: download.finish(download.start(frame)))
