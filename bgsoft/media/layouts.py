"""Channel layouts of sound, by the names of their channels, and how one is mixed into another.

PyAV (18.1, and 19 so far) frees the channel map of a custom channel order twice. It belongs to the
track or the frame, and PyAV's own object frees it as well. Layouts of tracks are therefore read
here only, and decoders get an order that has no map.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterable, Mapping

from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout

from bgsoft.records import NamedTuple

MAX_CHANNELS = 8
"""Channels of sound that is encoded: FLAC, Opus and AAC's usual configurations have no more."""
_UNNAMED = {"NONE", "UNK"}
_HALF_POWER = math.sqrt(0.5)
_UNITY, _HALF = 1.0, 0.5
_NAMES = (
    *("mono", "stereo", "2.1", "3.0", "3.0(back)", "4.0", "quad", "quad(side)", "3.1", "5.0"),
    *("5.0(side)", "4.1", "5.1", "5.1(side)", "6.0", "6.0(front)", "hexagonal", "6.1", "6.1(back)"),
    *("6.1(front)", "7.0", "7.0(front)", "7.1", "7.1(wide)", "7.1(wide-side)", "octagonal"),
    *("5.1.2", "5.1.2(back)", "cube"),
)
"""FFmpeg's layouts of up to :data:`MAX_CHANNELS` speakers; of equals the first is preferred."""

_Gains = Mapping[str, float]
_FOLDS: Mapping[str, tuple[_Gains, ...]] = {
    "FL": ({"FC": _HALF_POWER},),
    "FC": ({"FL": _HALF_POWER, "FR": _HALF_POWER},),
    "BL": ({"SL": _UNITY}, {"BC": _HALF_POWER}, {"FL": _HALF_POWER}),
    "SL": ({"BL": _UNITY}, {"BC": _HALF_POWER}, {"FL": _HALF_POWER}),
    "BC": (
        {"BL": _HALF_POWER, "BR": _HALF_POWER},
        {"SL": _HALF_POWER, "SR": _HALF_POWER},
        {"FL": _HALF, "FR": _HALF},
    ),
    "FLC": ({"FL": _UNITY}, {"FC": _HALF_POWER}),
    "LFE2": ({"LFE": _UNITY},),
    "DL": ({"FL": _UNITY},),
    "BIL": ({"FL": _UNITY},),
    "WL": ({"FL": _HALF_POWER},),
    "SDL": ({"SL": _UNITY},),
    "SSL": ({"SL": _UNITY},),
    "TC": ({"FL": _HALF, "FR": _HALF},),
    "TFL": ({"FL": _HALF_POWER},),
    "TFC": ({"FC": _HALF_POWER},),
    "TSL": ({"SL": _HALF_POWER},),
    "TTL": ({"SL": _HALF_POWER},),
    "TBL": ({"BL": _HALF_POWER},),
    "TBC": ({"BC": _HALF_POWER},),
    "BFL": ({"FL": _HALF_POWER},),
    "BFC": ({"FC": _HALF_POWER},),
    "UNK": ({"FL": _HALF, "FR": _HALF},),
    "AMBI0": ({"FL": _HALF, "FR": _HALF},),
    "AMBI1": ({"FL": _HALF, "FR": -_HALF},),
}
"""Where a channel goes that a layout lacks, best first; those of the right are as of the left.

Floor channels as libswresample's default matrix has them, which are the coefficients of ITU-R
BS.775; others, most of which that leaves out, at half their power. Two cardioids, to the left and
to the right, are what stereo hears of ambisonics (ACN, SN3D). LFE has no place but LFE. A channel
without a name, among others that have one, is heard in the middle.
"""


