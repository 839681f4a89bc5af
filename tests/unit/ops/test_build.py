"""Variants of the native library: built, loaded or rejected, with equal results."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from zipfile import ZipFile

import av
import pytest

import bgsoft
from bgsoft.cli.main import main
from bgsoft.errors import BackendUnavailableError
from bgsoft.ops import build, native
from tests.face_clips import SAMPLE
from tests.marks import crossed
from tests.synthetic import made_once

MACHINE = platform.machine()
X86 = build.VARIANTS["x86_64"]
LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not LOADER.exists(), reason="no glibc of x86-64")
def test_a_variant_runs_where_the_loader_would_take_its_level() -> None:
    said = subprocess.run([LOADER, "--help"], capture_output=True, text=True).stdout
    if "x86-64-v2" not in said:
        pytest.skip("this glibc names no levels")
    levels = [line.split()[0] for line in said.splitlines() if "(supported" in line]
    expected = {"x86-64-v4": "avx512", "x86-64-v3": "avx2", "x86-64-v2": "sse4"}
    found = [variant.name for variant in build.runnable("x86_64")]
    assert found == [expected[level] for level in levels if level in expected]


@pytest.mark.parametrize(("lacks", "best"), [("", "avx512"), ("avx512bw", "avx2"), ("fma", "sse4")])
def test_a_processor_runs_what_it_has_all_instructions_of(
    lacks: str, best: str, tmp_path: Path
) -> None:
    flags = " ".join(sorted({"fpu", *X86[0].needs} - {lacks}))
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: fma avx512bw\n")
    assert build.runnable("x86_64", cpuinfo)[0].name == best


def test_other_architectures_need_nothing(tmp_path: Path) -> None:
    assert [one.name for one in build.runnable("aarch64", tmp_path / "none")] == ["neon"]
    assert build.runnable("riscv64", tmp_path / "none") == ()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """The build hook, which compiles nothing; returns what it tells hatchling, and its variants."""

    class Interface:
        def __class_getitem__(cls, _item: Any) -> type:
            return cls

        def __init__(self, root: str) -> None:
            self.root = root

    interface = SimpleNamespace(BuildHookInterface=Interface)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    for name in ("BGSOFT_VARIANTS", "BGSOFT_MACHINE", "PIP_BUILD_TRACKER", "UV"):
        monkeypatch.delenv(name, raising=False)
    module = load(Path(__file__).parents[3] / "hatch_build.py", "hatch_build")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def run(version: str) -> dict[str, Any]:
        data: dict[str, Any] = {"artifacts": []}
        made = module.NativeLibrary(str(Path(bgsoft.__file__).parents[1]))
        made._build.runnable = lambda _machine: X86[1:]
        made._build.build = lambda _folder, _machine, variants: data.update(
            variants=[variant.name for variant in variants]
        )
        made._build.VARIANTS["x86_64"] = X86
        made._build.are_current = lambda *_: True
        made.initialize(version, data)
        return data

    return run


ALL, OWN = ["avx512", "avx2", "sse4"], ["avx2"]


@pytest.mark.parametrize(
    ("version", "environment", "variants", "tag"),
    [
        ("standard", {}, ALL, "manylinux_2_17_x86_64"),
        ("standard", {"PIP_BUILD_TRACKER": "/tmp/x"}, OWN, "linux_x86_64"),
        ("standard", {"UV": "/bin/uv"}, OWN, "linux_x86_64"),
        ("editable", {}, OWN, "linux_x86_64"),
        (
            *("standard", {"PIP_BUILD_TRACKER": "/tmp/x", "BGSOFT_VARIANTS": "all"}),
            *(ALL, "manylinux_2_17_x86_64"),
        ),
        ("standard", {"BGSOFT_VARIANTS": "own"}, OWN, "linux_x86_64"),
        ("standard", {"BGSOFT_MACHINE": "aarch64"}, ["neon"], "manylinux_2_17_aarch64"),
    ],
)
def test_only_a_wheel_with_all_variants_is_portable(
    hook: Any,
    version: str,
    environment: dict[str, str],
    variants: list[str],
    tag: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    data = hook(version)
    assert data["variants"] == variants
    assert data["tag"] == f"py3-none-{tag}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BGSOFT_MACHINE", "riscv64", "for riscv64: only x86_64 and aarch64"),
        ("BGSOFT_VARIANTS", "avx2", "BGSOFT_VARIANTS is avx2; set all or own"),
    ],
)
def test_a_build_that_cannot_be_is_refused(
    hook: Any, name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=said):
        hook("standard")


def test_a_library_is_current_until_a_source_changes(tmp_path: Path) -> None:
    sources = Path(build.__file__).parent
    copy = tmp_path / "ops"
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("__pycache__"))
    copied = load(copy / "build.py", "copied_build")
    (variant,) = [one for one in copied.runnable() if one.name == native.variant()]
    assert copied.are_current(copy / "lib", MACHINE, [variant])
    assert not copied.are_current(tmp_path, MACHINE, [variant])
    header = copy / "samples.cuh"
    header.write_text(header.read_text() + "\n")
    assert not copied.are_current(copy / "lib", MACHINE, [variant])


@pytest.mark.parametrize("with_uv", [False, True])
def test_two_files_of_the_compilers_wheel_are_fetched(
    with_uv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.delenv("UV", raising=False)
    if with_uv:
        # Its pip is this one, so that nothing is fetched; it installs nothing itself.
        uv = tmp_path / "uv"
        uv.write_text(f'#!/bin/sh\n[ "$1" = tool ] && shift 4 && exec {sys.executable} -m "$@"\n')
        uv.chmod(0o755)
        monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert not build.fetch_compiler(tmp_path / "lib")
    files = {
        "ziglang/zig": "#!/bin/sh\necho compiled\n",
        "ziglang/lib/std/std.zig": "",
        "ziglang/lib/libc/stdio.h": "",
        "ziglang-0.15.dist-info/METADATA": "Metadata-Version: 2.1\nName: ziglang\nVersion: 0.15\n",
        "ziglang-0.15.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "ziglang-0.15.dist-info/RECORD": "",
    }
    with ZipFile(tmp_path / "ziglang-0.15-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    assert build.fetch_compiler(tmp_path / "lib")
    fetched = tmp_path / "lib" / "ziglang"
    assert subprocess.run([fetched / "zig"], capture_output=True).stdout == b"compiled\n"
    folders = {fetched, fetched / "lib", fetched / "lib" / "std"}
    assert set(fetched.parent.rglob("*")) - folders == {
        fetched / "zig",
        fetched / "lib" / "std" / "std.zig",
    }


def test_uv_installs_a_compiler_that_pip_does_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\n[ "$1" = pip ] && [ "$7" = "$COMPILER" ] || exit 1\n'
        'mkdir "$6/ziglang" && printf "#!/bin/sh\\necho compiled\\n" >"$6/ziglang/zig"\n'
        'chmod +x "$6/ziglang/zig"\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("COMPILER", build.COMPILER)
    assert build.fetch_compiler(tmp_path / "lib")
    zig = tmp_path / "lib" / "ziglang" / "zig"
    assert subprocess.run([zig], capture_output=True).stdout == b"compiled\n"


@pytest.fixture
def _only_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a package built on a machine with more instructions than this one."""
    tmp_path.joinpath(build.library_name("x86_64", "avx512")).touch()
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    monkeypatch.setattr(native, "runnable", lambda _machine: X86[1:])
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(native, "library", native.library.__wrapped__)
    monkeypatch.setattr(native, "variant", native.variant.__wrapped__)


