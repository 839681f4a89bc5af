"""Whether two files sound the same, and begin to at the same moment."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from bgsoft.compare.facts import EARLY_PACKETS, FileFacts, Track
from bgsoft.compare.result import Check
from bgsoft.media.source import open_input

__all__ = ["sound_checks"]


def sound_checks(a: FileFacts, b: FileFacts) -> list[Check]:
    """Compare the number of audio tracks, each track's data, and its start."""
    first, second = a.of_kind("audio"), b.of_kind("audio")
    same = len(first) == len(second)
    count = f"{len(first)} each" if same else f"A has {len(first)}, B {len(second)}"
    checks = [Check(name="audio tracks", ok=same, detail=count)]
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        name = f"audio {number}"
        checks.append(_sound_data(name, a, b, number, one, other))
        checks.append(_sync(f"{name} sync", number, a, b))
    return checks


def _sound_data(
    name: str, a: FileFacts, b: FileFacts, number: int, one: Track, other: Track
) -> Check:
    codecs = one.codec if one.codec == other.codec else f"{one.codec} / {other.codec}"
    if one.codec == other.codec and one.digests == other.digests:
        detail = f"{codecs}, {len(one.digests)} packets, byte for byte equal"
        return Check(name=name, ok=True, detail=detail)
    lead = len(one.digests) - len(other.digests)
    if one.codec == other.codec and _only_lead_differs(a, number, one, other):
        packets = "1 packet" if lead == 1 else f"{lead} packets"
        detail = f"{codecs}, byte for byte equal but for {packets} before the first played sample"
        return Check(name=name, ok=True, detail=detail)
    # The same sound may be cut or wrapped into packets differently: ADTS, PCM.
    heard_a, heard_b = _samples(a.path, number), _samples(b.path, number)
    if heard_a is not None and heard_a == heard_b:
        detail = f"{codecs}, packets differ, decoded samples equal"
        return Check(name=name, ok=True, detail=detail)
    counts = f"{len(one.digests)} and {len(other.digests)} packets"
    return Check(name=name, ok=False, detail=f"{codecs}, {counts}, decoded samples differ")


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


def _samples(path: Path, number: int) -> tuple[int, str] | None:
    """(samples per channel, SHA-256 of all of them interleaved) of an audio track; None: damaged.

    Values are compared as numbers of the decoder's own format, so a lossless change of codec keeps
    them equal.
    """
    digest, count = hashlib.sha256(), 0
    with open_input(path) as container:
        stream: AudioStream = container.streams.audio[number]
        try:
            for frame in container.decode(stream):
                assert isinstance(frame, AudioFrame)
                samples = frame.to_ndarray()
                digest.update(samples.T.tobytes() if frame.format.is_planar else samples.tobytes())
                count += frame.samples
        except av.FFmpegError:
            return None
    return count, digest.hexdigest()


def _sync(name: str, number: int, a: FileFacts, b: FileFacts) -> Check:
    """When the sound begins, counted from the first picture."""
    tracks = [facts.of_kind("audio")[number] for facts in (a, b)]
    tick = max(a.info.time_base, b.info.time_base) + max(t.time_base for t in tracks)
    heard: list[Fraction] = []
    stored: list[Fraction] = []
    for facts, track in zip((a, b), tracks, strict=True):
        first, shown = _first_heard(facts.path, number), facts.info.start_pts
        if first is None or shown is None:
            which = "A" if facts is a else "B"
            return Check(name=name, ok=False, detail=f"{which}'s has no time, or is damaged")
        start = shown * facts.info.time_base
        heard.append(first - start)
        stored += [time - start for time in track.early_seconds[:1] if time is not None]
    begins = f"begins {float(heard[0]) * 1000:+.1f} ms from the first picture"
    if abs(heard[1] - heard[0]) <= tick:
        return Check(name=name, ok=True, detail=begins + " in both")
    detail = f"{begins} in A, {float(heard[1]) * 1000:+.1f} ms in B"
    same = tracks[0].digests == tracks[1].digests and len(stored) == 2
    if same and abs(stored[1] - stored[0]) <= tick:
        # One container skips the encoder's delay, the other plays it: all else is in its place.
        return Check(name=name, ok=True, detail=f"{detail}, its packets at the same times")
    return Check(name=name, ok=False, detail=detail)


def _first_heard(path: Path, number: int) -> Fraction | None:
    """Seconds of the first sample that is played: what an encoder puts before it is skipped, in
    packets' timestamps it is not. None: not timed, or nothing can be decoded.
    """
    with open_input(path) as container:
        try:
            for frame in container.decode(container.streams.audio[number]):
                if frame.samples and frame.pts is not None and frame.time_base:
                    return frame.pts * frame.time_base
        except av.FFmpegError:
            return None
    return None
