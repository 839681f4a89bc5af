"""The inputs of a batch and the names of its outputs."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bgsoft.batch.find import Found, find, passed_over_text, read_list
from bgsoft.batch.job import JobFactory, expand
from bgsoft.batch.watch import is_being_written
from bgsoft.errors import ConfigError, OpenError
from bgsoft.models.catalog import resolve
from tests.hostile.data import SIDECAR
from tests.hostile.models import ones
from tests.permissions import closed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "in"
    for name in (
        *("b.mp4", "a.MOV", "notes.txt", ".hidden.mp4", "no ending"),
        *("2024/may/c.mkv", "2024/d [1].avi", ".trash/e.mp4", "out/f.mp4"),
    ):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return top


def names(top: Path, *sources: str) -> list[tuple[str, str]]:
    found = find(sources, leave_out=top / "out")
    return [(str(each.path.relative_to(top)), str(each.folder)) for each in found]


def test_a_folder_is_searched_to_the_bottom(tree: Path) -> None:
    assert names(tree, str(tree)) == [
        ("a.MOV", "."),
        ("b.mp4", "."),
        ("2024/d [1].avi", "2024"),
        ("2024/may/c.mkv", "2024/may"),
    ]


def test_a_named_file_is_taken_also_where_its_folder_is_named_before(tree: Path) -> None:
    sources = [str(tree), str(tree / "notes.txt"), str(tree / "b.mp4")]
    found = {each.path.name: each.is_named for each in find(sources, leave_out=tree, named=sources)}
    taken = {name for name, is_named in found.items() if is_named}
    assert (taken, len(found)) == ({"notes.txt", "b.mp4"}, 6)


def test_what_is_passed_over_in_folders_is_counted(tree: Path) -> None:
    for name in ("x.CR3", "2024/y.cr3", "2024/z.xyz", "out/w.cr3", ".cr3"):
        (tree / name).write_bytes(b"x")
    counted: Counter[str] = Counter()
    sources = [str(tree), str(tree / "2024"), str(tree / "notes.txt")]
    options = {"leave_out": tree / "out", "exclude": ["*.xyz"], "passed_over": counted}
    assert len(list(find(sources, **options))) == 4  # the notes were counted before
    assert counted == {".cr3": 2, ".txt": 1, "": 1}
    text = "4 files ignored, not named like videos or pictures: 2 .cr3, 1 .txt, 1 without suffix"
    assert sorted(passed_over_text(counted)) == sorted(text)


def test_linked_folders_are_counted(tree: Path) -> None:
    (tree / "2024" / "more.mp4").symlink_to(tree.parent)
    counted: Counter[str] = Counter()
    sources = [str(tree / "2024")]
    assert len(list(find(sources, leave_out=tree / "out", passed_over=counted))) == 2
    assert passed_over_text(counted) == "1 linked folder not searched"
    counted[".txt"] = 2
    assert passed_over_text(counted).endswith(": 2 .txt; 1 linked folder not searched")


def test_a_folder_that_may_not_be_read_is_an_error_and_counted_below(tree: Path) -> None:
    may, counted = tree / "2024" / "may", Counter[str]()
    with closed(may):
        for source in (tree / "2024", f"{tree}/*"):
            found = find([str(source)], leave_out=tree / "out", passed_over=counted)
            assert "d [1].avi" in [each.path.name for each in found]
            assert counted["unreadable folder"] == 1
            counted.clear()
        excluded = list(
            find([str(tree)], leave_out=tree / "out", exclude=["may"], passed_over=counted)
        )
        assert len(excluded) == 3
        assert "unreadable folder" not in counted
        for source in (may, may / "c.mkv", may / "*.mkv"):
            with pytest.raises(OpenError, match=r"(search|find) .*may.*: Permission denied"):
                list(find([str(source)], leave_out=tree / "out"))
    with closed(tree / "2024", 0o400):  # names may be read, nothing else
        for source in (tree / "2024", tree / "*/*"):
            found = find([str(source)], leave_out=tree / "out", passed_over=counted)
            assert "d [1].avi" in [each.path.name for each in found]
        assert counted["unreadable folder"] == 1
    counted = Counter({"unreadable folder": 2, "linked folder": 1, ".txt": 1})
    text = passed_over_text(counted)
    assert text.endswith("1 .txt; 1 linked folder not searched; 2 unreadable folders not searched")


def test_regions_of_videos_are_not_ignored_files(tree: Path) -> None:
    for name in ("b.regions.toml", "2024/d [1].regions.toml", "2024/b.regions.toml", "x.toml"):
        (tree / name).write_bytes(b"x")
    counted: Counter[str] = Counter()
    assert len(list(find([str(tree)], leave_out=tree / "out", passed_over=counted))) == 4
    assert counted == {".toml": 2, ".txt": 1, "": 1}  # one of no video in its folder


def test_patterns_files_and_folders_together_each_file_once(tree: Path) -> None:
    sources = (f"{tree}/**/*.mkv", str(tree / "2024"), str(tree / "notes.txt"))
    assert names(tree, *sources) == [
        ("2024/may/c.mkv", "."),
        ("2024/d [1].avi", "."),
        ("notes.txt", "."),
    ]


def test_a_name_with_brackets_is_no_pattern(tree: Path) -> None:
    assert names(tree, str(tree / "2024" / "d [1].avi")) == [("2024/d [1].avi", ".")]


@pytest.mark.parametrize("source", ["gone.mp4 ", "gone/*.mp4 "])
def test_what_is_not_there_is_an_error(tmp_path: Path, source: str) -> None:
    with pytest.raises(OpenError, match=r"gone.* ': no"):
        list(find([str(tmp_path / source)], leave_out=tmp_path / "out"))


@pytest.mark.parametrize(
    "data",
    [
        b"a.mp4\n\nb \xff.mp4\r\n",
        b"a.mp4\0b \xff.mp4\0",
        b"\xef\xbb\xbfa.mp4\n# a comment\nb \xff.mp4\n",
    ],
)
@pytest.mark.parametrize("standard", [False, True])
def test_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, standard: bool
) -> None:
    (tmp_path / "list").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    read = read_list("-" if standard else str(tmp_path / "list"))
    assert read == ["a.mp4", os.fsdecode(b"b \xff.mp4")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_list_of_a_windows_shell(tmp_path: Path, encoding: str) -> None:
    text = "über.mp4\r\n#not this.mp4\r\n./#this.mp4\r\n"
    (tmp_path / "list").write_bytes(text.encode(encoding))
    assert read_list(str(tmp_path / "list")) == ["über.mp4", "./#this.mp4"]


def test_names_that_end_in_zero_bytes_are_no_comments(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"#1.mp4\0a.mp4\0")
    assert read_list(str(tmp_path / "list")) == ["#1.mp4", "a.mp4"]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["*.mkv", "2024/d*"], ["a.MOV", "b.mp4"]),
        (["2024"], ["a.MOV", "b.mp4"]),
        (["may/", "**/a.*"], ["b.mp4", "2024/d [1].avi"]),
        (["2024/may"], ["a.MOV", "b.mp4", "2024/d [1].avi"]),
        (["d [[]1].avi", "A.mov", "2024/m"], ["a.MOV", "b.mp4", "2024/may/c.mkv"]),
    ],
)
def test_what_is_excluded(tree: Path, patterns: list[str], left: list[str]) -> None:
    found = find([str(tree)], leave_out=tree / "out", exclude=patterns)
    assert [str(each.path.relative_to(tree)) for each in found] == left


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read list"):
        read_list(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{stem}{suffix}", "may/holiday.mp4"),
        ("{stem}-soft.mkv", "may/holiday-soft.mkv"),
        ("{index:03}.mp4", "may/007.mp4"),
        ("{parent}-{stem}.mp4", "may-holiday.mp4"),
        ("all/{stem}.mp4", "may/all/holiday.mp4"),
        ("{{{stem}}}.mp4", "may/{holiday}.mp4"),
    ],
)
def test_templates(template: str, name: str) -> None:
    assert expand(template, Found(Path("x/may/holiday.mp4"), Path("may")), 7) == Path(name)


def test_a_kind_that_is_not_written_becomes_matroska() -> None:
    assert expand("{stem}{suffix}", Found(Path("a.wmv"), Path()), 1) == Path("a.mkv")
    assert expand("{stem}{suffix}", Found(Path("a.MOV"), Path()), 1) == Path("a.MOV")


@pytest.mark.parametrize(
    "template",
    [
        *("{stm}.mp4", "{stem.__class__}.mp4", "{stem", "{}.mp4", "../{stem}.mp4", "/tmp/a.mp4"),
        *(".", "{index:256}.mp4", "{index:999999999999}.mp4", "{stem:{index}99999999999}.mp4"),
    ],
)
def test_bad_templates(template: str) -> None:
    with pytest.raises(ConfigError):
        expand(template, Found(Path("a.mp4"), Path()), 1)


def job_factory(folder: Path, **changes: Any) -> JobFactory:
    values: dict[str, Any] = {"name": "{stem}{suffix}", "preset": "soft", "flags": {}}
    return JobFactory(folder, **{**values, **changes})


def test_two_files_of_one_name_are_an_error_before_any_work(tmp_path: Path) -> None:
    found = [Found(Path("x/a.mp4"), Path()), Found(Path("y/a.mp4"), Path())]
    with pytest.raises(ConfigError, match=r"y/a.mp4: its output .* that of .*x/a.mp4; .* --name,"):
        job_factory(tmp_path).plan(found)
    flags = {"": {"matte_out": Path("matte.mkv")}}
    with pytest.raises(ConfigError, match=r"matte\.mkv is .* with --matte-out, by {stem}"):
        job_factory(tmp_path, name="{index}.mp4", flags=flags).plan(found)


def test_files_next_to_the_output_have_names_of_their_own(tmp_path: Path) -> None:
    flags = {"": {"matte_out": Path("{stem}-matte.mkv"), "trace": Path("t/{index}.json")}}
    (job,) = job_factory(tmp_path, flags=flags).plan([Found(Path("x/a.mp4"), Path("x"))])
    assert job.config.matte_out == tmp_path / "x" / "a-matte.mkv"
    assert job.config.trace == tmp_path / "x" / "t" / "1.json"


def test_outputs_are_no_inputs(tmp_path: Path) -> None:
    """In a second run over a folder with both."""
    found = [Found(tmp_path / name, Path()) for name in ("a-soft.mp4", "a.mp4")]
    jobs = job_factory(tmp_path, name="{stem}-soft{suffix}").plan(found)
    assert [job.config.input.name for job in jobs] == ["a.mp4"]


def test_what_the_batch_has_made_is_no_input(tmp_path: Path) -> None:
    """Outputs whose source is gone, links to outputs, and files next to an output."""
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    found = [Found(folder / name, Path()) for name in ("a-soft.mp4", "b-matte.mp4", "b.mp4")]
    plans = job_factory(
        link, flags={"": {"matte_out": Path("{stem}-matte{suffix}")}}, name="{stem}.mkv"
    )
    plans.own = {folder / "a-soft.mp4"}
    assert [job.config.input.name for job in plans.plan(found)] == ["b.mp4"]
    named = Found(folder / "a-soft.mp4", Path(), is_named=True)
    assert [job.config.input.name for job in plans.plan([named])] == ["a-soft.mp4"]


@pytest.mark.parametrize("template", ["{stem}-matte.mkv", "{stem}-matte/%03d.png"])
def test_mattes_are_no_inputs(tmp_path: Path, template: str) -> None:
    """Also if they are found later, as with ``--watch``."""
    matte = template.format(stem="a") % (1,) if "%" in template else "a-matte.mkv"
    names = (matte, "a.mkv", "b.mkv")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    flags = {"segment": {"matte_in": template}}
    plans = job_factory(tmp_path / "out", name="{index}.mkv", flags=flags)
    jobs = plans.plan([Found(tmp_path / name, Path()) for name in names])
    assert [job.config.input.name for job in jobs] == ["a.mkv", "b.mkv"]
    assert [job.config.output.name for job in jobs] == ["1.mkv", "2.mkv"]
    assert plans.plan([Found(tmp_path / matte, Path())]) == []


def test_a_file_may_hold_its_own_matte(tmp_path: Path) -> None:
    plans = job_factory(tmp_path / "out", flags={"segment": {"matte_in": "{stem}.mkv"}})
    assert len(plans.plan([Found(tmp_path / "a.mkv", Path())])) == 1


def test_a_loop_of_links_is_one_file_that_fails(tmp_path: Path) -> None:
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    found = [Found(tmp_path / name, Path()) for name in ("a.mp4", "loop.mp4")]
    assert len(job_factory(tmp_path / "out").plan(found)) == 2


def test_no_input_is_replaced_by_what_is_made_of_another(tmp_path: Path) -> None:
    """An output may replace only a file that the batch has made."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.mp4").symlink_to(tmp_path / "b.mp4")
    found = [Found(tmp_path / name, Path()) for name in ("a.mp4", "b.mp4")]
    plans = job_factory(tmp_path / "out", flags={"": {"overwrite": True}})
    with pytest.raises(ConfigError, match=r"a\.mp4: its output would replace the input .*b\.mp4"):
        plans.plan(found)
    plans.own = {tmp_path / "b.mp4"}
    assert [job.config.input.name for job in plans.plan(found)] == ["a.mp4"]


