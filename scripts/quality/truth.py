"""Clips with a known matte: people from photographs, moving before a drawn room.

The mask of a photograph is only as good as whoever drew it, so it is taken as the truth by
definition: the person is cut out along it with an edge of about three pixels, its colours are
carried on from inside so that nothing of the old wall is left, and it is put over the room of
``scripts/make_sample.py``. It walks to and fro and comes a little nearer; the room stands still.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from sample_clip.room import draw_room

from quality.loader import Image

SIZE = (640, 360)
FRAMES = 30
MAX_AT_THE_RIM = 0.02
"""Share of the left, right and upper rim that a person may cover: what is cut off must not show."""
SHARES = (0.08, 0.5)
"""Of the photograph, that a person covers."""
EDGE_SIGMA_PX, INSIDE, GRAIN = 1.0, 0.98, 1.0


@dataclass(frozen=True, slots=True)
class Truth:
    """One frame."""

    color: Image
    """(H, W, 3) float32 BGR in 0–255: the person's own colours, everywhere."""
    alpha: Image
    """(H, W) float32 in 0–1."""


def can_move(person: Image) -> bool:
    """Whether a person is whole, but for what the lower rim cuts off."""
    rims = (person[0], person[:, 0], person[:, -1])
    whole = all(rim.mean() <= MAX_AT_THE_RIM for rim in rims)
    return whole and SHARES[0] <= person.mean() <= SHARES[1]


@functools.cache
def room() -> Image:
    """(H, W, 3) float32 BGR in 0–255."""
    width, height = SIZE
    picture = np.zeros((height, width, 3), np.float32)
    for layer in draw_room(np.random.default_rng(8), 0, False):
        rows, columns, _ = layer.premultiplied.shape
        high = round(columns * height / width)
        top = max(0, (rows - high) // 2)
        part = np.asarray(layer.premultiplied[top : top + high], np.float32)
        part = cv2.resize(part, SIZE, interpolation=cv2.INTER_AREA)
        picture = part[..., :3] + picture * (1.0 - part[..., 3:])
    return np.ascontiguousarray(picture[..., ::-1]) * 255.0


def moving(image: Image, person: Image) -> Iterator[Truth]:
    """The frames of one clip."""
    width, height = SIZE
    scale = height / image.shape[0]
    enlarged = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    mask = cv2.resize(person.astype(np.float32), enlarged.shape[1::-1])
    # The part cut off by the lower rim is continued beyond it.
    pad = height // 4
    enlarged = cv2.copyMakeBorder(enlarged, 0, pad, 0, 0, cv2.BORDER_REPLICATE)
    mask = cv2.copyMakeBorder(mask, 0, pad, 0, 0, cv2.BORDER_REPLICATE)
    alpha = cv2.GaussianBlur((mask > 0.5).astype(np.float32), (0, 0), EDGE_SIGMA_PX)
    color = _carried_on(enlarged, alpha > INSIDE)
    for index in range(FRAMES):
        phase = 2 * np.pi * index / FRAMES
        nearer = 1.0 + 0.04 * (1 - np.cos(phase))
        shift = (width - nearer * enlarged.shape[1]) / 2 + 0.06 * width * np.sin(phase)
        matrix = np.array([[nearer, 0, shift], [0, nearer, 4.0 - 4.0 * np.cos(phase)]])
        yield Truth(
            cv2.warpAffine(color, matrix, SIZE, borderMode=cv2.BORDER_REPLICATE),
            cv2.warpAffine(alpha, matrix, SIZE),
        )


def _carried_on(image: Image, inside: Image) -> Image:
    """Each pixel outside takes the colour of the nearest one inside."""
    _, labels = cv2.distanceTransformWithLabels(
        (~inside).astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    colors = np.zeros((int(labels.max()) + 1, 3), np.float32)
    colors[labels[inside]] = image[inside]
    return np.asarray(colors[labels], np.float32)


def blend(truth: Truth, background: Image) -> Image:
    """(H, W, 3) float32 BGR."""
    alpha = truth.alpha[..., None]
    return np.asarray(alpha * truth.color + (1 - alpha) * background, np.float32)


def write_moving(path: Path, truths: list[Truth]) -> None:
    """Encode the person before the room as H.264, with a little grain."""
    grain = np.random.default_rng(13)
    shape = (SIZE[1], SIZE[0], 1)
    pictures = [
        blend(truth, room()) + GRAIN * grain.standard_normal(shape, np.float32) for truth in truths
    ]
    write_clip(path, pictures, "libx264", {"crf": "20", "preset": "veryfast"})


def write_clip(
    path: Path, pictures: list[Image], codec: str = "ffv1", options: dict[str, str] | None = None
) -> None:
    """Encode BGR pictures in 4:2:0, 30 a second."""
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream(codec, rate=30, options=options or {})
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, 30)
        for picture in pictures:
            whole = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(whole, format="bgr24")))
        output.mux(stream.encode(None))
