"""Segmentation of batches on a CUDA device, with the rule for faults.

A batch that fails is retried once; if it fails again, it is run at half the size, and so on down
to single frames, and at last by the CPU twin. Every step is reported. A smaller size that works is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cupy
import numpy as np

from bgsoft.errors import InferenceError, ModelError
from bgsoft.frame import Array, Frame, FrameFormat, Reduced
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.report import Event
from bgsoft.segment.cuda import CudaPreprocessor

__all__ = ["BatchedSegmenter"]

FAULTS = (InferenceError, cupy.cuda.memory.OutOfMemoryError)
"""What a smaller batch, or the CPU, may survive."""


class BatchedSegmenter:
    """Masks of up to :attr:`batch` frames in one run.

    Args:
        spec: The model's contract.
        make_network: Loads the model for a batch size, on the device; the second argument says
            whether it may replay a CUDA graph, which only works if it is captured by
            :meth:`start`.
        make_twin: Loads it on the CPU for single frames, with its arrays on the device.
        format: Format of the frames.
        batch: Frames per run to begin with.
        on_event: Told of retries and of the CPU taking over.

    Raises:
        ModelError: The network's output is not what the contract says.
        BackendUnavailableError: The network does not load on the device.
    """

    def __init__(
        self,
        spec: ModelSpec,
        make_network: Callable[[int, bool], Network],
        make_twin: Callable[[], Network],
        format: FrameFormat,
        batch: int,
        on_event: Callable[[Event], None],
    ) -> None:
        self.name = spec.name
        self.batch = batch
        self.size = batch
        """Frames per run now; smaller than :attr:`batch` after faults."""
        self._spec = spec
        self._format = format
        self._make_network = make_network
        self._make_twin = make_twin
        self._on_event = on_event
        self._on_cpu = False
        self._network = make_network(batch, True)
        self._preprocessor = CudaPreprocessor(spec, format, batch)
        output = _output(self._network, spec)
        self._masks = cupy.zeros((batch, *output.shape[2:]), np.float32)

    @property
    def device(self) -> str:
        """Where the model runs."""
        return self._network.device

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`masks`, while nothing else does.

        A batch that does not fit into the device's memory is halved here already.

        Raises:
            InferenceError: Even the CPU failed.
        """
        while True:
            try:
                self._network.run()
            except FAULTS as exc:
                if self._on_cpu:
                    raise InferenceError(str(exc), stage="segment") from exc
                self._shrink(None)
            else:
                return

    def masks(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[Array]:
        """Segment some frames.

        Args:
            frames: Up to :attr:`batch` of them; for errors only.
            grids: The same frames on the analysis grid, on the device.

        Returns:
            For each (h, w) float32 on the device, in [0, 1]; overwritten by the next call.

        Raises:
            InferenceError: Even the CPU failed; carries the first frame's pts.
        """
        start = 0
        while start < len(grids):
            stop = min(start + self.size, len(grids))
            try:
                self._run(grids[start:stop], start)
            except FAULTS as exc:
                self._recover(exc, frames[start], grids[start:stop], start)
                continue
            start = stop
        return list(self._masks[: len(grids)])

    def _run(self, grids: Sequence[Reduced], at: int) -> None:
        tensor = self._network.inputs[self._spec.input]
        for index, grid in enumerate(grids):
            self._preprocessor.write(grid, tensor, index)
        self._network.run()
        raw = _output(self._network, self._spec)[: len(grids)]
        _to_mask(raw, self._spec, self._masks[at : at + len(grids)])

    def _recover(self, exc: Exception, frame: Frame, grids: Sequence[Reduced], at: int) -> None:
        """Make the next attempt one that can work; raises where there is none left."""
        if self._on_cpu:
            raise InferenceError(str(exc), stage="segment", pts=frame.pts) from exc
        try:
            self._tell("retry", f"the model failed ({exc}); trying the batch again", frame)
            self._run(grids, at)
        except FAULTS:
            self._shrink(frame)

    def _shrink(self, frame: Frame | None) -> None:
        self._network.close()
        if self.size > 1:
            self.size //= 2
            self._tell("retry", f"the model failed; batch size is {self.size} now", frame)
            self._network = self._make_network(self.size, False)
        else:
            self.size = 1
            self._on_cpu = True
            self._tell("fallback", "the model failed on the GPU; the CPU takes over", frame)
            self._network = self._make_twin()
        self._preprocessor = CudaPreprocessor(self._spec, self._format, self.size)

    def _tell(self, kind: str, message: str, frame: Frame | None) -> None:
        where = {} if frame is None else {"frame": frame.index, "pts": frame.pts}
        self._on_event(Event(kind=kind, stage="segment", message=message, **where))

    def reset(self) -> None:
        """Nothing to forget: every frame stands alone."""

    def close(self) -> None:
        """Free the model; safe to call twice."""
        self._network.close()


def _output(network: Network, spec: ModelSpec) -> Array:
    """(B, C, h, w) view of the raw output, whichever its layout."""
    raw = network.outputs.get(spec.output)
    if raw is None:
        raise ModelError(f"model {spec.name} has no output {spec.output!r}")
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4:
        raise ModelError(f"model {spec.name}: output of shape {raw.shape} is no mask")
    # Masks have one or two channels: the short axis is the channel axis.
    channels = raw if raw.shape[1] <= raw.shape[-1] else cupy.moveaxis(raw, -1, 1)
    if spec.output_channel >= channels.shape[1]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    return channels


def _to_mask(raw: Array, spec: ModelSpec, masks: Array) -> None:
    """Turn (n, C, h, w) raw outputs into (n, h, w) masks in [0, 1]."""
    person = raw[:, spec.output_channel]
    if spec.activation == "sigmoid":
        person = 1.0 / (1.0 + cupy.exp(-cupy.clip(person, -60.0, 60.0)))
    elif spec.activation == "softmax":
        shifted = cupy.exp(raw - raw.max(axis=1, keepdims=True))
        person = shifted[:, spec.output_channel] / shifted.sum(axis=1)
    cupy.copyto(masks, person, casting="unsafe")
    cupy.nan_to_num(masks, copy=False)
    cupy.clip(masks, 0.0, 1.0, out=masks)
