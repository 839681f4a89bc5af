"""Whether two files agree on timestamps, format and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from bgsoft.compare.facts import TRACK_KINDS, FileFacts
from bgsoft.compare.result import Check
from bgsoft.compare.sound import sound_checks

__all__ = ["structure_checks", "time_checks"]

_CHAPTER_TICK = Fraction(1, 1000)
"""Matroska rounds chapters to nanoseconds, MP4 to milliseconds."""


def time_checks(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> list[Check]:
    """Compare what decoding told: how many frames there are, and when each is shown.

    Args:
        a: Facts of A.
        b: Facts of B.
        times_a: Seconds of A's frames.
        times_b: Seconds of B's frames.
    """
    same_count = len(times_a) == len(times_b)
    count = f"{len(times_a)} each" if same_count else f"A has {len(times_a)}, B {len(times_b)}"
    return [
        Check(name="frame count", ok=same_count, detail=count),
        _timestamps(a, b, times_a, times_b),
    ]


def _timestamps(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> Check:
    """Frame by frame, counted from each file's first frame; the start is told of."""
    tick = max(a.info.time_base, b.info.time_base)
    offset = times_b[0] - times_a[0]
    gaps = [
        (abs(time_b - time_a - offset), index)
        for index, (time_a, time_b) in enumerate(zip(times_a, times_b, strict=False))
    ]
    widest, where = max(gaps, key=lambda gap: (gap[0], -gap[1]))
    later = ""
    if abs(offset) > tick:
        later = f"; all of B {abs(float(offset)):.3f} s {'later' if offset > 0 else 'earlier'}"
    if widest == 0:
        return Check(name="timestamps", ok=True, detail="equal, every frame" + later)
    distance = f"{float(widest) * 1000:.3f} ms"
    if widest <= tick:
        detail = f"equal within the containers' clock: at most {distance} apart" + later
        return Check(name="timestamps", ok=True, detail=detail)
    return Check(
        name="timestamps", ok=False, detail=f"up to {distance} apart, at frame {where}" + later
    )


