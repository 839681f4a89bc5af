"""Replaces the background of frames, on the host or on a CUDA device.

A frame takes three steps: its background is prepared from the analysis frame, what earlier frames
tell is brought in, and one kernel blends it into luma and chroma, touching only what is not opaque.
Where the background is replaced, the people's own colour at their edges is put in place before
(:mod:`bgsoft.composite.foreground`). Nothing is allocated after construction.
"""

from __future__ import annotations

from collections.abc import Sequence

from bgsoft.composite.background import Background
from bgsoft.composite.base import check_planes
from bgsoft.composite.foreground import ForegroundColor
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.sides import Side
from bgsoft.workers import Workers

_DEVICE_RUN = (2, 8)
"""Luma rows and columns of one thread of ``blend.cu``."""
_ALIGNMENT_BYTES = 16


class PictureCompositor:
    """The :class:`bgsoft.composite.base.Compositor` of either side.

    Args:
        side: Where the frames are.
        format: Format of every frame.
        backgrounds: One for each frame that is worked on at a time; none where the frame's colour
            stays as it is.
        foregrounds: As many, where the background is replaced.
        workers: What does it, side by side on the host.
    """

    def __init__(
        self,
        side: Side,
        format: FrameFormat,
        backgrounds: Sequence[Background],
        foregrounds: Sequence[ForegroundColor],
        workers: Workers,
    ) -> None:
        self._side, self._format = side, format
        self._backgrounds, self._foregrounds = backgrounds, foregrounds
        self._workers = workers
        if backgrounds:
            bits = 8 * format.bytes_per_sample
            self._launch = side.operation("blend", backgrounds[0].kernel, sample_bits=bits)
        rows, columns = _DEVICE_RUN
        self._runs = -(-format.height // rows), -(-format.width // columns)
        self._whole_width = side.on_device and format.width % columns == 0

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], reduced: Sequence[AnalysisFrame]
    ) -> None:
        """See :meth:`bgsoft.composite.base.Compositor.apply`.

        Raises:
            DecodeError: The background video can no longer be read.
        """
        if not self._backgrounds:
            return
        for part in self._workers.parts(len(frames)):
            planes = frames[part], mattes[part], reduced[part]
            self._workers.map(self._prepare, *planes)
            for background, frame in zip(self._backgrounds, frames[part], strict=False):
                background.settle(frame)
            self._workers.map(self._blend, *planes)

    def _prepare(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        check_planes(self._format, frame, matte, reduced)
        self._backgrounds[lane].prepare(frame, matte, reduced)

    def _blend(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        if self._foregrounds:
            self._foregrounds[lane].restore(frame, matte, reduced)
        luma, chroma, alpha = frame.luma, frame.chroma, matte.alpha
        whole = False
        if self._whole_width:
            addresses = luma.data.ptr | chroma.data.ptr | alpha.data.ptr
            whole = addresses % _ALIGNMENT_BYTES == 0
        size = self._format.height, self._format.width, int(whole)
        self._launch(self._runs, luma, chroma, alpha, *size, *self._backgrounds[lane].arguments)

    def refresh(self) -> None:
        for background in self._backgrounds:
            background.refresh()

    def close(self) -> None:
        for background in self._backgrounds:
            background.close()
