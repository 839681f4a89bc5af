"""Scenes of several shots, of whole clips, and without anybody; and the list of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, pairwise

import cv2
import numpy as np

from hidden.drawn import Drawn, Oval, Picture
from hidden.looks import lit, worn
from hidden.scenes import (
    SIZE,
    Rng,
    Scene,
    Walk,
    blurred,
    compressed,
    covered,
    crossing,
    crowd,
    dark,
    edge,
    entering,
    grid,
    large,
    moving,
    noisy,
    popping,
    shaped,
    someone,
    still,
    strolling,
    turned,
    walking,
)
from hidden.stock import Clip, Stock

EMPTY_FRAMES, EMPTY_SCENES = 42, 12
"""504 frames without anybody."""
THING_FRAMES, THING_TRIES = 16, 50
FACELESS = 2.0
"""Of a face's size: what is kept away from, in parts of photographs without faces."""


def fitted(frame: Drawn, size: tuple[int, int] = SIZE) -> Drawn:
    """Return the middle of a frame in that size, filled."""
    wide, high = frame.size
    scale = max(size[0] / wide, size[1] / high)
    frame = frame.resized(max(size[0], round(wide * scale)), max(size[1], round(high * scale)))
    left, top = (frame.size[0] - size[0]) // 2, (frame.size[1] - size[1]) // 4
    return frame.cropped(left, top, *size)


def numbered(frame: Drawn, base: int) -> Drawn:
    """Return the frame with other numbers for its faces; those in doubt keep 0."""
    labels = np.where(frame.labels > 0, frame.labels + base, 0).astype(np.uint8)
    ovals = {n + base * (n > 0): each for n, each in frame.ovals.items()}
    return Drawn(frame.picture, labels, ovals)


def looped(clip: Clip, start: int = 0) -> Iterator[Drawn]:
    """Return a clip's frames, to and fro."""
    there = [*range(len(clip.frames)), *range(len(clip.frames) - 2, 0, -1)]
    while True:
        yield from (clip.frames[there[(at + start) % len(there)]] for at in range(len(there)))


def shot(stock: Stock, rng: Rng, number: int) -> Iterator[Drawn]:
    """Return somebody somewhere: a clip, or people in a room; without end."""
    if rng.random() < 0.4:
        clip = stock.clips[int(rng.integers(len(stock.clips)))]
        frames = (fitted(frame) for frame in looped(clip, int(rng.integers(8))))
        if rng.random() < 0.5:
            frames = (frame.mirrored() for frame in frames)
    else:
        walks = crowd(stock, rng, 30, 130, int(rng.integers(1, 4)))
        frames = walking(stock, rng, walks, count=200)
    return (numbered(frame, 10 * number) for frame in frames)


