"""Turns single planes upright."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy.typing as npt

from bgsoft.media.info import Orientation

__all__ = ["Turn", "make_turn"]

Plane = npt.NDArray[Any]
Turn = Callable[[Plane, Plane], None]
"""Writes the first plane, turned, into the second, which has its final shape."""

_LEFT_RIGHT = 1  # OpenCV's flip codes
_UPSIDE_DOWN = 0
_BOTH = -1


def _flip(code: int) -> Turn:
    def turn(source: Plane, target: Plane) -> None:
        cv2.flip(source, code, dst=target)

    return turn


def _transpose(code: int | None) -> Turn:
    def turn(source: Plane, target: Plane) -> None:
        cv2.transpose(source, dst=target)
        if code is not None:
            cv2.flip(target, code, dst=target)

    return turn


def make_turn(orientation: Orientation) -> Turn:
    """The function that turns a plane: mirrored first, then rotated clockwise.

    Transposing is the mirror image of a quarter turn, so each orientation is at most a
    transposition and a flip.

    Args:
        orientation: Not the identity, which needs no function.
    """
    turns: dict[tuple[bool, int], Turn] = {
        (True, 0): _flip(_LEFT_RIGHT),
        (False, 180): _flip(_BOTH),
        (True, 180): _flip(_UPSIDE_DOWN),
        (False, 90): _transpose(_LEFT_RIGHT),
        (True, 90): _transpose(_BOTH),
        (False, 270): _transpose(_UPSIDE_DOWN),
        (True, 270): _transpose(None),
    }
    return turns[orientation.mirror, orientation.rotation]
