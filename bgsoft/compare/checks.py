"""Checks of two files besides their pictures: times, sound, format and metadata."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
from av.audio.frame import AudioFrame
from av.filter import Graph

from bgsoft.compare.facts import EARLY_PACKETS, TRACK_KINDS, FileFacts, TrackFacts
from bgsoft.compare.result import Check
from bgsoft.media.containers import CONTAINERS
from bgsoft.media.identifying import is_known_to_identify
from bgsoft.media.info import Crop, VideoInfo
from bgsoft.media.layouts import Layout, Mix, frame_layout, make_decodable, sorted_layout
from bgsoft.media.source import open_input
from bgsoft.media.transcode import READABLE

_NUMBERED = {each.muxer for each in CONTAINERS if each.numbers_frames}
_CHAPTER_TICK = Fraction(1, 1000)
"""Matroska rounds chapters to nanoseconds, MP4 to milliseconds."""


def time_checks(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> list[Check]:
    """Compare the decoded frames: their number, and the seconds at which each is shown."""
    return [
        Check.equal("frame count", len(times_a), len(times_b), " each"),
        _timestamps(a, b, times_a, times_b),
    ]


def _timestamps(
    a: FileFacts, b: FileFacts, times_a: Sequence[Fraction], times_b: Sequence[Fraction]
) -> Check:
    """Compare times of frames, counted from each file's first frame; report a shifted start."""
    tick = max(map(_clock, (a.info, b.info)))
    offset = times_b[0] - times_a[0]
    gaps = [abs(there - here - offset) for here, there in zip(times_a, times_b, strict=False)]
    widest = max(gaps)
    distance = f"{float(widest) * 1000:.3f} ms"
    if widest == 0:
        detail = "equal, every frame"
    elif widest <= tick:
        detail = f"equal within the containers' clock: at most {distance} apart"
    else:
        detail = f"up to {distance} apart, at frame {gaps.index(widest)}"
    if abs(offset) > tick:
        detail += f"; all of B {abs(float(offset)):.3f} s {'later' if offset > 0 else 'earlier'}"
    return Check("timestamps", widest <= tick, detail)


def _clock(info: VideoInfo) -> Fraction:
    """Return how far times may be rounded: in Y4M and AVI, where a tick is a frame, half of it."""
    return info.time_base / (2 if info.container in _NUMBERED else 1)


def structure_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare everything but pictures and their timestamps.

    If B has no tags or tracks that identify people or places, A's are considered stripped.
    """
    known, detail = a.identifying(), "none"
    if b.identifying():
        detail = "compared as tags and tracks"
    elif any(map(is_known_to_identify, known)):
        known += [name for name in a.pictures if name not in b.pictures]
        detail = "A's is left out: " + ", ".join(known)
        a = a.anonymous()
        a.pictures = {name: digest for name, digest in a.pictures.items() if name in b.pictures}
    size_a, size_b = (f"{f.info.format.width}x{f.info.format.height}" for f in (a, b))
    aspect_a, aspect_b = (f.info.sample_aspect_ratio for f in (a, b))
    return [
        Check.equal("picture size", size_a, size_b, " upright"),
        _cropping(a, b, same_size=size_a == size_b),
        _rotation(a, b, same_size=size_a == size_b),
        Check.equal("pixel aspect", _ratio(aspect_a), _ratio(aspect_b)),
        _color(a, b),
        _hdr(a, b),
        *_carried(a, b),
        Check.equal("video tracks", len(a.of_kind("video")), len(b.of_kind("video")), " each"),
        *_sound_checks(a, b),
        _subtitles(a, b),
        _equal("file tags", a.tags, b.tags),
        *_track_metadata(a, b),
        Check("identifying metadata", True, detail),
        _equal("covers and attachments", a.pictures, b.pictures),
        _chapters(a, b),
    ]


def _ratio(value: Fraction) -> str:
    return f"{value.numerator}:{value.denominator}"


def _cropping(a: FileFacts, b: FileFacts, *, same_size: bool) -> Check:
    """Compare the sizes of shown pictures, as :func:`_rotation` does."""
    crop_a, crop_b = a.info.crop, b.info.crop
    words = ["none" if crop == Crop() else "{}:{}:{}:{}".format(*crop) for crop in (crop_a, crop_b)]
    if crop_a == crop_b:
        return Check("cropping", True, words[0])
    if same_size and crop_b == Crop():
        return Check("cropping", True, f"A's {words[0]} (left:top:right:bottom) is applied in B")
    return Check("cropping", False, f"A: {words[0]}, B: {words[1]} (left:top:right:bottom)")


def _carried(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare each kind of data that comes with pictures or the stream, and its count."""
    declared_a, declared_b = set(a.info.side_data), set(b.info.side_data)
    counted = sorted(a.carried.keys() | b.carried.keys())
    checks = [Check.equal(kind, a.carried[kind], b.carried[kind], " each") for kind in counted]
    for kind in sorted((declared_a | declared_b) - {*counted}):
        one, other = ("declared" if kind in f else "none" for f in (declared_a, declared_b))
        checks.append(Check.equal(kind, one, other, " in both"))
    return checks or [Check("side data", True, "none")]


