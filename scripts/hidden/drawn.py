"""A frame that is drawn together with the truth: which pixels belong to which face."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
"""(H, W, 3) BGR."""

COVERING = 0.5
"""Opacity from which a patch covers the faces behind it."""
GHOST = 0.35
"""Weight in a crossfade from which a face counts."""


class Oval(NamedTuple):
    """A face: an ellipse in pixels; pixel 0 covers 0 to 1."""

    x: float
    y: float
    across: float
    """Half the width."""
    along: float
    """Half the height."""
    angle: float = 0.0
    """Degrees, clockwise on the screen."""

    @property
    def area(self) -> float:
        return math.pi * self.across * self.along

    def moved(self, matrix: NDArray[np.float64]) -> Oval:
        """Return the oval under a similarity, a (2, 3) matrix; it may mirror."""
        scale = math.sqrt(abs(np.linalg.det(matrix[:, :2])))
        x, y = matrix @ (self.x, self.y, 1.0)
        radians = math.radians(self.angle)
        axis = matrix[:, :2] @ (math.cos(radians), math.sin(radians))
        angle = math.degrees(math.atan2(axis[1], axis[0]))
        return Oval(float(x), float(y), self.across * scale, self.along * scale, angle)

    def larger(self, factor: float) -> Oval:
        return self._replace(across=self.across * factor, along=self.along * factor)

    def fill(self, mask: NDArray[np.uint8], value: int) -> None:
        """Draw the oval into (H, W)."""
        reach = max(self.across, self.along) + 1
        left, top = max(0, int(self.x - reach)), max(0, int(self.y - reach))
        part = mask[top : max(0, int(self.y + reach) + 1), left : max(0, int(self.x + reach) + 1)]
        y, x = np.ogrid[: part.shape[0], : part.shape[1]]
        x, y = x + left + 0.5 - self.x, y + top + 0.5 - self.y
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        across, along = (x * cos + y * sin) / self.across, (y * cos - x * sin) / self.along
        part[across**2 + along**2 <= 1] = value


@dataclass
class Patch:
    """A person's head and shoulders."""

    picture: Picture
    alpha: NDArray[np.float32]
    """(H, W) in 0–1."""
    oval: Oval
    """The face, in pixels of the patch."""


@dataclass
class Drawn:
    """A frame and its truth."""

    picture: Picture
    labels: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    """(H, W): the number of the face that a pixel shows, or 0."""
    ovals: dict[int, list[Oval]] = field(default_factory=dict)
    """By number: the faces as a whole, also where something covers them."""

    def __post_init__(self) -> None:
        if not self.labels.size:
            self.labels = np.zeros(self.picture.shape[:2], np.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.picture.shape[1], self.picture.shape[0]

    def add(self, oval: Oval, number: int) -> None:
        """Say that a face is there."""
        oval.fill(self.labels, number)
        self.ovals.setdefault(number, []).append(oval)

    def cover(self, left: float, top: float, right: float, bottom: float, color: int) -> None:
        """Put an opaque bar over the picture."""
        corners = (round(left), round(top)), (round(right), round(bottom))
        cv2.rectangle(self.picture, *corners, (color, color - 8, color + 8), -1)
        cv2.rectangle(self.labels, *corners, 0, -1)

    def paste(
        self,
        patch: Patch,
        number: int,
        x: float,
        y: float,
        height: float,
        angle: float = 0.0,
    ) -> None:
        """Put a person so that the face, ``height`` pixels high, has its centre at (x, y)."""
        scale = height / (2 * patch.oval.along)
        picture, alpha, oval = patch.picture, patch.alpha, patch.oval
        if scale < 1:
            size = [max(1, round(side * scale)) for side in picture.shape[1::-1]]
            picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
            alpha = cv2.resize(alpha, size, interpolation=cv2.INTER_AREA)
            exact = size[1] / patch.picture.shape[0]
            oval = oval.moved(np.array([[exact, 0, 0], [0, exact, 0]]))
            scale /= exact
        radians = math.radians(angle)
        cos, sin = scale * math.cos(radians), scale * math.sin(radians)
        turn = np.array([[cos, -sin], [sin, cos]])
        shift = np.array([x, y]) - turn @ (oval.x, oval.y)
        matrix = np.column_stack([turn, shift])
        high, wide = alpha.shape
        corners = np.array([(0, 0, 1), (wide, 0, 1), (0, high, 1), (wide, high, 1)]) @ matrix.T
        left, top = np.maximum(np.floor(corners.min(0)).astype(int), 0)
        right, bottom = np.minimum(np.ceil(corners.max(0)).astype(int), self.size)
        if left >= right or top >= bottom:
            return
        # OpenCV counts from the middle of a pixel.
        middle = turn @ (0.5, 0.5) - 0.5
        local = np.column_stack([turn, shift + middle - (left, top)])
        size = (int(right - left), int(bottom - top))
        opaque = cv2.warpAffine(alpha, local, size)[..., None]
        shown = cv2.warpAffine(picture, local, size, borderMode=cv2.BORDER_REPLICATE)
        behind = self.picture[top:bottom, left:right]
        behind[:] = np.rint(behind + opaque * (shown.astype(np.float32) - behind))
        self.labels[top:bottom, left:right][opaque[..., 0] >= COVERING] = 0
        self.add(oval.moved(matrix), number)

    def cropped(self, left: int, top: int, width: int, height: int) -> Drawn:
        """Return a copy of a part of the frame."""
        inside = np.s_[top : top + height, left : left + width]
        moved = np.array([[1.0, 0, -left], [0, 1.0, -top]])
        ovals = {n: [oval.moved(moved) for oval in each] for n, each in self.ovals.items()}
        return Drawn(self.picture[inside].copy(), self.labels[inside].copy(), ovals)

    def mirrored(self) -> Drawn:
        matrix = np.array([[-1.0, 0, self.size[0]], [0, 1.0, 0]])
        ovals = {n: [oval.moved(matrix) for oval in each] for n, each in self.ovals.items()}
        flipped = np.ascontiguousarray(self.picture[:, ::-1])
        return Drawn(flipped, np.ascontiguousarray(self.labels[:, ::-1]), ovals)

    def resized(self, width: int, height: int) -> Drawn:
        """Return the frame in another size; the sides' ratio stays but for a pixel."""
        scale = height / self.size[1]
        matrix = np.array([[scale, 0, 0], [0, scale, 0]])
        way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        picture = cv2.resize(self.picture, (width, height), interpolation=way)
        labels = cv2.resize(self.labels, (width, height), interpolation=cv2.INTER_NEAREST)
        ovals = {n: [oval.moved(matrix) for oval in each] for n, each in self.ovals.items()}
        return Drawn(np.asarray(picture, np.uint8), np.asarray(labels, np.uint8), ovals)

    def faded(self, other: Drawn, weight: float) -> Drawn:
        """Return a mix with a share of another frame, whose faces have other numbers."""
        first, second = (self, other) if weight < GHOST else (other, self)
        labels = second.labels.copy() if GHOST <= weight <= 1 - GHOST else first.labels * 0
        labels[first.labels > 0] = first.labels[first.labels > 0]
        picture = cv2.addWeighted(self.picture, 1 - weight, other.picture, weight, 0)
        return Drawn(np.asarray(picture, np.uint8), labels, {**self.ovals, **other.ovals})