def cuts(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("cuts")

    def joined() -> Iterator[Drawn]:
        for number in range(6):
            yield from islice(shot(stock, rng, number), int(rng.integers(3, 11)))

    for _ in range(stock.count(9)):
        yield Scene("cuts", joined())


def joins(stock: Stock) -> Iterator[Scene]:
    """Put another person elsewhere in the same room, at once: cuts that are hard to notice."""
    rng = stock.rng("joins")
    for _ in range(stock.count(9)):
        walks = crowd(stock, rng, 30, 110, 4)
        last = -1
        for walk in walks:
            walk.first, last = last + 1, last + int(rng.integers(3, 11))
            walk.last = last
        yield Scene("joins", walking(stock, rng, walks, count=last + 1))


def flashes(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("flashes")

    def flashed(*, white: bool) -> Iterator[Drawn]:
        first, second = shot(stock, rng, 0), shot(stock, rng, 1)
        at_flash = {int(at) for at in rng.choice(np.arange(3, 18), 2, replace=False)}
        for at, frame in enumerate(islice(first, 20)):
            if at not in at_flash:
                yield frame
            elif white:
                level = float(rng.uniform(0.4, 1.0))
                picture = cv2.addWeighted(frame.picture, 1 - level, frame.picture, 0, 255 * level)
                bright = Drawn(np.asarray(picture, np.uint8))
                bright.ovals[0] = [oval for each in frame.ovals.values() for oval in each]
                yield bright if level > 0.7 else Drawn(bright.picture, frame.labels, frame.ovals)
            else:
                yield next(second)

    for at in range(stock.count(8)):
        yield Scene("white" if at % 2 else "frame", flashed(white=bool(at % 2)))


def fades(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("fades")

    def faded(length: int) -> Iterator[Drawn]:
        pairs = zip(shot(stock, rng, 0), shot(stock, rng, 1), strict=False)
        for at, (before, after) in enumerate(islice(pairs, 12 + length)):
            yield before.faded(after, min(1.0, max(0.0, (at - 5) / (length + 1))))

    for _ in range(stock.count(9)):
        yield Scene("fade", faded(int(rng.integers(4, 16))))


def dissolves(stock: Stock) -> Iterator[Scene]:
    """Fade from one face to another in the same place that is larger or smaller."""
    rng = stock.rng("dissolves")

    def faded(heights: Sequence[float], x: float, y: float) -> Iterator[Drawn]:
        one, two = (
            walking(stock, rng, [Walk(someone(stock, rng), x, y, height)], count=36)
            for height in heights
        )
        for at, (before, after) in enumerate(zip(one, two, strict=True)):
            yield before.faded(numbered(after, 10), min(1.0, max(0.0, (at - 5) / 25)))

    for at in range(stock.count(12)):
        height, ratio = float(rng.uniform(40, 80)), float(rng.uniform(1.4, 2.2))
        x, y = rng.uniform(0.3, 0.7) * SIZE[0], rng.uniform(0.4, 0.6) * SIZE[1]
        heights = (height, ratio * height)[:: 1 if at % 2 else -1]
        yield Scene(f"{ratio:.1f}", faded(heights, float(x), float(y)))


def whips(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("whips")

    def panned(step: int) -> Iterator[Drawn]:
        size = SIZE[0] * 3, SIZE[1]
        wide = next(walking(stock, rng, crowd(stock, rng, 40, 120, 7, size), size=size))
        for left in [0] * 3 + list(range(0, SIZE[0] * 2, step)) + [SIZE[0] * 2] * 3:
            frame = wide.cropped(left, 0, *SIZE)
            if 0 < left < SIZE[0] * 2:
                frame.picture = np.asarray(cv2.blur(frame.picture, (max(1, step // 8), 1)))
            yield frame

    for _ in range(stock.count(6)):
        step = int(rng.integers(40, 130))
        yield Scene(f"{step}px", panned(step))


def insets(stock: Stock) -> Iterator[Scene]:
    """Show a clip small and sharp-edged in the corner of another."""
    rng = stock.rng("insets")

    def inset(share: float) -> Iterator[Drawn]:
        small = round(SIZE[0] * share) // 2 * 2, round(SIZE[1] * share) // 2 * 2
        left = 12 if rng.random() < 0.5 else SIZE[0] - small[0] - 12
        top = 12 if rng.random() < 0.5 else SIZE[1] - small[1] - 12
        pairs = zip(shot(stock, rng, 0), shot(stock, rng, 1), strict=False)
        for below, above in islice(pairs, 14):
            frame, part = below.cropped(0, 0, *SIZE), above.resized(*small)
            inside = np.s_[top : top + small[1], left : left + small[0]]
            frame.picture[inside], frame.labels[inside] = part.picture, part.labels
            moved = np.array([[1.0, 0, left], [0, 1.0, top]])
            for number, ovals in part.ovals.items():
                frame.ovals.setdefault(number, []).extend(oval.moved(moved) for oval in ovals)
            yield frame

    for _ in range(stock.count(6)):
        yield Scene("inset", inset(float(rng.uniform(0.22, 0.4))))


def ordinary(stock: Stock, *, mirrored: bool = False) -> Iterator[Scene]:
    for clip in stock.clips:
        # A face in doubt in one frame may be hidden in those nearby.
        nearby = smeared([*clip.frames, *clip.rest])
        yield Scene(clip.name, (f.mirrored() for f in nearby) if mirrored else nearby)


def smeared(frames: list[Drawn], span: int = 8) -> Iterator[Drawn]:
    for at, frame in enumerate(frames):
        near: list[Oval] = [
            oval
            for other in frames[max(0, at - span) : at + span + 1]
            for ovals in other.ovals.values()
            for oval in ovals
        ]
        yield Drawn(frame.picture, frame.labels, {**frame.ovals, 0: near})


def portraits(stock: Stock) -> Iterator[Scene]:
    for clip in stock.photographs[:: 3 if stock.quick else 1]:
        yield Scene(clip.name, iter(clip.frames))


def empty(stock: Stock) -> Iterator[Scene]:
    """Show rooms, shapes and noise, from near and far, moving slowly."""
    rng = stock.rng("empty")

    def panned(at: int) -> Iterator[Drawn]:
        room = stock.rooms[at % len(stock.rooms)]
        sigma = 0.0 if at % 3 else float(rng.uniform(6, 25))
        path = rng.uniform(0, 1, (2, 3))
        for part in np.linspace(0, 1, EMPTY_FRAMES):
            x, y, near = path[0] + part * (path[1] - path[0])
            scale = 0.5 + 1.5 * near
            shift = [scale * 1280 - SIZE[0], scale * 720 - SIZE[1]] * np.array([-x, -y])
            matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]])
            picture = np.asarray(cv2.warpAffine(room, matrix, SIZE), np.uint8)
            gain = 0.4 if at % 2 and sigma else 1.0
            yield Drawn(noisy(picture, rng, gain, sigma) if sigma else picture)

    for at in range(stock.count(EMPTY_SCENES)):
        yield Scene("empty", panned(at))


def things(stock: Stock) -> Iterator[Scene]:
    """Show clothes, hands, leaves and other parts of photographs without faces, moving slowly."""
    rng = stock.rng("things")

    def panned(part: Picture, sigma: float) -> Iterator[Drawn]:
        part = np.asarray(cv2.resize(part, (SIZE[0] + THING_FRAMES, SIZE[1])), np.uint8)
        for left in range(THING_FRAMES):
            shown = np.ascontiguousarray(part[:, left : left + SIZE[0]])
            yield Drawn(noisy(shown, rng, 0.4, sigma) if sigma else shown)

    for at, clip in enumerate(stock.photographs[:: 3 if stock.quick else 1]):
        whole, ovals = clip.frames[0].picture, chain(*clip.frames[0].ovals.values())
        faces = np.zeros(whole.shape[:2], np.uint8)
        for oval in ovals:
            oval.larger(FACELESS).fill(faces, 1)
        for _ in range(THING_TRIES):
            high = int(rng.uniform(0.25, 0.6) * len(faces))
            wide = min(faces.shape[1], high * SIZE[0] // SIZE[1])
            top = int(rng.integers(len(faces) - high + 1))
            left = int(rng.integers(faces.shape[1] - wide + 1))
            inside = np.s_[top : top + high, left : left + wide]
            if not faces[inside].any():
                sigma = float(rng.uniform(6, 25)) * (at % 3 == 0)
                yield Scene(clip.name, panned(whole[inside], sigma))
                break


def kinds() -> dict[str, Callable[[Stock], Iterator[Scene]]]:
    """Return what draws each kind of scene, by name."""
    made: dict[str, Callable[[Stock], Iterator[Scene]]] = {
        "ordinary clips": ordinary,
        "empty rooms": empty,
        "things": things,
        "portraits": portraits,
        "cut by an edge, two eyes": partial(edge, eyes="two eyes"),
        "cut by an edge, one eye": partial(edge, eyes="one eye"),
    }
    made |= {
        f"still, {low} to {high} px": partial(still, low=low, high=high)
        for low, high in pairwise((12, 16, 20, 28, 40))
    }
    made |= {
        "20 to 40 px, 16 to 45 px a frame": moving,
        "entering": entering,
        "in sight for 2 to 6 frames": popping,
        "in sight for 2 to 6, 2 frames/s": partial(popping, low_rate=True),
        "2 frames/s": partial(strolling, variable=False),
        "variable frame rate": partial(strolling, variable=True),
        "40 faces": partial(grid, columns=8, rows=5, size=SIZE),
        "100 faces": partial(grid, columns=10, rows=10, size=(1280, 720)),
        "small in dark noise": dark,
        "blurred": blurred,
        "compressed": compressed,
        "crossfades": fades,
        "crossfades, another size": dissolves,
        "cuts": cuts,
        "joins in one room": joins,
        "flashes": flashes,
        "whip pans": whips,
        "picture in picture": insets,
        "mirrored": partial(ordinary, mirrored=True),
        "2.39:1": partial(shaped, size=(860, 360), low=40, high=120),
        "9:16": partial(shaped, size=(360, 640), low=40, high=110),
        "1080p, 12 to 20 px": partial(large, size=(1920, 1080), low=12, high=20),
        "1080p, 20 to 28 px": partial(large, size=(1920, 1080), low=20, high=28),
        "4K, 24 to 70 px": partial(large, size=(3840, 2160), low=24, high=70),
        "crossing each other": crossing,
        "half covered": covered,
        "light and colours": lit,
        "glasses, masks, caps": worn,
    }
    made |= {f"turned by {angle}°": partial(turned, angle=angle) for angle in range(0, 360, 30)}
    return made | {"spinning": partial(turned, angle=0, turn=8)}
