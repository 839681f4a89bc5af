"""Drawing surfaces and textures for the sample clip's room.

World units are pixels of a 1280 x 720 frame at the start of the shot; (0, 0) is its centre.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
UInt8Array = npt.NDArray[np.uint8]
Rgb = tuple[float, float, float]

WORLD_WIDTH: Final = 1560
WORLD_HEIGHT: Final = 880
DRAW_SCALE: Final = 2
"""Canvas pixels per world unit while drawing; reduced afterwards, which smooths the lines."""


class Canvas:
    """An RGB surface with coverage, addressed in world units.

    Attributes:
        image: (H, W, 3) uint8 RGB at ``DRAW_SCALE``.
        mask: (H, W) uint8 coverage; what is drawn becomes opaque.
    """

    def __init__(self, fill: Rgb | None = None) -> None:
        shape = (WORLD_HEIGHT * DRAW_SCALE, WORLD_WIDTH * DRAW_SCALE)
        self.image: UInt8Array = np.zeros((*shape, 3), np.uint8)
        self.mask: UInt8Array = np.zeros(shape, np.uint8)
        if fill is not None:
            self.image[:] = np.asarray(fill, np.uint8)
            self.mask[:] = 255

    def point(self, x: float, y: float) -> tuple[int, int]:
        """Return the canvas pixel (x, y) of a world position."""
        return (
            round((x + WORLD_WIDTH / 2) * DRAW_SCALE),
            round((y + WORLD_HEIGHT / 2) * DRAW_SCALE),
        )

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: Rgb) -> None:
        """Fill an upright rectangle."""
        for target, value in ((self.image, colour), (self.mask, (255.0,))):
            cv2.rectangle(target, self.point(x0, y0), self.point(x1, y1), value, -1)

    def polygon(self, points: list[tuple[float, float]], colour: Rgb) -> None:
        """Fill a polygon."""
        corners = np.array([self.point(x, y) for x, y in points], np.int32)
        cv2.fillPoly(self.image, [corners], colour, cv2.LINE_AA)
        cv2.fillPoly(self.mask, [corners], (255.0,), cv2.LINE_AA)

    def disc(self, x: float, y: float, radius: float, colour: Rgb) -> None:
        """Fill a circle."""
        radius_px = round(radius * DRAW_SCALE)
        cv2.circle(self.image, self.point(x, y), radius_px, colour, -1, cv2.LINE_AA)
        cv2.circle(self.mask, self.point(x, y), radius_px, (255.0,), -1, cv2.LINE_AA)

    def line(self, x0: float, y0: float, x1: float, y1: float, width: float, colour: Rgb) -> None:
        """Draw a straight stroke."""
        ends = self.point(x0, y0), self.point(x1, y1)
        width_px = max(1, round(width * DRAW_SCALE))
        cv2.line(self.image, *ends, colour, width_px, cv2.LINE_AA)
        cv2.line(self.mask, *ends, (255.0,), width_px, cv2.LINE_AA)

    def paste(self, x: float, y: float, patch: UInt8Array) -> None:
        """Put an opaque (h, w, 3) patch with its top left corner at a world position."""
        left, top = self.point(x, y)
        height = min(patch.shape[0], self.image.shape[0] - top)
        width = min(patch.shape[1], self.image.shape[1] - left)
        skip_x, skip_y = max(0, -left), max(0, -top)
        if height <= skip_y or width <= skip_x:
            return
        area = np.s_[top + skip_y : top + height, left + skip_x : left + width]
        self.image[area] = patch[skip_y:height, skip_x:width]
        self.mask[area] = 255

    def shade(self, x0: float, y0: float, x1: float, y1: float, gain: FloatArray) -> None:
        """Multiply a rectangle by a gain that broadcasts over (h, w, 3) after resizing."""
        (left, top), (right, bottom) = self.point(x0, y0), self.point(x1, y1)
        top, left = max(0, top), max(0, left)
        area = self.image[top:bottom, left:right]
        if area.size:
            resized = cv2.resize(gain, (area.shape[1], area.shape[0]))
            area[:] = np.clip(area * resized.reshape(*area.shape[:2], -1), 0, 255)

    def text(self, x: float, y: float, words: str, height: float, colour: Rgb) -> None:
        """Write a line centred at (x, y)."""
        scale = height * DRAW_SCALE / 22.0
        weight = max(1, round(scale * 1.8))
        (width_px, height_px), _ = cv2.getTextSize(words, cv2.FONT_HERSHEY_DUPLEX, scale, weight)
        left, top = self.point(x, y)
        origin = (left - width_px // 2, top + height_px // 2)
        cv2.putText(
            self.image, words, origin, cv2.FONT_HERSHEY_DUPLEX, scale, colour, weight, cv2.LINE_AA
        )


def noise(
    rng: np.random.Generator, shape: tuple[int, int], grain: tuple[float, float]
) -> FloatArray:
    """Return smooth noise, (H, W), mean 0 and deviation 1; grain is its size (y, x) in pixels."""
    coarse = (
        max(2, round(shape[0] / max(grain[0], 1.0))),
        max(2, round(shape[1] / max(grain[1], 1.0))),
    )
    field = rng.standard_normal(coarse).astype(np.float32)
    grown = cv2.resize(field, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC)
    return np.asarray((grown - grown.mean()) / (grown.std() + 1e-6), np.float32)


def textured(base: Rgb, *variations: FloatArray) -> UInt8Array:
    """Return an (H, W, 3) patch of one colour, made lighter and darker by relative variations."""
    gain = 1.0 + np.sum(variations, axis=0)
    patch = np.asarray(base, np.float32) * gain[..., None]
    return np.asarray(np.clip(patch, 0, 255), np.uint8)


def wood(rng: np.random.Generator, shape: tuple[int, int], base: Rgb) -> UInt8Array:
    """Return a plank, (H, W, 3), its grain along the longer side."""
    along = shape if shape[1] >= shape[0] else shape[::-1]
    grain = 0.10 * noise(rng, along, (5, 260)) + 0.05 * noise(rng, along, (2, 90))
    patch = textured(base, grain, 0.05 * noise(rng, along, (40, 400)))
    return patch if shape[1] >= shape[0] else np.ascontiguousarray(np.rot90(patch))
