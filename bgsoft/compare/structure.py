"""Whether two files agree on timestamps, format and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from bgsoft.compare.facts import TRACK_KINDS, FileFacts
from bgsoft.compare.result import Check
from bgsoft.compare.sound import sound_checks

_CHAPTER_TICK = Fraction(1, 1000)
"""Matroska rounds chapters to nanoseconds, MP4 to milliseconds."""


def time_checks(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> list[Check]:
    """Compare the decoded frames: how many there are, and the seconds each is shown at."""
    return [
        Check.of_counts("frame count", len(times_a), len(times_b)),
        _timestamps(a, b, times_a, times_b),
    ]


def _timestamps(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> Check:
    """Frame by frame, counted from each file's first frame; a shifted start is reported."""
    tick = max(a.info.time_base, b.info.time_base)
    offset = times_b[0] - times_a[0]
    gaps = [
        (abs(time_b - time_a - offset), index)
        for index, (time_a, time_b) in enumerate(zip(times_a, times_b, strict=False))
    ]
    widest, where = max(gaps, key=lambda gap: (gap[0], -gap[1]))
    distance = f"{float(widest) * 1000:.3f} ms"
    if widest == 0:
        detail = "equal, every frame"
    elif widest <= tick:
        detail = f"equal within the containers' clock: at most {distance} apart"
    else:
        detail = f"up to {distance} apart, at frame {where}"
    if abs(offset) > tick:
        detail += f"; all of B {abs(float(offset)):.3f} s {'later' if offset > 0 else 'earlier'}"
    return Check("timestamps", widest <= tick, detail)


def structure_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare all but pictures and their timestamps."""
    return [
        _size(a, b),
        _rotation(a, b),
        _aspect(a, b),
        _color(a, b),
        _hdr(a, b),
        Check.of_counts("video tracks", len(a.of_kind("video")), len(b.of_kind("video"))),
        *sound_checks(a, b),
        _subtitles(a, b),
        _equal("file tags", a.tags, b.tags),
        *_track_metadata(a, b),
        _equal("covers and attachments", a.pictures, b.pictures),
        _chapters(a, b),
    ]


def _size(a: FileFacts, b: FileFacts) -> Check:
    one, other = (f"{f.info.format.width}x{f.info.format.height}" for f in (a, b))
    if one == other:
        return Check("picture size", True, f"{one} upright")
    return Check("picture size", False, f"A is {one}, B {other}, upright")


def _rotation(a: FileFacts, b: FileFacts) -> Check:
    """Upright pictures count: a turn that is a flag in one file may be baked into the other."""
    turn_a, turn_b = a.info.orientation, b.info.orientation
    one, other = (
        "none" if turn.is_identity else f"{'mirrored, ' if turn.mirror else ''}{turn.rotation}°"
        for turn in (turn_a, turn_b)
    )
    first, second = a.info.format, b.info.format
    if turn_a == turn_b:
        return Check("rotation", True, one)
    if (first.width, first.height) != (second.width, second.height):
        return Check("rotation", False, f"A: {one}, B: {other}, and the upright sizes differ")
    if not turn_b.is_identity:
        return Check("rotation", False, f"A: {one}, B: {other}")
    return Check("rotation", True, f"A's {one} is baked into B's pictures")


def _aspect(a: FileFacts, b: FileFacts) -> Check:
    ratios = (f.info.sample_aspect_ratio for f in (a, b))
    one, other = (f"{ratio.numerator}:{ratio.denominator}" for ratio in ratios)
    return Check("pixel aspect", one == other, one if one == other else f"A {one}, B {other}")


def _color(a: FileFacts, b: FileFacts) -> Check:
    """Colour tags as players read them: a missing range means limited."""
    first, second = a.info.format.color, b.info.format.color
    names = ("primaries", "transfer", "matrix", "full_range", "chroma_location")
    differences = [
        f"{name.replace('_', ' ')} {getattr(first, name)} / {getattr(second, name)}"
        for name in names
        if getattr(first, name) != getattr(second, name)
    ]
    if differences:
        return Check("colour tags", False, "A / B: " + ", ".join(differences))
    span = "full" if first.full_range else "limited"
    codes = f"primaries {first.primaries}, transfer {first.transfer}, matrix {first.matrix}"
    return Check("colour tags", True, f"{codes}, {span} range (H.273 codes)")


def _hdr(a: FileFacts, b: FileFacts) -> Check:
    kinds = {
        "mastering display": (a.info.mastering_display, b.info.mastering_display),
        "content light level": (a.info.content_light, b.info.content_light),
    }
    differ = [name for name, (one, other) in kinds.items() if one != other]
    if differ:
        return Check("HDR metadata", False, f"differ: {', '.join(differ)}")
    there = any(one is not None for one, _ in kinds.values())
    return Check("HDR metadata", True, "equal" if there else "none")


def _subtitles(a: FileFacts, b: FileFacts) -> Check:
    first, second = ([track.codec for track in f.of_kind("subtitle")] for f in (a, b))
    if len(first) != len(second):
        return Check("subtitles", False, f"A has {len(first)} tracks, B {len(second)}")
    if first == second:
        return Check("subtitles", True, ", ".join(first) or "none")
    pairs = [f"{one} / {other}" for one, other in zip(first, second, strict=True)]
    return Check("subtitles", True, "other codec, same tracks: " + ", ".join(pairs))


def _track_metadata(a: FileFacts, b: FileFacts) -> list[Check]:
    tags: tuple[dict[str, str], dict[str, str]] = ({}, {})
    flags: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for kind in TRACK_KINDS:
        pairs = zip(a.of_kind(kind), b.of_kind(kind), strict=False)
        for number, pair in enumerate(pairs):
            label = f"{kind} {number}"
            for side, track in enumerate(pair):
                tags[side].update({f"{label} {key}": value for key, value in track.tags.items()})
                flags[side][label] = track.disposition
    return [_equal("track tags", *tags), _equal("dispositions", *flags)]


def _equal(name: str, a: Mapping[str, str], b: Mapping[str, str]) -> Check:
    """Whether two tables agree; says what is missing, added or changed."""
    said = [f"{key} missing in B" for key in a if key not in b]
    said += [f"{key} only in B" for key in b if key not in a]
    said += [
        f"{key} {_short(a[key])} / {_short(b[key])}" for key in a if key in b and a[key] != b[key]
    ]
    if said:
        return Check(name, False, ", ".join(said))
    return Check(name, True, f"{len(a)} equal" if a else "none")


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= 40 else shown[:39] + "…")


def _chapters(a: FileFacts, b: FileFacts) -> Check:
    if len(a.chapters) != len(b.chapters):
        return Check("chapters", False, f"A has {len(a.chapters)}, B {len(b.chapters)}")
    for number, (one, other) in enumerate(zip(a.chapters, b.chapters, strict=True)):
        if one[2] != other[2]:
            words = f"title of chapter {number}: {_short(one[2])} / {_short(other[2])}"
            return Check("chapters", False, words)
        if max(abs(one[0] - other[0]), abs(one[1] - other[1])) > _CHAPTER_TICK:
            return Check("chapters", False, f"chapter {number} begins or ends at another time")
    return Check("chapters", True, f"{len(a.chapters)} equal" if a.chapters else "none")
