"""Surroundings of the picture stages of one render."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from bgsoft.frame import Frame
from bgsoft.records import dataclass

if TYPE_CHECKING:
    from bgsoft.face.base import FaceTaker
    from bgsoft.face.faces_file import KnownFaces
    from bgsoft.regions.follow import FollowedRegions


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """Surroundings of the picture stages, in addition to the settings."""

    on_cut: Callable[[Frame], None] = lambda _frame: None
    """Called for the first frame of each new scene."""
    face_data: FaceTaker | None = None
    """Takes the faces; the caller closes it."""
    known: KnownFaces | None = None
    """All faces of the video, if they are known."""
    trim_start: int | None = None
    """Pts of the first frame after the pre-roll; None: there is no pre-roll."""
    began: Fraction | None = None
    """Start of a background video, in the frames' seconds; None: at the first frame."""
    followed: FollowedRegions | None = None
    """Motion of followed regions, if it is known."""
    drawn_in: tuple[int, int] | None = None
    """(width, height) of the frame that pixels of regions count in; None: that of the video."""
    measures: bool = False
    """Whether the area of each matte is measured, not only until one is not empty."""
