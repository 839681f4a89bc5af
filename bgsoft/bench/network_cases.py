"""One run of a network, alone."""

from __future__ import annotations

from contextlib import ExitStack

from bgsoft.bench.cases import Sampler, repeat
from bgsoft.bench.workshop import Workshop
from bgsoft.config import Precision
from bgsoft.models.catalog import ResolvedModel

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
    builder = shop.builder(backend, precision)
    stream = None if backend == "cpu" else shop.device().new_stream()
    network = builder.load_network(model, backend, batch, stream=stream)
    stack.callback(network.close)
    wait = None if stream is None else stream.synchronize
    return repeat(network.run, wait, frames=batch, seconds=shop.seconds)
