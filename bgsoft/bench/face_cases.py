"""Faces: each network alone, and all that finding them takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from bgsoft.bench.cases import Case, Sampler, repeat
from bgsoft.bench.network_cases import network_case
from bgsoft.bench.workshop import Workshop
from bgsoft.config import Precision
from bgsoft.infer.base import Network, Wiring
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel, catalog, resolve
from bgsoft.segment.single import network_shapes
from bgsoft.selftest.parity import CudaSide, HostSide

__all__ = ["face_cases"]

_FAMILIES = ("face-detector", "face-landmarks")
_FRAMES = 8
"""Found one after another on the CPU, together on a GPU."""


def face_cases(shop: Workshop) -> Iterator[Case]:
    """Both networks, and finding and following the faces of the clip's first frames.

    Args:
        shop: What they are measured on.
    """
    for spec in catalog().values():
        if spec.family not in _FAMILIES:
            continue
        model = resolve(spec.name, families=_FAMILIES)
        for backend in ("cpu", "cuda", "tensorrt"):
            yield Case(
                "face",
                spec.name,
                backend,
                partial(network_case, shop, model, backend, Precision.FP32, _wiring(model, 1)),
                details={"precision": "fp32", "batch": 1},
                reason=shop.missing("infer", backend),
            )
    yield Case(
        "face",
        "find and follow",
        "cpu",
        partial(_find_on_host, shop),
        details={"precision": "fp32"},
    )
    for backend in ("cuda", "tensorrt"):
        yield Case(
            "face",
            "find and follow",
            backend,
            partial(_find_on_device, shop, backend),
            details={"precision": "fp32", "batch": _FRAMES},
            reason=shop.missing("infer", backend),
        )


def _find_on_host(shop: Workshop, stack: ExitStack) -> Sampler:
    from bgsoft.face.finder import FaceFinder
    from bgsoft.face.networks import CpuFaceNetworks

    side, format = HostSide(), shop.info.format
    seen = [(frame, side.reducer(format).reduce([frame])[0]) for frame in shop.frames[:_FRAMES]]
    finder = stack.enter_context(FaceFinder(format, CpuFaceNetworks(format)))

    def once() -> None:
        for frame, grid in seen:
            finder.find([frame], [grid])

    return repeat(once, frames=len(seen), seconds=shop.seconds)


def _wiring(model: ResolvedModel, batch: int) -> Wiring:
    return Wiring(inputs=network_shapes(model.spec, batch))


def _find_on_device(shop: Workshop, backend: str, stack: ExitStack) -> Sampler:
    from bgsoft.face.cuda_networks import CudaFaceNetworks
    from bgsoft.face.finder import FaceFinder

    device, format = shop.device(), shop.info.format
    stream = device.new_stream()

    def make(model: ResolvedModel, batch: int) -> Network:
        loader = NetworkLoader(model, tell=lambda text: shop.tell(f"{model.spec.name}: {text}"))
        return loader.on_gpu(_wiring(model, batch), backend, device, stream)

    stack.enter_context(device.use(stream))
    side = CudaSide(device)
    frames = [side.place(frame) for frame in shop.frames[:_FRAMES]]
    grids = [side.reducer(format).reduce([frame])[0] for frame in frames]
    finder = stack.enter_context(FaceFinder(format, CudaFaceNetworks(format, make, _FRAMES)))
    finder.start()
    return repeat(lambda: finder.find(frames, grids), frames=len(frames), seconds=shop.seconds)
