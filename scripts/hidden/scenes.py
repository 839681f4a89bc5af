"""Scenes of one shot: people where and how they are hard to find, drawn with their truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np

from hidden.drawn import Drawn, Picture
from hidden.stock import Stock

SIZE = (640, 360)
FRAMES = 16
CRF = 12
"""Of x264: nearly nothing is lost."""

Rng = np.random.Generator


@dataclass
class Scene:
    """A video to render."""

    name: str
    frames: Iterator[Drawn]
    times: list[float] | None = None
    """Seconds, one for each frame; by default 30 frames a second."""
    crf: int = CRF


@dataclass
class Walk:
    """A person on the way: position, height and angle at the first frame, and steps a frame."""

    who: int
    x: float
    y: float
    height: float
    dx: float = 0.0
    dy: float = 0.0
    angle: float = 0.0
    turn: float = 0.0
    first: int = 0
    last: int = 10**6
    """Frames in which it is in sight, inclusive."""

    def draw(self, stock: Stock, frame: Drawn, at: int, number: int) -> None:
        if not self.first <= at <= self.last:
            return
        head = stock.people[self.who % len(stock.people)]
        run = at - self.first
        patch = head[run % len(head)]
        x, y = self.x + run * self.dx, self.y + run * self.dy
        frame.paste(patch, number, x, y, self.height, self.angle + run * self.turn)


def walking(
    stock: Stock,
    rng: Rng,
    walks: list[Walk],
    *,
    size: tuple[int, int] = SIZE,
    count: int = FRAMES,
    after: Callable[[Picture], Picture] | None = None,
) -> Iterator[Drawn]:
    """Draw people in a room; ``after`` changes the picture then."""
    background = stock.background(rng, size)
    for at in range(count):
        frame = Drawn(background.copy())
        for number, walk in enumerate(walks, 1):
            walk.draw(stock, frame, at, number)
        if after:
            frame.picture = after(frame.picture)
        yield frame


def someone(stock: Stock, rng: Rng) -> int:
    return int(rng.integers(len(stock.people)))


def apart(rng: Rng, count: int, size: tuple[int, int], room: float) -> list[tuple[float, float]]:
    """Return places that are so far from each other and from the edges, where there are any."""
    found: list[tuple[float, float]] = []
    for _ in range(400):
        x, y = rng.uniform(room, size[0] - room), rng.uniform(room, size[1] - room)
        if all(abs(x - a) > 2 * room or abs(y - b) > 2 * room for a, b in found):
            found.append((float(x), float(y)))
        if len(found) == count:
            break
    return found


def crowd(
    stock: Stock, rng: Rng, low: float, high: float, count: int, size: tuple[int, int] = SIZE
) -> list[Walk]:
    """Different people of those heights, well apart."""
    who = rng.permutation(len(stock.people))
    places = apart(rng, count, size, 0.95 * high)
    return [
        Walk(int(person), x, y, float(rng.uniform(low, high)))
        for (x, y), person in zip(places, who, strict=False)
    ]


EDGES = {"left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1), "corner": (1, -1)}
CUT = {"two eyes": ((0.24, 0.36), (0.2, 0.36)), "one eye": ((0.0, 0.12), (0.3, 0.4))}
"""Distances from the face's centre to the edge, sideways and up or down, in widths and heights."""
WIDTH = 0.76
"""Of a face, as a part of its height."""


def edge(stock: Stock, eyes: str) -> Iterator[Scene]:
    rng = stock.rng(f"edge {eyes}")
    for name, (across, down) in EDGES.items():
        if eyes == "one eye" and not across:
            continue
        for _ in range(stock.count(6)):
            height = float(rng.uniform(40, 170))
            x, y = rng.uniform(0.3, 0.7) * SIZE[0], rng.uniform(0.35, 0.65) * SIZE[1]
            cut = [float(rng.uniform(*limits)) for limits in CUT[eyes]]
            if across:
                x = SIZE[0] / 2 + across * (SIZE[0] / 2 - WIDTH * cut[0] * height)
            if down:
                y = SIZE[1] / 2 + down * (SIZE[1] / 2 - cut[1] * height)
            walk = Walk(someone(stock, rng), x, y, height)
            yield Scene(name, walking(stock, rng, [walk]))


