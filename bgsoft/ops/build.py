"""Compiles the operations for the host into shared libraries, when the package is built.

Run as a script, ``build.py [ARCHITECTURE [FOLDER]]``, it compiles all variants in place, for a
checkout that is not installed, or for another machine. It imports nothing of bgsoft. The compiler
is Zig's, from the package ``ziglang``; only builds need it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

COMPILER = "ziglang>=0.14,<1"
"""Requirement of the compiler's package."""

_BOTH_DEPTHS = (
    *("blend", "picture", "analysis", "warp", "foreground", "zoom", "hide"),
    *("blur", "bokeh", "pixelate", "preprocess"),
)
_BYTES_ONLY = (
    *("matte_guided", "face", "matte", "matte_temporal"),
    *("resize", "detections", "morphology", "hold"),
)
SOURCES = (*_BYTES_ONLY, *_BOTH_DEPTHS)
"""Stems of the ``.cu`` files for the host. Those without ``sample_t`` are compiled once. The
slowest
come first: as many are compiled at a time as there are cores."""


class Variant(NamedTuple):
    """A library for processors with some instructions."""

    name: str
    flags: tuple[str, ...]
    """Flags of the compiler."""
    needs: frozenset[str]
    """Required processor features, by the names in ``/proc/cpuinfo``."""


_X86_64_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_X86_64_V3 = _X86_64_V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_X86_64_V4 = _X86_64_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

VARIANTS = {
    # By architecture, best first.
    "x86_64": (
        # Blending takes 0.82 of AVX2's time with it, and 0.95 with half the register width.
        Variant("avx512", ("-mcpu=x86_64_v4", "-mprefer-vector-width=512"), _X86_64_V4),
        Variant("avx2", ("-mcpu=x86_64_v3",), _X86_64_V3),
        Variant("sse4", ("-mcpu=x86_64_v2",), _X86_64_V2),
    ),
    "aarch64": (Variant("neon", ("-mcpu=generic",), frozenset()),),
}
GLIBC = "2.17"

_ZIG = "ziglang/zig"

_KERNEL = r"(?m)^(?:BLOCK_)?KERNEL\((\w+)\)"