def test_no_input_that_came_before_is_replaced(tmp_path: Path) -> None:
    """With ``--watch``, inputs arrive one by one."""
    told: list[str] = []
    plans = job_factory(tmp_path, name="{stem}-soft{suffix}", flags={"": {"overwrite": True}})
    for name in ("a-soft.mp4", "a.mp4"):
        plans.plan_each(lambda name=name: [Found(tmp_path / name, Path())], told.append)
    (text,) = told
    assert "a.mp4: its output would replace the input" in text


def test_an_input_is_never_its_own_output(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    with pytest.raises(ConfigError, match="would replace its input"):
        job_factory(tmp_path).plan([Found(tmp_path / "a.mp4", Path())])


def test_numbers_stay_when_files_are_added(tmp_path: Path) -> None:
    old = Path("b.mp4").absolute()
    plans = job_factory(tmp_path)
    plans.numbers = {old: 1}
    jobs = plans.plan([Found(Path("a.mp4"), Path()), Found(Path("b.mp4"), Path())])
    assert {job.config.input.name: job.number for job in jobs} == {"a.mp4": 2, "b.mp4": 1}


def test_a_wrong_setting_is_an_error_before_any_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown preset"):
        job_factory(tmp_path, preset="nonesuch")


def test_what_an_output_is_made_from(tmp_path: Path) -> None:
    def made_from(folder: Path = tmp_path, **flags: Any) -> dict[str, str]:
        (job,) = job_factory(folder, flags=flags).plan([Found(Path("a.mp4"), Path())])
        return job.made_from(folder)

    plain = made_from()
    assert made_from(backends={"threads": 3}) == plain
    assert made_from(matte={"feather_pct": 0.0}) == plain  # the default
    assert made_from(**{"": {"overwrite": True}}) == plain
    assert made_from(**{"": {"trace": "{stem}.json"}}) == plain
    changed = made_from(matte={"feather_pct": 3.0})
    assert changed == {**plain, "matte.feather_pct": "3.0"}
    assert made_from(**{"": {"start_seconds": 3.0}}) == {**plain, "start_seconds": "3.0"}
    beside = {"": {"matte_out": "{stem}.mkv"}}
    assert made_from(**beside) == made_from(tmp_path / "moved", **beside) != plain


def test_a_model_is_known_by_its_contents(tmp_path: Path) -> None:
    model, sidecar = tmp_path / "own.onnx", tmp_path / "own.toml"
    model.write_bytes(b"weights")
    sidecar.write_text(
        'family = "single-shot"\ninput = {name = "x", width = 8, height = 8}\n'
        'outputs = [{name = "y"}]\n'
    )

    def identity() -> str:
        flags = {"segment": {"model": str(model)}}
        (job,) = job_factory(tmp_path, flags=flags).plan([Found(Path("a.mp4"), Path())])
        return job.made_from(tmp_path)["segment.model"]

    first = identity()
    os.utime(model)
    assert identity() == first
    model.write_bytes(b"other weights")
    second = identity()
    assert second != first
    sidecar.write_text(sidecar.read_text().replace("8", "16"))
    assert identity() not in (first, second)


def test_a_model_is_known_by_weights_that_lie_next_to_it(tmp_path: Path) -> None:
    model, data = tmp_path / "own.onnx", tmp_path / "own.data"
    model.with_suffix(".toml").write_text(SIDECAR)
    flags = {"segment": {"model": str(model)}}

    def identity(weight: float) -> tuple[str, str]:
        network = ones()
        spare = numpy_helper.from_array(np.full(4096, weight, np.float32), "spare")
        network.graph.initializer.append(spare)
        data.unlink(missing_ok=True)
        onnx.save(network, str(model), save_as_external_data=True, location=data.name)
        (job,) = job_factory(tmp_path, flags=flags).plan([Found(Path("a.mp4"), Path())])
        return job.made_from(tmp_path)["segment.model"], resolve(str(model)).sha256

    first, again, other = identity(1.0), identity(1.0), identity(2.0)
    assert first == again
    assert first[0] != other[0], "a batch renders it again"
    assert first[1] != other[1], "chunks and engines are made again"


def test_a_file_that_is_open_for_writing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with path.open("wb") as file:
        file.write(b"x")
        file.flush()
        assert is_being_written(path)
    assert not is_being_written(path)
    with path.open("rb"):
        assert not is_being_written(path)
