"""One run of a network, alone."""

from __future__ import annotations

from contextlib import ExitStack

from bgsoft.bench.cases import Sampler, repeat
from bgsoft.bench.workshop import Workshop
from bgsoft.config import Precision
from bgsoft.infer.base import Wiring
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ResolvedModel

__all__ = ["network_case"]


def network_case(
    shop: Workshop,
    model: ResolvedModel,
    backend: str,
    precision: Precision,
    wiring: Wiring,
    stack: ExitStack,
) -> Sampler:
    """Run a model on whatever lies in its input.

    Args:
        shop: Where it is measured.
        model: What runs.
        backend: ``cpu``, ``cuda`` or ``tensorrt``.
        precision: Of the arithmetic.
        wiring: How it is loaded.
        stack: Closes the network.

    Raises:
        BgsoftError: The network does not load there.
    """
    loader = NetworkLoader(model, precision, lambda text: shop.tell(f"{model.spec.name}: {text}"))
    loader.check(backend)
    if backend == "cpu":
        (network,) = loader.on_cpu(wiring)
        wait = None
    else:
        device = shop.device()
        stream = device.new_stream()
        network = loader.on_gpu(wiring, backend, device, stream)
        wait = stream.synchronize
    stack.callback(network.close)
    batch = next(iter(wiring.inputs.values()))[0]
    return repeat(network.run, wait, frames=batch, seconds=shop.seconds)
