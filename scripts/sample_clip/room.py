"""Draw the room behind the person: four flat layers at different distances."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import cv2
import numpy as np

from sample_clip.canvas import (
    DRAW_SCALE,
    WORLD_HEIGHT,
    WORLD_WIDTH,
    Canvas,
    FloatArray,
    Rgb,
    UInt8Array,
    noise,
    textured,
    wood,
)

STORE_SCALE: Final = 1.25
"""Stored canvas pixels per world unit; the camera never enlarges a far layer by more."""
_DEFOCUS: Final = 2.2
"""Sigma in stored pixels of infinitely distant things; the lens is focused on the person."""

CLOCK_CENTRE: Final = (-330.0, -131.0)
RADIO_LIGHT: Final = (-292.0, 24.0)
LAMP_CENTRE: Final = (585.0, -30.0)

_SHELF_LEFT, _SHELF_RIGHT = -800.0, -152.0
_SHELF_ROWS: Final = (-255.0, -75.0, 105.0, 285.0, 460.0)
_GAPS: Final = {
    1: (CLOCK_CENTRE[0] - 58.0, CLOCK_CENTRE[0] + 58.0),
    2: (RADIO_LIGHT[0] - 144.0, RADIO_LIGHT[0] + 28.0),
}
"""Gaps without books in the shelf's rows, from the top: (left, right)."""

_WINDOW: Final = (372.0, -330.0, 760.0, 150.0)
_DARK_WOOD: Final = (104.0, 70.0, 44.0)
_BOOK_COLOURS: Final = (
    (142, 44, 40), (34, 74, 112), (38, 98, 78), (206, 160, 62), (228, 218, 196), (70, 52, 92),
    (198, 102, 48), (54, 60, 70), (150, 172, 182), (112, 128, 62), (184, 76, 92), (24, 118, 132),
    (240, 236, 226), (96, 40, 30),
)  # fmt: skip
_TITLES: Final = (
    "ORBIT", "COMET", "LUMEN", "NOVA", "APERTURE", "FOCUS", "PARALLAX", "ATLAS", "HALO", "PRISM",
    "SPECTRUM", "BOKEH", "LENSES", "SHUTTER", "GAMMA", "CHROMA", "ON MATTES", "ALPHA", "MOTION",
    "DAYLIGHT", "EXPOSURE", "THE IRIS", "FILM", "ZENITH", "SOFT LIGHT", "MERIDIAN", "GRAIN",
)  # fmt: skip
_EYE_CHART: Final = ("E", "F P", "T O Z", "L P E D", "P E C F D", "E D F C Z P", "F E L O P Z D")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One flat layer of the scene, over the whole world area at ``STORE_SCALE``."""

    premultiplied: FloatArray
    """(H, W, 4) RGB in 0..1 times coverage, then coverage in 0..1."""

    nearness: float
    """Inverse distance relative to the person's: 1 moves like the person, 0 is infinitely far."""


def draw_room(rng: np.random.Generator, second: int, lit: bool) -> list[Layer]:
    """Return the room's layers, far to near.

    Args:
        rng: draws every texture, so that equal generators give equal rooms.
        second: where the clock's second hand points.
        lit: whether the radio's light is on.
    """
    outside = _draw_outside(rng)
    wall = _draw_wall(rng)
    shelf = _draw_bookshelf(rng, second, lit)
    near = _draw_lamp_and_plant(rng)
    _cast_shadow(wall, shelf.mask, 22, 16)
    _cast_shadow(wall, near.mask, -14, 10)
    return [
        _finish(outside, 0.10, lamp=False),
        _finish(wall, 0.42),
        _finish(shelf, 0.54),
        _finish(near, 0.72),
    ]