class Layout(NamedTuple):
    """The channels of a track, in order."""

    name: str
    """FFmpeg's, e.g. ``5.1(side)``."""
    channels: tuple[str, ...]
    """FFmpeg's names, e.g. ``FL``."""
    is_guessed: bool = False
    """The track names none, so they are FFmpeg's default for their number."""

    @property
    def is_known(self) -> bool:
        """Return whether it is known where the channels belong."""
        return not _UNNAMED.issuperset(self.channels)

    @property
    def surround(self) -> tuple[str, ...]:
        """The channels, with a single pair at the back as one at the sides.

        FLAC, for one, does not tell the two apart (RFC 9639, 9.1.3).
        """
        if {"SL", "SR"} & {*self.channels}:
            return self.channels
        return tuple({"BL": "SL", "BR": "SR"}.get(name, name) for name in self.channels)


@functools.cache
def named(name: str) -> Layout:
    """The layout of a name; those of channels without names as players take them.

    Raises:
        ValueError: FFmpeg knows no such layout.
    """
    return _described(AudioLayout(name))


def _described(layout: AudioLayout) -> Layout:
    channels = tuple(channel.name for channel in layout.channels)
    if set(channels) - _UNNAMED or not 0 < len(channels) <= MAX_CHANNELS:
        return Layout(layout.name, channels)
    return named(f"{len(channels)}c")._replace(is_guessed=True)


@functools.cache
def _standard() -> Mapping[frozenset[str], Layout]:
    """FFmpeg's layouts by their channels."""
    found: dict[frozenset[str], Layout] = {}
    for name in _NAMES:
        found.setdefault(frozenset(named(name).channels), named(name))
    return found


def sorted_layout(layout: Layout) -> Layout:
    """The layout with its channels in FFmpeg's order, where that has a name."""
    unique = frozenset(layout.channels)
    return _standard().get(unique, layout) if len(unique) == len(layout.channels) else layout


def read_layout(context: AudioCodecContext) -> Layout:
    """The layout of a track, whatever its order; without channels where it is not known yet."""
    layout = context.layout
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(layout))  # 40 bytes that are never freed
    return _described(layout)


def make_decodable(context: AudioCodecContext) -> Layout:
    """Give a decoder that is not open yet an order of channels that PyAV can take.

    Returns:
        The layout that it had. Frames whose channels have no names have its channels.
    """
    layout = read_layout(context)
    if layout.channels:
        custom = layout.is_guessed or "+" in layout.name
        context.layout = f"{len(layout.channels)} channels" if custom else layout.name
    return layout


def frame_layout(frame: AudioFrame, declared: Layout) -> Layout:
    """The layout of a frame of a decoder that :func:`make_decodable` has returned for."""
    found = _described(frame.layout)
    unnamed = found.is_guessed or not found.is_known
    return declared if unnamed and len(found.channels) == len(declared.channels) else found


