"""Compiles the ``.cu`` files in this folder with NVRTC, once per device and sample size."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from bgsoft.startup import span

_FOLDER = Path(__file__).parent

BLOCK = (32, 8, 1)
"""Threads per block for kernels with one thread per sample: a warp along a row."""


def blocks(width: int, height: int) -> tuple[int, int, int]:
    """Return the number of blocks of :data:`BLOCK` that cover a plane."""
    return -(-width // BLOCK[0]), -(-height // BLOCK[1]), 1


def compile_options(sample_bits: int) -> tuple[str, ...]:
    """Return NVRTC's options for the kernels of one sample size."""
    # No contraction of a·b + c, so that sums round as on the CPU.
    return "--std=c++17", "--fmad=false", f"-DSAMPLE_BITS={sample_bits}", f"-I{_FOLDER}"


def kernel(file: str, name: str, *, sample_bits: int = 8) -> Any:
    """Return a compiled kernel for the current device.

    Args:
        file: Stem of a ``.cu`` file in this package.
        name: The kernel, declared ``extern "C" __global__``.
        sample_bits: 8 for NV12 frames, 16 for P010.

    Returns:
        A ``cupy.RawKernel``: call it as ``kernel(grid, block, args)`` on the current stream.
    """
    import cupy

    with span(f"{file}.cu {name}"):  # a module is compiled, or loaded, with its first function
        return _module(file, sample_bits, cupy.cuda.Device().id).get_function(name)


@functools.cache
def _module(file: str, sample_bits: int, device: int) -> Any:
    import cupy

    source = _FOLDER.joinpath(f"{file}.cu").read_text(encoding="utf-8")
    return cupy.RawModule(code=source, backend="nvrtc", options=compile_options(sample_bits))