_FLAGS = (
    *("-x", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-fPIC"),
    # Zig makes -O2 of any level. Debugging information takes a seventh of the time.
    *("-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"),
    # No contraction of a·b + c, so that sums round as on a device, and on any processor.
    *("-ffp-contract=off", "-fno-math-errno"),
)


def library_name(machine: str, variant: str) -> str:
    """Return the file name of a variant's library."""
    return f"libbgsoft_{machine}_{variant}.so"


def runnable(machine: str = "", cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[Variant, ...]:
    """Return the variants that this machine's processor can run, best first."""
    variants = VARIANTS.get(machine or platform.machine(), ())
    instructions: set[str] = set()
    if any(variant.needs for variant in variants):
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            line = next((line for line in lines if line.startswith("flags")), "")
        instructions.update(line.partition(":")[2].split())
    return tuple(variant for variant in variants if variant.needs <= instructions)


def _called(source: Path, bits: int) -> str:
    """Return the source of a file whose kernels Python can call."""
    names = sorted(set(re.findall(_KERNEL, source.read_text(encoding="utf-8"))))
    # Names may repeat in other files and depths, so each has its own namespace.
    lines = (
        *(f"#define SAMPLE_BITS {bits}", f'#include "{source.with_name("calls.hpp")}"'),
        *("namespace {", f'#include "{source}"', "}"),
    )
    return "\n".join([*lines, *(f"CALLED(WITH_BITS({name}, SAMPLE_BITS))" for name in names), ""])


def _digest(variant: Variant) -> str:
    """Return a hash of all sources and flags of a variant's library."""
    digest = hashlib.sha256(repr((variant.flags, _FLAGS)).encode())
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.name == "build.py" or path.suffix in {".cu", ".cuh", ".cpp", ".hpp"}:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_current(library: Path, variant: Variant) -> bool:
    return library.is_file() and _digest(variant).encode() in library.read_bytes()


def are_current(folder: Path, machine: str, variants: Sequence[Variant]) -> bool:
    """Return whether a folder's libraries match the sources."""
    return all(_is_current(folder / library_name(machine, one.name), one) for one in variants)


def fetch_compiler(folder: Path) -> bool:
    """Put the compiler into a folder of libraries, for :func:`build`; return whether that worked.

    The kernels include no headers, so 2 of the 20,000 files of its wheel are enough: pip takes 17
    seconds to install all, uv 12, and both 5 to download the wheel. Without pip, or if it
    finds no wheel without the options that the user gave, the compiler has to be installed.
    """
    if (folder / _ZIG).is_file():
        return True
    folder.mkdir(parents=True, exist_ok=True)
    uv = os.environ.get("UV")  # its path, if uv runs the build
    # -I: the environment of a build hides pip.
    pip: tuple[str, ...] = (sys.executable, "-I", "-m", "pip")
    if uv:
        pip = (uv, "tool", "run", "--python", sys.executable, "pip")
    options = ("--quiet", "--no-deps", "--retries", "1", "--only-binary", ":all:")
    with TemporaryDirectory(dir=folder) as temporary:
        download = (*pip, "download", *options, "--dest", temporary, COMPILER)
        if not subprocess.run(download, capture_output=True, check=False).returncode:
            with ZipFile(next(Path(temporary).glob("ziglang-*.whl"))) as wheel:
                for name in (_ZIG, "ziglang/lib/std/std.zig"):  # it finds its folder by the latter
                    wheel.extract(name, temporary)
            Path(temporary, _ZIG).chmod(0o755)
        elif uv:  # which may know another index than pip
            install = (uv, "pip", "install", "--quiet", "--no-deps", "--target", temporary)
            subprocess.run((*install, COMPILER), check=False)
        if not Path(temporary, _ZIG).is_file():
            return False
        Path(temporary, "ziglang").replace(folder / "ziglang")
    return True


def build(folder: Path, machine: str, variants: Sequence[Variant]) -> list[Path]:
    """Compile variants for an architecture unless they are current; remove others.

    Args:
        folder: Folder for the libraries; created if missing.
        machine: A key of :data:`VARIANTS`.
        variants: Variants of that architecture.

    Raises:
        subprocess.CalledProcessError: The compiler failed; its messages are on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    libraries = {folder / library_name(machine, variant.name): variant for variant in variants}
    for library, variant in libraries.items():
        if not _is_current(library, variant):
            _compile(library, machine, variant)
    for stale in set(folder.glob(library_name(machine, "*"))) - libraries.keys():
        stale.unlink()
    return list(libraries)


def _compile(library: Path, machine: str, variant: Variant) -> None:
    from concurrent.futures import ThreadPoolExecutor  # which no thread can import at the end

    sources = Path(__file__).parent
    fetched = library.parent / _ZIG
    zig = (str(fetched),) if fetched.is_file() else (sys.executable, "-m", "ziglang")
    compiler = (*zig, "cc", "-target", f"{machine}-linux-gnu.{GLIBC}")

    def compile_one(source: Path) -> str:
        made = str(temporary / f"{source.stem}.o")
        digest = f'-DDIGEST="{_digest(variant)}"'
        command = (*compiler, *variant.flags, *_FLAGS, digest, "-c", str(source), "-o", made)
        subprocess.run(command, check=True)
        return made

    # In the same file system, to be renamed: processes may have the old one loaded.
    with (
        TemporaryDirectory(dir=library.parent) as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        temporary = Path(folder)
        units = [sources / "calls.cpp"]
        for stem in SOURCES:
            for bits in (8, 16) if stem in _BOTH_DEPTHS else (8,):
                units.append(temporary / f"{stem}_{bits}.cpp")
                units[-1].write_text(_called(sources / f"{stem}.cu", bits), encoding="utf-8")
        objects = list(pool.map(compile_one, units))
        new = temporary / library.name
        # Without Zig's own libraries, which it would compile first, for eight seconds.
        link = ("-nostdlib", "-shared", "-s", *objects, "-o", str(new))
        subprocess.run((*compiler, *link), check=True)
        new.replace(library)


if __name__ == "__main__":
    architecture = sys.argv[1] if len(sys.argv) > 1 else platform.machine()
    libraries = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "lib"
    for path in build(libraries, architecture, VARIANTS[architecture]):
        print(path)