def _draw_outside(rng: np.random.Generator) -> Canvas:
    """Draw a town at dusk, far out of focus."""
    canvas = Canvas()
    height = canvas.mask.shape[0]
    canvas.mask[:] = 255
    stops = np.array([[52, 66, 112], [110, 104, 142], [222, 150, 120], [120, 92, 96]], np.float32)
    sky = cv2.resize(stops[:, None], (1, height), interpolation=cv2.INTER_CUBIC)
    canvas.image[:] = np.clip(sky, 0, 255).astype(np.uint8)
    x = 80.0
    while x < WORLD_WIDTH / 2:
        tower_width, top = rng.uniform(40, 90), rng.uniform(-190, -20)
        tone = rng.uniform(34, 58)
        canvas.rect(x, top, x + tower_width, 440, (tone, tone + 2, tone + 20))
        x += tower_width * rng.uniform(0.8, 1.1)
    canvas.image[:] = cv2.GaussianBlur(canvas.image, (0, 0), 9)
    lights = np.zeros_like(canvas.image, np.float32)
    for _ in range(120):
        disc = np.zeros_like(canvas.mask)
        centre = canvas.point(rng.uniform(150, 780), rng.uniform(-200, 260))
        radius_px = round(rng.uniform(8, 19) * DRAW_SCALE)
        cv2.circle(disc, centre, radius_px, (200,), -1, cv2.LINE_AA)
        cv2.circle(disc, centre, radius_px, (255,), 3, cv2.LINE_AA)
        tints = ((255, 196, 110), (255, 150, 80), (255, 226, 180), (150, 200, 255), (255, 92, 84))
        colour = np.array(tints[rng.integers(len(tints))], np.float32)
        y0, y1 = max(0, centre[1] - 60), centre[1] + 60
        x0, x1 = max(0, centre[0] - 60), centre[0] + 60
        area = lights[y0:y1, x0:x1]
        area += disc[y0:y1, x0:x1, None] / 255.0 * colour * rng.uniform(0.25, 0.75)
    canvas.image[:] = np.clip(canvas.image + lights, 0, 255).astype(np.uint8)
    return canvas


def _draw_wall(rng: np.random.Generator) -> Canvas:
    """Draw papered wall, a window's frame around a hole and an eye chart."""
    canvas = Canvas()
    shape = canvas.mask.shape
    plaster = 0.030 * noise(rng, shape, (3, 3)) + 0.03 * noise(rng, shape, (160, 220))
    canvas.paste(-WORLD_WIDTH / 2, -WORLD_HEIGHT / 2, textured((98, 124, 124), plaster))
    _draw_wallpaper(canvas)
    _draw_panelling(canvas, rng)
    _draw_eye_chart(canvas, 262.0, -152.0)

    x0, y0, x1, y1 = _WINDOW
    frame = (226.0, 222.0, 210.0)
    canvas.rect(x0 - 22, y0 - 22, x1 + 22, y1 + 22, (176, 172, 160))
    canvas.rect(x0 - 18, y0 - 18, x1 + 18, y1 + 18, frame)
    hole = np.zeros_like(canvas.mask)
    cv2.rectangle(hole, canvas.point(x0, y0), canvas.point(x1, y1), (255,), -1)
    for bar in (x0 + (x1 - x0) * 0.42,):
        cv2.rectangle(hole, canvas.point(bar - 7, y0), canvas.point(bar + 7, y1), (0,), -1)
        canvas.rect(bar + 5, y0, bar + 7, y1, (160, 156, 146))
    cv2.rectangle(hole, canvas.point(x0, -108), canvas.point(x1, -96), (0,), -1)
    canvas.rect(x0, -98, x1, -96, (160, 156, 146))
    canvas.mask[hole > 0] = 0
    sill = wood(rng, (round(26 * DRAW_SCALE), round((x1 - x0 + 100) * DRAW_SCALE)), frame)
    canvas.paste(x0 - 50, y1 + 14, sill)
    canvas.rect(x0 - 44, y1 + 40, x1 + 44, y1 + 47, (78, 98, 98))
    return canvas


