"""Segmentation by one network, on the host or on a device: one run a frame.

Models that see a frame at a time are shown its analysis frame. Models that remember, as Robust
Video Matting does, take the whole frame and give its alpha, frame after frame in order; what they
remember stays where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.base import Segmenter
from bgsoft.segment.families import FAMILIES

STRETCHED_FROM = (0.25, 0.5)
"""``stretch = "min-max"`` takes the least and the greatest probability of a frame to 0 and 1, as is
done with photographs. But no more than the first and no less than the second: where nobody is to be
seen, noise would become people; where nothing but a person is, the person would vanish."""


class Tensors(Protocol):
    """Pictures into a network's input, and masks from its output, on one side."""

    masks: Sequence[Array]
    """(h, w) float32 in [0, 1], one for each frame of a batch."""

    def write(
        self, pictures: Sequence[AnalysisFrame], tensor: Array, first: int, *, mirrored: bool
    ) -> None:
        """Write pictures into items 0, 1 … of an input.

        Args:
            pictures: What the network is shown.
            tensor: (B, 3, H, W) or (B, H, W, 3) by the model's layout.
            first: Place of the first picture in its batch.
            mirrored: From left to right.
        """
        ...

    def read(self, raw: Array, first: int, *, mirrored: bool) -> None:
        """Write :attr:`masks` from ``first`` on from (n, C, h, w) of an output."""
        ...


MakeTensors = Callable[[ModelSpec, FrameFormat, tuple[int, int]], Tensors]
"""Makes them for a model whose input has its spec's size, and for masks of (h, w)."""


class NetworkSegmenter(Segmenter):
    """Runs a network on every frame that it is given.

    Args:
        spec: The model's contract.
        driver: Runs the network, wired as its family says; closed with the segmenter.
        format: Format of the frames.
        make_tensors: Of the side that the frames are on.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self, spec: ModelSpec, driver: Driver, format: FrameFormat, make_tensors: MakeTensors
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._driver = driver
        _, _, height, width = shape = channels(driver.network, spec).shape
        makes_alpha = FAMILIES[spec.family].makes_alpha
        if makes_alpha:
            spec = replace(spec, width=format.width, height=format.height)
            if (height, width) != format.luma_shape:
                raise ModelError(
                    f"model {spec.name}: output of shape {shape} is no alpha of the frame"
                )
        self._tensors = make_tensors(spec, format, (height, width))
        # The frame itself is shown where its reduction has less than the model takes. At 1080p the
        # masks of IS-Net, 1024×1024, are within 0.00015 of those that it makes of the frame reduced
        # with Lanczos (mean, IoU 0.9996); of 480×270, within 0.0007 (0.998).
        rows, columns = analysis_shape(
            format.width, format.height, detail_factor(format.width, format.height)
        )
        self._whole = makes_alpha or rows < spec.height or columns < spec.width

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

        Args:
            frames: For messages.
            shown: The pictures.
            mirrored: Show them to the model from left to right; masks are as without.
        """

        def write(network: Network, start: int, stop: int) -> None:
            tensor = network.inputs[self._spec.input]
            self._tensors.write(shown[start:stop], tensor, start, mirrored=mirrored)

        def read(network: Network, start: int, stop: int) -> None:
            raw = channels(network, self._spec)[: stop - start]
            self._tensors.read(raw, start, mirrored=mirrored)

        self._driver.run(frames, write, read)
        return self._tensors.masks[: len(frames)]

    def reset(self) -> None:
        self._driver.reset()

    def close(self) -> None:
        self._driver.close()


def channels(network: Network, spec: ModelSpec) -> Array:
    """View (B, C, h, w) of a model's main output, whichever its layout.

    Raises:
        ModelError: It is no mask, or has no such channel.
    """
    raw = network.outputs.get(spec.output)
    if raw is None:
        given = ", ".join(network.outputs)
        raise ModelError(f"model {spec.name} has no output {spec.output!r}, only {given}")
    if raw.ndim == 3:
        raw = raw[:, None]
    if raw.ndim != 4:
        raise ModelError(f"model {spec.name}: output of shape {raw.shape} is no mask")
    # Masks have one or two channels: the short axis is the channel axis.
    if raw.shape[1] > raw.shape[-1]:
        raw = raw.transpose(0, 3, 1, 2)
    if not 0 <= spec.output_channel < raw.shape[1]:
        raise ModelError(f"model {spec.name} has no output channel {spec.output_channel}")
    return raw
