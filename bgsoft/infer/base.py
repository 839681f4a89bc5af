"""What a loaded network is to the stages that run one."""

from __future__ import annotations

from typing import Protocol

from bgsoft.frame import Array

__all__ = ["Network"]


class Network(Protocol):
    """One ONNX model, loaded, with fixed input and output buffers on one device."""

    provider: str
    """The execution provider that really runs, read back from the session."""
    device: str
    """``cpu`` or ``cuda:N (name)``."""
    inputs: dict[str, Array]
    """Input buffers by name: write them, then call :meth:`run`."""
    outputs: dict[str, Array]
    """Output buffers by name, overwritten by every run."""

    def run(self) -> None:
        """Run once on what lies in :attr:`inputs`.

        Raises:
            InferenceError: The runtime failed.
        """
        ...

    def close(self) -> None:
        """Free the session; safe to call twice."""
        ...
