"""Decodes two videos side by side and measures how far their pictures are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.compare.measure import mean_squared_error, psnr, structural_similarity
from bgsoft.compare.result import Curve, Pictures, Statistic
from bgsoft.compare.vmaf import VMAF_MODEL, Ffmpeg, PlanarPicture, VmafScorer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.ring import FrameRing

_PLANES = ("y", "cb", "cr")


class Region(StrEnum):
    """Which part of the picture counts, by the mask's brightness."""

    FOREGROUND = "foreground"
    """Where the mask is at least half white."""
    BACKGROUND = "background"
    """The rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The pictures' figures, and what was met on the way."""

    pictures: Pictures
    times_a: list[Fraction]
    """Seconds of every frame of A."""
    times_b: list[Fraction]
    notices: list[str]


class _Video:
    """A decoder whose frames are handed out one at a time, each until the next is asked for."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.decoder = stack.enter_context(CpuDecoder(path))
        self.format: FrameFormat = self.decoder.info.format
        self.times: list[Fraction] = []

    def frames(self) -> Iterator[Frame]:
        ring = FrameRing(1, self._buffers)
        for frame in self.decoder.frames(ring):
            self.times.append(frame.pts * frame.time_base)
            try:
                yield frame
            finally:
                ring.release(frame)

    def _buffers(self, slot: int) -> Planes:
        format = self.format
        return Planes(
            slot=slot,
            luma=np.empty(format.luma_shape, format.dtype),
            chroma=np.empty(format.chroma_shape, format.dtype),
            alpha=np.empty((0, 0), np.uint8),  # nothing is segmented here
        )


def difference_of_size(a: FrameFormat, b: FrameFormat) -> str | None:
    """Why two formats' pictures cannot be compared; None where they can."""
    if (a.width, a.height) == (b.width, b.height):
        return None
    return (
        f"A is {a.width}x{a.height} and B {b.width}x{b.height} (upright): pictures of different"
        " size are not compared; scale one of them first"
    )


def compare_pictures(
    a: Path,
    b: Path,
    *,
    mask: Path | None = None,
    region: Region = Region.FOREGROUND,
    ffmpeg: Ffmpeg | None = None,
    vmaf_reason: str | None = None,
) -> Measured:
    """Compare frame i of A with frame i of B, up to the end of the shorter one.

    Pictures are compared as bgsoft decodes them: upright, progressive, 4:2:0. Where one file has
    8 bits and the other 10, the 8-bit samples are shifted up.

    Args:
        a: The reference.
        b: The one that is judged.
        mask: A video, bright on the foreground, as long as the shorter of A and B at least.
        region: The part that counts, if there is a mask.
        ffmpeg: Scores VMAF; None: no VMAF.
        vmaf_reason: Why ``ffmpeg`` is None.

    Raises:
        ConfigError: The sizes differ, or the mask is too short or of another size.
        MediaError: A file cannot be read.
    """
    with ExitStack() as stack:
        first, second = _Video(a, stack), _Video(b, stack)
        matte = None if mask is None else _Video(mask, stack)
        different = difference_of_size(first.format, second.format)
        if different is not None:
            raise ConfigError(different)
        if matte is not None and difference_of_size(first.format, matte.format) is not None:
            size = f"{matte.format.width}x{matte.format.height}"
            raise ConfigError(
                f"the mask is {size}, the pictures are {first.format.width}x{first.format.height}",
                path=mask,
            )
        width, height = first.format.width, first.format.height
        depth = max(first.format.bit_depth, second.format.bit_depth)
        meter = _Meter(depth)
        scorer: VmafScorer | None = None
        try:
            if ffmpeg is not None:
                scorer = stack.enter_context(VmafScorer(ffmpeg, width, height, depth))
        except BackendUnavailableError as exc:
            vmaf_reason = exc.message
        mattes = None if matte is None else matte.frames()
        for frame_a, frame_b in zip_longest(first.frames(), second.frames()):
            if frame_a is None or frame_b is None:
                continue  # decoded on, for the timestamps
            planes_a, planes_b = _planar(frame_a, depth), _planar(frame_b, depth)
            inside = None if mattes is None else _next_region(mattes, region, meter.frames, mask)
            meter.add(planes_a, planes_b, inside)
            if scorer is not None:
                if inside is not None:
                    planes_b = _replaced(planes_a, planes_b, inside)
                scorer.push(planes_a, planes_b)
        scores: list[float] | None = None
        try:
            scores = None if scorer is None else scorer.finish()
        except BackendUnavailableError as exc:
            vmaf_reason = exc.message
        seconds = [float(time) for time in first.times[: meter.frames]]
        curves = meter.curves(seconds)
        if scores is not None:
            curves.append(_curve("vmaf", "y", list(scores), seconds))
        pictures = Pictures(
            width=width,
            height=height,
            bit_depth=depth,
            frames=meter.frames,
            seconds=seconds,
            region="all" if mask is None else region.value,
            region_share=None
            if mask is None or not meter.frames
            else meter.inside / (meter.frames * width * height),
            curves=curves,
            vmaf_reason=vmaf_reason if scores is None else None,
            vmaf_model=None if scores is None else VMAF_MODEL,
            vmaf_by=None if scores is None or ffmpeg is None else ffmpeg.version,
            vmaf_region=None
            if mask is None or scores is None
            else "whole pictures, B's samples outside the region replaced by A's",
        )
        return Measured(
            pictures=pictures,
            times_a=first.times,
            times_b=second.times,
            notices=_notices(first, "A") + _notices(second, "B") + _depths(first, second),
        )


