"""Scenes in other light and colours, and of people who wear glasses, masks and caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import cv2
import numpy as np

from hidden.drawn import Drawn, Oval, Picture
from hidden.scenes import Rng, Scene, crowd, walking
from hidden.stock import Stock


def tinted(picture: Picture, *, gains: tuple[float, float, float], lift: float = 0.0) -> Picture:
    """Multiply blue, green and red, then add to all."""
    return np.clip(picture * np.array(gains) + lift, 0, 255).astype(np.uint8)


def grey(picture: Picture) -> Picture:
    return np.repeat(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)[..., None], 3, axis=2)


def thermal(picture: Picture) -> Picture:
    return np.asarray(cv2.applyColorMap(grey(picture), cv2.COLORMAP_INFERNO), np.uint8)


def posterized(picture: Picture) -> Picture:
    return np.asarray(picture // 64 * 64 + 32, np.uint8)


def backlit(picture: Picture) -> Picture:
    """Darken what is dark, and brighten the rest."""
    bright = 38 + (picture - 110.0) * 2.2
    return np.clip(np.where(picture < 110, picture * 0.35, bright), 0, 255).astype(np.uint8)


def smeared(picture: Picture) -> Picture:
    """Blur as by a movement of 13 pixels."""
    return np.asarray(cv2.blur(picture, (13, 1)), np.uint8)


def few_pixels(picture: Picture) -> Picture:
    small = cv2.resize(picture, None, fx=0.3, fy=0.3, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(small, picture.shape[1::-1]), np.uint8)


def night_vision(picture: Picture, rng: Rng) -> Picture:
    """Show it in green, with noise in all colours."""
    seen = tinted(grey(picture), gains=(0.2, 0.8, 0.2)) + rng.normal(0, 12, picture.shape)
    return np.clip(seen, 0, 255).astype(np.uint8)


def lights(rng: Rng) -> dict[str, Callable[[Picture], Picture]]:
    return {
        "grey": grey,
        "red": partial(tinted, gains=(0.15, 0.15, 1.0)),
        "blue": partial(tinted, gains=(1.0, 0.2, 0.1)),
        "thermal": thermal,
        "posterized": posterized,
        "dim": partial(tinted, gains=(0.14, 0.14, 0.14)),
        "overexposed": partial(tinted, gains=(1.8, 1.8, 1.8)),
        "haze": partial(tinted, gains=(0.4, 0.4, 0.4), lift=140.0),
        "backlit": backlit,
        "smeared": smeared,
        "few pixels": few_pixels,
        "night vision": partial(night_vision, rng=rng),
        "negative": np.invert,
    }


def lit(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("lit")
    for name, after in lights(stock.rng("night vision")).items():
        walks = crowd(stock, rng, 40, 110, 3)
        yield Scene(name, walking(stock, rng, walks, after=after))


DARK, CLOTH, CAP = (14, 12, 12), (225, 205, 170), (60, 30, 20)
"""Colours, BGR."""
WORN = {
    "sunglasses": ("glasses",),
    "mask": ("mask",),
    "bar": ("bar",),
    "cap and sunglasses": ("cap", "glasses"),
    "cap and mask": ("cap", "mask"),
    "sunglasses and mask": ("glasses", "mask"),
}


def wear(picture: Picture, oval: Oval, thing: str) -> None:
    """Draw a thing on an upright face; places are parts of its half width and height."""

    def ellipse(x: float, y: float, across: float, along: float, color: tuple[int, ...]) -> None:
        centre = round(oval.x + x * oval.across), round(oval.y + y * oval.along)
        axes = max(1, round(across * oval.across)), max(1, round(along * oval.along))
        cv2.ellipse(picture, centre, axes, 0, 0, 360, color, -1, cv2.LINE_AA)

    if thing == "glasses":
        for side in (-1, 1):
            ellipse(0.42 * side, -0.18, 0.36, 0.19, DARK)
        ellipse(0, -0.22, 0.2, 0.05, DARK)
    elif thing == "bar":
        left, right = (round(oval.x + side * 1.05 * oval.across) for side in (-1, 1))
        top, bottom = (round(oval.y + y * oval.along) for y in (-0.38, 0.02))
        cv2.rectangle(picture, (left, top), (right, bottom), (0, 0, 0), -1)
    elif thing == "mask":
        ellipse(0, 0.55, 0.85, 0.5, CLOTH)
    else:
        ellipse(0, -0.9, 1.0, 0.42, CAP)
        ellipse(0, -0.5, 1.15, 0.1, CAP)


def dressed(frame: Drawn, things: tuple[str, ...]) -> Drawn:
    for number, ovals in frame.ovals.items():
        for oval in ovals if number else ():
            for thing in things:
                wear(frame.picture, oval, thing)
    return frame


def worn(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("worn")
    for name, things in WORN.items():
        for _ in range(stock.count(3)):
            frames = walking(stock, rng, crowd(stock, rng, 50, 120, 3))
            yield Scene(name, map(partial(dressed, things=things), frames))
