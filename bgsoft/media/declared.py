"""Declarations of a container about its video that PyAV has no field for.

FFmpeg's Matroska muxer writes all of them into its header (RFC 9559), whatever container they came
from. QuickTime's ``clap`` becomes a cropping, its ``uuid`` and ``sv3d`` boxes a projection. So the
header of a file without frames is written to memory, and read.
"""

from __future__ import annotations

import io
from contextlib import suppress

import av
from av.video.stream import VideoStream

from bgsoft.media.headers import SEGMENT, TRACK_ENTRY, TRACKS, VIDEO, elements
from bgsoft.media.info import Crop
from bgsoft.media.pyav import PYAV_ERRORS
from bgsoft.records import NamedTuple

_COLOR, _CHROMA_ACROSS, _CHROMA_DOWN = b"\x55\xb0", b"\x55\xb7", b"\x55\xb8"
_CROPS = b"\x54\xcc", b"\x54\xbb", b"\x54\xdd", b"\x54\xaa"  # left, top, right, bottom
_PROJECTION, _PROJECTION_TYPE = b"\x76\x70", b"\x76\x71"
_PROJECTIONS = {1: "equirectangular", 2: "cubemap", 3: "mesh"}
_ADDITION, _DATA_TYPE, _DATA = b"\x41\xe4", b"\x41\xe7", b"\x41\xed"
_DOLBY_VISION = (b"dvcC", b"dvvC", b"dvwC")
"""Boxes of Dolby Vision. The profile is in the upper seven bits of the third byte (Dolby Vision
Streams Within the ISO Base Media File Format, 3.2)."""
CENTRE = 2
_CHROMA_LOCATIONS = {(2, 2): CENTRE, (1, 1): 3, (2, 1): 4}
"""Matroska's horizontal and vertical siting to AVChromaLocation: 1 is the beginning of two samples,
2 between them."""


class Declared(NamedTuple):
    """A video stream's description in its container."""

    chroma_location: int = 0
    """As :attr:`bgsoft.frame.ColorInfo.chroma_location`; 0 for the left, which unsaid means."""
    crop: Crop = Crop()
    """Pixels of the stored picture that are not shown."""
    projection: str | None = None
    """Projection of 360° video; None: it is flat."""
    dolby_vision: int | None = None
    """Dolby Vision profile; None: it has none."""


def read_declared(stream: VideoStream) -> Declared:
    """Read a container's declarations about a stream; none if Matroska lacks its codec."""
    file = io.BytesIO()
    options = {"allow_raw_vfw": "1"}  # raw video
    with (
        suppress(ValueError, *PYAV_ERRORS),
        av.open(file, "w", format="matroska", options=options) as scratch,
    ):
        scratch.add_stream_from_template(stream)
        scratch.start_encoding()
    track = _find(file.getvalue(), SEGMENT, TRACKS, TRACK_ENTRY)
    video = _find(track, VIDEO)
    siting = _number(video, _COLOR, _CHROMA_ACROSS), _number(video, _COLOR, _CHROMA_DOWN)
    additions = [dict(elements(content)) for kind, content in elements(track) if kind == _ADDITION]
    dolby = (each[_DATA] for each in additions if each.get(_DATA_TYPE) in _DOLBY_VISION)
    return Declared(
        chroma_location=_CHROMA_LOCATIONS.get(siting, 0),
        crop=Crop(*(_number(video, side) for side in _CROPS)),
        projection=_PROJECTIONS.get(_number(video, _PROJECTION, _PROJECTION_TYPE)),
        dolby_vision=next((data[2] >> 1 for data in dolby), None),
    )


def _find(data: bytes, *path: bytes) -> bytes:
    """The content of the first element of each kind inside the one before; empty: there is none."""
    for wanted in path:
        data = next((content for kind, content in elements(data) if kind == wanted), b"")
    return data


def _number(data: bytes, *path: bytes) -> int:
    return int.from_bytes(_find(data, *path), "big")
