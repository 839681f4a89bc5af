"""Where a stream can be shown from.

A stream may begin in the middle of a group of pictures, as recordings of broadcasts do. Some
decoders then show pictures that lack their references. Probing and decoding must agree on which
frame is the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol, TypeVar

__all__ = ["Startable", "is_clean_start", "opening_frames", "skip_to_clean_start"]

_MAX_SKIPPED = 300
"""Frames searched for a clean start: ten seconds or so, longer than usual groups of pictures."""


class Startable(Protocol):
    """A decoded picture of any decoder: PyAV's VideoFrame is one."""

    @property
    def key_frame(self) -> bool:
        """Whether it needs no other picture."""
        ...

    @property
    def is_corrupt(self) -> bool:
        """Whether the decoder patched over damaged data."""
        ...


P = TypeVar("P", bound=Startable)


def is_clean_start(frame: Startable) -> bool:
    """Whether nothing before a frame is needed to show it and what follows."""
    return frame.key_frame and not frame.is_corrupt


def skip_to_clean_start(frames: Iterator[P]) -> Iterator[P] | None:
    """Leave out the frames before the first clean start.

    Args:
        frames: Decoded frames in presentation order.

    Returns:
        The rest; None where no clean start comes early, so that all frames should be shown.
    """
    for frame in itertools.islice(frames, _MAX_SKIPPED):
        if is_clean_start(frame):
            return itertools.chain((frame,), frames)
    return None


def opening_frames(frames: Iterator[P], count: int) -> list[P]:
    """The first frames that will be shown: as :func:`skip_to_clean_start` and its caller choose.

    Args:
        frames: Decoded frames in presentation order.
        count: How many, if there are as many.
    """
    leading: list[P] = []
    for frame in itertools.islice(frames, _MAX_SKIPPED):
        if is_clean_start(frame):
            return [frame, *itertools.islice(frames, count - 1)]
        if len(leading) < count:
            leading.append(frame)
    return leading
