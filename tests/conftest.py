"""Fixtures and rules for all tests."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

# The idle threads of OpenBLAS would spin on cores that other tests need.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import bgsoft  # noqa: F401 - OpenCV and others are loaded after it: it sets what they look for
from bgsoft.settings.user import CONFIG_VARIABLE
from bgsoft.threads import usable_cores
from tests.endurance import Endurance

if TYPE_CHECKING:
    from bgsoft.ops.placement import Operation, Placement


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the tests that can run for longer: kills, hostile input, memory."""
    group = parser.getgroup("bgsoft")
    group.addoption("--size", type=float, default=1.0, metavar="FACTOR", help="how long they run")
    group.addoption("--seed", type=int, default=1, help="of kills and of hostile inputs")
    group.addoption("--case", type=int, metavar="N", help="this hostile input alone")


@pytest.fixture(scope="session")
def endurance(pytestconfig: pytest.Config) -> Endurance:
    """How long a test runs that can run for longer."""
    return Endurance(*map(pytestconfig.getoption, ("size", "seed", "case")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that can run for longer the time for it."""
    seconds = 900 * max(1.0, config.getoption("size"))
    for item in items:
        if "endurance" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Run slow tests that are named on the command line."""
    if config.option.markexpr == "not slow" and any("::" in arg for arg in config.args):
        config.option.markexpr = ""
    os.environ[CONFIG_VARIABLE] = ""  # whoever runs the tests may have defaults of their own
    # Whoever was put into the background by a shell ignores Ctrl-C, under nohup also SIGHUP, and so
    # would the programs that tests start and end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    has_cache = config.pluginmanager.has_plugin("cacheprovider")
    if has_cache and sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
        # Workers and the hundreds of programs that tests start would compile every module again.
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))
        del os.environ["PYTHONDONTWRITEBYTECODE"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker compile other test files first, and read what the others have compiled.

    Compiling their assertions takes most of the time before the first test.
    """
    worker = getattr(session.config, "workerinput", None)
    folder = Path(__file__).parent
    if worker is None or [Path(arg).resolve() for arg in session.config.args] != [folder]:
        return
    gc.disable()  # a fifth of the time; what is made here is kept
    paths = sorted(folder.rglob("test_*.py"))
    first = int(worker["workerid"].removeprefix("gw")) * len(paths) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        # Whatever a file raises, collecting it will report.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives as long as the session: thousands of tests."""
    gc.freeze()
    gc.set_threshold(10_000)  # rarer than usual, which takes 2 % of the time
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let workers report a test that passes once rather than five times.

    Of the other messages, ``--durations`` alone has a use.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: a third of the tests' time is spent waiting for programs."""
    cores = usable_cores()
    return cores + cores // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker neighbours, which share fixtures; idle workers take tests of others."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.option.dist == "load" else None


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of synthesised clips for the whole session."""
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="session", autouse=True)
def typed_operations() -> Iterator[None]:
    """Compare arguments of operations with their sources, as no type checker does for arrays."""
    from bgsoft.ops.placement import HOST
    from tests.signatures import checked

    untyped = type(HOST).operation

    def operation(
        self: Placement, file: str, name: str, *, sample_bits: int = 8, **how: Any
    ) -> Operation:
        made = untyped(self, file, name, sample_bits=sample_bits, **how)
        return checked(made, file, name, sample_bits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(HOST), "operation", operation)
        yield


@pytest.fixture(scope="session", autouse=True)
def usual_priority() -> Iterator[None]:
    """Keep commands from lowering the priority of this process, which outlives them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bgsoft.threads.use_batch_scheduling", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_sessions() -> Iterator[None]:
    """Load each of bgsoft's models once for all tests; sessions have no state between runs."""
    from bgsoft.infer import cpu
    from bgsoft.models.catalog import EMBEDDED

    load = cpu._session
    kept: dict[Any, Any] = {}

    def session(path: Path, shapes: Any, constants: Any, threads: int) -> Any:
        if path.parent != EMBEDDED:
            return load(path, shapes, constants, threads)
        # Tests that replace ONNX Runtime's class get sessions of that class.
        key = cpu.ort.InferenceSession, repr((path.name, shapes, constants, threads))
        if key not in kept:
            kept[key] = load(path, shapes, constants, threads)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "_session", session)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Make skips failures with BGSOFT_REQUIRE_GPU=1 or BGSOFT_REQUIRE_RAY=1.

    Tests that want a second GPU, or to mount file systems, may still be skipped.
    """
    report = yield
    for name in ("gpu", "ray"):
        switch = f"BGSOFT_REQUIRE_{name.upper()}"
        marker = item.get_closest_marker(name)
        asks_more = marker and (marker.kwargs.get("devices", 1) > 1 or marker.kwargs.get("mounts"))
        if report.skipped and marker and not asks_more and os.environ.get(switch) == "1":
            report.outcome = "failed"
            report.longrepr = f"skipped although {switch}=1: {report.longrepr}"
    return report
