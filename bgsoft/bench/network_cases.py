"""One run of a network, alone."""

from __future__ import annotations

from contextlib import ExitStack

from bgsoft.bench.cases import Sampler, repeat
from bgsoft.bench.workshop import Workshop
from bgsoft.config import Precision
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ResolvedModel
from bgsoft.segment.single import network_shapes

__all__ = ["network_case"]


def network_case(
    shop: Workshop,
    model: ResolvedModel,
    backend: str,
    precision: Precision,
    batch: int,
    stack: ExitStack,
) -> Sampler:
    """Run a model on whatever lies in its input.

    Args:
        shop: Where it is measured.
        model: What runs.
        backend: ``cpu``, ``cuda`` or ``tensorrt``.
        precision: Of the arithmetic.
        batch: Items a run.
        stack: Closes the network.

    Raises:
        BgsoftError: The network does not load there.
    """
    chosen = model.for_provider(backend, precision)
    shapes = network_shapes(model.spec, batch)
    if backend == "cpu":
        from bgsoft.infer.cpu import CpuNetwork

        network: Network = CpuNetwork(chosen.path, shapes)
        stack.callback(network.close)
        return repeat(network.run, frames=batch, seconds=shop.seconds)
    from bgsoft.infer.cuda import GpuNetwork

    device = shop.device()
    stream = device.new_stream()
    network = GpuNetwork(
        chosen.path,
        shapes,
        backend=backend,
        device=device,
        stream=stream,
        precision=precision,
        sha256=chosen.sha256,
        tell=lambda text: shop.tell(f"{model.spec.name}: {text}"),
    )
    stack.callback(network.close)
    return repeat(network.run, stream.synchronize, frames=batch, seconds=shop.seconds)