def _rotation(a: FileFacts, b: FileFacts, *, same_size: bool) -> Check:
    """Compare upright pictures: a rotation flag of one file may be applied in the other."""
    turn_a, turn_b = a.info.orientation, b.info.orientation
    one, other = (
        "none" if turn.is_identity else f"{'mirrored, ' if turn.mirror else ''}{turn.rotation}°"
        for turn in (turn_a, turn_b)
    )
    if turn_a == turn_b:
        return Check("rotation", True, one)
    if same_size and turn_b.is_identity:
        return Check("rotation", True, f"A's {one} is baked into B's pictures")
    differ = "" if same_size else ", and the upright sizes differ"
    return Check("rotation", False, f"A: {one}, B: {other}{differ}")


def _color(a: FileFacts, b: FileFacts) -> Check:
    """Compare colour tags as players read them: a missing range means limited."""
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
    """Compare the tracks, and when lines of text begin and end, from each file's first picture."""
    first, second = a.of_kind("subtitle"), b.of_kind("subtitle")
    if len(first) != len(second):
        return Check("subtitles", False, f"A has {len(first)} tracks, B {len(second)}")
    starts = [f.info.start_seconds for f in (a, b)]
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        tick = max(a.info.time_base, b.info.time_base) + max(one.time_base, other.time_base)
        if one.codec not in READABLE or other.codec not in READABLE:
            continue
        sides = [*map(_line_times, (one, other), starts)]
        moved = [
            time
            for (changes, _), (_, others) in (sides, sides[::-1])
            for time in _unmatched(changes, others, float(tick))
        ]
        if moved:
            where = f"such as {min(moved):.3f} s from the first picture"
            words = f"track {number}: {len(moved)} times of lines differ, {where}"
            return Check("subtitles", False, words)
    codecs = [[track.codec for track in tracks] for tracks in (first, second)]
    if codecs[0] == codecs[1]:
        return Check("subtitles", True, ", ".join(codecs[0]) or "none")
    pairs = [f"{one} / {other}" for one, other in zip(*codecs, strict=True)]
    return Check("subtitles", True, "other codec, same tracks: " + ", ".join(pairs))


def _line_times(track: TrackFacts, start: Fraction) -> tuple[set[float], set[float]]:
    """The times from a start at which lines begin or end, without those of both, and all."""
    shown = [line for line in track.lines if line[1] > start]
    begins = {max(float(begin - start), 0.0) for begin, _ in shown}
    ends = {float(end - start) for _, end in shown}
    return begins ^ ends, begins | ends


def _unmatched(times: set[float], others: set[float], tick: float) -> list[float]:
    """The times that are farther than a tick from all others."""
    ordered = [float("-inf"), *sorted(others), float("inf")]
    places = ((time, bisect(ordered, time)) for time in times)
    return [
        time
        for time, place in places
        if min(time - ordered[place - 1], ordered[place] - time) > tick
    ]


