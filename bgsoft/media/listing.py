"""Times of a video's frames, listed from its packets without decoding."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import av
from av.packet import Packet

from bgsoft.errors import RenderCancelledError
from bgsoft.media.info import BACKWARD_SECONDS, FORWARD_SECONDS, VideoInfo
from bgsoft.media.source import open_input, read_packets
from bgsoft.outputs import stamp
from bgsoft.records import NamedTuple


class FrameTimes(NamedTuple):
    """Times of all frames that are shown, in order."""

    pts: array[int]
    keys: array[int]
    """pts of the key frames among them, at which decoding can begin."""


class NotListedError(Exception):
    """The packets do not give the times of all frames; the message states the reason."""


def shows_frame(packet: Packet[Any], info: VideoInfo) -> bool:
    """Return whether a packet of a video shows a frame.

    An edit list may hide it. It may come before the first picture that can be decoded. In VP8, only
    later pictures may need it (RFC 6386, 9.1).
    """
    if packet.is_discard or (info.codec == "vp8" and not memoryview(packet)[0] & 16):
        return False
    return packet.pts is None or info.start_pts is None or packet.pts >= info.start_pts


def list_frames(info: VideoInfo, cancel: threading.Event | None = None) -> FrameTimes:
    """Read the times of a video's frames.

    Raises:
        NotListedError: The frames differ from the packets, or their times are not distinct.
        RenderCancelledError: ``cancel`` was set.
    """
    pts, keys = array("q"), array("q")
    for packet in _steady(read_packets(info.path, info.stream_index), info):
        if cancel is not None and cancel.is_set():
            raise RenderCancelledError("interrupted")
        if not shows_frame(packet, info):
            continue
        if packet.pts is None:
            raise NotListedError("some of its frames have no timestamp")
        pts.append(packet.pts)
        if packet.is_keyframe:
            keys.append(packet.pts)
    pts, keys = array("q", sorted(pts)), array("q", sorted(keys))
    if any(before == after for before, after in pairwise(pts)):
        raise NotListedError("some of its frames have the same timestamp")
    return FrameTimes(pts, keys)


def _steady(
    packets: Iterable[Packet[Any]], info: VideoInfo, back_seconds: int = 0
) -> Iterator[Packet[Any]]:
    """Return a video's packets; raise NotListedError where their clock restarts.

    A step back of less than ``back_seconds`` is none.
    """
    leap, back = FORWARD_SECONDS / info.time_base, back_seconds / info.time_base
    clock: int | None = None
    for packet in packets:
        if packet.dts is not None:
            if clock is not None and not -back <= packet.dts - clock < leap:
                raise NotListedError("its clock restarts midway")
            clock = packet.dts
        yield packet


def can_seek(info: VideoInfo) -> bool:
    """Return whether each time is one place of a file, so that reading can begin at a time.

    All packets of a broadcast's video are read to find that out, as its clock may restart.

    Raises:
        OpenError: The file cannot be opened.
    """
    return not info.is_broadcast or _is_steady(info, stamp(info.path))


@lru_cache(maxsize=4)
def _is_steady(info: VideoInfo, _stamp: str) -> bool:
    with open_input(info.path) as file:
        packets = file.demux(file.streams[info.stream_index])
        try:
            deque(_steady(packets, info, BACKWARD_SECONDS), maxlen=0)
        except (NotListedError, av.FFmpegError, IndexError):
            return False  # what follows damage is unknown
    return True
