"""Decodes two videos in parallel and measures the differences of their pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
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
from bgsoft.records import dataclass
from bgsoft.ring import FrameRing

_PLANES = ("y", "cb", "cr", "all")
InsideMasks = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Luma and chroma samples to use, (H, W) and (⌈H/2⌉, ⌈W/2⌉)."""


class Region(StrEnum):
    """Part of the picture to measure, by the mask's brightness."""

    FOREGROUND = "foreground"
    """Where the mask is at least half white."""
    BACKGROUND = "background"
    """The rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of the pictures, with the times and notices of both videos."""

    pictures: Pictures
    times_a: list[Fraction]
    """Seconds of every frame of A."""
    times_b: list[Fraction]
    notices: list[str]


class _Video:
    """A decoder whose frames come one at a time; each is valid until the next."""

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

    def notices(self, name: str) -> list[str]:
        info, events = self.decoder.info, self.decoder.events
        said = [*info.notices, *info.lost_chroma, *(event.message for event in events)]
        stats = self.decoder.stats
        if stats.concealed_frames or stats.corrupt_packets:
            said.append(
                f"damaged: {stats.corrupt_packets} packets rejected,"
                f" {stats.concealed_frames} frames patched"
            )
        return [f"{name}: {text}" for text in said]


def difference_of_size(a: FrameFormat, b: FrameFormat) -> str | None:
    """Return why pictures of two formats cannot be compared; None if they can."""
    if (a.width, a.height) == (b.width, b.height):
        return None
    return (
        f"the sizes differ: A is {a.width}x{a.height} and B {b.width}x{b.height} (upright);"
        " scale one of them first"
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
        b: The video to judge.
        mask: A video, bright on the foreground, at least as long as the shorter of A and B.
        region: The part to measure, if there is a mask.
        ffmpeg: Scores VMAF; None: nothing does.
        vmaf_reason: Why nothing scores VMAF.

    Raises:
        ConfigError: The sizes differ, or the mask is too short or of another size.
        MediaError: A file cannot be read.
    """
    with ExitStack() as stack:
        first, second = _Video(a, stack), _Video(b, stack)
        if (different := difference_of_size(first.format, second.format)) is not None:
            raise ConfigError(different)
        width, height = first.format.width, first.format.height
        meter = _Meter(max(first.format.bit_depth, second.format.bit_depth))
        masks = None if mask is None else _masks(mask, region, first.format, stack)
        scores, failure = _measure(first, second, masks, meter, ffmpeg)
        seconds = [float(time) for time in first.times[: meter.frames]]
        curves = meter.curves(seconds)
        if scores is not None:
            curves.append(_curve("vmaf", "y", scores, seconds))
        share = meter.inside / (meter.frames * width * height) if mask and meter.frames else None
        replaced = "whole pictures, B's samples outside the region replaced by A's"
        pictures = Pictures(
            width=width,
            height=height,
            bit_depth=meter.depth,
            frames=meter.frames,
            seconds=seconds,
            region="all" if mask is None else region.value,
            region_share=share,
            curves=curves,
            vmaf_reason=failure or vmaf_reason,
            vmaf_model=None if scores is None else VMAF_MODEL,
            vmaf_by=None if scores is None or ffmpeg is None else ffmpeg.version,
            vmaf_region=None if scores is None or mask is None else replaced,
        )
        return Measured(
            pictures=pictures,
            times_a=first.times,
            times_b=second.times,
            notices=first.notices("A") + second.notices("B") + _depths(first, second),
        )


def _measure(
    a: _Video, b: _Video, masks: Iterator[InsideMasks] | None, meter: _Meter, ffmpeg: Ffmpeg | None
) -> tuple[list[float] | None, str | None]:
    """Measure all pairs; return VMAF of each, or the reason why there is none."""
    size = a.format.width, a.format.height
    with nullcontext() if ffmpeg is None else VmafScorer(ffmpeg, *size, meter.depth) as scorer:
        for frame_a, frame_b in zip_longest(a.frames(), b.frames()):
            if frame_a is None or frame_b is None:
                continue  # decode on, for the timestamps
            planes_a, planes_b = _planar(frame_a, meter.depth), _planar(frame_b, meter.depth)
            inside = None if masks is None else next(masks)
            meter.add(planes_a, planes_b, inside)
            if scorer is not None:
                scorer.push(planes_a, _replaced(planes_a, planes_b, inside))
        try:
            return None if scorer is None else scorer.finish(), None
        except BackendUnavailableError as exc:
            return None, exc.message


def _depths(a: _Video, b: _Video) -> list[str]:
    depth_a, depth_b = a.format.bit_depth, b.format.bit_depth
    if depth_a == depth_b:
        return []
    return [f"A has {depth_a} bits and B {depth_b}: compared at 10, the 8-bit samples shifted up"]


def _planar(frame: Frame, bit_depth: int) -> PlanarPicture:
    """Return a frame's planes as code values of ``bit_depth`` bits; views if unchanged."""

    def plane(samples: NDArray[Any]) -> NDArray[Any]:
        if frame.format.bit_depth == 10:
            return samples >> frame.format.shift
        if bit_depth == 10:
            return samples.astype(np.uint16) << 2
        return np.ascontiguousarray(samples)

    return plane(frame.luma), plane(frame.chroma[..., 0]), plane(frame.chroma[..., 1])


def _masks(
    path: Path, region: Region, size: FrameFormat, stack: ExitStack
) -> Iterator[InsideMasks]:
    """Yield the samples to use of each frame; raises ConfigError if the mask does not fit."""
    video = _Video(path, stack)
    format = video.format
    if difference_of_size(size, format) is not None:
        raise ConfigError(
            f"cannot use the mask: it is {format.width}x{format.height}, the pictures are"
            f" {size.width}x{size.height}",
            path=path,
        )
    black, white = format.luma_range
    for frame in video.frames():
        luma = (frame.luma >= (black + white) / 2) == (region is Region.FOREGROUND)
        yield luma, luma[::2, ::2]
    text = f"cannot use the mask: it ends after {len(video.times)} frames, before the pictures"
    raise ConfigError(text, path=path)


def _replaced(a: PlanarPicture, b: PlanarPicture, inside: InsideMasks | None) -> PlanarPicture:
    """Return B inside the region, A outside."""
    if inside is None:
        return b
    luma, chroma = inside
    cb, cr = (np.where(chroma, b[plane], a[plane]) for plane in (1, 2))
    return np.where(luma, b[0], a[0]), cb, cr


class _Meter:
    """Collects the figures of all pairs."""

    def __init__(self, bit_depth: int) -> None:
        self.depth = bit_depth
        self._sizes: list[list[int]] = []
        self._errors: list[list[float | None]] = []
        self._ssims: list[list[float | None]] = []

    @property
    def frames(self) -> int:
        return len(self._sizes)

    @property
    def inside(self) -> int:
        """Number of luma samples that were measured."""
        return sum(luma for luma, *_ in self._sizes)

    def add(self, a: PlanarPicture, b: PlanarPicture, inside: InsideMasks | None) -> None:
        regions = [None] * 3 if inside is None else [inside[0], inside[1], inside[1]]
        sizes: list[int] = []
        errors: list[float | None] = []
        ssims: list[float | None] = []
        for one, other, region in zip(a, b, regions, strict=True):
            sizes.append(one.size if region is None else int(np.count_nonzero(region)))
            errors.append(mean_squared_error(one, other, region))
            ssims.append(structural_similarity(one, other, self.depth, region))
        self._sizes.append(sizes)
        self._errors.append(errors)
        self._ssims.append(ssims)

    def curves(self, seconds: Sequence[float]) -> list[Curve]:
        """Return PSNR and SSIM of each plane, and of all planes weighted by their samples."""
        made: list[Curve] = []
        errors, ssims = self._with_all(self._errors), self._with_all(self._ssims)
        for plane, column in zip(_PLANES, errors.T, strict=True):
            known = column[~np.isnan(column)]
            overall = psnr(float(known.mean()), self.depth) if known.size else None
            values = [e if math.isnan(e) else psnr(e, self.depth) for e in column.tolist()]
            made.append(_curve("psnr", plane, values, seconds, overall))
        for plane, column in zip(_PLANES, ssims.T, strict=True):
            made.append(_curve("ssim", plane, column.tolist(), seconds))
        return made

    def _with_all(self, rows: list[list[float | None]]) -> NDArray[np.float64]:
        """Return (frames, 4): values by plane and their mean by samples; NaN: no value."""
        values = np.array(rows, np.float64).reshape(-1, 3)
        sizes = np.array(self._sizes, np.float64).reshape(-1, 3)
        with np.errstate(invalid="ignore"):  # an empty region
            everything = (values * sizes).sum(1) / sizes.sum(1)
        return np.column_stack([values, everything])


def _curve(
    metric: str,
    plane: str,
    found: Sequence[float],
    seconds: Sequence[float],
    mean: float | None = None,
) -> Curve:
    """Return a curve with its statistic; NaN: no value."""
    values = [None if math.isnan(value) else value for value in found]
    ranked = sorted((value, index) for index, value in enumerate(values) if value is not None)
    if not ranked:
        return Curve(metric=metric, plane=plane, values=values, statistic=None)
    worst, frame = ranked[0]
    statistic = Statistic(
        mean=sum(value for value, _ in ranked) / len(ranked) if mean is None else mean,
        p1=ranked[math.ceil(len(ranked) / 100) - 1][0],
        worst=worst,
        worst_frame=frame,
        worst_seconds=seconds[frame],
        frames=len(ranked),
        # SSIM is exactly 1 for equal windows only: its sums are exact.
        identical=worst == {"psnr": math.inf, "ssim": 1.0}.get(metric),
    )
    return Curve(metric=metric, plane=plane, values=values, statistic=statistic)