def _draw_wallpaper(canvas: Canvas) -> None:
    """Print a small lattice with leaves, the wall's fine detail."""
    light = (124.0, 150.0, 146.0)
    for row, y in enumerate(np.arange(-440.0, 440.0, 21.0)):
        for x in np.arange(-780.0 + 18.0 * (row % 2), 780.0, 36.0):
            canvas.line(x - 6, y + 6, x, y - 6, 1.2, light)
            canvas.line(x + 6, y + 6, x, y - 6, 1.2, light)
            canvas.disc(x, y + 8, 1.8, (160, 172, 146))


def _draw_panelling(canvas: Canvas, rng: np.random.Generator) -> None:
    """Clad the wall's lower part with dark painted boards under a rail."""
    top = 6.0
    for left in np.arange(-780.0, 780.0, 30.0):
        shape = (round((440 - top) * DRAW_SCALE), 30 * DRAW_SCALE)
        tone = (float(rng.uniform(46, 54)), 66.0, float(rng.uniform(70, 78)))
        canvas.paste(left, top, wood(rng, shape, tone))
        canvas.rect(left, top, left + 2, 440, (22, 32, 36))
        canvas.rect(left + 2, top, left + 3.5, 440, (92, 114, 118))
    canvas.rect(-780, top - 12, 780, top, (88, 108, 110))
    canvas.rect(-780, top - 12, 780, top - 9, (128, 148, 146))
    canvas.rect(-780, top, 780, top + 6, (20, 28, 32))


def _draw_eye_chart(canvas: Canvas, x: float, y: float) -> None:
    """Hang an optician's chart centred at (x, y)."""
    canvas.rect(x - 78, y - 118, x + 78, y + 118, (58, 40, 28))
    canvas.rect(x - 71, y - 111, x + 71, y + 111, (24, 48, 84))
    line_y = y - 82.0
    for row, letters in enumerate(_EYE_CHART):
        size = 40.0 * 0.76**row
        canvas.text(x, line_y, letters, size, (206, 216, 226))
        line_y += size * 0.5 + 40.0 * 0.76 ** (row + 1) * 0.5 + 8.0


def _draw_clock(canvas: Canvas, second: int) -> None:
    """Stand a clock on a board whose second hand points at ``second``; it reads ten past ten."""
    x, y = CLOCK_CENTRE
    canvas.rect(x - 40, y + 48, x + 40, y + 56, (70, 46, 28))
    canvas.disc(x, y, 52, (138, 98, 58))
    canvas.disc(x, y, 46, (228, 224, 212))
    for minute in range(60):
        angle = np.deg2rad(minute * 6.0)
        inner = 37.0 if minute % 5 == 0 else 41.0
        direction = np.sin(angle), -np.cos(angle)
        canvas.line(
            x + inner * direction[0], y + inner * direction[1],
            x + 43 * direction[0], y + 43 * direction[1],
            2.4 if minute % 5 == 0 else 1.0, (40, 40, 44),
        )  # fmt: skip
    hands: tuple[tuple[float, float, float, Rgb], ...] = (
        (305.0, 23.0, 4.2, (36, 36, 40)),
        (60.0, 33.0, 3.2, (36, 36, 40)),
        (second * 6.0 + 186.0, 39.0, 2.0, (196, 40, 36)),
    )
    for degrees, length, width, colour in hands:
        angle = np.deg2rad(degrees)
        canvas.line(x, y, x + length * np.sin(angle), y - length * np.cos(angle), width, colour)
    canvas.disc(x, y, 3.6, (196, 40, 36))