class Mix(NamedTuple):
    """Conversion of the channels of one layout to those of another."""

    source: Layout
    target: Layout
    gains: tuple[_Gains, ...]
    """For each source channel: its gain in each target channel."""

    @classmethod
    def of(cls, source: Layout, target: Layout) -> Mix:
        """The mix by :data:`_FOLDS`; channels without names are mixed alike into all."""
        count = len(source.channels)
        if not source.is_known:
            alike = dict.fromkeys(target.channels, 1 / count)
            return cls(source, target, (alike,) * count)
        places = (_place(name, source.channels, target.channels) for name in source.channels)
        return cls(source, target, tuple(places))

    @property
    def loss(self) -> tuple[int, int]:
        """Channels of the source that are left out, and those that share a place with others."""
        shared = self._shared
        merged = sum(not shared.isdisjoint(gains) for gains in self.gains)
        return sum(not gains for gains in self.gains), merged

    @property
    def cost(self) -> tuple[int, ...]:
        """Return how far the layouts lie apart; less is nearer.

        In this order: :attr:`loss`, silent channels of the target, the difference in number,
        channels of the source with another name."""
        difference = len(self.target.channels) - len(self.source.channels)
        moved = sum(name not in self.target.channels for name in self.source.channels)
        return *self.loss, len(self._silent), abs(difference), moved

    @property
    def _silent(self) -> list[str]:
        fed = {name for gains in self.gains for name in gains}
        return [name for name in self.target.channels if name not in fed]

    @property
    def _shared(self) -> set[str]:
        """Channels of the target that several of the source go into."""
        fed = [name for gains in self.gains for name in gains]
        return {name for name in fed if fed.count(name) > 1}

    def filter(self, declared: str, *, limited: bool) -> str | None:
        """Return options of FFmpeg's ``pan``; None where frames of ``declared`` pass unchanged.

        ``limited``: Samples are whole numbers, which the sum of several must not exceed.
        """
        target = self.target
        if declared == target.name and self.source.channels == target.channels:
            return None
        sums = [sum(abs(gains.get(name, 0.0)) for gains in self.gains) for name in target.channels]
        scale = max(1.0, *sums) if limited else 1.0
        outputs = []
        for number, name in enumerate(target.channels):
            parts = [
                f"{gains[name] / scale:.8g}*c{index}"
                for index, gains in enumerate(self.gains)
                if name in gains
            ]
            outputs += [f"c{number}={'+'.join(parts).replace('+-', '-')}"] if parts else []
        return "|".join([target.name, *outputs])

    def describe(self) -> str:
        """Say which channel becomes which; empty where all stay."""
        source, target, shared = self.source, self.target, self._shared
        if not source.is_known:
            return f"its {len(source.channels)} channels have no names: mixed to {target.name}"
        said = []
        for name, gains in zip(source.channels, self.gains, strict=True):
            if not gains:
                said.append(f"{name} left out")
            elif name not in gains or shared & gains.keys():
                into = "into" if shared & gains.keys() or len(gains) > 1 else "as"
                places = " and ".join(gains)
                said += [] if places == name else [f"{name} {into} {places}"]
        said += [f"{', '.join(self._silent)} silent"] if self._silent else []
        text = f"{sorted_layout(source).name} becomes {target.name}: {', '.join(said)}"
        guess = f"its channels have no names and are taken as {source.name}"
        parts = [*([guess] if source.is_guessed and len(source.channels) > 2 else ())]
        return "; ".join([*parts, *([text] if said else ())])


def nearest(source: Layout) -> list[Mix]:
    """The mixes into FFmpeg's layouts, from the nearest on; none of a track without channels."""
    if not source.channels:
        return []
    if not source.is_known:
        return [Mix.of(source, named("mono"))]
    return sorted((Mix.of(source, target) for target in _standard().values()), key=lambda m: m.cost)


def _place(name: str, source: Iterable[str], target: Iterable[str]) -> _Gains:
    """Return where a channel goes; nowhere, if the target has no place for it."""
    found = _resolve(name, frozenset(target), frozenset())
    moves = len(found) == 1 and {name, *found} in ({"BL", "SL"}, {"BR", "SR"})
    if moves and not {*found}.isdisjoint(source):  # which has a channel there
        return dict.fromkeys(found, _HALF_POWER)
    return found


def _resolve(name: str, target: frozenset[str], tried: frozenset[str]) -> _Gains:
    if name in target:
        return {name: _UNITY}
    folds = _folds(name)
    for gains in folds:
        if target.issuperset(gains):
            return gains
    for gains in folds:
        found: dict[str, float] = {}
        for other, gain in gains.items():
            parts = {} if other in tried else _resolve(other, target, tried | {name})
            if not parts:
                break
            for place, part in parts.items():
                found[place] = found.get(place, 0.0) + gain * part
        else:
            return found
    return {}


def _folds(name: str) -> Iterable[_Gains]:
    """:data:`_FOLDS` of a channel, also of one of the right."""
    if name in _FOLDS or "R" not in name:
        return _FOLDS.get(name, ())
    mirrored = {"L": "R", "R": "L"}

    def turned(other: str) -> str:
        return "".join(mirrored.get(letter, letter) for letter in other)

    left = _FOLDS.get(turned(name), ())
    return [{turned(other): gain for other, gain in gains.items()} for gains in left]