def _notices(video: _Video, name: str) -> list[str]:
    said = list(video.decoder.info.notices) + [event.message for event in video.decoder.events]
    stats = video.decoder.stats
    if stats.concealed_frames or stats.corrupt_packets:
        said.append(
            f"damaged: {stats.corrupt_packets} packets rejected,"
            f" {stats.concealed_frames} frames patched"
        )
    return [f"{name}: {text}" for text in said]


def _depths(a: _Video, b: _Video) -> list[str]:
    depth_a, depth_b = a.format.bit_depth, b.format.bit_depth
    if depth_a == depth_b:
        return []
    return [f"A has {depth_a} bits and B {depth_b}: compared at 10, the 8-bit samples shifted up"]


def _planar(frame: Frame, bit_depth: int) -> PlanarPicture:
    """A frame's planes as code values of ``bit_depth`` bits; views where nothing changes."""

    def plane(samples: NDArray[Any]) -> NDArray[Any]:
        if frame.format.bit_depth == 10:
            return samples >> frame.format.shift
        if bit_depth == 10:
            return samples.astype(np.uint16) << 2
        return np.ascontiguousarray(samples)

    return plane(frame.luma), plane(frame.chroma[..., 0]), plane(frame.chroma[..., 1])


InsideMasks = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Luma's and chroma's samples that count, (H, W) and (⌈H/2⌉, ⌈W/2⌉)."""


def _next_region(
    mattes: Iterator[Frame], region: Region, index: int, path: Path | None
) -> InsideMasks:
    frame = next(mattes, None)
    if frame is None:
        raise ConfigError(f"the mask ends after {index} frames, before the pictures do", path=path)
    black, white = frame.format.luma_range
    luma = frame.luma >= (black + white) / 2
    if region is Region.BACKGROUND:
        luma = ~luma
    return luma, luma[::2, ::2]


def _replaced(a: PlanarPicture, b: PlanarPicture, inside: InsideMasks) -> PlanarPicture:
    """B inside, A outside."""
    luma, chroma = inside
    cb, cr = (np.where(chroma, b[plane], a[plane]) for plane in (1, 2))
    return np.where(luma, b[0], a[0]), cb, cr


class _Meter:
    """Collects the figures of each pair."""

    def __init__(self, bit_depth: int) -> None:
        self._depth = bit_depth
        self.frames = 0
        self.inside = 0
        """Samples of luma that counted."""
        self._errors: dict[str, list[float | None]] = {p: [] for p in (*_PLANES, "all")}
        self._ssims: dict[str, list[float | None]] = {p: [] for p in (*_PLANES, "all")}

    def add(self, a: PlanarPicture, b: PlanarPicture, inside: InsideMasks | None) -> None:
        sizes: list[int] = []
        errors: list[float | None] = []
        ssims: list[float | None] = []
        for number, (first, second) in enumerate(zip(a, b, strict=True)):
            region = None if inside is None else inside[min(number, 1)]
            sizes.append(first.size if region is None else int(np.count_nonzero(region)))
            errors.append(mean_squared_error(first, second, region))
            ssims.append(structural_similarity(first, second, self._depth, region))
        for kept, found in ((self._errors, errors), (self._ssims, ssims)):
            for plane, value in zip(kept, (*found, _weighted(found, sizes)), strict=True):
                kept[plane].append(value)
        self.inside += sizes[0]
        self.frames += 1

    def curves(self, seconds: list[float]) -> list[Curve]:
        made: list[Curve] = []
        for plane, errors in self._errors.items():
            known = [error for error in errors if error is not None]
            overall = psnr(sum(known) / len(known), self._depth) if known else None
            values = [None if error is None else psnr(error, self._depth) for error in errors]
            made.append(_curve("psnr", plane, values, seconds, overall))
        made += [_curve("ssim", plane, ssims, seconds) for plane, ssims in self._ssims.items()]
        return made


def _weighted(values: list[float | None], sizes: list[int]) -> float | None:
    """Mean over the planes by their samples; None where any plane has no value."""
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if value is not None]
    if len(known) < len(values) or not sum(sizes):
        return None
    return sum(value * size for value, size in known) / sum(sizes)


def _curve(
    metric: str,
    plane: str,
    values: list[float | None],
    seconds: list[float],
    mean: float | None = None,
) -> Curve:
    known = [(value, index) for index, value in enumerate(values) if value is not None]
    if not known:
        return Curve(metric=metric, plane=plane, values=values, statistic=None)
    ranked = sorted(known)
    worst, frame = ranked[0]
    statistic = Statistic(
        mean=sum(value for value, _ in known) / len(known) if mean is None else mean,
        p1=ranked[math.ceil(len(ranked) / 100) - 1][0],
        worst=worst,
        worst_frame=frame,
        worst_seconds=seconds[frame],
        frames=len(known),
        # SSIM is 1 for equal windows only: its sums are exact.
        identical=worst == {"psnr": math.inf, "ssim": 1.0}.get(metric),
    )
    return Curve(metric=metric, plane=plane, values=values, statistic=statistic)
