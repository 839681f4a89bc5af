"""Measure which scene cuts are seen, and what is taken for one.

::

    python scripts/measure_cuts.py CLIP... [--cuts street.mp4=30,76] \
        [--images DIR/images --masks DIR/masks] [--list]

CLIPs have no cuts but those that ``--cuts`` names. Two kinds of video are made from them, and from
photographs with masks as ``scripts/eval_matte.py`` takes them. Both have the analysis frame's size.

Joins have cuts that are known to the frame. *Recall*: found at exactly that frame. Joined are:

* Parts of two clips, all ordered pairs, each at three places.
* A clip and its own later frames (*jump*: of no use to faces where nobody has moved).
* A clip and itself, mirrored or in other light, at a third of the frame rate and with grain.
* The same with black frames between, which belong to the first.
* Photographs that are slowly panned and zoomed.
* People cut out of photographs who sway before one room. Nothing but the person changes.

The other videos have no cuts. *False alarms* are counted per 1,000 frames. They are:

* The clips unchanged, at a third and a fifth of the frame rate, with frames doubled or frozen.
* The clips coded coarsely, with noise, panned, zoomed and shaken, and rocking from frame to frame
  as unevenly woven fields do.
* Flashes, lamps, autoexposure, fades and dissolves.
* People who walk through the room, suddenly and close to the camera; hands before the lens.
"""

from __future__ import annotations

import argparse
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from quality.loader import Image, read_clip, read_pairs
from quality.truth import Truth, blend, can_move, moving, room

from bgsoft.analysis.scenes import LumaProbe
from bgsoft.frame import AnalysisFrame, FrameFormat

SHORT_SIDE = 240
"""Of all pictures: that of the analysis frame of 480 lines."""
JOINED = 24
"""Frames of each of two that are joined."""
SEED = 5

Video = list[Image]
"""(H, W, 3) uint8 BGR each."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Filmed clips."""

    frames: Video
    room: Path
    person: str
    cuts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """One video."""

    kind: str
    name: str
    frames: Video
    cuts: frozenset[int] = frozenset()


def fitted(image: Image) -> Image:
    """Reduced or enlarged to the size that all have."""
    scale = SHORT_SIDE / min(image.shape[:2])
    size = tuple(round(side * scale / 2) * 2 for side in image.shape[1::-1])
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=way))


def lit(image: Image, gain: float | Image, offset: float = 0.0) -> Image:
    return np.clip(image * np.float32(gain) + offset, 0, 255).astype(np.uint8)


def grainy(frames: Iterable[Image], sigma: float) -> Video:
    rng = np.random.default_rng(SEED)
    return [lit(f, 1.0, sigma * rng.standard_normal(f.shape, np.float32)) for f in frames]  # type: ignore[arg-type]


def dark(frames: Iterable[Image]) -> Video:
    """A third of the light, and the grain that comes with it."""
    return grainy((lit(f, 0.3, 12) for f in frames), 3)


def slowed(frames: Sequence[Image], times: int) -> Video:
    """Each frame ``times`` times."""
    return [f for f in frames for _ in range(times)]


def seen(image: Image, x: float, y: float, zoom: float) -> Image:
    """The view of a camera on a picture: (x, y) of its middle, in shares of its range."""
    height, width = image.shape[:2]
    w, h = width / zoom, height / zoom
    left, top = (width - w) * (x + 1) / 2, (height - h) * (y + 1) / 2
    matrix = np.array([[zoom, 0, -left * zoom], [0, zoom, -top * zoom]])
    return np.asarray(
        cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE)
    )


def still(image: Image, direction: int, frames: int = JOINED) -> Video:
    """A photograph that a camera moves over slowly."""
    steps = np.linspace(0.0, 0.3, frames)
    x, y = (1, 0, -1, 0)[direction % 4], (0, 1, 0, -1)[direction % 4]
    return [seen(image, x * t, y * t, 1.1 + 0.05 * t) for t in steps]


# Joins


def join(kind: str, name: str, one: Video, other: Video) -> Case:
    height, width = one[0].shape[:2]
    other = [cv2.resize(f, (width, height)) if f.shape != one[0].shape else f for f in other]
    return Case(kind, name, [*one, *other], frozenset({len(one)}))


