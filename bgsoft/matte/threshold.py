"""From mask values to opacity: the soft step around the threshold."""

from __future__ import annotations

import cv2
import numpy as np

from bgsoft.frame import Array

__all__ = ["SoftThreshold"]


class SoftThreshold:
    """Maps mask values to opacity with a smooth step.

    The step runs from ``threshold - h`` to ``threshold + h`` as 3x² − 2x³, where ``h`` is
    ``softness`` times the distance from the threshold to the nearer end of [0, 1]: below it the
    result is exactly 0, above it exactly 255, at the threshold one half.
    """

    def __init__(self, threshold: float | None, softness: float) -> None:
        """Prepare the step.

        Args:
            threshold: Mask value of half opacity, 0–1; None: opacity is the mask value.
            softness: Width of the step, 0 (hard)–1 (as wide as the range allows).
        """
        half = 0.5 if threshold is None else softness * min(threshold, 1.0 - threshold)
        middle = 0.5 if threshold is None else threshold
        # At least 1/256 of the range wide, so that the scale stays finite for a hard step.
        half = max(half, 1.0 / 512.0)
        self._scale = 255.0 / (2.0 * half)
        self._offset = -(middle - half) * self._scale
        x = np.arange(256, dtype=np.float64) / 255.0
        step = x * x * (3.0 - 2.0 * x)
        self._curve = None if threshold is None else np.rint(step * 255.0).astype(np.uint8)

    def apply(self, mask: Array, out: Array) -> None:
        """Write the opacity of each mask value.

        Args:
            mask: (h, w) float32 in [0, 1].
            out: (h, w) uint8; filled.
        """
        # addWeighted saturates below 0 as well, unlike convertScaleAbs.
        cv2.addWeighted(mask, self._scale, mask, 0.0, self._offset, dst=out, dtype=cv2.CV_8U)
        if self._curve is not None:
            cv2.LUT(out, self._curve, dst=out)
