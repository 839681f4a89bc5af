"""What frames carry beside their picture, where PyAV cannot read it."""

from __future__ import annotations

from typing import Any

from bgsoft.media.info import Orientation
from bgsoft.media.side_data import (
    frame_content_light,
    frame_mastering_display,
    frame_orientation,
)


class Unreadable:
    """A frame with data of a kind that PyAV does not know, as EXIF in Motion JPEG is."""

    @property
    def side_data(self) -> Any:
        raise ValueError("31 is not a valid Type")


def test_data_of_an_unknown_kind_is_no_fault() -> None:
    frame: Any = Unreadable()
    assert frame_orientation(frame) == (Orientation(), None)
    assert frame_mastering_display(frame) is None
    assert frame_content_light(frame) is None
