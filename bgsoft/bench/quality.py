"""How close two videos are: PSNR and SSIM here, VMAF by an ffmpeg that has it."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.decode.cpu import CpuDecoder
from bgsoft.pipeline.ring import FrameRing
from bgsoft.selftest.clips import empty_planes
from bgsoft.selftest.stages import psnr_db

__all__ = ["compare_files", "ffmpeg_executable", "ssim", "vmaf", "vmaf_ffmpeg"]

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


def _candidates() -> Iterator[str]:
    try:
        import imageio_ffmpeg
    except ImportError:
        pass
    else:
        # The package may be there and bring no executable for this platform.
        with contextlib.suppress(RuntimeError):
            yield str(imageio_ffmpeg.get_ffmpeg_exe())
    found = shutil.which("ffmpeg")
    if found is not None:
        yield found


def ffmpeg_executable() -> str | None:
    """The user's own ffmpeg, else imageio-ffmpeg's, else None."""
    found = list(_candidates())
    return found[-1] if found else None


@functools.cache
def vmaf_ffmpeg() -> tuple[str | None, str | None]:
    """(an ffmpeg with libvmaf, None), or (None, why there is none)."""
    seen = False
    for path in _candidates():
        seen = True
        listed = subprocess.run(
            [path, "-hide_banner", "-filters"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if " libvmaf " in listed.stdout:
            return path, None
    what = "this ffmpeg has no libvmaf" if seen else "there is no ffmpeg"
    return None, f"{what}: pip install 'bgsoft[quality]'"


def vmaf(path: Path, reference: Path, folder: Path) -> float:
    """Mean VMAF of a video against its reference, 0–100, frame by frame in order.

    Args:
        path: What is judged.
        reference: What it was made from, of the same size and number of frames.
        folder: For the log.

    Raises:
        ValueError: There is no ffmpeg with libvmaf, or it failed; the message is the reason.
    """
    executable, reason = vmaf_ffmpeg()
    if executable is None:
        raise ValueError(reason)
    log = folder / "vmaf.json"
    # Frames are paired by number: containers round timestamps differently.
    filters = (
        "[0:v]setpts=N/TB/25,format=yuv420p[a];[1:v]setpts=N/TB/25,format=yuv420p[b];"
        f"[a][b]libvmaf=log_fmt=json:log_path={log.name}"
    )
    done = subprocess.run(
        [
            *(executable, "-v", "error", "-i", str(path.absolute())),
            *("-i", str(reference.absolute()), "-lavfi", filters, "-f", "null", "-"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,  # a path inside a filter would need escaping
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"libvmaf failed: {' '.join(done.stderr.split())[-200:]}")
    pooled = json.loads(log.read_text(encoding="utf-8"))["pooled_metrics"]
    return float(pooled["vmaf"]["mean"])