@pytest.mark.usefixtures("_only_one")
def test_a_variant_that_the_processor_lacks_is_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.mp4"
    assert main(["render", str(SAMPLE), str(output)]) == 4
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "it was compiled for avx512, which this processor lacks" in line
    assert "install bgsoft again on this machine" in line
    assert not output.exists()


@pytest.mark.usefixtures("_only_one")
def test_a_lesser_variant_serves_and_none_is_an_error(tmp_path: Path) -> None:
    tmp_path.joinpath(build.library_name("x86_64", "sse4")).touch()
    assert native.variant() == "sse4"
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(BackendUnavailableError, match="has none for x86_64; install bgsoft"):
        native.variant()


@made_once
def sample_clip(path: Path, pixel_format: str) -> Path:
    """The sample's first three frames, 256×144."""
    with av.open(str(SAMPLE)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream("ffv1", 30)
        stream.width, stream.height, stream.pix_fmt = 256, 144, pixel_format
        for frame in itertools.islice(source.decode(video=0), 3):
            target.mux(stream.encode(frame.reformat(256, 144, pixel_format)))
        target.mux(stream.encode())
    return path


@crossed(
    pixel_format=["yuv420p", "yuv420p10le"],
    given=[
        *({"preset": name} for name in ("soft", "studio", "obs", "privacy", "fast", "cutout")),
        *({"effect": effect} for effect in ("pixelate", "dim", "color")),
    ],
)
def test_all_variants_give_the_same_samples(
    pixel_format: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has all variants; an installation from source has one."""
    folder = Path(native.__file__).parent / "lib"
    paths = [folder / build.library_name(MACHINE, one.name) for one in build.runnable()]
    libraries = [ctypes.CDLL(str(path)) for path in paths if path.exists()]
    if len(libraries) < 2:
        pytest.skip("the package has one variant for this processor")
    clip, made = sample_clip(tmp_path / "in.mkv", pixel_format), []
    for library in libraries:
        monkeypatch.setattr(native, "library", lambda library=library: library)
        with bgsoft.frames(clip, alpha=True, **given) as frames:
            made.append([(f.picture.tobytes(), f.alpha.tobytes()) for f in frames])
    assert len(made[0]) == 3
    assert all(other == made[0] for other in made[1:])
