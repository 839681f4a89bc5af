"""A chunk of a video, and the result of rendering it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bgsoft.decode.base import PtsRange
from bgsoft.records import NamedTuple, dataclass
from bgsoft.report import RenderReport

if TYPE_CHECKING:
    from bgsoft.regions.follow import FollowedRegions


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A chunk of a video that is rendered separately, then joined with others.

    See :mod:`bgsoft.chunks`. Times are in the video's time base.
    """

    frames: PtsRange
    """The frames to decode, pre-roll included."""
    trim_start: int
    """pts of its first frame; earlier ones are its pre-roll, which is not encoded."""
    length: int
    """Expected number of frames from ``trim_start`` on; for display only."""
    began: int
    """pts of the first frame of the whole render."""
    followed: FollowedRegions | None = None
    """Motion of followed regions in its frames; None: nothing is followed."""


class ChunkResult(NamedTuple):
    """A rendered chunk."""

    report: RenderReport
    pre_roll: array[int]
    """pts of the frames of its pre-roll, in order."""
    kept: array[int]
    """pts of its frames, in order."""
    packets: list[tuple[array[int], array[int]]]
    """For each video: pts and duration of every packet, in decoding order."""
    corrupt_packets: int
    """Packets that could not be read."""
    irregular: str | None
    """Reason why frames may differ from those of a whole render; None if they do not."""
    faces: dict[str, Any] | None
    """See :meth:`bgsoft.face.journal.FaceJournal.boundary`."""
    unused: Mapping[str, tuple[bool, str]]
    """See :meth:`bgsoft.regions.step.RegionStep.unused`."""


class JoinError(Exception):
    """Finished chunks do not make one video; the message states the reason."""


class NotDivisibleError(Exception):
    """A video cannot be rendered in chunks; the message states the reason."""