def _track_metadata(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare tags and flags of the tracks that both have."""
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
    """Compare two tables; the detail lists what is missing, added or changed."""
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
        if one[2] and one[2] != other[2]:  # MP4 names untitled ones
            words = f"title of chapter {number}: {_short(one[2])} / {_short(other[2])}"
            return Check("chapters", False, words)
        if max(abs(one[0] - other[0]), abs(one[1] - other[1])) > _CHAPTER_TICK:
            return Check("chapters", False, f"chapter {number} begins or ends at another time")
    return Check("chapters", True, f"{len(a.chapters)} equal" if a.chapters else "none")


def _sound_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare the number of audio tracks, each track's data, and its start."""
    first, second = a.of_kind("audio"), b.of_kind("audio")
    checks = [Check.equal("audio tracks", len(first), len(second), " each")]
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        checks.append(_sound_data(number, a, b, one, other))
        checks.append(_sync(number, a, b, one, other))
    return checks


def _sound_data(
    number: int, a: FileFacts, b: FileFacts, one: TrackFacts, other: TrackFacts
) -> Check:
    name = f"audio {number}"
    codecs = one.codec if one.codec == other.codec else f"{one.codec} / {other.codec}"
    if one.codec == other.codec and one.digests == other.digests:
        return Check(name, True, f"{codecs}, {len(one.digests)} packets, byte for byte equal")
    lead = len(one.digests) - len(other.digests)
    if one.codec == other.codec and _only_lead_differs(a, number, one, other):
        packets = "1 packet" if lead == 1 else f"{lead} packets"
        detail = f"{codecs}, byte for byte equal except {packets} before the first played sample"
        return Check(name, True, detail)
    # The same sound may be divided into packets differently: ADTS, PCM.
    heard_a, heard_b = _samples(a.path, number), _samples(b.path, number)
    if heard_a is not None and heard_a == heard_b:
        return Check(name, True, f"{codecs}, packets differ, decoded samples equal")
    counts = f"{len(one.digests)} and {len(other.digests)} packets"
    return Check(name, False, f"{codecs}, {counts}, decoded samples differ")


def _only_lead_differs(a: FileFacts, number: int, one: TrackFacts, other: TrackFacts) -> bool:
    """Return whether B only lacks packets of A that are decoded and not played.

    Encoders add a delay before the first sample, which not every container can mark as skipped.
    """
    lead = len(one.digests) - len(other.digests)
    if not 0 < lead < EARLY_PACKETS or one.digests[lead:] != other.digests:
        return False
    heard = _first_heard(a.path, number)
    early = one.early_seconds[:lead]
    return heard is not None and all(time is not None and time < heard for time in early)


def _frames(path: Path, number: int) -> Iterator[tuple[AudioFrame, Layout]]:
    """Yield the frames of an audio track, with the channels of each."""
    with open_input(path) as container:
        stream = container.streams.audio[number]
        declared = make_decodable(stream.codec_context)
        for frame in container.decode(stream):
            yield frame, frame_layout(frame, declared)


def _samples(path: Path, number: int) -> tuple[int, str] | None:
    """Return (samples per channel, SHA-256 of all of them interleaved); None for a damaged track.

    Values are compared as numbers of the decoder's own format, with the channels in FFmpeg's order,
    so that a lossless change of codec keeps them equal.
    """
    digest, count = hashlib.sha256(), 0
    try:
        for frame in _interleaved(_frames(path, number)):
            width = frame.format.bytes * frame.layout.nb_channels
            digest.update(memoryview(frame.planes[0])[: frame.samples * width])
            count += frame.samples
    except av.FFmpegError:
        return None
    return count, digest.hexdigest()


def _interleaved(frames: Iterator[tuple[AudioFrame, Layout]]) -> Iterator[AudioFrame]:
    """Yield the same samples, interleaved.

    With 8 channels or more, PyAV (18, 19) shows planes that do not exist.
    """
    graph: Graph | None = None
    seen: tuple[str, Layout, int] | None = None
    for frame, layout in frames:
        now = frame.format.name, layout, frame.sample_rate
        if graph is None or now != seen:
            graph, seen = Graph(), now
            source = graph.add_abuffer(
                sample_rate=frame.sample_rate,
                format=frame.format.name,
                layout=frame.layout.name,
                time_base=frame.time_base or Fraction(1, frame.sample_rate),
            )
            pan = Mix.of(layout, sorted_layout(layout)).filter(frame.layout.name, limited=False)
            sorter = [] if pan is None or not layout.is_known else [graph.add("pan", pan)]
            packed = graph.add("aformat", f"sample_fmts={frame.format.packed.name}")
            graph.link_nodes(source, *sorter, packed, graph.add("abuffersink")).configure()
        graph.push(frame)
        made = graph.pull()
        assert isinstance(made, AudioFrame)
        yield made


def _sync(number: int, a: FileFacts, b: FileFacts, one: TrackFacts, other: TrackFacts) -> Check:
    """Compare the start of the sound, counted from the first picture."""
    name = f"audio {number} sync"
    tick = max(a.info.time_base, b.info.time_base) + max(one.time_base, other.time_base)
    heard: list[Fraction] = []
    stored: list[Fraction] = []
    for side, facts, track in (("A", a, one), ("B", b, other)):
        first, shown = _first_heard(facts.path, number), facts.info.start_pts
        if first is None or shown is None:
            return Check(name, False, f"{side}'s has no time, or is damaged")
        start = shown * facts.info.time_base
        heard.append(first - start)
        stored += [time - start for time in track.early_seconds[:1] if time is not None]
    begins = f"begins {float(heard[0]) * 1000:+.1f} ms from the first picture"
    if abs(heard[1] - heard[0]) <= tick:
        return Check(name, True, begins + " in both")
    detail = f"{begins} in A, {float(heard[1]) * 1000:+.1f} ms in B"
    if one.digests == other.digests and len(stored) == 2 and abs(stored[1] - stored[0]) <= tick:
        # One container skips the encoder's delay, the other plays it; everything else is aligned.
        return Check(name, True, f"{detail}, its packets at the same times")
    return Check(name, False, detail)


def _first_heard(path: Path, number: int) -> Fraction | None:
    """Return the seconds of the first sample that is played; None if that is unknown.

    The delay of an encoder is skipped here; packets' timestamps include it.
    """
    try:
        for frame, _ in _frames(path, number):
            if frame.samples and frame.pts is not None and frame.time_base:
                return frame.pts * frame.time_base
    except av.FFmpegError:
        pass
    return None
