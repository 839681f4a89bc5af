"""Frames, mattes and slow references for tests of the picture stages."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.base import analysis_factor, analysis_shape
from bgsoft.analysis.reduce import Reducer
from bgsoft.composite.background import Background
from bgsoft.composite.effects import create_compositor
from bgsoft.composite.plan import CellsPlan
from bgsoft.frame import ColorInfo, Frame, FrameFormat, Matte, PixelLayout, Planes
from bgsoft.ops.placement import HOST
from bgsoft.settings.config import EffectConfig, EffectKind
from tests.synthetic import VideoSpec, regular_times, write_video

Array = NDArray[Any]

SIZES = ((65, 47), (1, 1), (2, 2), (3, 2), (64, 64), (641, 359), (1026, 770))
"""(width, height): odd, tiny, whole strips, grid factors 1 and 2."""


def frame_format(
    size: tuple[int, int],
    layout: PixelLayout = PixelLayout.NV12,
    *,
    full_range: bool = False,
    **color: int,
) -> FrameFormat:
    info = ColorInfo(full_range=full_range, range_specified=True, **color)
    return FrameFormat(width=size[0], height=size[1], layout=layout, color=info)


def codes(format: FrameFormat, values: Array) -> Array:
    """Code values as the frame stores them."""
    return np.asarray(values).astype(format.dtype) << format.shift


def random_frame(format: FrameFormat, rng: np.random.Generator, pts: int = 0) -> Frame:
    top = 1 << format.bit_depth
    luma = codes(format, rng.integers(0, top, format.luma_shape))
    chroma = codes(format, rng.integers(0, top, format.chroma_shape))
    return make_frame(format, luma, chroma, pts)


def flat_frame(format: FrameFormat, luma: int, cb: int, cr: int) -> Frame:
    scale = 1 << (format.bit_depth - 8)
    planes = np.full(format.luma_shape, luma * scale), np.empty(format.chroma_shape, np.int64)
    planes[1][..., 0], planes[1][..., 1] = cb * scale, cr * scale
    return make_frame(format, codes(format, planes[0]), codes(format, planes[1]))


def make_frame(format: FrameFormat, luma: Array, chroma: Array, pts: int = 0) -> Frame:
    planes = Planes(slot=0, luma=luma, chroma=chroma, alpha=np.zeros(format.luma_shape, np.uint8))
    return Frame(planes=planes, format=format, index=0, pts=pts, time_base=Fraction(1, 1000))


def frame_of(image: Array, index: int = 0) -> Frame:
    """A picture, (H, W, 3) BGR, both sides even; ``index`` is its pts, too."""
    height, width = image.shape[:2]
    format = frame_format((width, height), full_range=True, matrix=6)
    ycrcb = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
    chroma = cv2.resize(ycrcb[..., :0:-1], (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    frame = make_frame(format, np.ascontiguousarray(ycrcb[..., 0]), chroma, index)
    frame.index = index
    return frame


def copy_frame(frame: Frame) -> Frame:
    return make_frame(frame.format, frame.luma.copy(), frame.chroma.copy(), frame.pts)


def matte_from(format: FrameFormat, mask: Array) -> Matte:
    """A matte as the matte stage makes it: refined on the grid, enlarged to the frame.

    Args:
        mask: (H, W) or any other size, float in [0, 1].
    """
    rows, columns = analysis_shape(format.width, format.height)
    factor = analysis_factor(format.width, format.height)
    small = cv2.resize(mask.astype(np.float32), (columns, rows), interpolation=cv2.INTER_AREA)
    reduced = np.rint(np.clip(small, 0, 1) * 255).astype(np.uint8).reshape(rows, columns)
    size = (columns * factor, rows * factor)
    large = cv2.resize(reduced, size, interpolation=cv2.INTER_LINEAR).reshape(size[::-1])
    alpha = np.ascontiguousarray(large[: format.height, : format.width])
    return Matte(alpha=alpha, reduced=reduced)


def no_one(format: FrameFormat) -> Matte:
    return matte_from(format, np.zeros(format.luma_shape))


def disc_mask(format: FrameFormat, radius: float = 0.3) -> Array:
    """A round person in the middle; the radius is relative to the frame's height."""
    y, x = np.mgrid[: format.height, : format.width] + 0.5
    distance = np.hypot(y - format.height / 2, x - format.width / 2)
    return (distance <= radius * format.height).astype(np.float64)


def planes_behind(background: Background, format: FrameFormat) -> tuple[Array, Array]:
    frame = flat_frame(format, 0, 0, 0)
    launch = HOST.operation("blend", background.kernel, sample_bits=8 * format.bytes_per_sample)
    alpha = np.zeros(format.luma_shape, np.uint8)
    size = format.height, format.width
    launch(size, frame.luma, frame.chroma, alpha, *size, *background.arguments)
    return frame.luma, frame.chroma


def cell_planes(plan: CellsPlan, cells: Array) -> list[Array]:
    """Luma, Cb and Cr of a buffer that holds them one after another."""
    return [
        cells[offset : offset + rows * columns].reshape(rows, columns)
        for offset, (rows, columns) in zip(plan.offsets, plan.shapes, strict=True)
    ]


def chroma_alpha(alpha: Array) -> Array:
    """Mean alpha of 2×2 samples, fewer at the edges, float64."""
    height, width = alpha.shape
    padded = np.pad(alpha.astype(np.float64), ((0, height % 2), (0, width % 2)), mode="edge")
    return padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2).mean(axis=(1, 3))


def background_files(folder: Path) -> dict[EffectKind, Path]:
    """An image and a video in a folder, for the effects that take one."""
    image = folder / "plate.png"
    noise = np.random.default_rng(3).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    assert cv2.imwrite(str(image), noise)
    clip = write_video(folder / "clip.mp4", VideoSpec(times=regular_times(3)))
    return {EffectKind.IMAGE: image, EffectKind.VIDEO: clip}


def effect(kind: EffectKind, files: dict[EffectKind, Path], **settings: float) -> EffectConfig:
    """The effect, with the file that it takes, if any, of :func:`background_files`."""
    path = files.get(kind)
    return EffectConfig(kind=kind, background=str(path) if path else None, **settings)


def composite(effect: EffectConfig, frame: Frame, matte: Matte) -> Frame:
    result = copy_frame(frame)
    reduced = Reducer(frame.format).reduce([result])[0]
    compositor = create_compositor(effect, frame.format)
    compositor.apply([result], [matte], [reduced])
    compositor.close()
    return result