def _draw_bookshelf(rng: np.random.Generator, second: int, lit: bool) -> Canvas:
    """Draw a bookshelf with a clock and a radio between its books."""
    canvas = Canvas()
    width = _SHELF_RIGHT - _SHELF_LEFT
    back = wood(rng, (WORLD_HEIGHT * DRAW_SCALE, round(width * DRAW_SCALE)), (70.0, 48.0, 33.0))
    canvas.paste(_SHELF_LEFT, -WORLD_HEIGHT / 2, back)
    for row, floor in enumerate(_SHELF_ROWS):
        ceiling = floor - 180.0
        fade = np.linspace(0.45, 1.0, 64, dtype=np.float32)[:, None]
        canvas.shade(_SHELF_LEFT, ceiling, _SHELF_RIGHT, floor, fade)
        _fill_row(canvas, rng, floor, _GAPS.get(row, (0.0, 0.0)))
        board = wood(rng, (round(17 * DRAW_SCALE), round(width * DRAW_SCALE)), _DARK_WOOD)
        canvas.paste(_SHELF_LEFT, floor, board)
        canvas.rect(_SHELF_LEFT, floor, _SHELF_RIGHT, floor + 1.5, (158, 116, 78))
        under = np.linspace(0.35, 1.0, 16, dtype=np.float32)[:, None]
        canvas.shade(_SHELF_LEFT, floor + 17, _SHELF_RIGHT, floor + 40, under)
    for x in (_SHELF_RIGHT - 18.0, -474.0):
        upright = wood(rng, (WORLD_HEIGHT * DRAW_SCALE, 18 * DRAW_SCALE), _DARK_WOOD)
        canvas.paste(x, -WORLD_HEIGHT / 2, upright)
        canvas.rect(x + 16, -440, x + 18, 440, (150, 108, 72))
    _draw_clock(canvas, second)
    _draw_radio(canvas, rng, _SHELF_ROWS[2], lit)
    return canvas


def _fill_row(
    canvas: Canvas, rng: np.random.Generator, floor: float, gap: tuple[float, float]
) -> None:
    """Stand books on a board at ``floor``, leaving out the x range ``gap``."""
    x = _SHELF_LEFT + 4.0
    while x < _SHELF_RIGHT - 24.0:
        if rng.random() < 0.06:
            x += rng.uniform(14, 40)
        width, height = rng.uniform(16, 40), rng.uniform(104, 154)
        spine = _draw_spine(rng, height, width)
        if not (gap[0] < x + width and x < gap[1]) and x + width < _SHELF_RIGHT - 18:
            canvas.paste(x, floor - height, spine)
        x += width + 0.8


