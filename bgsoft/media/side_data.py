"""Side data of decoded frames, read around two faults of PyAV 18.

PyAV frees the name of a colour profile twice, which ends the process. It reads none of a frame's
data if it does not know the kind of one. FFmpeg's ``sidedata`` filter removes both before. Reading
also keeps a frame in memory until Python collects cycles, so only the first frames are read. The
packets tell about all others (:mod:`bgsoft.media.messages`).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
from av.filter import Graph
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame

_NAMED_PROFILES = ("png", "apng")
"""Codecs whose decoders give a profile a name."""
_PROFILE = 15, "ICC_PROFILE"
_NEWER = {28: "LCEVC", 29: "VIEW_ID", 30: "3D_REFERENCE_DISPLAYS", 31: "EXIF"}
"""Kinds that are newer than PyAV 18, by their AVFrameSideDataType."""
_MAX_KIND = 40
_ANY_TICK = Fraction(1, 1000)


def read_side_data(frame: VideoFrame, codec: str) -> dict[str, bytes]:
    """Read the side data of a frame that an FFmpeg decoder made.

    Returns:
        The bytes of each kind, which is named as in ``av.sidedata.sidedata.Type``; empty for the
        kinds that PyAV cannot read.
    """
    found: dict[str, bytes] = {}
    if codec in _NAMED_PROFILES:
        frame = _remove(frame, dict([_PROFILE]), found)
    data: Any
    try:
        data = frame.side_data
    except ValueError:
        known: set[Any] = {kind.value for kind in Type}
        unknown = (number for number in range(_MAX_KIND) if number not in known)
        names = {number: _NEWER.get(number, f"kind {number}") for number in unknown}
        data = _remove(frame, names, found).side_data
    # Iterating gives the kinds from PyAV 19 on, what there is of them before.
    every = (data[each] if isinstance(each, Type) else each for each in data)
    return found | {each.type.name: bytes(each) for each in every}


def _remove(frame: VideoFrame, kinds: dict[int, str], found: dict[str, bytes]) -> VideoFrame:
    """The frame without some kinds of data; those that it had are noted in ``found``."""
    for number, name in kinds.items():
        if _filtered(frame, "select", number) is not None:
            found[name] = b""
            frame = _filtered(frame, "delete", number) or frame
    return frame


def _filtered(frame: VideoFrame, mode: str, number: int) -> VideoFrame | None:
    """A frame after the filter; None where that lets none pass."""
    graph = Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=_ANY_TICK
    )
    only = graph.add("sidedata", mode=mode, type=str(number))
    graph.link_nodes(source, only, graph.add("buffersink")).configure()
    graph.vpush(frame)
    with suppress(av.FFmpegError):
        return graph.vpull()
    return None


def integers(data: bytes, number: int) -> tuple[int, ...] | None:
    """So many numbers of a kind whose fields are native 32-bit integers; None: it has fewer.

    They are C structs of libavutil, whose layouts are part of its public interface (``display.h``,
    ``mastering_display_metadata.h``).
    """
    return None if len(data) < 4 * number else struct.unpack_from(f"={number}i", data)
