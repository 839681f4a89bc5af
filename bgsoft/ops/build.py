"""Compiles the host's side of the operations into shared libraries, when the package is built.

Run as a script, ``build.py [ARCHITECTURE [FOLDER]]``, it compiles in place, for a checkout that is
not installed, or for another machine. It imports nothing of bgsoft: the build has only a C++
compiler, that of Zig, whose package brings one to any machine.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

SOURCES = (
    *("analysis", "blend", "blur", "bokeh", "detections"),
    *("face", "foreground", "hide", "hold", "matte", "matte_guided"),
    *("matte_temporal", "morphology", "picture", "pixelate"),
    *("preprocess", "resize", "warp", "zoom"),
)
"""Stems of the ``.cu`` files that the host has, too."""

VARIANTS = {
    # By architecture, best first: name, the compiler's flags.
    "x86_64": (
        # So blending takes 0.82 of AVX2's time; with half of the registers' width, 0.95.
        ("avx512", ("-mcpu=x86_64_v4", "-mprefer-vector-width=512")),
        ("avx2", ("-mcpu=x86_64_v3",)),
        ("sse4", ("-mcpu=x86_64_v2",)),
    ),
    "aarch64": (("neon", ("-mcpu=generic",)),),
}
_GLIBC = "2.17"

_KERNEL = r"(?m)^(?:BLOCK_)?KERNEL\((\w+)\)"

_FLAGS = (
    *("-x", "c++", "-std=c++17", "-nostdlib++", "-fno-exceptions", "-fno-rtti", "-fPIC"),
    # With -O2 some loops take twice as long.
    *("-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"),
    # No contraction of a·b + c: sums round as they do on a device, and on any processor.
    *("-ffp-contract=off", "-fno-math-errno"),
)


def library_name(machine: str, variant: str) -> str:
    """File name of a variant's library."""
    return f"libbgsoft_{machine}_{variant}.so"


def _called(source: Path) -> str:
    """The source of a file whose kernels Python can call."""
    names = sorted(set(re.findall(_KERNEL, source.read_text(encoding="utf-8"))))
    lines = [f'#include "{source.with_name("calls.hpp")}"', f'#include "{source}"']
    return "\n".join([*lines, *(f"CALLED(WITH_BITS({name}, SAMPLE_BITS))" for name in names), ""])


def build(folder: Path, machine: str = "") -> list[Path]:
    """Compile every variant for an architecture.

    Args:
        folder: Where the libraries go; made if need be.
        machine: A key of :data:`VARIANTS`; by default this machine's.

    Raises:
        RuntimeError: The architecture is not known.
        subprocess.CalledProcessError: The compiler failed; what it said is on stderr.
    """
    machine = machine or platform.machine()
    if machine not in VARIANTS:
        raise RuntimeError(f"bgsoft has no build for {machine}; it has for {', '.join(VARIANTS)}")
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target")
    target = (f"{machine}-linux-gnu.{_GLIBC}",)
    folder.mkdir(parents=True, exist_ok=True)
    sources = Path(__file__).parent
    libraries = []
    from concurrent.futures import ThreadPoolExecutor  # which no thread can import at the end
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as objects, ThreadPoolExecutor() as pool:
        for variant, own in VARIANTS[machine]:
            made = [str(Path(objects, f"{variant}_calls.o"))]
            commands = [(*compiler, *target, *own, *_FLAGS, "-c", str(sources / "calls.cpp"))]
            for stem in SOURCES:
                called = Path(objects, f"{stem}.cpp")
                called.write_text(_called(sources / f"{stem}.cu"), encoding="utf-8")
                for bits in (8, 16):
                    made.append(str(Path(objects, f"{variant}_{stem}_{bits}.o")))
                    what = (f"-DSAMPLE_BITS={bits}", "-c", str(called))
                    commands.append((*compiler, *target, *own, *_FLAGS, *what))
            run = [(*command, "-o", path) for command, path in zip(commands, made, strict=True)]
            list(pool.map(lambda command: subprocess.run(command, check=True), run))
            library = folder / library_name(machine, variant)
            link = ("-shared", "-s", "-nostdlib++", *made, "-o", str(library))
            subprocess.run((*compiler, *target, *link), check=True)
            libraries.append(library)
    return libraries


if __name__ == "__main__":
    architecture = sys.argv[1] if len(sys.argv) > 1 else ""
    libraries = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "lib"
    for path in build(libraries, architecture):
        print(path)
