"""Replaces the background of frames, on the host or on a CUDA device.

A frame takes three steps: its background is prepared from the analysis frame, state of earlier
frames is applied, and one kernel blends it into luma and chroma, where the matte is not opaque.
Where the background is replaced, people's own colour at their edges is restored before
(:mod:`bgsoft.composite.foreground`). Nothing is allocated after construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from bgsoft.analysis.base import analysis_shape
from bgsoft.composite.background import Background
from bgsoft.composite.foreground import ForegroundColor
from bgsoft.frame import AnalysisFrame, Frame, FrameFormat, Matte
from bgsoft.ops.placement import Placement
from bgsoft.threads import LanePool

_KIND, _ALPHA = attrgetter("shape", "dtype"), np.dtype(np.uint8)


class PictureCompositor:
    """Replaces the background of frames of one format, in place.

    Args:
        placement: Device of the frames, or the host.
        format: Format of every frame.
        backgrounds: One for each frame that is processed at a time; empty if colour is unchanged.
        foregrounds: The same number, if the background is replaced; else empty.
        pool: Threads, on the host.
    """

    def __init__(
        self,
        placement: Placement,
        format: FrameFormat,
        backgrounds: Sequence[Background],
        foregrounds: Sequence[ForegroundColor],
        pool: LanePool,
    ) -> None:
        self._placement, self._format = placement, format
        self._backgrounds, self._foregrounds = backgrounds, foregrounds
        self._pool = pool
        grid = analysis_shape(format.width, format.height)
        luma, chroma, dtype = format.luma_shape, format.chroma_shape, np.dtype(format.dtype)
        self._wanted = [
            (luma, dtype),
            (chroma, dtype),
            (luma, _ALPHA),
            (grid, _ALPHA),
            (grid, dtype),
        ]
        """Shapes and dtypes of luma, chroma, alpha, and of matte and luma on the grid."""
        if backgrounds:
            bits = 8 * format.bytes_per_sample
            self._launch = placement.operation("blend", backgrounds[0].kernel, sample_bits=bits)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about the background."""
        return self._backgrounds[0].notices if self._backgrounds else ()

    def apply(
        self, frames: Sequence[Frame], mattes: Sequence[Matte], reduced: Sequence[AnalysisFrame]
    ) -> None:
        """Blend the effect's background into frames where their mattes are not opaque.

        Where alpha is 255, samples are unchanged, bit for bit. Where the background is replaced,
        partly transparent samples get the foreground's colour first; with
        :attr:`bgsoft.settings.config.EffectKind.ALPHA` nothing else changes.

        Args:
            frames: In presentation order; luma and chroma are overwritten.
            mattes: Their mattes.
            reduced: Their analysis frames, made before compositing.

        Raises:
            ValueError: A frame or its matte differs from the compositor's format.
            DecodeError: The background video cannot be read any more.
        """
        if not self._backgrounds:
            return
        for part in self._pool.parts(len(frames)):
            planes = frames[part], mattes[part], reduced[part]
            self._pool.map(self._prepare, *planes)
            for background, frame in zip(self._backgrounds, frames[part], strict=False):
                background.advance(frame)
            self._pool.map(self._blend, *planes)

    def _prepare(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        planes = frame.planes.luma, frame.planes.chroma, matte.alpha, matte.reduced, reduced.luma
        found = [*map(_KIND, planes)]
        if found != self._wanted:
            raise ValueError(
                f"shapes of luma, chroma, alpha, and matte and luma on the grid are {found}, not "
                f"{self._wanted}"
            )
        self._backgrounds[lane].prepare(frame, matte, reduced)

    def _blend(self, lane: int, frame: Frame, matte: Matte, reduced: AnalysisFrame) -> None:
        if self._foregrounds:
            self._foregrounds[lane].restore(frame, matte, reduced)
        planes, arguments = frame.planes, self._backgrounds[lane].arguments
        samples = planes.luma, planes.chroma, matte.alpha
        format = self._format
        # A device's thread blends a chroma sample, and its luma.
        self._launch(format.chroma_shape[:2], *samples, *format.luma_shape, *arguments)

    def refresh(self) -> None:
        """Take the next frame's background entirely, also where it has hardly changed."""
        for background in self._backgrounds:
            background.refresh()

    def close(self) -> None:
        """Free background images and videos; safe to call twice."""
        for background in self._backgrounds:
            background.close()
