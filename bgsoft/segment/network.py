"""Segmentation by one network, on the host or on a device: one run a frame.

Models that see a frame at a time are shown its analysis frame. Models that remember, as Robust
Video Matting does, take the whole frame and give its alpha, frame after frame in order; what they
remember stays where they run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.infer.drivers import BatchDriver
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.catalog import ModelSpec
from bgsoft.report import Event
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import FAMILIES

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice
    from bgsoft.segment.averaged import Average
    from bgsoft.segment.zoomed import ZoomPlanes

STRETCHED_FROM = (0.25, 0.5)
"""``stretch = "min-max"`` takes the least and the greatest probability of a frame to 0 and 1, as is
done with photographs. But no more than the first and no less than the second: where nobody is to be
seen, noise would become people; where nothing but a person is, the person would vanish."""


class NetworkSegmenter(Segmenter):
    """Runs a network on every frame that it is given.

    Args:
        spec: The model's contract.
        driver: Runs the network, wired as its family says; closed with the segmenter.
        format: Format of the frames.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    _planes: Any
    """Masks of the frames of a batch, (h, w) float32 each."""

    def __init__(self, spec: ModelSpec, driver: Driver, format: FrameFormat) -> None:
        self.name = spec.name
        self._driver = driver
        makes_alpha = FAMILIES[spec.family].makes_alpha
        shape = channels(driver.network, spec).shape
        self._mask_shape = shape[2:]
        if makes_alpha:
            spec = replace(spec, width=format.width, height=format.height)
            if self._mask_shape != format.luma_shape:
                raise ModelError(
                    f"model {spec.name}: output of shape {shape} is no alpha of the frame"
                )
        self._spec = spec
        """With the size of what the network is shown."""
        # The frame itself is shown where its reduction has less than the model takes. At 1080p the
        # masks of IS-Net, 1024×1024, are within 0.00015 of those that it makes of the frame reduced
        # with Lanczos (mean, IoU 0.9996); of 480×270, within 0.0007 (0.998).
        rows, columns = analysis_shape(
            format.width, format.height, detail_factor(format.width, format.height)
        )
        self._whole = makes_alpha or rows < spec.height or columns < spec.width

    @abstractmethod
    def _write(
        self, shown: Sequence[AnalysisFrame], tensor: Array, first: int, mirrored: bool
    ) -> None:
        """Write pictures, the ``first`` one's place in its batch, into items 0, 1 … of an input.

        The tensor is (B, 3, H, W) or (B, H, W, 3) by the model's layout.
        """

    @abstractmethod
    def _read(self, raw: Array, first: int, mirrored: bool) -> None:
        """Make the masks from ``first`` on of (n, C, h, w) raw output."""

    def start(self) -> None:
        self._driver.start()
        self._driver.reset()

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        return self.run(frames, self.shown(frames, reduced))

    def shown(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> Sequence[AnalysisFrame]:
        """What the model is shown of whole frames."""
        if not self._whole:
            return reduced
        return [AnalysisFrame(1, frame.luma, frame.chroma) for frame in frames]

    def run(
        self, frames: Sequence[Frame], shown: Sequence[AnalysisFrame], *, mirrored: bool = False
    ) -> Sequence[Array]:
        """Masks of pictures, which may be parts of the frames.

        Mirrored, the model sees them from right to left; masks are as without.
        """

        def write(network: Network, start: int, stop: int) -> None:
            tensor = network.inputs[self._spec.input]
            self._write(shown[start:stop], tensor, start, mirrored)

        def read(network: Network, start: int, stop: int) -> None:
            raw = channels(network, self._spec)[: stop - start]
            self._read(raw, start, mirrored)

        self._driver.run(frames, write, read)
        return list(self._planes[: len(frames)])

    def reset(self) -> None:
        self._driver.reset()

    def close(self) -> None:
        self._driver.close()


class Side(ABC):
    """Makes what segments frames of one format, on the side that they are on.

    Args:
        backend: ``tensorrt``, ``cuda`` or ``cpu``, for the models.
        format: Format of the frames.
        on_event: Called for retries, and where the CPU takes over.
    """

    runs_apart: bool
    """Whether passes over few frames of a batch have networks of their own, beside the others."""

    def __init__(
        self, backend: str, format: FrameFormat, on_event: Callable[[Event], None]
    ) -> None:
        self._backend = backend
        self._format = format
        self._on_event = on_event

    @abstractmethod
    def driver(self, loader: NetworkLoader, *, single: bool = False, apart: bool = False) -> Driver:
        """What runs a model; may be called in a thread of its own.

        Args:
            loader: Of the model.
            single: Frames are run one at a time, where :attr:`runs_apart`.
            apart: On a stream of its own, there.

        Raises:
            ModelError: The model does not match its contract.
            BackendUnavailableError: It does not run there.
        """

    @abstractmethod
    def segmenter(self, spec: ModelSpec, driver: Driver) -> NetworkSegmenter:
        """What makes masks by a driver."""

    @abstractmethod
    def zoom_planes(self, model: tuple[int, int], half: float, *, apart: bool) -> ZoomPlanes:
        """See :class:`bgsoft.segment.zoomed.ZoomPlanes`; ``apart``: so the general model runs."""

    @abstractmethod
    def average(self) -> Average:
        """What averages mattes with masks."""

    def _batch_driver(
        self,
        loader: NetworkLoader,
        wrap: Callable[[Network], Network],
        gpu: tuple[CudaDevice, Any],
        batch: int,
        largest_batch: int,
    ) -> Driver:
        """A driver on a device and its stream; ``wrap`` gives networks arrays where frames are."""
        spec, format = loader.model.spec, self._format
        wiring = FAMILIES[spec.family].wiring
        threads = loader.cores if runs_singly(spec) else 1

        def on_cpu(size: int) -> Network:
            (network,) = loader.on_cpu(wiring(spec, format, size), threads=threads)
            return wrap(network)

        def make(size: int, graphs: bool) -> Network:
            if self._backend == "cpu":
                return on_cpu(size)
            # After a fault, a smaller batch goes on with the engine of the whole one.
            wired = wiring(spec, format, size)
            return wrap(
                loader.on_gpu(
                    wired,
                    self._backend,
                    *gpu,
                    graphs=graphs,
                    largest_batch=largest_batch,
                    alone=not graphs,
                )
            )

        return BatchDriver(make, lambda: on_cpu(1), batch=batch, on_event=self._on_event)


def runs_singly(spec: ModelSpec) -> bool:
    """Whether a frame has all threads of the CPU, and not each frame one."""
    return FAMILIES[spec.family].in_order or spec.large


def channels(network: Network, spec: ModelSpec) -> Array:
    """View (B, C, h, w) of a model's main output, whichever its layout.

    Raises:
        ModelError: It is no mask, or has no such channel.
    """
    raw = network.outputs.get(spec.output)
    if raw is None:
        given = ", ".join(network.outputs)
        raise ModelError(f"model {spec.name} has no output {spec.output!r}, only {given}")
    shape = raw.shape
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4 or not raw.size:
        raise ModelError(f"model {spec.name}: output of shape {shape} is no mask")
    pictures = len(network.inputs[spec.input])
    if len(raw) < pictures:
        text = f"output of shape {shape} has no mask for each of {pictures} pictures"
        raise ModelError(f"model {spec.name}: {text}")
    # Masks have one or two channels: the short axis is the channel axis.
    if raw.shape[1] > raw.shape[-1]:
        raw = raw.transpose(0, 3, 1, 2)
    if not 0 <= spec.output_channel < raw.shape[1]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    return raw
