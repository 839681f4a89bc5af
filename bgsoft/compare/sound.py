"""Whether two files sound the same, and begin to at the same moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from av.audio.frame import AudioFrame

from bgsoft.compare.facts import EARLY_PACKETS, FileFacts, Track
from bgsoft.compare.result import Check
from bgsoft.media.source import open_input


def sound_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare the number of audio tracks, each track's data, and its start."""
    first, second = a.of_kind("audio"), b.of_kind("audio")
    checks = [Check.of_counts("audio tracks", len(first), len(second))]
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        checks.append(_sound_data(number, a, b, one, other))
        checks.append(_sync(number, a, b, one, other))
    return checks


def _sound_data(number: int, a: FileFacts, b: FileFacts, one: Track, other: Track) -> Check:
    name = f"audio {number}"
    codecs = one.codec if one.codec == other.codec else f"{one.codec} / {other.codec}"
    if one.codec == other.codec and one.digests == other.digests:
        return Check(name, True, f"{codecs}, {len(one.digests)} packets, byte for byte equal")
    lead = len(one.digests) - len(other.digests)
    if one.codec == other.codec and _only_lead_differs(a, number, one, other):
        packets = "1 packet" if lead == 1 else f"{lead} packets"
        detail = f"{codecs}, byte for byte equal but for {packets} before the first played sample"
        return Check(name, True, detail)
    # The same sound may be cut or wrapped into packets differently: ADTS, PCM.
    heard_a, heard_b = _samples(a.path, number), _samples(b.path, number)
    if heard_a is not None and heard_a == heard_b:
        return Check(name, True, f"{codecs}, packets differ, decoded samples equal")
    counts = f"{len(one.digests)} and {len(other.digests)} packets"
    return Check(name, False, f"{codecs}, {counts}, decoded samples differ")


def _only_lead_differs(a: FileFacts, number: int, one: Track, other: Track) -> bool:
    """Whether B lacks nothing but packets of A that are decoded and not played.

    Encoders put a delay before the first sample, which not every container can say to skip.
    """
    lead = len(one.digests) - len(other.digests)
    if not 0 < lead < EARLY_PACKETS or one.digests[lead:] != other.digests:
        return False
    heard = _first_heard(a.path, number)
    early = one.early_seconds[:lead]
    return heard is not None and all(time is not None and time < heard for time in early)


def _frames(path: Path, number: int) -> Iterator[AudioFrame]:
    with open_input(path) as container:
        yield from container.decode(container.streams.audio[number])


def _samples(path: Path, number: int) -> tuple[int, str] | None:
    """(samples per channel, SHA-256 of all of them interleaved) of an audio track; None: damaged.

    Values are compared as numbers of the decoder's own format, so a lossless change of codec keeps
    them equal.
    """
    digest, count = hashlib.sha256(), 0
    try:
        for frame in _frames(path, number):
            samples = frame.to_ndarray()
            digest.update(samples.T.tobytes() if frame.format.is_planar else samples.tobytes())
            count += frame.samples
    except av.FFmpegError:
        return None
    return count, digest.hexdigest()


def _sync(number: int, a: FileFacts, b: FileFacts, one: Track, other: Track) -> Check:
    """When the sound begins, counted from the first picture."""
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
        # One container skips the encoder's delay, the other plays it: all else is in its place.
        return Check(name, True, f"{detail}, its packets at the same times")
    return Check(name, False, detail)


def _first_heard(path: Path, number: int) -> Fraction | None:
    """Seconds of the first sample that is played: what an encoder puts before it is skipped, in
    packets' timestamps it is not. None: not timed, or nothing can be decoded.
    """
    try:
        for frame in _frames(path, number):
            if frame.samples and frame.pts is not None and frame.time_base:
                return frame.pts * frame.time_base
    except av.FFmpegError:
        pass
    return None
