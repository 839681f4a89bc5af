"""The state file, and how later runs use it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bgsoft.batch.decide import Act, Decision, agree, decide
from bgsoft.batch.find import Found
from bgsoft.batch.job import BatchJob, JobFactory
from bgsoft.batch.run import kept_files_text
from bgsoft.batch.state import STATE_NAME, BatchState, Entry, FileState, describe
from bgsoft.errors import ConfigError, OutputError
from bgsoft.outputs import note_receipt
from bgsoft.part_names import hidden_parts, with_token
from bgsoft.settings.config import EffectKind, HideStyle

DATA = bytes(range(256)) * 40


class World:
    """An input folder, an output folder, and a batch from one to the other."""

    def __init__(self, top: Path) -> None:
        self.inputs, self.folder = top / "in", top / "out"
        self.inputs.mkdir()
        self.folder.mkdir()
        self.preset = "soft"
        for name in "abc":
            (self.inputs / f"{name}.mp4").write_bytes(name.encode())

    def jobs(self, **flags: Any) -> list[BatchJob]:
        job_factory = JobFactory(
            self.folder, name="{stem}{suffix}", preset=self.preset, flags=flags
        )
        return job_factory.plan(Found(path, Path()) for path in sorted(self.inputs.iterdir()))

    def leave(self, states: dict[str, FileState] | None = None, **flags: Any) -> None:
        """Write the state of an earlier run: ``a`` to ``c``, done unless ``states`` differ."""
        with BatchState(self.folder) as state:
            state.begin(decide(job, state, resume=True).entry for job in self.jobs(**flags))
            for job in self.jobs(**flags):
                entry = state.entries[Path(job.config.output.name)]
                entry.state = (states or {}).get(job.config.input.stem, FileState.DONE)
                entry.made_from = job.made_from(self.folder)
                if entry.state is FileState.DONE:
                    for path in job.files:
                        path.write_bytes(path.name.encode() + DATA)
                        entry.files[path.name] = describe(path)
                state.put(entry)

    def decided(self, *, resume: bool = True, **flags: Any) -> dict[str, Decision]:
        with BatchState(self.folder, read_only=True) as state:
            found = [decide(job, state, resume=resume) for job in self.jobs(**flags)]
        return {each.job.config.input.stem: each for each in found}

    def left(self, *, resume: bool = True, **flags: Any) -> str:
        """Begin a run, and return the files that it would render."""
        top = flags.get("", {})
        replace_unusable = top.get("overwrite", False) or top.get("skip_existing", False)
        with BatchState(self.folder, replace_unusable=replace_unusable) as state:
            decisions = [decide(job, state, resume=resume) for job in self.jobs(**flags)]
            agree(decisions, state, resume=resume)
            state.begin(decision.entry for decision in decisions)
            assert len(state.current) == len(list(self.inputs.iterdir()))
        return "".join(
            decision.job.config.input.stem for decision in decisions if decision.act is Act.RENDER
        )


OVERWRITE: dict[str, Any] = {"": {"overwrite": True}}
SKIP: dict[str, Any] = {"": {"skip_existing": True}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_resume_does_what_is_not_done(world: World) -> None:
    world.leave({"b": FileState.FAILED, "c": FileState.RUNNING})
    assert world.decided()["b"].reason == "failed before"
    assert world.left() == "bc"
    (world.inputs / "d.mp4").write_bytes(b"new")
    assert world.left() == "bcd"


def test_an_unfinished_batch_is_not_taken_for_a_new_one(world: World) -> None:
    world.leave({"b": FileState.WAITING, "c": FileState.FAILED})
    with pytest.raises(ConfigError, match=r"2 of 3 files left\); continue it with --resume"):
        world.left(resume=False)
    assert world.left(resume=False, **OVERWRITE) == "abc"
    assert world.left(resume=False, **SKIP) == "bc"


def test_outputs_of_somebody_else_are_an_error_before_any_work(world: World) -> None:
    (world.folder / "b.mp4").write_bytes(b"mine")
    for resume in (False, True):
        with pytest.raises(OutputError, match=r"b\.mp4 exists.*; use --skip-existing or --over"):
            world.left(resume=resume)
    assert names(world.folder) == ["b.mp4"]
    world.leave({"b": FileState.WAITING})
    with pytest.raises(OutputError, match=r"b\.mp4 exists, and was not made by this batch"):
        world.left()
    assert world.left(**SKIP) == ""
    with pytest.raises(OutputError, match="not made by this batch"):
        world.left()  # left alone is not made
    assert world.left(**OVERWRITE) == "b"


def changed_input(world: World) -> dict[str, Any]:
    (world.inputs / "a.mp4").write_bytes(b"another")
    return {}


def touched_input(world: World) -> dict[str, Any]:
    os.utime(world.inputs / "a.mp4", ns=(1, 1))
    return {}


def lost_output(world: World) -> dict[str, Any]:
    (world.folder / "a.mp4").unlink()
    return {}


def cut_output(world: World) -> dict[str, Any]:
    os.truncate(world.folder / "a.mp4", 5000)
    return {}


def emptied_output(world: World) -> dict[str, Any]:
    (world.folder / "a.mp4").write_bytes(b"")
    return {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_input, "its input has changed"),
        (touched_input, "its input has changed"),
        (lost_output, "a.mp4 is missing"),
        (cut_output, "a.mp4 is cut off"),
        (emptied_output, "a.mp4 is cut off"),
    ],
)
def test_what_has_changed_is_rendered_again_over_its_own_output(
    world: World, change: Callable[[World], dict[str, Any]], reason: str
) -> None:
    world.leave()
    assert world.left() == ""
    change(world)
    decision = world.decided()["a"]
    assert decision.act is Act.RENDER
    assert decision.reason.endswith(reason)
    assert decision.replaces is (change is not lost_output)
    assert world.left() == "a"
    assert world.left() == "a"  # until it has been rendered


@pytest.mark.parametrize("data", [b"mine", DATA, b"a.mp4" + DATA + b"more", b"a.mp4" + DATA])
def test_what_somebody_else_has_put_there_is_not_replaced(world: World, data: bytes) -> None:
    """Even if it is only shorter or newer."""
    world.leave()
    (world.folder / "a.mp4").write_bytes(data)
    os.utime(world.folder / "a.mp4", ns=(1, 1))
    with pytest.raises(OutputError, match=r"a\.mp4 was changed or replaced by somebody else"):
        world.left()
    assert world.left(**SKIP) == ""
    with pytest.raises(OutputError, match=r"a\.mp4 was changed or replaced by somebody else"):
        world.left()
    assert world.left(**OVERWRITE) == "a"


def test_files_next_to_the_output_count(world: World) -> None:
    flags = {
        "": {"matte_out": "{stem}-matte.mkv", "face_data": "{stem}.jsonl", "trace": "{stem}.t"}
    }
    world.leave(**flags)
    assert world.left(**flags) == ""
    os.truncate(world.folder / "a-matte.mkv", 7)
    (world.folder / "b.jsonl").unlink()
    (world.folder / "c.t").unlink()
    reasons = [each.reason for each in world.decided(**flags).values()]
    assert [reason.partition("/out/")[2] for reason in reasons] == [
        "a-matte.mkv is cut off",
        "b.jsonl is missing",
        "c.t is missing",
    ]
    (world.folder / "b.jsonl").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"b\.jsonl was changed or replaced by somebody else"):
        world.left(**flags)


def test_a_trace_is_no_part_of_the_result(world: World) -> None:
    world.leave()
    assert world.left(**{"": {"trace": "{stem}.json"}}) == ""


def test_other_settings_are_other_files(world: World, tmp_path: Path) -> None:
    world.leave()
    assert world.decided(matte={"feather_pct": 4.0})["a"].reason == "matte.feather_pct has changed"
    assert world.left(backends={"threads": 1}) == ""
    assert world.left(matte={"feather_pct": 4.0}) == "abc"
    (tmp_path / "own.toml").write_text('extends = "soft"')
    world.preset = str(tmp_path / "own.toml")
    world.leave()
    assert world.left() == ""
    (tmp_path / "own.toml").write_text('extends = "soft"\n[effect]\nstrength = 4.0')
    assert world.decided()["a"].reason == "effect.strength has changed"
    assert world.left() == "abc"


def test_another_background_under_the_same_name(world: World, tmp_path: Path) -> None:
    picture = tmp_path / "beach.png"
    picture.write_bytes(b"sea")
    flags = {"effect": {"kind": EffectKind.IMAGE, "background": str(picture)}}
    world.leave(**flags)
    os.utime(picture, ns=(1, 1))
    assert world.left(**flags) == ""
    picture.rename(tmp_path / "sea.png")
    moved = {"effect": {"kind": EffectKind.IMAGE, "background": str(tmp_path / "sea.png")}}
    assert world.left(**moved) == ""
    picture.write_bytes(b"sky")
    assert world.decided(**flags)["a"].reason == "the background has changed"


def test_edited_faces_are_other_faces(world: World, tmp_path: Path) -> None:
    faces = tmp_path / "faces.jsonl"
    faces.write_text("one")
    flags = {"face": {"file": str(faces)}}
    world.leave(**flags)
    assert world.left(**flags) == ""
    faces.write_text("other")
    assert world.decided(**flags)["a"].reason == "the faces file has changed"


def test_edited_pictures_of_a_matte_are_another_matte(world: World, tmp_path: Path) -> None:
    pictures = tmp_path / "mattes"
    pictures.mkdir()
    for number in (1, 2):
        (pictures / f"{number}.png").write_bytes(b"one")
    for name in (pictures, pictures / "%d.png"):
        flags = {"segment": {"matte_in": str(name)}}
        world.leave(**flags)
        assert world.left(**flags) == ""
        (pictures / "2.png").write_bytes((pictures / "2.png").read_bytes() + b"more")
        assert world.decided(**flags)["a"].reason == "the matte has changed"


def test_each_video_has_its_own_matte(world: World) -> None:
    found = world.decided(segment={"matte_in": "{stem}-matte.mkv"})
    files = {stem: each.job.config.segment.matte_in for stem, each in found.items()}
    assert files == {stem: str(world.inputs / f"{stem}-matte.mkv") for stem in "abc"}
    with pytest.raises(ConfigError, match="leads out of"):
        world.jobs(segment={"matte_in": "../{stem}.mkv"})


def test_regions_next_to_a_video_are_its_own(world: World, tmp_path: Path) -> None:
    regions = world.inputs / "b.regions.toml"
    regions.write_text('[[region]]\naction = "keep"\nbox = "0,0,9,9"\n')

    def decided(**flags: Any) -> dict[str, Decision]:
        job_factory = JobFactory(world.folder, name="{stem}{suffix}", preset="soft", flags=flags)
        jobs = job_factory.plan(Found(path, Path()) for path in sorted(world.inputs.glob("*.mp4")))
        with BatchState(world.folder, read_only=True) as state:
            return {job.config.input.stem: decide(job, state, resume=True) for job in jobs}

    files = {stem: each.job.config.regions.file for stem, each in decided().items()}
    assert files == {"a": None, "b": str(regions), "c": None}
    given = str(tmp_path / "given.toml")
    files = {s: d.job.config.regions.file for s, d in decided(regions={"file": given}).items()}
    assert set(files.values()) == {given}
    regions.rename(tmp_path / "aside.toml")
    world.leave()
    (tmp_path / "aside.toml").rename(regions)
    found = decided()
    assert found["a"].act is not Act.RENDER
    assert found["b"].act is Act.RENDER
    assert found["b"].reason == "the regions file has changed"
    world.jobs(hide={"style": HideStyle.SOLID})
    regions.unlink()
    with pytest.raises(ConfigError, match="cannot use --anonymize-style"):
        world.jobs(hide={"style": HideStyle.SOLID})


def test_an_output_that_was_skipped_is_not_taken_for_one_of_these_settings(world: World) -> None:
    world.leave()
    other: dict[str, Any] = {"matte": {"feather_pct": 4.0}}
    assert world.left(resume=False, **other, **SKIP) == ""
    assert world.left(**other) == "abc"
    world.leave()
    assert world.left(resume=False, **SKIP) == ""
    assert world.left() == ""  # made with these


def test_the_output_of_another_video_is_not_replaced(world: World) -> None:
    world.leave()
    world.inputs = world.inputs.rename(world.inputs.with_name("moved"))
    assert world.left() == ""
    world.inputs = Path(shutil.copytree(world.inputs, world.inputs.with_name("others")))
    for path in world.inputs.iterdir():
        path.write_bytes(b"another video")
    with pytest.raises(OutputError, match=r"was made from another video, .*moved/a\.mp4 \(and 2"):
        world.left()
    assert world.left(**OVERWRITE) == "abc"


def test_files_that_a_run_leaves_out_are_not_forgotten(world: World) -> None:
    world.leave()
    (world.inputs / "b.mp4").rename(world.inputs.with_name("b.mp4"))
    (world.inputs / "c.mp4").rename(world.inputs.with_name("c.mp4"))
    assert world.left() == ""
    for name in ("b.mp4", "c.mp4"):
        world.inputs.with_name(name).rename(world.inputs / name)
    assert world.left() == ""


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_batch_that_was_killed(world: World, published: bool, before: bool) -> None:
    """A file whose output is complete is done; older and later outputs do not count."""
    world.leave({} if before else {"a": FileState.WAITING})
    output = world.folder / "a.mp4"
    with BatchState(world.folder) as state:
        entry = state.entries[Path("a.mp4")]
        entry.state, entry.made_from = FileState.RUNNING, {**entry.made_from, "input": "1:1"}
        state.put(entry)
        part = world.folder / ".part"
        part.write_bytes(b"new")
        note_receipt(state.receipt(entry), output, part)
        if published:
            part.replace(output)
        else:
            part.unlink()
    assert world.decided()["a"].reason == ("its input has changed" if published else "not done yet")
    if not published and not before:
        output.write_bytes(b"somebody else's")
        with pytest.raises(OutputError, match=r"a\.mp4 exists, and was not made by this batch"):
            world.left()
    else:
        assert world.left() == "a"
    with BatchState(world.folder) as state:
        assert not state.receipt(entry).exists()


def test_mattes_and_faces_of_a_killed_batch_that_are_no_longer_asked_for(world: World) -> None:
    flags = {"": {"matte_out": "{stem}-matte.mkv", "face_data": "{stem}.jsonl"}}
    world.leave({"c": FileState.RUNNING}, **flags)
    targets = [world.folder / name for name in ("c-matte.mkv", "c.jsonl")]
    matte, faces = (with_token(each, *hidden_parts(each, each.suffix)) for each in targets)
    matte.write_bytes(b"half")
    faces.write_bytes(b"half")
    decisions = [*world.decided().values()]
    assert kept_files_text(decisions, world.folder) == (
        "files made with earlier settings are kept: a-matte.mkv and 3 more"
    )
    assert world.left() == "abc"
    assert not matte.exists()
    assert not faces.exists()
    assert (world.folder / "c.partial.jsonl").read_bytes() == b"half"
    assert kept_files_text([*world.decided(**flags).values()], world.folder) is None


def test_files_of_two_batches_share_neither_number_nor_receipt(tmp_path: Path) -> None:
    entries = [Entry(output=Path(name), input=Path("/in", name), number=1) for name in ("x", "y")]
    with BatchState(tmp_path) as state:
        for entry in entries:
            state.begin([entry])
        assert state.receipt(entries[0]) != state.receipt(entries[1])
        assert state.numbers == {Path("/in/y"): 1}


def test_an_input_keeps_the_number_of_the_last_batch(tmp_path: Path) -> None:
    def entry(output: str, input: str, number: int) -> Entry:
        return Entry(output=Path(output), input=Path("/in", input), number=number)

    with BatchState(tmp_path) as state:
        state.begin([entry("1", "a", 1), entry("2", "b", 2)])
        state.begin([entry("x1", "b", 1)])
        assert state.numbers == {Path("/in/b"): 1}


def test_what_is_as_a_batch_has_left_it_is_its_own(tmp_path: Path) -> None:
    made = Entry(output=Path("x"), input=Path("/in/x"), number=1)
    for name in ("x", "changed", "gone"):
        (tmp_path / name).write_text(name)
        made.files[name] = describe(tmp_path / name)
    (tmp_path / "changed").write_text("by somebody")
    (tmp_path / "gone").unlink()
    with BatchState(tmp_path) as state:
        state.begin([made])
        assert state.own == {tmp_path / "x"}


def test_names_that_are_no_utf8_are_kept(world: World) -> None:
    name = os.fsdecode(b"caf\xe9 \xff.mp4")
    (world.inputs / name).write_bytes(b"x")
    with BatchState(world.folder) as state:
        state.begin(decide(job, state, resume=False).entry for job in world.jobs())
        failed = state.entries[Path(name)]
        failed.reason = f"{name} is no video"
        state.put(failed)
    with BatchState(world.folder) as state:
        assert state.entries[Path(name)].input == world.inputs / name
        assert state.entries[Path(name)].reason == failed.reason


def test_it_is_sqlite_that_others_can_read(world: World) -> None:
    with BatchState(world.folder) as state:
        state.begin(decide(job, state, resume=False).entry for job in world.jobs())
        database = sqlite3.connect(world.folder / STATE_NAME)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        rows = database.execute("SELECT output, state FROM files ORDER BY number").fetchall()
        database.close()
    assert rows == [(f"{name}.mp4", "waiting") for name in "abc"]
    assert names(world.folder) == [STATE_NAME]


def test_one_batch_at_a_time(world: World) -> None:
    with BatchState(world.folder), pytest.raises(OutputError, match="another batch is using it"):
        BatchState(world.folder, wait_seconds=0.0)
    BatchState(world.folder).close()
    assert names(world.folder) == []


def foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE songs (name)")
    database.close()


def earlier(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE files (output PRIMARY KEY, input)")
    database.execute("PRAGMA user_version = 1")
    database.close()


def later(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


def with_value(column: str, value: object) -> Callable[[Path], None]:
    """A state file whose one entry has another value in a column."""

    def make(path: Path) -> None:
        with BatchState(path.parent) as state:
            state.begin([Entry(output=Path("a"), input=Path("/b"), number=1)])
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"UPDATE files SET {column} = ?", (value,))

    return make


MALFORMED = [
    *(("state", "lost"), ("made_from", "[]"), ("made_from", '{"a": 3}'), ("files", "3")),
    *(("files", '{"../../a": ["1:2", ""]}'), ("files", '{"a": [1, 2]}'), ("files", "[" * 10**5)),
    *(("output", "../up"), ("output", "/etc/x"), ("input", "a\0b"), ("input", None)),
    *(("number", "x"), ("attempts", None), ("started_at", "noon"), ("report", "{"), ("reason", 3)),
]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b"no database, but long enough for one" * 99), "damaged"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (foreign, "not written by bgsoft"),
        *((with_value(*each), "is damaged") for each in MALFORMED),
        (earlier, "an earlier version"),
        (later, "a later version"),
    ],
)
def test_a_state_file_that_cannot_be_used(
    world: World, make: Callable[[Path], object], problem: str
) -> None:
    path = world.folder / STATE_NAME
    make(path)
    for resume in (False, True):
        with pytest.raises(OutputError, match=rf"{problem}.*; start over with --overwrite, or kee"):
            world.left(resume=resume)
    (world.folder / "b.mp4").write_bytes(b"x")
    data = path.read_bytes()
    for flags, left in ((SKIP, "ac"), (OVERWRITE, "abc")):
        path.write_bytes(data)
        assert world.left(resume=False, **flags) == left
        with BatchState(world.folder) as state:
            assert len(state.current) == 3
    assert names(world.folder) == [STATE_NAME, "b.mp4"]


def written(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """The files of a folder, and what writing to them would change; reading may change more."""
    stats = {path: path.stat() for path in folder.iterdir()}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def test_a_look_writes_nothing(world: World) -> None:
    world.leave({"b": FileState.RUNNING})
    before = written(world.folder)
    assert {name: each.act.value for name, each in world.decided().items()} == {
        "a": "skip",
        "b": "render",
        "c": "skip",
    }
    assert written(world.folder) == before
    with BatchState(world.folder / "gone", read_only=True) as state:
        assert state.entries == {}
    assert not (world.folder / "gone").exists()