def still(stock: Stock, low: float, high: float) -> Iterator[Scene]:
    rng = stock.rng(f"still {low}")
    for _ in range(stock.count(9)):
        yield Scene("still", walking(stock, rng, crowd(stock, rng, low, high, 5), count=12))


def moving(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("moving")
    for _ in range(stock.count(12)):
        step = float(rng.uniform(16, 45))
        height = float(rng.uniform(20, 40))
        way = 1 if rng.random() < 0.5 else -1
        start = -0.6 * height if way > 0 else SIZE[0] + 0.6 * height
        y = float(rng.uniform(0.15, 0.85) * SIZE[1])
        slope = float(rng.uniform(-3, 3))
        walk = Walk(someone(stock, rng), start, y, height, way * step, slope)
        count = int(SIZE[0] / step) + 3
        yield Scene(f"{step:.0f}px", walking(stock, rng, [walk], count=count))


def entering(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("entering")
    for across, down in list(EDGES.values())[:4]:
        for _ in range(stock.count(3)):
            height, step = float(rng.uniform(24, 70)), float(rng.uniform(8, 24))
            x, y = rng.uniform(0.3, 0.7) * SIZE[0], rng.uniform(0.3, 0.7) * SIZE[1]
            if across:
                x = SIZE[0] / 2 + across * (SIZE[0] / 2 + 0.6 * height)
            if down:
                y = SIZE[1] / 2 + down * (SIZE[1] / 2 + 0.6 * height)
            walk = Walk(someone(stock, rng), x, y, height, -across * step, -down * step, first=4)
            yield Scene(f"{step:.0f}px", walking(stock, rng, [walk]))


def popping(stock: Stock, *, low_rate: bool = False) -> Iterator[Scene]:
    rng = stock.rng(f"pop {low_rate}")
    for _ in range(stock.count(6 if low_rate else 12)):
        walks = crowd(stock, rng, 20, 90, 3)
        for walk in walks:
            walk.first = int(rng.integers(0, 18))
            walk.last = walk.first + int(rng.integers(2, 7)) - 1
            walk.dx, walk.dy = (float(step) for step in rng.uniform(-3, 3, 2))
        times = [at / 2 for at in range(24)] if low_rate else None
        yield Scene("pop", walking(stock, rng, walks, count=24), times)


def strolling(stock: Stock, *, variable: bool) -> Iterator[Scene]:
    """Two frames a second, or any time between them: large steps."""
    rng = stock.rng(f"strolling {variable}")
    for _ in range(stock.count(6)):
        walks = crowd(stock, rng, 24, 110, 3)
        for walk in walks:
            walk.dx, walk.dy = float(rng.uniform(-40, 40)), float(rng.uniform(-8, 8))
        gaps = rng.choice([1 / 60, 1 / 24, 0.2, 0.5, 1.3], 12) if variable else np.full(12, 0.5)
        times = np.cumsum(gaps).tolist()
        yield Scene("stroll", walking(stock, rng, walks, count=12), times)


def grid(stock: Stock, columns: int, rows: int, size: tuple[int, int]) -> Iterator[Scene]:
    rng = stock.rng(f"grid {columns}")
    cell = size[0] / columns, size[1] / rows
    for _ in range(stock.count(3)):
        walks = [
            Walk(
                someone(stock, rng),
                (column + 0.5) * cell[0],
                (row + 0.5) * cell[1],
                float(rng.uniform(0.22, 0.5) * cell[1]),
                float(rng.uniform(-1, 1)),
            )
            for row in range(rows)
            for column in range(columns)
        ]
        yield Scene("grid", walking(stock, rng, walks, size=size, count=6))


def noisy(picture: Picture, rng: Rng, gain: float, sigma: float) -> Picture:
    noise = rng.normal(0, sigma, picture.shape)
    return np.clip(picture * gain + 8 + noise, 0, 255).astype(np.uint8)


def dark(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("dark")
    for _ in range(stock.count(9)):
        gain, sigma = float(rng.uniform(0.15, 0.35)), float(rng.uniform(4, 9))
        after = partial(noisy, rng=stock.rng("noise"), gain=gain, sigma=sigma)
        walks = crowd(stock, rng, 24, 60, 3)
        yield Scene(f"gain{gain:.2f}", walking(stock, rng, walks, after=after))


def blurred(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("blurred")
    for _ in range(stock.count(6)):
        high = float(rng.uniform(30, 120))
        sigma = high * float(rng.uniform(0.03, 0.09))
        after = partial(cv2.GaussianBlur, ksize=(0, 0), sigmaX=sigma)
        walks = crowd(stock, rng, 0.8 * high, high, 3)
        yield Scene(f"sigma{sigma:.1f}", walking(stock, rng, walks, after=after))


def compressed(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("compressed")
    for _ in range(stock.count(6)):
        crf = int(rng.integers(33, 42))
        walks = crowd(stock, rng, 30, 100, 3)
        yield Scene(f"crf{crf}", walking(stock, rng, walks), crf=crf)


def turned(stock: Stock, angle: float, turn: float = 0.0) -> Iterator[Scene]:
    rng = stock.rng(f"turned {angle} {turn}")
    for _ in range(stock.count(9 if turn else 3)):
        walks = crowd(stock, rng, 40, 90, 4)
        for walk in walks:
            walk.angle = angle + float(rng.uniform(-8, 8)) + (turn > 0) * float(rng.uniform(0, 360))
            walk.turn = turn * float(rng.uniform(0.4, 1)) * (1 if rng.random() < 0.5 else -1)
        yield Scene("turned", walking(stock, rng, walks, count=24 if turn else 10))


def shaped(stock: Stock, size: tuple[int, int], low: float, high: float) -> Iterator[Scene]:
    """Frames of another shape, people walking slowly."""
    rng = stock.rng(f"shaped {size}")
    for _ in range(stock.count(4)):
        walks = crowd(stock, rng, low, high, 3, size)
        for walk in walks:
            walk.dx, walk.dy = (float(step) for step in rng.uniform(-4, 4, 2))
        yield Scene("shaped", walking(stock, rng, walks, size=size))


def large(stock: Stock, size: tuple[int, int], low: float, high: float) -> Iterator[Scene]:
    """Large frames with ten small faces at rest."""
    rng = stock.rng(f"large {size} {low}")
    for _ in range(stock.count(3)):
        walks = crowd(stock, rng, low, high, 10, size)
        yield Scene("large", walking(stock, rng, walks, size=size, count=4))


def crossing(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("crossing")
    for _ in range(stock.count(6)):
        high, y = float(rng.uniform(50, 120)), float(rng.uniform(0.4, 0.6) * SIZE[1])
        step = float(rng.uniform(8, 16))
        half = 12 * step
        one, other = (int(who) for who in rng.permutation(len(stock.people))[:2])
        walks = [
            Walk(one, SIZE[0] / 2 - half, y, high, step),
            Walk(other, SIZE[0] / 2 + half, y + 0.1 * high, 1.1 * high, -step),
        ]
        yield Scene("crossing", walking(stock, rng, walks, count=25))


BARS = {"left": (-1, -1, 0, 1), "right": (0, -1, 1, 1), "lower": (-1, 0, 1, 1)}
"""Corners of the covered part, in half sizes of a face."""


def covered(stock: Stock) -> Iterator[Scene]:
    rng = stock.rng("covered")
    for name, (left, top, right, bottom) in BARS.items():
        for _ in range(stock.count(3)):
            walk = Walk(someone(stock, rng), 320, 180, float(rng.uniform(50, 150)))
            walk.x, walk.y = rng.uniform(200, 440), rng.uniform(140, 220)
            half = 0.6 * walk.height
            sides = (left * half + walk.x, top * half + walk.y, right * half + walk.x)
            bar = partial(_barred, bar=(*sides, bottom * half + walk.y, int(rng.integers(200))))
            yield Scene(name, map(bar, walking(stock, rng, [walk])))


def _barred(frame: Drawn, bar: tuple[float, float, float, float, int]) -> Drawn:
    frame.cover(*bar)
    return frame