def joins(clips: dict[str, Clip]) -> Iterator[Case]:
    places = (0.0, 0.45, 1.0)
    for (a, one), (b, other) in permutations(clips.items(), 2):
        whose = "one person" if one.person == other.person else "two people"
        kind = f"join: one room, {whose}" if one.room == other.room else "join: two rooms"
        for turn, place in enumerate(places):
            first, second = part(one.frames, place), part(other.frames, places[(turn + 1) % 3])
            yield join(kind, f"{a}-{b}-{turn}", first, second)
        if kind != "join: one room, two people":
            continue
        name = f"{a}-{b}"
        yield join("join: other light", name, first, [lit(f, 0.8, 10) for f in second])
        yield join("join: with grain of 4", name, grainy(first, 4), grainy(second, 4))
        yield join("join: in the dark", name, dark(first), dark(second))
        yield join("join: 3 black frames between", name, [*first, *black(first, 3)], second)
        thin = other.frames[::3][:JOINED]
        yield join("join: every 3rd frame", name, one.frames[::3][-JOINED:], thin)
        yield join("join: 4 frames after the first", name, first[:4], second)
        yield join("join: frames thrice", name, slowed(first, 3), slowed(second, 3))
    for name, one in clips.items():
        first = part(one.frames, 0.0)
        yield join("join: mirrored", name, first, [f[:, ::-1] for f in first])
        yield join("join: jump", name, first, part(one.frames, 0.6))


def black(clip: Video, frames: int) -> Video:
    """So many black frames."""
    return [np.zeros_like(clip[0])] * frames


def part(clip: Video, place: float) -> Video:
    """JOINED frames, from a place between the first (0) and the last (1) on."""
    start = round((len(clip) - JOINED) * place)
    return clip[start : start + JOINED]


def photograph_joins(photographs: dict[str, Image]) -> Iterator[Case]:
    for turn, (a, b) in enumerate(pairwise(photographs)):
        one, other = still(photographs[a], turn), still(photographs[b], turn + 1)
        yield join("join: photographs", f"{a}-{b}", one, other)


def room_joins(people: dict[str, Video]) -> Iterator[Case]:
    names = list(people)
    for step in (1, 5):
        for a, b in zip(names, names[step:], strict=False):
            one, other = people[a][3 : 3 + JOINED], people[b][:JOINED]
            yield join("join: people, one room", f"{a}-{b}", one, other)


# Clips without cuts


