"""Errors of vendors and of the system become ours at one boundary each."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import av
import pytest

import bgsoft
from bgsoft.errors import EncodeError, ModelError, errors_as, os_errors_as, translated
from bgsoft.infer.providers import ort_errors_as
from bgsoft.media.pyav import pyav_errors_as
from tests.processes import run_python
from tests.sources import tree

_VENDORS = ("av.", "cupy.", "cv2.", "ort.", "codec_errors")
_REMEMBERING = {Path("cuda/video_codec.py")}
"""Keeps a refusal of the video engines as it passes it on."""


def test_the_cause_is_kept() -> None:
    cause = KeyError("x")
    with (
        pytest.raises(ModelError, match="about 'x'") as caught,
        translated(KeyError, to=lambda exc: ModelError(f"about {exc}")),
    ):
        raise cause
    assert caught.value.__cause__ is cause


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), os_errors_as(ModelError, "cannot read"):
        raise ZeroDivisionError
    with os_errors_as(ModelError, "cannot read"):
        pass


def test_the_system_s_reason_is_reported_without_its_number(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ModelError) as caught, os_errors_as(ModelError, f"no {path}", path=path):
        path.read_bytes()
    assert caught.value.message == f"no {path}: No such file or directory"
    assert caught.value.path == path


def test_an_error_without_a_reason_of_the_system_s_says_its_own() -> None:
    failing = errors_as((ValueError,), EncodeError, "it failed", stage="encode", pts=7)
    with pytest.raises(EncodeError) as caught, failing:
        raise ValueError("no such thing")
    assert str(caught.value) == "it failed: no such thing"
    assert (caught.value.stage, caught.value.pts) == ("encode", 7)


@pytest.mark.parametrize(
    "theirs",
    [
        av.error.InvalidDataError(1, "no such thing"),
        OSError(errno.EIO, "no such thing"),
        ValueError("no such thing"),
    ],
    ids=type,
)
def test_pyav_raises_three_kinds_of_errors(theirs: Exception) -> None:
    with pytest.raises(EncodeError) as caught, pyav_errors_as(EncodeError, "it failed"):
        raise theirs
    assert str(caught.value) == "it failed: no such thing"


def test_onnx_runtime_raises_what_it_does_not_export_but_an_interrupt_passes() -> None:
    with pytest.raises(ModelError, match="no: why"), ort_errors_as(ModelError, "no"):
        raise type("Fail", (Exception,), {})("why")
    with pytest.raises(KeyboardInterrupt), ort_errors_as(ModelError, "no"):
        raise KeyboardInterrupt


_LIMITED = """
import resource, threading
import numpy
from bgsoft.exitcodes import one_line

def limited(free_kib, action):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 1024 * free_kib, resource.RLIM_INFINITY))
    try:
        action()
    except (ImportError, RuntimeError) as exc:
        print(one_line(exc))

limited(30_000, lambda: __import__("cv2"))
limited(4_000, threading.Thread(target=int).start)
"""


def test_a_limit_of_memory_that_is_too_low_is_named() -> None:
    limited = run_python("-c", _LIMITED)
    advice = "; free memory, or raise limits such as ulimit -v"
    assert limited.stdout.splitlines() == [
        f"cannot load a library: failed to map segment from shared object{advice}",
        f"cannot start: can't start new thread{advice}",
    ], limited.stderr


def test_vendors_errors_are_translated_nowhere_else() -> None:
    root = Path(bgsoft.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root) not in _REMEMBERING
        if any(vendor in path.read_text(encoding="utf-8") for vendor in _VENDORS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if any(vendor in ast.unparse(node.type) for vendor in _VENDORS)
        if any(isinstance(each, ast.Raise) and each.cause for each in ast.walk(node))
    ]
    assert found == []
