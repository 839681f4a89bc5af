"""The state file, and what a later run makes of it."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bgsoft.batch import state as state_module
from bgsoft.batch.find import Found
from bgsoft.batch.job import BatchJob, Planner
from bgsoft.batch.run import agree
from bgsoft.batch.state import STATE_NAME, FileState, State, signature
from bgsoft.errors import ConfigError, OutputError


class World:
    """An input folder, an output folder, and a batch from one to the other."""

    def __init__(self, top: Path) -> None:
        self.inputs, self.folder = top / "in", top / "out"
        self.inputs.mkdir()
        self.folder.mkdir()
        for name in "abc":
            (self.inputs / f"{name}.mp4").write_bytes(name.encode())

    def jobs(self, **flags: Any) -> list[BatchJob]:
        planner = Planner(
            self.folder, name="{stem}{suffix}", preset="soft", flags=flags, numbers={}
        )
        return planner.plan(Found(path, Path()) for path in sorted(self.inputs.iterdir()))

    def leave(self, **states: FileState) -> None:
        """Be what an earlier run left; done files have outputs."""
        with State(self.folder) as state:
            agree(self.jobs(), state, self.folder, resume=True)
            for name, kind in states.items():
                entry = replace(state.entries[Path(f"{name}.mp4")], state=kind)
                state.put(entry)
                if kind.is_settled:
                    (self.folder / f"{name}.mp4").write_bytes(b"out")

    def left(self, *, resume: bool = True, **flags: Any) -> str:
        with State(self.folder) as state:
            jobs = agree(self.jobs(**flags), state, self.folder, resume=resume)
            assert len(state.entries) == len(list(self.inputs.iterdir()))
        return "".join(job.config.input.stem for job in jobs)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_resume_does_what_is_not_done(world: World) -> None:
    world.leave(a=FileState.DONE, b=FileState.FAILED, c=FileState.RUNNING)
    assert world.left() == "bc"
    (world.inputs / "d.mp4").write_bytes(b"new")
    assert world.left() == "bcd"


def test_an_unfinished_batch_is_not_taken_for_a_new_one(world: World) -> None:
    world.leave(a=FileState.DONE)
    with pytest.raises(ConfigError, match="2 of 3 files are left: go on with --resume"):
        world.left(resume=False)
    assert world.left(resume=False, **{"": {"overwrite": True}}) == "abc"
    assert world.left(resume=False, **{"": {"skip_existing": True}}) == "bc"


def test_outputs_of_somebody_else_are_an_error_before_any_work(world: World) -> None:
    (world.folder / "b.mp4").write_bytes(b"mine")
    for resume in (False, True):
        with pytest.raises(OutputError, match=r"1 output exists already, e\.g\. .*b\.mp4"):
            world.left(resume=resume)
    assert names(world.folder) == ["b.mp4"]


def test_a_file_whose_output_is_gone_or_whose_input_has_changed_is_rendered_anew(
    world: World,
) -> None:
    world.leave(a=FileState.DONE, b=FileState.DONE, c=FileState.DONE)
    assert world.left() == ""
    (world.folder / "a.mp4").unlink()
    assert world.left() == "a"
    (world.inputs / "b.mp4").write_bytes(b"another")
    assert world.left(**{"": {"overwrite": True}}) == "ab"


def test_other_settings_are_other_files(world: World) -> None:
    world.leave(a=FileState.DONE, b=FileState.DONE, c=FileState.DONE)
    with pytest.raises(OutputError, match="3 outputs exist"):
        world.left(matte={"feather_pct": 4.0})
    assert world.left(backends={"threads": 1}) == ""


def test_a_file_that_was_whole_when_its_batch_was_killed_is_done(world: World) -> None:
    world.leave()
    for name in "ab":
        with State(world.folder) as state:
            entry = state.entries[Path(f"{name}.mp4")]
            state.put(replace(entry, state=FileState.RUNNING, before=signature(Path("gone"))))
    (world.folder / "a.mp4").write_bytes(b"whole")
    assert world.left() == "bc"


def test_a_file_that_was_to_be_replaced_and_was_not_is_not_done(world: World) -> None:
    world.leave()
    (world.folder / "a.mp4").write_bytes(b"old")
    with State(world.folder) as state:
        before = signature(world.folder / "a.mp4")
        entry = state.entries[Path("a.mp4")]
        state.put(replace(entry, state=FileState.RUNNING, before=before))
    assert world.left(**{"": {"overwrite": True}}) == "abc"


def test_names_that_are_no_utf8_are_kept(world: World) -> None:
    name = os.fsdecode(b"caf\xe9 \xff.mp4")
    (world.inputs / name).write_bytes(b"x")
    with State(world.folder) as state:
        agree(world.jobs(), state, world.folder, resume=False)
    with State(world.folder) as state:
        assert state.entries[Path(name)].input == world.inputs / name


def test_it_is_sqlite_that_others_can_read(world: World) -> None:
    with State(world.folder) as state:
        agree(world.jobs(), state, world.folder, resume=False)
        database = sqlite3.connect(world.folder / STATE_NAME)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        rows = database.execute("SELECT output, state FROM files ORDER BY number").fetchall()
        database.close()
    assert rows == [(f"{name}.mp4", "waiting") for name in "abc"]
    assert names(world.folder) == [STATE_NAME]


def test_one_batch_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "LEAVE_SECONDS", -1.0)
    with State(world.folder), pytest.raises(ConfigError, match="another batch is at work"):
        State(world.folder)
    State(world.folder).close()
    assert names(world.folder) == []


@pytest.mark.parametrize("data", [b"not a database, but long enough to look like one" * 99, b""])
def test_a_damaged_state_file(world: World, data: bytes) -> None:
    (world.folder / STATE_NAME).write_bytes(data)
    if data:
        with pytest.raises(OutputError, match=r"cannot use .*not a database"):
            State(world.folder)
    else:
        assert world.left(resume=False) == "abc"


def test_a_state_file_of_another_version(world: World) -> None:
    with State(world.folder) as state:
        agree(world.jobs(), state, world.folder, resume=False)
    database = sqlite3.connect(world.folder / STATE_NAME)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(OutputError, match="another version"):
        State(world.folder)