def uncut(clips: dict[str, Clip]) -> Iterator[Case]:
    for name, clip in clips.items():
        frames = clip.frames
        yield Case("as it is", name, frames, clip.cuts)
        if clip.cuts:
            continue
        for every, nth in ((2, "2nd"), (3, "3rd"), (5, "5th")):
            for start in range(every):
                yield Case(f"every {nth} frame", f"{name}-{start}", frames[start::every])
        yield Case("frames thrice", name, slowed(frames[::3], 3))
        frozen = [frames[i if i % 24 < 16 else i // 24 * 24 + 15] for i in range(len(frames))]
        yield Case("frozen for 8 frames", name, frozen)
        yield Case("coded coarsely", name, coded(frames))
        for sigma in (2, 8):
            yield Case(f"grain of {sigma}", name, grainy(frames, sigma))
        yield Case("in the dark", name, dark(frames))
        rocking = [np.roll(f, 1 if i % 2 else -1, axis=0) for i, f in enumerate(frames)]
        yield Case("rocking by two rows", name, rocking)
        yield from moved(name, frames)
        yield from relit(name, frames)
        yield from faded(name, frames)


def coded(clip: Video) -> Video:
    """Through H.264 at a low rate, with key frames that show."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream: Any = output.add_stream("libx264", rate=30, options={"crf": "40", "g": "12"})
        stream.height, stream.width = clip[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for picture in clip:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        output.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as back:
        return [f.to_ndarray(format="bgr24") for f in back.decode(video=0)]


def moved(name: str, clip: Video) -> Iterator[Case]:
    """A clip under a camera that moves, from standstill."""
    rng = np.random.default_rng(SEED)
    t = np.maximum(0, np.arange(len(clip)) - 12)

    def by(kind: str, x: Image, y: Image, zoom: Image) -> Case:
        way = zip(clip, x, y, zoom, strict=True)
        return Case(kind, name, [seen(f, *at) for f, *at in way])

    none, near = np.zeros(len(clip)), np.full(len(clip), 2.0)
    for speed in (0.01, 0.03, 0.06):
        x = 2 * np.abs((speed * t + 0.5) % 2 - 1) - 1  # to and fro
        yield by(f"pan by {speed:.0%} of the width", x, none, near)
    yield by("zoom in 19 frames", none, none, 1.75 - 0.75 * np.cos(t / 6))
    shakes = rng.normal(0, 0.15, (len(clip), 2)) * (t > 0)[:, None]
    yield by("shaken", *shakes.T, near * 0.56)
    slowly = 2 * cv2.GaussianBlur(shakes, (1, 9), 3)
    yield by("held by hand", *slowly.T, near * 0.56)


def relit(name: str, clip: Video) -> Iterator[Case]:
    after = np.arange(len(clip)) >= 24
    side = np.linspace(1.7, 1.0, clip[0].shape[1], dtype=np.float32)[None, :, None]
    gains = 1.0 + 0.25 * np.sin(np.arange(len(clip)) / 3)
    flash = [lit(f, 1.3, 60) if i in (20, 34, 35) else f for i, f in enumerate(clip)]
    yield Case("flash", name, flash)
    lamp = [lit(f, side) if on else f for f, on in zip(clip, after, strict=True)]
    yield Case("lamp on, from one side", name, lamp)
    dimmed = [lit(f, 0.55) if off else f for f, off in zip(clip, after, strict=True)]
    yield Case("lamp off", name, dimmed)
    yield Case("autoexposure", name, [lit(f, g) for f, g in zip(clip, gains, strict=True)])


def faded(name: str, clip: Video) -> Iterator[Case]:
    half = len(clip) // 2
    away = np.clip(np.abs(half - np.arange(len(clip))) / 12, 0, 1)
    yield Case("fade to black and back", name, [lit(f, g) for f, g in zip(clip, away, strict=True)])
    yield Case("3 black frames", name, [*clip[:half], *black(clip, 3), *clip[half:]])
    yield Case("banner appears", name, [*clip[:half], *map(with_banner, clip[half:])])
    weights = np.clip((np.arange(half) - 10) / 16, 0, 1)
    pairs = zip(clip[:half], clip[half:], weights, strict=False)
    yield Case("dissolve in 16", name, [cv2.addWeighted(a, 1 - w, b, w, 0) for a, b, w in pairs])


def with_banner(image: Image) -> Image:
    """A caption in the lower sixth, over two thirds of the width."""
    height, width = image.shape[:2]
    image = image.copy()
    corner, size = (width // 12, height * 19 // 24), (width * 2 // 3, height // 6)
    cv2.rectangle(image, (*corner, *size), (120, 40, 10), -1)  # type: ignore[call-overload]
    at = (corner[0] + 8, corner[1] + size[1] // 2)
    cv2.putText(image, "Who it is, and what", at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255,) * 3)
    return image


def passing(truths: dict[str, Truth], clips: Sequence[Video]) -> Iterator[Case]:
    """Somebody passes before a clip."""
    ways = (("walks past", 0.02, 0.9), ("hurries past", 0.05, 1.2), ("passes close", 0.08, 2.2))
    for turn, (name, truth) in enumerate(truths.items()):
        clip = clips[turn % len(clips)]
        for label, speed, size in ways:
            yield Case(f"somebody {label}", name, passed(clip[:60], truth, speed, size))


def passed(clip: Video, truth: Truth, speed: float, size: float) -> Video:
    """From left to right, from frame 16 on.

    Args:
        clip: What is behind.
        truth: Who.
        speed: Of the width, a frame.
        size: Of the height; from 1 on the head is at the top.
    """
    height, width = clip[0].shape[:2]
    zoom = size * height / truth.alpha.shape[0]
    present = np.flatnonzero(truth.alpha.max(axis=0) > 0)
    top = max(0.0, (1 - size) * height)
    frames = []
    for index, picture in enumerate(clip):
        x = width * speed * (index - 16) - zoom * present[-1]
        matrix = np.array([[zoom, 0, x], [0, zoom, top]])
        color = cv2.warpAffine(truth.color, matrix, (width, height))
        alpha = cv2.warpAffine(truth.alpha, matrix, (width, height))
        frames.append(lit(blend(Truth(color, alpha), picture), 1.0))
    return frames


# Measuring


@dataclass
class Tally:
    frames: int = 0
    cuts: int = 0
    found: int = 0
    false: int = 0
    notes: list[str] = field(default_factory=list)


def found_cuts(frames: Video) -> set[int]:
    """As a render sees them."""
    height, width = frames[0].shape[:2]
    probe = LumaProbe(FrameFormat(width=2 * width, height=2 * height))
    found = set()
    for index, picture in enumerate(frames):
        ycc = cv2.cvtColor(picture, cv2.COLOR_BGR2YCrCb)
        luma, chroma = ycc[..., 0].copy(), ycc[..., 2:0:-1].copy()
        if probe.cuts([AnalysisFrame(2, luma, chroma)])[0]:
            found.add(index)
    return found


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    cuts = {
        name: frozenset(map(int, frames.split(",")))
        for name, _, frames in (text.partition("=") for text in arguments.cuts)
    }
    people = {name: people for people in arguments.person for name in people.split(",")}
    clips = {
        path.stem: Clip(
            list(map(fitted, read_clip(path))),
            path.parent,
            people.get(path.stem, path.stem),
            cuts.get(path.stem, frozenset()),
        )
        for path in arguments.clips
    }
    whole = {name: clip for name, clip in clips.items() if not clip.cuts}
    yield from joins(whole)
    yield from uncut(clips)
    if arguments.images:
        behind = [clip.frames for clip in whole.values()]
        yield from of_photographs(arguments.images, arguments.masks, behind)


def of_photographs(images: Path, masks: Path, clips: Sequence[Video]) -> Iterator[Case]:
    pairs = read_pairs(images, masks)
    photographs = {name: fitted(image) for name, (image, _) in pairs.items()}
    truths = {name: list(moving(*pair)) for name, pair in pairs.items() if can_move(pair[1])}
    yield from photograph_joins(photographs)
    people = {
        name: grainy((fitted(blend(t, room())) for t in truth), 1.0)
        for name, truth in truths.items()
    }
    yield from room_joins(people)
    for name, video in people.items():
        yield Case("sways before the room", name, video)
    yield from passing({name: truth[0] for name, truth in truths.items()}, clips)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clips", type=Path, nargs="+")
    parser.add_argument("--cuts", nargs="*", default=[], metavar="CLIP=FRAME,…")
    parser.add_argument("--person", nargs="*", default=[], metavar="CLIP,…", help="show one person")
    parser.add_argument("--images", type=Path)
    parser.add_argument("--masks", type=Path)
    parser.add_argument("--list", action="store_true", help="name what was missed, and alarms")
    arguments = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case in cases(arguments):
        tally, found = tallies[case.kind], found_cuts(case.frames)
        tally.frames += len(case.frames)
        tally.cuts += len(case.cuts)
        tally.found += len(found & case.cuts)
        tally.false += len(found - case.cuts)
        wrong = [f"missed {i}" for i in case.cuts - found] + [
            f"false {i}" for i in found - case.cuts
        ]
        tally.notes += [f"{case.name}: {', '.join(wrong)}"] if wrong else []
    show(tallies, arguments.list)


def show(tallies: dict[str, Tally], notes: bool) -> None:
    print(f"{'':28} {'frames':>7} {'cuts':>5} {'recall':>7} {'false':>6} {'per 1000':>9}")
    for kind, tally in tallies.items():
        recall = f"{tally.found / tally.cuts:.3f}" if tally.cuts else ""
        rate = 1000 * tally.false / tally.frames
        print(f"{kind:28} {tally.frames:7} {tally.cuts:5} {recall:>7} {tally.false:6} {rate:9.2f}")
        for note in tally.notes if notes else ():
            print(f"    {note}")


if __name__ == "__main__":
    main()
