"""The stages between decoder and encoder, each alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import cv2
import numpy as np

from bgsoft.bench.cases import Case, Sampler, repeat
from bgsoft.bench.context import BenchContext
from bgsoft.config import EffectConfig, EffectKind, MatteConfig, MatteStyle, Precision, Refine
from bgsoft.frame import Frame
from bgsoft.infer.base import Network, Wiring
from bgsoft.models.catalog import ResolvedModel, catalog, resolve
from bgsoft.segment.families import FAMILIES
from bgsoft.segment.single import network_shapes
from bgsoft.selftest.parity import CudaSide, HostSide, Side

_BATCHES = (1, 4, 8)
_PLACES = ("cpu", "cuda")
_PROVIDERS = ("cpu", "cuda", "tensorrt")
_MATTES = {
    "soft, guided": MatteConfig(refine=Refine.GUIDED),
    "soft": MatteConfig(refine=Refine.NONE),
    "obs": MatteConfig(style=MatteStyle.OBS),
}
_FACE_FAMILIES = ("face-detector", "face-landmarks")
_FACE_FRAMES = 8
"""Found one after another on the CPU, together on a GPU."""


def stage_cases(context: BenchContext, *, quick: bool) -> Iterator[Case]:
    """Preprocessing, models, faces, mattes, effects and copies; if quick, batches of 1 only."""
    spec = context.model.spec
    for place in _PLACES:
        yield Case("preprocess", "reduce", place, partial(_reduce, context, place))
        if spec.family == "single-shot":
            yield Case("preprocess", "preprocess", place, partial(_preprocess, context, place))
    family = FAMILIES[spec.family]
    batches = _BATCHES[:1] if quick or family.in_order else _BATCHES
    wirings = {batch: family.wiring(spec, context.info.format, batch) for batch in batches}
    yield from _network_cases(context, "segment", context.model, wirings, tuple(Precision))
    yield from _face_cases(context)
    for label, matte in _MATTES.items():
        for place in _PLACES:
            yield Case("matte", label, place, partial(_matte, context, place, matte))
    for kind in EffectKind:
        if kind is EffectKind.MATTE:
            continue  # it leaves the picture as it is
        for place in _PLACES:
            yield Case("effect", kind.value, place, partial(_effect, context, place, kind))
    yield Case("copy", "host to GPU", "cuda", partial(_upload, context))
    yield Case("copy", "GPU to host", "cuda", partial(_download, context))


def _side(context: BenchContext, place: str, stack: ExitStack) -> Side:
    if place == "cpu":
        return HostSide()
    device = context.device
    import cupy

    stack.enter_context(device.use(cupy.cuda.Stream.null))
    return CudaSide(device)


def _sampler(context: BenchContext, place: str, once: Callable[[], object]) -> Sampler:
    wait = None if place == "cpu" else context.device.synchronize
    return repeat(once, wait, seconds=context.seconds)


def _reduce(context: BenchContext, place: str, stack: ExitStack) -> Sampler:
    side = _side(context, place, stack)
    frame, reducer = side.place(context.frames[0]), side.reducer(context.info.format)
    return _sampler(context, place, lambda: reducer.reduce([frame])[0])


def _preprocess(context: BenchContext, place: str, stack: ExitStack) -> Sampler:
    side = _side(context, place, stack)
    format, spec = context.info.format, context.model.spec
    reduced = side.reducer(format).reduce([side.place(context.frames[0])])[0]
    shape = network_shapes(spec)[spec.input]
    preprocessor: Any
    if place == "cpu":
        from bgsoft.segment.preprocess import CpuPreprocessor

        preprocessor, tensor = CpuPreprocessor(spec, format), np.empty(shape[1:], np.float32)
    else:
        import cupy

        from bgsoft.segment.cuda import CudaPreprocessor

        preprocessor, tensor = CudaPreprocessor(spec, format), cupy.empty(shape, np.float32)
    return _sampler(context, place, lambda: preprocessor.write(reduced, tensor))


def _network_cases(
    context: BenchContext,
    group: str,
    model: ResolvedModel,
    wirings: Mapping[int, Wiring],
    precisions: tuple[Precision, ...] = (Precision.FP32,),
) -> Iterator[Case]:
    """One model, by the batch of each wiring."""
    for backend in _PROVIDERS:
        for precision in precisions:
            for batch, wiring in wirings.items():
                name = model.spec.name
                yield Case(
                    group,
                    name if group == "face" else f"{name} {precision} batch {batch}",
                    backend,
                    partial(_network, context, model, backend, precision, wiring, batch),
                    details={"precision": precision.value, "batch": batch},
                    reason=context.missing("infer", backend),
                )


def _network(
    context: BenchContext,
    model: ResolvedModel,
    backend: str,
    precision: Precision,
    wiring: Wiring,
    batch: int,
    stack: ExitStack,
) -> Sampler:
    """Run a model on whatever lies in its input."""
    loader = context.loader(model, precision)
    loader.check(backend)
    if backend == "cpu":
        (network,) = loader.on_cpu(wiring)
        wait = None
    else:
        device = context.device
        stream = device.new_stream()
        network = loader.on_gpu(wiring, backend, device, stream)
        wait = stream.synchronize
    stack.callback(network.close)
    return repeat(network.run, wait, frames=batch, seconds=context.seconds)


def _face_cases(context: BenchContext) -> Iterator[Case]:
    """Both networks, and finding and following the faces of the clip's first frames."""
    for spec in catalog().values():
        if spec.family in _FACE_FAMILIES:
            model = resolve(spec.name, families=_FACE_FAMILIES)
            wirings = {1: Wiring(inputs=network_shapes(model.spec, 1))}
            yield from _network_cases(context, "face", model, wirings)
    for backend in _PROVIDERS:
        find = _find_on_host if backend == "cpu" else partial(_find_on_device, backend)
        yield Case(
            "face",
            "find and follow",
            backend,
            partial(find, context),
            details={"precision": "fp32"},
            reason=context.missing("infer", backend),
        )


