"""Draws shapes into a picture with OpenCV.

OpenCV is needed for the render itself; a plotting library would be another dependency for the
same few rectangles and lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.plotting.drawing import Drawing, Line, Path, Rect, Text

__all__ = ["SCALE", "draw", "sheet"]

SCALE = 2
"""Picture pixels per drawing unit: text stays sharp on dense screens and on paper."""
_FRACTION_BITS = 4
"""OpenCV's fixed-point coordinates: sixteenths of a pixel."""
_ASCII = str.maketrans(
    {"×": "x", "–": "-", "—": "-", "…": "...", "°": " deg", "«": '"', "»": '"', "µ": "u", "σ": "s"}
)
"""OpenCV 4 draws ASCII only."""

Picture = NDArray[np.uint8]


def sheet(width: float, height: float, palette: Mapping[str, str]) -> Picture:
    """An empty (H, W, 3) BGR picture of a drawing's size."""
    size = (round(height * SCALE), round(width * SCALE), 3)
    return np.full(size, _color(palette["page"]), np.uint8)


def draw(
    picture: Picture, drawing: Drawing, x: float, y: float, palette: Mapping[str, str]
) -> None:
    """Draw at a place.

    Args:
        picture: (H, W, 3) BGR, written to.
        drawing: What to draw.
        x: Left edge, drawing units.
        y: Top edge, drawing units.
        palette: Colour of each role, ``#rrggbb``.
    """
    for shape in drawing.shapes:
        match shape:
            case Rect():
                _rect(picture, shape, x, y, _color(palette[shape.fill]))
            case Line():
                ends = [(shape.x1 + x, shape.y1 + y), (shape.x2 + x, shape.y2 + y)]
                _lines(picture, ends, shape.width, _color(palette[shape.stroke]))
            case Path():
                points = [(px + x, py + y) for px, py in shape.points]
                _lines(picture, points, shape.width, _color(palette[shape.stroke]))
            case Text():
                _text(picture, shape, x, y, _color(palette[shape.fill]))


def _color(value: str) -> tuple[int, int, int]:
    """(blue, green, red)."""
    return int(value[5:7], 16), int(value[3:5], 16), int(value[1:3], 16)


def _rect(picture: Picture, shape: Rect, x: float, y: float, color: tuple[int, int, int]) -> None:
    left, top = round((shape.x + x) * SCALE), round((shape.y + y) * SCALE)
    right = max(left + 1, round((shape.x + x + shape.width) * SCALE))
    bottom = max(top + 1, round((shape.y + y + shape.height) * SCALE))
    area = picture[top:bottom, left:right].astype(np.float32)
    mixed = area * (1 - shape.opacity) + np.array(color, np.float32) * shape.opacity
    picture[top:bottom, left:right] = np.rint(mixed).astype(np.uint8)


def _lines(
    picture: Picture,
    points: list[tuple[float, float]],
    width: float,
    color: tuple[int, int, int],
) -> None:
    fixed = np.rint(np.array(points) * SCALE * (1 << _FRACTION_BITS)).astype(np.int32)
    thickness = max(1, round(width * SCALE * 0.8))
    cv2.polylines(picture, [fixed], False, color, thickness, cv2.LINE_AA, _FRACTION_BITS)


def _text(picture: Picture, shape: Text, x: float, y: float, color: tuple[int, int, int]) -> None:
    size = round(shape.size * SCALE)
    weight = 600 if shape.bold else 400
    position = (round((shape.x + x) * SCALE), round((shape.y + y) * SCALE))
    if hasattr(cv2, "FontFace"):  # OpenCV 5: outlines, and more than ASCII
        face = cv2.FontFace("sans")
        # Its size is that of the capitals and descenders, not of the em.
        pixels = round(size * 0.92)
        box = cv2.getTextSize((0, 0), shape.text, (0, 0), face, pixels, weight)
        place = (position[0] - _shift(shape, box[2]), position[1])
        cv2.putText(picture, shape.text, place, color, face, pixels, weight)
        return
    text = shape.text.translate(_ASCII)
    scale = cv2.getFontScaleFromHeight(cv2.FONT_HERSHEY_SIMPLEX, round(size * 0.72))
    thickness = 2 if shape.bold else 1
    (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, thickness)
    place = (position[0] - _shift(shape, width), position[1])
    options: Any = (cv2.FONT_HERSHEY_SIMPLEX, scale, color, thickness, cv2.LINE_AA)
    cv2.putText(picture, text, place, *options)


def _shift(shape: Text, width: int) -> int:
    return {"start": 0, "middle": width // 2, "end": width}[shape.anchor]
