"""Compiles every kernel with NVRTC, alone and for both sample sizes. It needs no GPU.

pip install nvidia-cuda-nvrtc-cu12 brings the compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

from bgsoft.ops.loader import compile_options

OPS = Path(__file__).parent.parent / "bgsoft" / "ops"
ARCHITECTURE = "--gpu-architecture=sm_90"
"""An H100's."""


def nvrtc() -> ctypes.CDLL:
    spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    assert spec is not None, "nvidia-cuda-nvrtc-cu12 is not installed"
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return ctypes.CDLL(str(next(folder.glob("lib/libnvrtc.so.*"))))


def problems(library: ctypes.CDLL, file: Path, sample_bits: int) -> str:
    """Messages of the compiler about a file; empty if it compiles."""
    program = ctypes.c_void_p()
    text, name = file.read_bytes(), file.name.encode()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    options = [option.encode() for option in (*compile_options(sample_bits), ARCHITECTURE)]
    array = (ctypes.c_char_p * len(options))(*options)
    if not library.nvrtcCompileProgram(program, len(options), array):
        return ""
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode()


def main() -> int:
    library, failed = nvrtc(), 0
    files = sorted(OPS.glob("*.cu"))
    for file in files:
        for sample_bits in (8, 16):
            said = problems(library, file, sample_bits)
            if said:
                failed += 1
                print(f"{file.name}, {sample_bits} bits:\n{said}")
    print(f"{len(files)} files, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