def _draw_spine(rng: np.random.Generator, height: float, width: float) -> UInt8Array:
    """Return a book's spine, (height, width, 3) at ``DRAW_SCALE``, with bands and a title."""
    length, thickness = round(height * DRAW_SCALE), round(width * DRAW_SCALE)
    base = np.array(_BOOK_COLOURS[rng.integers(len(_BOOK_COLOURS))], np.float32)
    base = np.clip(base * rng.uniform(0.8, 1.1), 0, 245)
    ink = (236.0, 214.0, 150.0) if base.mean() < 120 else (44.0, 38.0, 36.0)
    cloth = 0.05 * noise(rng, (thickness, length), (2, 2))
    patch = textured((float(base[0]), float(base[1]), float(base[2])), cloth)
    margin = round(rng.uniform(10, 22) * DRAW_SCALE)
    for at in (margin, length - margin):
        cv2.line(patch, (at, 0), (at, thickness), ink, round(rng.uniform(1, 6)) * DRAW_SCALE)
    title = str(rng.choice(_TITLES))
    scale = thickness / 70.0
    (text_width, text_height), _ = cv2.getTextSize(title, cv2.FONT_HERSHEY_DUPLEX, scale, 2)
    scale *= min(1.0, (length - 2.6 * margin) / max(text_width, 1))
    origin = (round(margin * 1.4), (thickness + text_height) // 2)
    cv2.putText(patch, title, origin, cv2.FONT_HERSHEY_DUPLEX, scale, ink, 2, cv2.LINE_AA)
    across = np.abs(np.linspace(-1.0, 1.0, thickness, dtype=np.float32)) ** 3
    shaded = patch * (1.05 - 0.5 * across)[:, None, None]
    return np.ascontiguousarray(np.rot90(np.clip(shaded, 0, 255).astype(np.uint8), -1))


def _draw_radio(canvas: Canvas, rng: np.random.Generator, floor: float, lit: bool) -> None:
    """Stand a radio on a board; its light is what flashes with each click."""
    x0, x1 = RADIO_LIGHT[0] - 136.0, RADIO_LIGHT[0] + 22.0
    case = wood(rng, (round(104 * DRAW_SCALE), round((x1 - x0) * DRAW_SCALE)), (150.0, 92.0, 52.0))
    canvas.paste(x0, floor - 104, case)
    canvas.rect(x0 + 8, floor - 96, x0 + 104, floor - 8, (206, 196, 168))
    for y in np.arange(floor - 92, floor - 10, 5.0):
        canvas.line(x0 + 12, y, x0 + 100, y, 1.8, (122, 110, 88))
    canvas.disc(RADIO_LIGHT[0] - 6, floor - 34, 15, (52, 44, 38))
    canvas.disc(RADIO_LIGHT[0] - 6, floor - 34, 11, (178, 168, 150))
    canvas.line(RADIO_LIGHT[0] - 6, floor - 34, RADIO_LIGHT[0] + 1, floor - 42, 2, (52, 44, 38))
    canvas.disc(*RADIO_LIGHT, 10, (40, 34, 30))
    canvas.disc(*RADIO_LIGHT, 8, (120, 255, 140) if lit else (26, 62, 34))
    if lit:
        distance = _distance_from(RADIO_LIGHT, canvas.mask.shape)
        glow = 110.0 * np.exp(-((distance / 26.0) ** 2))[..., None] * np.array([0.4, 1.0, 0.5])
        canvas.image[:] = np.clip(canvas.image + glow, 0, 255).astype(np.uint8)


def _draw_lamp_and_plant(rng: np.random.Generator) -> Canvas:
    """Draw a sideboard with a lamp and a plant on it, the layer next to the person."""
    canvas = Canvas()
    top = 212.0
    board = wood(rng, (round(230 * DRAW_SCALE), round(600 * DRAW_SCALE)), (128.0, 84.0, 50.0))
    canvas.paste(200, top, board)
    canvas.rect(200, top, 800, top + 5, (178, 126, 80))
    canvas.rect(200, top + 16, 800, top + 18, (66, 42, 26))
    for left in (222.0, 456.0, 690.0):
        canvas.rect(left, top + 34, left + 218, top + 36, (70, 44, 26))
        canvas.rect(left, top + 34, left + 2, 440, (70, 44, 26))
        canvas.rect(left + 216, top + 34, left + 218, 440, (164, 112, 70))
        canvas.disc(left + 109, top + 78, 9, (60, 46, 30))
        canvas.disc(left + 108, top + 76, 7, (200, 164, 96))
    _draw_plant(canvas, rng, 432.0, top)

    x, y = LAMP_CENTRE
    for offset in range(-34, 35):
        profile = 0.55 + 0.45 * np.cos(offset / 34 * 1.5)
        height = np.sqrt(max(0.0, 1 - (offset / 35) ** 2)) * 70
        tone = 40 + 90 * profile
        canvas.line(
            x + offset, top - 66 - height, x + offset, top - 66 + height * 0.94, 1.6,
            (tone * 0.35, tone * 0.72, tone * 0.85),
        )  # fmt: skip
    canvas.rect(x - 26, top - 8, x + 26, top, (92, 70, 42))
    canvas.rect(x - 4, y + 60, x + 4, top - 130, (170, 134, 74))
    shade = [(x - 58, y - 62), (x + 58, y - 62), (x + 104, y + 74), (x - 104, y + 74)]
    canvas.polygon(shade, (252, 222, 166))
    for pleat in np.linspace(-1, 1, 27):
        tone = (236.0 - 22 * abs(pleat), 196.0 - 30 * abs(pleat), 132.0 - 30 * abs(pleat))
        canvas.line(x + 58 * pleat, y - 61, x + 104 * pleat, y + 73, 1.3, tone)
    canvas.line(x - 58, y - 62, x + 58, y - 62, 3, (186, 140, 84))
    canvas.line(x - 104, y + 74, x + 104, y + 74, 3, (186, 140, 84))
    return canvas


def _draw_plant(canvas: Canvas, rng: np.random.Generator, x: float, floor: float) -> None:
    """Stand a potted plant at x: arching leaves, back to front."""
    for index in range(46):
        angle = rng.uniform(-1.25, 1.25)
        length, width = rng.uniform(90, 215), rng.uniform(5, 10)
        t = np.linspace(0.0, 1.0, 24)
        bend = angle + 0.9 * angle * t**1.5
        path_x = x + 10 * angle + np.cumsum(np.sin(bend)) * length / 24
        path_y = floor - 82 - np.cumsum(np.cos(bend)) * length / 24
        half = width * np.sin(np.pi * np.clip(t * 0.94 + 0.06, 0, 1)) ** 0.8
        normal_x, normal_y = np.cos(bend), np.sin(bend)
        left = list(zip(path_x - normal_x * half, path_y - normal_y * half, strict=True))
        right = list(zip(path_x + normal_x * half, path_y + normal_y * half, strict=True))
        depth = 0.55 + 0.45 * index / 45
        green = depth * rng.uniform(92, 140)
        canvas.polygon(left + right[::-1], (green * 0.58, green * 0.94, green * 0.50))
        spine = list(zip(path_x, path_y, strict=True))
        for (ax, ay), (bx, by) in pairwise(spine):
            canvas.line(ax, ay, bx, by, 1.0, (green * 0.80, green * 1.16, green * 0.66))
    canvas.polygon(
        [(x - 46, floor - 84), (x + 46, floor - 84), (x + 34, floor), (x - 34, floor)],
        (206, 200, 190),
    )
    canvas.rect(x - 50, floor - 92, x + 50, floor - 74, (222, 216, 206))
    across = np.linspace(-1.0, 1.0, 64, dtype=np.float32)[None]
    canvas.shade(x - 50, floor - 92, x + 50, floor, 0.98 - 0.34 * across**2 + 0.10 * across)


def _distance_from(centre: tuple[float, float], shape: tuple[int, ...]) -> FloatArray:
    """Return each canvas pixel's distance from a world position, (H, W), in world units."""
    ys = np.arange(shape[0], dtype=np.float32)[:, None] / DRAW_SCALE - WORLD_HEIGHT / 2
    xs = np.arange(shape[1], dtype=np.float32)[None] / DRAW_SCALE - WORLD_WIDTH / 2
    return np.asarray(np.hypot(xs - centre[0], ys - centre[1]), np.float32)


def _cast_shadow(wall: Canvas, mask: UInt8Array, right: int, down: int) -> None:
    """Darken the wall softly beside what stands in front of it."""
    shift = np.array([[1, 0, right * DRAW_SCALE], [0, 1, down * DRAW_SCALE]], np.float32)
    moved = cv2.warpAffine(mask, shift, mask.shape[::-1])
    soft = cv2.GaussianBlur(moved, (0, 0), 16 * DRAW_SCALE).astype(np.float32) / 255.0
    wall.image[:] = (wall.image * (1.0 - 0.42 * soft[..., None])).astype(np.uint8)


def _finish(canvas: Canvas, nearness: float, lamp: bool = True) -> Layer:
    """Light a drawn layer, reduce it to ``STORE_SCALE`` and take the drawing's edge off it."""
    image = canvas.image.astype(np.float32) / 255.0
    if lamp:
        distance = _distance_from(LAMP_CENTRE, canvas.mask.shape)[..., None]
        warm = np.exp(-((distance / 330.0) ** 1.4)) * np.array([0.85, 0.55, 0.22], np.float32)
        image = image * (np.array([0.74, 0.74, 0.76], np.float32) + warm)
    alpha = canvas.mask.astype(np.float32)[..., None] / 255.0
    joined = np.concatenate([np.clip(image, 0.0, 1.0) * alpha, alpha], axis=2)
    size = (round(WORLD_WIDTH * STORE_SCALE), round(WORLD_HEIGHT * STORE_SCALE))
    reduced = cv2.resize(joined.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    softened = cv2.GaussianBlur(reduced, (0, 0), 0.8 + _DEFOCUS * (1.0 - nearness))
    return Layer(premultiplied=np.asarray(softened, np.float32), nearness=nearness)
