"""Matting by models that remember: Robust Video Matting and others of its contract.

They take the whole frame and give its alpha, frame after frame in order; what they remember stays
where they run. Inside they work on a smaller picture, whose size is fixed for a render.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bgsoft.errors import ModelError
from bgsoft.frame import AnalysisFrame, Array, Frame, FrameFormat
from bgsoft.infer.base import Driver, Network, Wiring
from bgsoft.models.catalog import ModelSpec
from bgsoft.segment.base import Family, Segmenter
from bgsoft.segment.preprocess import CpuPreprocessor
from bgsoft.segment.single import to_mask
from bgsoft.workers import Workers

_INNER_SIDE = 512
"""Longest side, in pixels, of the picture that the model works on inside: its authors' advice."""


def downsample_ratio(width: int, height: int) -> float:
    """The factor by which the model reduces frames of this size; 1 for small ones."""
    return min(1.0, _INNER_SIDE / max(width, height))


class RecurrentSegmenter(Segmenter):
    """Alphas of consecutive frames, on the host or on a device.

    Args:
        spec: The model's contract.
        driver: Runs the network on single frames.
        write: Writes a frame's picture, given as a grid, into a (1, 3, H, W) tensor.
        read: Writes the (H, W) alpha that a (1, C, H, W) output holds.
        alphas: Where alphas are kept, one for each frame of a batch.
    """

    def __init__(
        self,
        spec: ModelSpec,
        driver: Driver,
        write: Callable[[AnalysisFrame, Array], None],
        read: Callable[[Array, Array], None],
        alphas: Sequence[Array],
    ) -> None:
        shape = driver.network.outputs[spec.output].shape
        if shape[:1] + shape[2:] != (1, *alphas[0].shape) or spec.output_channel >= shape[1]:
            raise ModelError(f"model {spec.name}: output of shape {shape} is no alpha of the frame")
        self.name = spec.name
        self._spec = spec
        self._driver = driver
        self._write = write
        self._read = read
        self._alphas = alphas

    def start(self) -> None:
        self._driver.start()
        self._driver.reset()

    def masks(self, frames: Sequence[Frame], reduced: Sequence[AnalysisFrame]) -> Sequence[Array]:
        """See :meth:`bgsoft.segment.base.Segmenter.masks`."""
        for frame, alpha in zip(frames, self._alphas, strict=False):
            self._run(frame, alpha)
        return self._alphas[: len(frames)]

    def _run(self, frame: Frame, alpha: Array) -> None:
        # The frame itself serves as its grid: the model wants it whole.
        picture = AnalysisFrame(1, frame.luma, frame.chroma)

        def write(network: Network, _start: int, _stop: int) -> None:
            self._write(picture, network.inputs[self._spec.input])

        def read(network: Network, _start: int, _stop: int) -> None:
            self._read(network.outputs[self._spec.output], alpha)

        self._driver.run([frame], write, read)

    def reset(self) -> None:
        self._driver.reset()

    def close(self) -> None:
        self._driver.close()


class _Recurrent(Family):
    in_order = True
    makes_alpha = True

    def wiring(self, spec: ModelSpec, format: FrameFormat, batch: int) -> Wiring:
        if spec.layout != "NCHW":
            raise ModelError(f"model {spec.name}: recurrent models take NCHW")
        ratio = downsample_ratio(format.width, format.height)
        return Wiring(
            inputs={spec.input: (batch, 3, format.height, format.width)},
            # The foreground's colours stay where the network runs, until somebody wants them.
            outputs=(spec.output,),
            constants={spec.ratio_input: ratio} if spec.ratio_input else {},
            loops=dict(spec.loops),
        )

    def on_host(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, workers: Workers
    ) -> Segmenter:
        preprocessor = CpuPreprocessor(_whole(spec, format), format)
        return RecurrentSegmenter(
            spec,
            driver,
            lambda picture, tensor: preprocessor.write(picture, tensor[0]),
            lambda raw, alpha: to_mask(raw[0], spec, alpha),
            [np.empty(format.luma_shape, np.float32) for _ in range(workers.lanes)],
        )

    def on_device(
        self, spec: ModelSpec, format: FrameFormat, driver: Driver, batch: int
    ) -> Segmenter:
        import cupy

        from bgsoft.segment.batched import to_masks
        from bgsoft.segment.cuda import CudaPreprocessor

        preprocessor = CudaPreprocessor(_whole(spec, format), format, whole_frame=True)
        return RecurrentSegmenter(
            spec,
            driver,
            preprocessor.write,
            lambda raw, alpha: to_masks(raw, spec, alpha[None]),
            [cupy.empty(format.luma_shape, np.float32) for _ in range(batch)],
        )


def _whole(spec: ModelSpec, format: FrameFormat) -> ModelSpec:
    """The contract with the frame's size as the input's."""
    return replace(spec, width=format.width, height=format.height)


RECURRENT = _Recurrent()
