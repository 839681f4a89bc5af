"""What every output track that is made from an input track can do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from av.packet import Packet

__all__ = ["Track"]


class Track(Protocol):
    """One output track, fed with the packets of one input track."""

    done: bool
    """No packet after this can be of use."""

    def feed(self, packet: Packet[Any]) -> Iterable[Packet[Any]]:
        """Packets for the output, on its clock; perhaps none."""
        ...

    def flush(self) -> Iterable[Packet[Any]]:
        """What is left when the input has ended."""
        ...
