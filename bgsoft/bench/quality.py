"""How close two videos are: PSNR and SSIM here, VMAF by an ffmpeg that has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.compare.pictures import planar
from bgsoft.compare.vmaf import VmafScorer, ffmpeg_executables, find_ffmpeg
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.frame import Frame
from bgsoft.pipeline.ring import FrameRing
from bgsoft.selftest.clips import empty_planes
from bgsoft.selftest.stages import psnr_db

__all__ = ["compare_files", "ffmpeg_executable", "ssim", "vmaf"]

_SIGMA = 1.5
_WINDOW = (11, 11)
_K1, _K2 = 0.01, 0.03


def ssim(one: NDArray[Any], other: NDArray[Any], bits: int) -> float:
    """Mean structural similarity of two planes, 1 where they are equal.

    After Wang, Bovik, Sheikh and Simoncelli, «Image Quality Assessment: From Error Visibility to
    Structural Similarity», 2004: 11×11 Gaussian windows of σ 1.5, K1 0.01, K2 0.03.

    Args:
        one: Samples.
        other: Samples of the same shape.
        bits: Of a sample as stored, 8 or 16.
    """
    a: NDArray[Any] = one.astype(np.float32)
    b: NDArray[Any] = other.astype(np.float32)
    peak = (1 << bits) - 1
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2

    def mean(plane: NDArray[Any]) -> NDArray[Any]:
        blurred: NDArray[Any] = cv2.GaussianBlur(plane, _WINDOW, _SIGMA)
        return blurred

    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    covariance = mean(a * b) - mean_a * mean_b
    similarity = ((2 * mean_a * mean_b + c1) * (2 * covariance + c2)) / (
        (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
    )
    return float(similarity.mean())


def compare_files(path: Path, reference: Path, every: int = 5) -> tuple[float, float]:
    """(PSNR in dB, SSIM) of luma, means over every ``every``-th frame as the CPU decodes it.

    PSNR counts as 99 where planes are equal.

    Raises:
        BgsoftError: One of them cannot be read.
        ValueError: They differ in size or number of frames.
    """
    psnrs, ssims = [], []
    for one, other in zip(_luma(path, every), _luma(reference, every), strict=True):
        bits = 8 * one.itemsize
        psnrs.append(psnr_db(one, other, bits))
        ssims.append(ssim(one, other, bits))
    return float(np.mean(psnrs)), float(np.mean(ssims))


def _luma(path: Path, every: int) -> Iterator[NDArray[Any]]:
    """Luma of every so manieth frame; overwritten a few frames later."""
    with CpuDecoder(path) as decoder:
        format = decoder.info.format
        ring = FrameRing(2, lambda slot: empty_planes(format, slot))
        for index, frame in enumerate(decoder.frames(ring)):
            if index % every == 0:
                yield frame.luma
            ring.release(frame)


def ffmpeg_executable() -> str | None:
    """The user's own ffmpeg, else imageio-ffmpeg's, else None."""
    found = ffmpeg_executables()
    return found[-1] if found else None


def vmaf(path: Path, frames: Sequence[Frame]) -> float:
    """Mean VMAF of a video, 0–100.

    Args:
        path: What is judged.
        frames: On the host: what was encoded, in the same order.

    Raises:
        BackendUnavailableError: There is no ffmpeg with libvmaf, or it failed.
        BgsoftError: The video cannot be read.
        ValueError: It has more or fewer frames.
    """
    ffmpeg = find_ffmpeg()
    with CpuDecoder(path) as decoder:
        format = decoder.info.format
        depth = format.bit_depth
        ring = FrameRing(2, lambda slot: empty_planes(format, slot))
        with VmafScorer(ffmpeg, format.width, format.height, depth) as scorer:
            for coded, frame in zip(decoder.frames(ring), frames, strict=True):
                scorer.push(planar(frame, depth), planar(coded, depth))
                ring.release(coded)
            return float(np.mean(scorer.finish()))
