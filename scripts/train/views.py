"""Endless training pictures on the GPU: scenes of people, what cameras do to them, and crops.

A scene is a photograph's person at any size, alone or with others, in its own place or before
another photograph from which the person was removed. A crop of it is what the product cuts round a
person. Beside the crop comes a coarse mask as the product makes it: by the embedded network, which
sees the whole scene and the crop; or the truth, made as wrong as such masks are.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from coarse import SIDE as COARSE_SIDE
from coarse import CoarseNetwork
from pack import HEIGHT, WIDTH
from torch import Tensor
from torch.nn import functional

_SCENE = 512
"""Side of a scene, in pixels; all scenes are squares, stretched from their aspect."""
_MIN_PERSON = 0.25
"""IoU of the coarse mask with the truth, below which it has missed the person."""
# The luminance table of ITU-T T.81, K.1, by which JPEG quantises.
_QUANTISATION = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip


class Photo(NamedTuple):
    """One photograph with its mask."""

    stem: str
    pixels: np.ndarray
    """(H, W, 4) uint8: R, G, B, mask."""


class Batch(NamedTuple):
    """Training examples."""

    inputs: Tensor
    """(N + T, 4, S, S) float32 in 0 to 1: R'G'B' and the coarse mask. The last T show the same
    crops as the first T, as another frame of a still camera would."""
    targets: Tensor
    """(N + T, 1, S, S) float32 in 0 to 1."""


def read_photos(archives: Sequence[Path]) -> list[Photo]:
    """Read what ``pack.py`` wrote."""

    def read(job: tuple[str, bytes, bytes]) -> Photo:
        stem, photo, mask = job
        flags = cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE
        blue_first, alpha = (
            cv2.imdecode(np.frombuffer(data, np.uint8), flag)
            for data, flag in zip((photo, mask), flags, strict=True)
        )
        return Photo(stem, np.dstack([blue_first[..., ::-1], alpha]))

    jobs = []
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            stems = [name[:-5] for name in archive.namelist() if name.endswith(".webp")]
            jobs += [(s, archive.read(f"{s}.webp"), archive.read(f"{s}.png")) for s in stems]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(read, jobs))


def resized(x: Tensor, rows: int, columns: int | None = None) -> Tensor:
    """Planes of another size, averaged where they shrink."""
    size = rows, columns or rows
    return functional.interpolate(x, size, mode="bilinear", align_corners=False, antialias=True)


def stretched(x: Tensor, side: int) -> Tensor:
    """Planes of another size, bilinearly: cheaper, for what is smooth or grows."""
    return functional.interpolate(x, (side, side), mode="bilinear", align_corners=False)


def _each(x: Tensor) -> Tensor:
    """(n) to (n, 1, 1, 1)."""
    return x[:, None, None, None]


def _filled(picture: Tensor, hole: Tensor) -> Tensor:
    """(N, 3, h, w) with holes (N, 1, h, w) filled from around them, the larger the more blurred."""
    levels = [(picture * (1 - hole), 1 - hole)]
    while min(levels[-1][1].shape[2:]) > 2:
        levels.append(tuple(functional.avg_pool2d(each, 2, ceil_mode=True) for each in levels[-1]))
    result: Tensor | None = None
    for total, weight in reversed(levels):
        mean = total / weight.clamp(min=1e-3)
        if result is not None:
            larger = functional.interpolate(result, weight.shape[2:], mode="bilinear")
            mean = mean * weight + larger * (1 - weight)
        result = mean
    assert result is not None
    return result


class Views:
    """Makes batches from photographs.

    Args:
        photos: Kept on the device.
        side: Of the crops.
        coarse: The embedded network, on the device.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(
        self, photos: Sequence[Photo], side: int, coarse: CoarseNetwork, device: str
    ) -> None:
        self._side, self._coarse, self._device = side, coarse, device
        count = len(photos)
        stored = torch.zeros(count, 4, HEIGHT, WIDTH, dtype=torch.uint8)
        for index, photo in enumerate(photos):
            height, width = photo.pixels.shape[:2]
            stored[index, :, :height, :width] = torch.from_numpy(photo.pixels).permute(2, 0, 1)
        self._stored = stored.to(device)
        sizes = [photo.pixels.shape[:2] for photo in photos]
        self._sizes = torch.tensor(sizes, device=device, dtype=torch.float32)
        masks = self._stored[:, 3] > 0
        self._boxes = torch.stack(_extent(masks), 1).float()
        self._empty = torch.cat(
            [self._without_person(at, min(at + 64, count)) for at in range(0, count, 64)]
        )
        at = (torch.arange(_SCENE, device=device) + 0.5) / _SCENE
        self._v, self._u = torch.meshgrid(at, at, indexing="ij")
        step = torch.arange(8, device=device, dtype=torch.float32)
        cosines = torch.cos((2 * step[None] + 1) * step[:, None] * math.pi / 16) / 2
        cosines[0] /= math.sqrt(2)
        self._cosines = cosines
        table = torch.tensor(_QUANTISATION, device=device, dtype=torch.float32)
        self._table = table.view(8, 8)

    def _without_person(self, start: int, stop: int) -> Tensor:
        """Photographs at half size, with the person and the margin filled from around."""
        picture = self._stored[start:stop].float() / 255
        hole = functional.max_pool2d(picture[:, 3:], 25, 1, 12)
        for index, (height, width) in enumerate(self._sizes[start:stop].int().tolist()):
            hole[index, :, height:] = 1
            hole[index, :, :, width:] = 1
        small, hole = functional.avg_pool2d(picture[:, :3], 2), functional.max_pool2d(hole, 2)
        return (255 * _filled(small, hole)).clamp(0, 255).to(torch.uint8)

    def _uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.rand(count, device=self._device) * (high - low) + low

    def _normal(self, count: int, spread: float) -> Tensor:
        return torch.randn(count, device=self._device) * spread

    def _sign(self, count: int) -> Tensor:
        return (self._uniform(count) < 0.5).float() * 2 - 1

    def _chosen(self, count: int, share: float) -> Tensor:
        """Indices of so large a share, at random."""
        return (self._uniform(count) < share).nonzero()[:, 0]

    # People and places

    def _sample(
        self, source: Tensor, x: Tensor, y: Tensor, widths: Tensor, heights: Tensor
    ) -> Tensor:
        """Sample sources at (n, S, S) pixel positions; beyond the rim they are mirrored."""
        rows, columns = source.shape[2:]
        w, h = widths[:, None, None], heights[:, None, None]
        x = (w - (x % (2 * w) - w).abs()).clamp(min=0.5).minimum(w - 0.5)
        y = (h - (y % (2 * h) - h).abs()).clamp(min=0.5).minimum(h - 0.5)
        at = torch.stack([x / columns * 2 - 1, y / rows * 2 - 1], -1)
        return functional.grid_sample(source.float() / 255, at, align_corners=False)

    def _person(
        self, size: Tensor, x: Tensor, y: Tensor, aspect: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A random photograph each, its person of a height in scenes, with the head at (x, y).

        Returns:
            Its picture (n, 3, S, S) and mask (n, 1, S, S), and where there is photograph.
        """
        count = len(size)
        index = torch.randint(len(self._stored), (count,), device=self._device)
        box, (height, width) = self._boxes[index], self._sizes[index].T
        rows = (box[:, 3] - box[:, 1]) / size
        columns = rows * aspect * torch.exp(self._normal(count, 0.05))
        angle, flip = self._normal(count, 0.1), self._sign(count)
        # Turned in the photograph's own proportions.
        across = (self._u - x[:, None, None]) * (columns * flip)[:, None, None]
        down = (self._v - y[:, None, None]) * rows[:, None, None]
        cos, sin = torch.cos(angle)[:, None, None], torch.sin(angle)[:, None, None]
        at_x = ((box[:, 0] + box[:, 2]) / 2)[:, None, None] + cos * across - sin * down
        at_y = box[:, 1][:, None, None] + sin * across + cos * down
        inside = (at_x >= 0) & (at_x < width[:, None, None])
        inside &= (at_y >= 0) & (at_y < height[:, None, None])
        source = self._stored[index]
        sampled = self._sample(source, at_x, at_y, width, height)
        return sampled[:, :3], sampled[:, 3:], inside[:, None].float()

    def _place(self, count: int, aspect: Tensor) -> Tensor:
        """A scene without people: the strip beside a person, mirrored, so that it is as sharp as
        people are; the photograph without its person; or a pattern."""
        index = torch.randint(len(self._stored), (count,), device=self._device)
        height, width = self._sizes[index].T
        box = self._boxes[index]
        on_left = box[:, 0] > width - box[:, 2]
        first = torch.where(on_left, 0.0, box[:, 2] + 12)
        last = torch.where(on_left, box[:, 0] - 12, width)
        strip = (last - first > 50) & (self._uniform(count) < 0.85)
        first, last = torch.where(strip, first, 0.0), torch.where(strip, last, width)
        rows = height * self._uniform(count, 0.4, 1.0)
        columns = rows * aspect
        left, top = self._uniform(count) * (last - first), self._uniform(count) * (height - rows)
        x = left[:, None, None] + self._u * columns[:, None, None]
        span = (last - first)[:, None, None]
        x = first[:, None, None] + span - (x % (2 * span) - span).abs()
        y = top[:, None, None] + self._v * rows[:, None, None]
        sharp = self._sample(self._stored[index, :3], x, y, width, height)
        filled = self._sample(self._empty[index], x / 2, y / 2, width / 2, height / 2)
        place = torch.where(_each(strip), sharp, filled)
        some = self._chosen(count, 0.12)
        if len(some):
            place[some] = self._pattern(len(some))
        some = self._chosen(count, 0.25)
        if len(some):  # out of focus
            small = int(_SCENE / (2 ** (2 + 3 * torch.rand(1).item())))
            place[some] = stretched(resized(place[some], small), _SCENE)
        return place

    def _pattern(self, count: int) -> Tensor:
        """Walls, shelves, curtains: flat colours, steps and noise of several sizes."""
        result = torch.rand(count, 3, 1, 1, device=self._device).expand(-1, -1, _SCENE, _SCENE)
        for size in (2, 3, 5, 9, 24, 80):
            rows, columns = (1, size) if size == 9 else (size, size)
            noise = torch.randn(count, 3, rows, columns, device=self._device)
            noise = 0.6 * noise.mean(1, keepdim=True) + 0.4 * noise
            mode = "nearest" if size in (3, 9) else "bilinear"
            larger = functional.interpolate(noise, (_SCENE, _SCENE), mode=mode)
            result = result + larger * _each(self._uniform(count) ** 2 * 0.25)
        return result.clamp(0, 1)

    def _lit(self, picture: Tensor, strength: float) -> Tensor:
        """Another exposure, contrast, white balance and saturation."""
        count = len(picture)

        def around_one(spread: float, channels: int = 1) -> Tensor:
            shape = count, channels, 1, 1
            return torch.exp(torch.randn(shape, device=self._device) * spread * strength)

        picture = picture * around_one(0.06, 3)
        mean = picture.mean((1, 2, 3), keepdim=True)
        picture = (picture - mean) * around_one(0.15) + mean * around_one(0.15)
        gray = picture.mean(1, keepdim=True)
        return (gray + (picture - gray) * around_one(0.25)).clamp(0, 1)

    def _softened(self, mask: Tensor) -> Tensor:
        """A photograph's edge, one to some pixels wide, in place of a step; drawn a little in."""
        small = functional.avg_pool2d(functional.pad(mask, (2, 2, 2, 2), mode="replicate"), 5, 1)
        gain, inward = self._uniform(len(mask), 1.5, 3.0), self._uniform(len(mask), 0.1, 0.35)
        return ((small - 0.5 - _each(inward)) * _each(gain) + 0.5).clamp(0, 1)

    def scenes(self, count: int) -> tuple[Tensor, Tensor]:
        """Pictures (n, 3, S, S) and the alpha of all people (n, 1, S, S)."""
        aspect = torch.exp(self._uniform(count, math.log(0.56), math.log(2.0)))
        size = self._sizes_of_people(count)
        top = torch.where(
            size > 1.1, self._uniform(count, -0.03, 0.35), (1 - size) * self._uniform(count, 0, 1)
        )
        beheaded = (self._uniform(count) < 0.06) & (size > 1.1)
        top = torch.where(beheaded, -self._uniform(count) * (size - 1), top)
        x = 0.5 + self._normal(count, 0.17)
        place = self._place(count, aspect)
        own, alpha, inside = self._person(size, x, top, aspect)
        soft = self._softened(alpha * inside)
        # As it is, where the photograph fills the scene.
        covered = inside.mean((1, 2, 3)) > 0.97
        kept = covered & (self._uniform(count) < 0.85)
        composed = self._lit(own, 1.0) * soft + place * (1 - soft)
        picture = torch.where(_each(kept), own, composed)
        alpha = torch.where(_each(kept), alpha, soft)
        for order, share in ((1, 0.35), (2, 0.15)):
            some = self._chosen(count, share)
            if not len(some):
                continue
            others = len(some)
            its_size = (size[some] * torch.exp(self._normal(others, 0.2))).clamp(0.15, 6)
            its_top = (top + size)[some] - its_size + self._normal(others, 0.04)
            close = size[some] > 1.1
            its_top = torch.where(close, top[some] + self._normal(others, 0.1), its_top)
            apart = self._uniform(others, 0.1, 0.55) * order**0.5
            its_x = (x[some] + self._sign(others) * apart) % 1.0
            theirs, mask, there = self._person(its_size, its_x, its_top, aspect[some])
            mask = self._softened(mask * there)
            behind = _each((self._uniform(others) < 0.5).float())
            mask = mask * (1 - alpha[some] * behind)
            picture[some] = self._lit(theirs, 1.0) * mask + picture[some] * (1 - mask)
            alpha[some] = mask + alpha[some] * (1 - mask)
        for share, in_front in ((0.2, 0.0), (0.2, 0.0), (0.1, 1.0)):
            some = self._chosen(count, share)
            if not len(some):
                continue
            thing = self._slab(len(some)) * (1 - alpha[some] * (1 - in_front))
            other = self._place(len(some), aspect[some])
            picture[some] = other * thing + picture[some] * (1 - thing)
            alpha[some] = alpha[some] * (1 - thing * in_front)
        some = self._chosen(count, 0.04)
        if len(some):  # nobody is there
            picture[some], alpha[some] = self._place(len(some), aspect[some]), 0.0
        return self._lighted(picture), alpha

    def _sizes_of_people(self, count: int) -> Tensor:
        """Heights in scenes: from faces that fill it to small figures."""
        edges = torch.tensor([0.2, 0.55, 1.0, 1.8, 3.5, 6.0], device=self._device).log()
        shares = torch.tensor([0.06, 0.32, 0.24, 0.3, 0.08], device=self._device)
        band = torch.multinomial(shares, count, replacement=True)
        return torch.exp(edges[band] + (edges[band + 1] - edges[band]) * self._uniform(count))

    def _slab(self, count: int) -> Tensor:
        """A thing in front of people or behind: a slanted box or an ellipse, mostly low."""
        angle = self._uniform(count, -0.5, 0.5)[:, None, None]
        x, y = self._uniform(count)[:, None, None], self._uniform(count, 0.3, 1.2)[:, None, None]
        half_x = self._uniform(count, 0.06, 0.6)[:, None, None]
        half_y = self._uniform(count, 0.04, 0.3)[:, None, None]
        across = (self._u - x) * torch.cos(angle) + (self._v - y) * torch.sin(angle)
        down = (self._v - y) * torch.cos(angle) - (self._u - x) * torch.sin(angle)
        box = (across.abs() < half_x) & (down.abs() < half_y)
        ellipse = (across / half_x) ** 2 + (down / half_y) ** 2 < 1
        round_ = (self._uniform(count) < 0.5)[:, None, None]
        return torch.where(round_, ellipse, box).float()[:, None]

    def _lighted(self, picture: Tensor) -> Tensor:
        """The light of a room and a camera's curve."""
        count = len(picture)
        picture = self._lit(picture, 0.7)
        picture = picture.clamp(min=1e-4) ** _each(torch.exp(self._normal(count, 0.25)))
        angle = self._uniform(count, 0, 2 * math.pi)[:, None, None]
        slope = torch.cos(angle) * (self._u - 0.5) + torch.sin(angle) * (self._v - 0.5)
        strength = (self._uniform(count) < 0.3).float() * self._uniform(count, 0, 1.2)
        picture = picture * (1 + slope[:, None] * _each(strength))
        dark = torch.where(self._uniform(count) < 0.12, self._uniform(count, 0.2, 0.7), 1.0)
        picture = picture * _each(dark)
        gray = _each(self._uniform(count) < 0.04)
        return torch.where(gray, picture.mean(1, keepdim=True), picture).clamp(0, 1)

    # Crops of them

    def _crop_boxes(self, alpha: Tensor) -> Tensor:
        """(n, 4) left, top, right, bottom in 0 to 1: round the people, sometimes only part."""
        count = len(alpha)
        left, top, right, bottom = (each / _SCENE for each in _extent(alpha[:, 0] > 0.3))
        nobody = right <= left
        whole = torch.zeros_like(left)
        left, top = torch.where(nobody, whole, left), torch.where(nobody, whole, top)
        right, bottom = torch.where(nobody, 1.0, right), torch.where(nobody, 1.0, bottom)
        # A bust, as a face leads to; or badly placed.
        bust = self._uniform(count) < 0.2
        bottom = torch.where(bust, top + (bottom - top) * self._uniform(count, 0.35, 0.8), bottom)
        width, height = right - left, bottom - top

        def moved(size: Tensor) -> Tensor:
            off = self._uniform(count, -0.02, 0.2)
            bad = self._uniform(count) < 0.06
            off = torch.where(bad, self._uniform(count, -0.3, 0.5), off)
            return off * size + 0.01

        box = torch.stack(
            [
                left - moved(width),
                top - moved(height),
                right + moved(width),
                bottom + moved(height),
            ],
            1,
        ).clamp(0, 1)
        least = 0.06
        box[:, 2:] = box[:, 2:].maximum(box[:, :2] + least)
        return box

    def _cropped(self, planes: Tensor, box: Tensor) -> Tensor:
        at = (torch.arange(self._side, device=self._device) + 0.5) / self._side
        x = box[:, :1] + (box[:, 2:3] - box[:, :1]) * at
        y = box[:, 1:2] + (box[:, 3:] - box[:, 1:2]) * at
        shape = len(planes), self._side, self._side
        grid = torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], -1)
        return functional.grid_sample(
            planes, grid * 2 - 1, padding_mode="border", align_corners=False
        )

    def _recorded(self, picture: Tensor) -> Tensor:
        """Low resolution, noise and compression of cameras; for each quarter another."""
        order = torch.randperm(len(picture), device=self._device)
        result = torch.empty_like(picture)
        for part in order.chunk(4):
            count, scale = (
                len(part),
                1.0 if torch.rand(1).item() < 0.5 else 0.35 + 0.6 * torch.rand(1).item(),
            )
            side = max(8, round(scale * self._side / 8) * 8)
            x = resized(picture[part], side) if side != self._side else picture[part]
            grain = torch.randn_like(x) * _each(self._uniform(count) ** 3 * 0.08)
            coarse = torch.randn(count, 3, side // 2, side // 2, device=self._device)
            grain = grain + stretched(coarse, side) * _each(self._uniform(count) ** 3 * 0.08)
            x = (x + grain).clamp(0, 1)
            x = torch.where(_each(self._uniform(count) < 0.5), self._compressed(x), x)
            result[part] = stretched(x, self._side) if side != self._side else x
        return result

    def _compressed(self, picture: Tensor) -> Tensor:
        """8×8 blocks quantised as JPEG does, colour more coarsely."""
        count, side = len(picture), picture.shape[-1]
        codes = picture * 255 - 128
        luma = codes.mean(1, keepdim=True)
        strength = torch.exp(self._uniform(count, -1.6, 1.2))[:, None, None, None, None, None]

        def quantised(planes: Tensor, factor: float) -> Tensor:
            blocks = planes.view(count, -1, side // 8, 8, side // 8, 8).transpose(3, 4)
            table = self._table * strength * factor
            waves = self._cosines @ blocks @ self._cosines.T
            waves = (waves / table).round() * table
            blocks = self._cosines.T @ waves @ self._cosines
            return blocks.transpose(3, 4).reshape(count, -1, side, side)

        codes = quantised(luma, 1.0) + quantised(codes - luma, 2.0)
        return ((codes + 128) / 255).clamp(0, 1)

    # Coarse masks

    def _field(self, count: int, cells: int, channels: int = 1) -> Tensor:
        """Smooth noise of unit spread."""
        noise = torch.randn(count, channels, cells, cells, device=self._device)
        return functional.interpolate(noise, (self._side, self._side), mode="bicubic")

    def _misjudged(self, truth: Tensor) -> Tensor:
        """The truth made as wrong as coarse masks: bent, blurred, parts missing, parts added."""
        count, side = len(truth), self._side
        at = (torch.arange(side, device=self._device) + 0.5) / side * 2 - 1
        y, x = torch.meshgrid(at, at, indexing="ij")
        bend = 0.7 * self._field(count, 8, 2) + 0.4 * self._field(count, 22, 2)
        bend = bend * _each(torch.exp(self._uniform(count, math.log(0.003), math.log(0.04))))
        grid = torch.stack([x, y], -1) + bend.permute(0, 2, 3, 1)
        mask = functional.grid_sample(truth, grid, padding_mode="border", align_corners=False)
        for part in torch.randperm(count, device=self._device).chunk(4):
            small = int(math.exp(math.log(24) + math.log(side / 24) * torch.rand(1).item()))
            mask[part] = stretched(resized(mask[part], small), side)
        gain, middle = torch.exp(self._uniform(count, -0.2, 1.5)), self._uniform(count, 0.3, 0.7)
        mask = ((mask - _each(middle)) * _each(gain) + 0.5).clamp(0, 1)
        near = stretched(functional.max_pool2d(functional.avg_pool2d(truth, 8), 7, 1, 3), side)
        lost, added = (
            ((self._field(count, cells) - _each(self._uniform(count, 1.0, 3.0))) * 5).clamp(0, 1)
            * _each(self._uniform(count))
            for cells in (7, 11)
        )
        return torch.maximum(mask * (1 - lost), added * near)

    def _coarse_of(self, picture: Tensor, scene_mask: Tensor) -> Tensor:
        """As the product makes it: the mean of passes over the scene and the crop."""
        count = len(picture)
        own = stretched(self._coarse(resized(picture, COARSE_SIDE)), self._side)
        share = _each(self._uniform(count, 0.2, 0.8))
        mask = own * share + scene_mask * (1 - share)
        for part in torch.randperm(count, device=self._device).chunk(4):
            if torch.rand(1).item() < 0.5:  # of an analysis frame that has fewer pixels
                small = int(self._side * (0.2 + 0.6 * torch.rand(1).item()))
                mask[part] = stretched(resized(mask[part], small), self._side)
        return mask

    @torch.no_grad()
    def batch(self, count: int, twins: int) -> Batch:
        """Make examples, the first of them twice."""
        picture, alpha = self.scenes(count)
        seen = self._coarse(resized(picture, COARSE_SIDE))
        box = self._crop_boxes(alpha)
        planes = torch.cat([picture, alpha, stretched(seen, _SCENE)], 1)
        crop = self._cropped(planes, box)
        crop = torch.cat([crop, crop[:twins]])
        pictures = self._recorded(crop[:, :3])
        truth = crop[:, 3:4]
        mask = self._coarse_of(pictures, crop[:, 4:])
        found, person = mask > 0.5, truth > 0.5
        both, either = ((each.sum((1, 2, 3))) for each in (found & person, found | person))
        missed = both < _MIN_PERSON * either
        draw = self._uniform(count)
        wrong = (draw < 0.35) | (missed[:count] & (draw < 0.9))
        wrong = torch.cat([wrong, wrong[:twins]])
        misjudged = self._misjudged(truth[:count])
        misjudged = torch.cat([misjudged, misjudged[:twins]])
        mask = torch.where(_each(wrong), misjudged, mask)
        none = self._uniform(count) < 0.01
        none = torch.cat([none, none[:twins]])
        mask = torch.where(_each(none), 0.0, mask)
        return Batch(torch.cat([pictures, mask], 1).clamp(0, 1), truth)


def _extent(where: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(n) left, top, right and bottom of the true samples in (n, h, w); 0 where nothing is."""
    ends: list[Tensor] = []
    for line in (where.any(1), where.any(2)):
        some, length = line.any(1), line.shape[1]
        first = line.int().argmax(1) * some
        last = (length - line.flip(1).int().argmax(1)) * some
        ends += [first, last]
    left, right, top, bottom = ends
    return left, top, right, bottom