def _find_on_host(context: BenchContext, stack: ExitStack) -> Sampler:
    from bgsoft.face.finder import FaceFinder
    from bgsoft.face.networks import CpuFaceNetworks

    side, format = HostSide(), context.info.format
    frames = context.frames[:_FACE_FRAMES]
    seen = [(frame, side.reducer(format).reduce([frame])[0]) for frame in frames]
    finder = stack.enter_context(FaceFinder(format, CpuFaceNetworks(format)))

    def once() -> None:
        for frame, grid in seen:
            finder.find([frame], [grid])

    return repeat(once, frames=len(seen), seconds=context.seconds)


def _find_on_device(backend: str, context: BenchContext, stack: ExitStack) -> Sampler:
    from bgsoft.face.cuda_networks import CudaFaceNetworks
    from bgsoft.face.finder import FaceFinder

    device, format = context.device, context.info.format
    stream = device.new_stream()

    def make(model: ResolvedModel, batch: int) -> Network:
        wiring = Wiring(inputs=network_shapes(model.spec, batch))
        return context.loader(model).on_gpu(wiring, backend, device, stream)

    stack.enter_context(device.use(stream))
    side = CudaSide(device)
    frames = [side.place(frame) for frame in context.frames[:_FACE_FRAMES]]
    grids = [side.reducer(format).reduce([frame])[0] for frame in frames]
    networks = CudaFaceNetworks(format, make, _FACE_FRAMES)
    finder = stack.enter_context(FaceFinder(format, networks))
    finder.start()
    return repeat(lambda: finder.find(frames, grids), frames=len(frames), seconds=context.seconds)


def _matte(context: BenchContext, place: str, config: MatteConfig, stack: ExitStack) -> Sampler:
    side = _side(context, place, stack)
    format = context.info.format
    frame, mask = side.place(context.frames[0]), side.place_array(context.mask)
    reduced, matter = side.reducer(format).reduce([frame])[0], side.matte_stage(config, format)
    return _sampler(context, place, lambda: matter.refine([mask], [frame], [reduced])[0])


def _effect(context: BenchContext, place: str, kind: EffectKind, stack: ExitStack) -> Sampler:
    side = _side(context, place, stack)
    format = context.info.format
    frame, mask = side.place(context.frames[0]), side.place_array(context.mask)
    reduced = side.reducer(format).reduce([frame])[0]
    matte = side.matte_stage(MatteConfig(), format).refine([mask], [frame], [reduced])[0]
    config = EffectConfig(kind=kind, background=_background(context, kind))
    compositor = side.compositor(config, format)
    stack.callback(compositor.close)
    ticks = frame.duration or context.frames[1].pts - context.frames[0].pts
    moving: Frame = copy.copy(frame)

    def once() -> None:
        moving.pts += ticks  # a background video goes on
        compositor.apply([moving], [matte], [reduced])

    return _sampler(context, place, once)


def _background(context: BenchContext, kind: EffectKind) -> str | None:
    """A colour, or a file of the frame's size with some detail in it."""
    if kind is EffectKind.COLOR:
        return "#0a8f3c"
    if kind is EffectKind.VIDEO:
        return str(context.config.input)
    if kind is not EffectKind.IMAGE:
        return None
    path = context.folder / "background.png"
    if not path.exists():
        coarse = np.random.default_rng(3).integers(0, 255, (9, 16, 3)).astype(np.uint8)
        size = (context.info.format.width, context.info.format.height)
        cv2.imwrite(str(path), cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC))
    return str(path)


def _upload(context: BenchContext, stack: ExitStack) -> Sampler:
    device = context.device
    import cupy

    from bgsoft.cuda.device import device_planes, pinned_planes
    from bgsoft.pipeline.crossing import FrameCopier

    format = context.info.format
    upload, done = FrameCopier(device, up=True), cupy.cuda.Event(disable_timing=True)
    source, target = pinned_planes(format, 0), device_planes(format, 0)
    return _sampler(context, "cuda", lambda: upload.start(source, target, done))


def _download(context: BenchContext, stack: ExitStack) -> Sampler:
    device = context.device
    from bgsoft.encode.base import PictureKind
    from bgsoft.pipeline.crossing import TurnsCopier

    download = TurnsCopier(device, context.info.format, up=False, kind=PictureKind.COLOR)
    frame = CudaSide(device).place(context.frames[0])

    def once() -> None:
        _, done = download.start(frame)
        done.synchronize()

    return _sampler(context, "cuda", once)