def structure_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare all but pictures and their timestamps."""
    checks = [_size(a, b), _rotation(a, b), _aspect(a, b), _color(a, b), _hdr(a, b)]
    checks.append(_video_tracks(a, b))
    checks += sound_checks(a, b)
    checks.append(_subtitles(a, b))
    checks.append(_equal("file tags", a.tags, b.tags))
    checks += _track_metadata(a, b)
    checks.append(_equal("covers and attachments", a.pictures, b.pictures))
    checks.append(_chapters(a, b))
    return checks


def _size(a: FileFacts, b: FileFacts) -> Check:
    first, second = a.info.format, b.info.format
    sizes = [f"{f.width}x{f.height}" for f in (first, second)]
    same = sizes[0] == sizes[1]
    return Check(
        name="picture size",
        ok=same,
        detail=f"{sizes[0]} upright" if same else f"A is {sizes[0]}, B {sizes[1]}, upright",
    )


def _rotation(a: FileFacts, b: FileFacts) -> Check:
    """Upright pictures count: a turn that is a flag in one file may be baked into the other."""
    turns = [f.info.orientation for f in (a, b)]
    words = [
        ("mirrored, " if turn.mirror else "") + f"{turn.rotation}°" if not turn.is_identity else ""
        for turn in turns
    ]
    first, second = a.info.format, b.info.format
    if turns[0] == turns[1]:
        return Check(name="rotation", ok=True, detail=words[0] or "none")
    if (first.width, first.height) != (second.width, second.height):
        detail = f"A: {words[0] or 'none'}, B: {words[1] or 'none'}, and the upright sizes differ"
        return Check(name="rotation", ok=False, detail=detail)
    if not turns[1].is_identity:
        detail = f"A: {words[0] or 'none'}, B: {words[1]}"
        return Check(name="rotation", ok=False, detail=detail)
    return Check(name="rotation", ok=True, detail=f"A's {words[0]} is baked into B's pictures")


def _aspect(a: FileFacts, b: FileFacts) -> Check:
    ratios = [f.info.sample_aspect_ratio for f in (a, b)]
    same = ratios[0] == ratios[1]
    texts = [f"{ratio.numerator}:{ratio.denominator}" for ratio in ratios]
    detail = texts[0] if same else f"A {texts[0]}, B {texts[1]}"
    return Check(name="pixel aspect", ok=same, detail=detail)


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
        return Check(name="colour tags", ok=False, detail="A / B: " + ", ".join(differences))
    span = "full" if first.full_range else "limited"
    codes = f"primaries {first.primaries}, transfer {first.transfer}, matrix {first.matrix}"
    return Check(name="colour tags", ok=True, detail=f"{codes}, {span} range (H.273 codes)")


def _hdr(a: FileFacts, b: FileFacts) -> Check:
    first = (a.info.mastering_display, a.info.content_light)
    second = (b.info.mastering_display, b.info.content_light)
    if first == second:
        there = any(part is not None for part in first)
        return Check(name="HDR metadata", ok=True, detail="equal" if there else "none")
    parts = [
        name
        for name, one, other in zip(
            ("mastering display", "content light level"), first, second, strict=True
        )
        if one != other
    ]
    return Check(name="HDR metadata", ok=False, detail=f"differ: {', '.join(parts)}")


def _video_tracks(a: FileFacts, b: FileFacts) -> Check:
    counts = [len(facts.of_kind("video")) for facts in (a, b)]
    same = counts[0] == counts[1]
    detail = f"{counts[0]} each" if same else f"A has {counts[0]}, B {counts[1]}"
    return Check(name="video tracks", ok=same, detail=detail)


def _subtitles(a: FileFacts, b: FileFacts) -> Check:
    first = [track.codec for track in a.of_kind("subtitle")]
    second = [track.codec for track in b.of_kind("subtitle")]
    if len(first) != len(second):
        detail = f"A has {len(first)} tracks, B {len(second)}"
        return Check(name="subtitles", ok=False, detail=detail)
    if first == second:
        return Check(name="subtitles", ok=True, detail=", ".join(first) or "none")
    pairs = [f"{one} / {other}" for one, other in zip(first, second, strict=True)]
    return Check(name="subtitles", ok=True, detail="other codec, same tracks: " + ", ".join(pairs))


def _track_metadata(a: FileFacts, b: FileFacts) -> list[Check]:
    tags_a: dict[str, str] = {}
    tags_b: dict[str, str] = {}
    flags_a: dict[str, str] = {}
    flags_b: dict[str, str] = {}
    for kind in TRACK_KINDS:
        pairs = zip(a.of_kind(kind), b.of_kind(kind), strict=False)
        for number, (one, other) in enumerate(pairs):
            label = f"{kind} {number}"
            tags_a |= {f"{label} {key}": value for key, value in one.tags.items()}
            tags_b |= {f"{label} {key}": value for key, value in other.tags.items()}
            flags_a[label], flags_b[label] = one.disposition, other.disposition
    return [_equal("track tags", tags_a, tags_b), _equal("dispositions", flags_a, flags_b)]


def _equal(name: str, a: Mapping[str, str], b: Mapping[str, str]) -> Check:
    """Whether two tables agree; says what is missing, added or changed."""
    said = [f"{key} missing in B" for key in a if key not in b]
    said += [f"{key} only in B" for key in b if key not in a]
    said += [
        f"{key} {_short(a[key])} / {_short(b[key])}" for key in a if key in b and a[key] != b[key]
    ]
    if said:
        return Check(name=name, ok=False, detail=", ".join(said))
    return Check(name=name, ok=True, detail=f"{len(a)} equal" if a else "none")


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= 40 else shown[:39] + "…")


def _chapters(a: FileFacts, b: FileFacts) -> Check:
    if len(a.chapters) != len(b.chapters):
        detail = f"A has {len(a.chapters)}, B {len(b.chapters)}"
        return Check(name="chapters", ok=False, detail=detail)
    for number, (one, other) in enumerate(zip(a.chapters, b.chapters, strict=True)):
        if one[2] != other[2]:
            detail = f"title of chapter {number}: {_short(one[2])} / {_short(other[2])}"
            return Check(name="chapters", ok=False, detail=detail)
        if max(abs(one[0] - other[0]), abs(one[1] - other[1])) > _CHAPTER_TICK:
            detail = f"chapter {number} begins or ends at another time"
            return Check(name="chapters", ok=False, detail=detail)
    return Check(
        name="chapters", ok=True, detail=f"{len(a.chapters)} equal" if a.chapters else "none"
    )
