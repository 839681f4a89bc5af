"""Runs a detector on whole frames, on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bgsoft.analysis.base import analysis_shape, detail_factor
from bgsoft.detect.boxes import BoxReader, FoundBox, Letterbox
from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network
from bgsoft.models.catalog import ModelSpec
from bgsoft.ops.placement import HOST, Placement
from bgsoft.segment.preprocess import Preprocessor
from bgsoft.threads import LanePool

_BARS = 114 / 255
"""Grey of the bars next to the frame, as YOLO's authors train with."""


class Detector:
    """Finds boxes in frames of one format.

    Args:
        spec: The detector's contract.
        driver: Runs its network; closed with this.
        format: Format of the frames.
        pool: Threads that prepare inputs and read outputs; one lane per frame.
        placement: Host or device of the frames.
        on_notice: Called with a notice if boxes are left out.

    Raises:
        ModelError: The network's output is not what the contract says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        driver: Driver,
        format: FrameFormat,
        pool: LanePool | None = None,
        placement: Placement = HOST,
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._spec, self._driver, self._placement = spec, driver, placement
        outputs = driver.network.outputs
        if spec.output not in outputs:
            given = ", ".join(outputs)
            raise ModelError(
                f"cannot use detector {spec.name}: it has no output {spec.output!r}, only {given}"
            )
        place = self._place = Letterbox.of(spec, format)
        pictures = driver.network.inputs[spec.input].shape[0]
        self.reader = BoxReader(spec, outputs[spec.output].shape, pictures, place, on_notice)
        shown = replace(spec, width=place.width, height=place.height)
        lanes = 1 if pool is None else pool.lanes
        self._preprocessors = [Preprocessor(shown, format, placement) for _ in range(lanes)]
        shape = (1, *self._preprocessors[0].shape)
        self._pictures = [placement.xp.empty(shape, np.float32) for _ in range(lanes)]
        """The frames, without bars."""
        rows, columns = analysis_shape(
            format.width, format.height, detail_factor(format.width, format.height)
        )
        self._whole = rows < place.height or columns < place.width
        """Whether reduced frames have less detail than the input."""
        channels = (3, 1, 1) if spec.layout == "NCHW" else (3,)
        bars = (_BARS - np.array(spec.mean)) / np.array(spec.std)
        self._bars = placement.array(bars.reshape(channels).astype(np.float32))

    def start(self) -> None:
        """Run once, in the thread that will call :meth:`find`."""
        self._driver.start()

    def find(
        self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]
    ) -> list[list[FoundBox]]:
        """Return the boxes in each of some frames, which do not depend on each other.

        Raises:
            InferenceError: The network failed.
            ModelError: Its output contradicts the contract.
        """
        spec = self._spec
        found: list[list[FoundBox]] = [[] for _ in frames]

        def write(network: Network, start: int, stop: int) -> None:
            for at in range(start, stop):
                whole = AnalysisFrame(1, frames[at].luma, frames[at].chroma)
                shown = whole if self._whole else reduced[at]
                self._write(shown, network.inputs[spec.input], at - start, at)

        def read(network: Network, start: int, stop: int) -> None:
            raw = network.outputs[spec.output][: stop - start]
            made = raw.get() if self._placement.on_device else raw
            found[start:stop] = [self.reader.read(each) for each in made]

        self._driver.run(frames, write, read)
        return found

    def _write(self, shown: AnalysisFrame, tensor: Array, item: int, index: int) -> None:
        place, lane = self._place, index % len(self._pictures)
        picture = self._pictures[lane]
        self._preprocessors[lane].write(shown, picture)
        target = tensor[item]
        target[...] = self._bars
        rows = slice(place.top, place.top + place.height)
        columns = slice(place.left, place.left + place.width)
        if self._spec.layout == "NCHW":
            target[:, rows, columns] = picture[0]
        else:
            target[rows, columns] = picture[0]

    def close(self) -> None:
        """Free the network; safe to call twice."""
        self._driver.close()
