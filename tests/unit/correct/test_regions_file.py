"""Edited region files: lines that are kept, changed or rejected."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bgsoft.correct.regions import RegionsFile
from bgsoft.errors import ConfigError, DiskFullError
from bgsoft.settings.regions_file import read_regions

TEXT = """\
# Regions of the film.

# The poster, as it moves.
[[region]]
action = "drop"
keys = [                       # by eye
  { at = 2, box = "0,0,100,50" },
  { at = 4, box = "80,0,100,50" },
]

[[ region ]]
action = "hide"   # the plate
box = "10%,20%,15%,30%"
from = "0:05"
to = 20

[[region]]
action = "keep"
polygon = "10%,20% 30%,20% 20%,40%"
from = 3
follow = true
"""
NEW = {"action": "hide", "ellipse": "1,2,30,40", "from": 1.5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "in.regions.toml"
    path.write_text(TEXT)
    return path


def save(file: RegionsFile, *entries: object) -> None:
    file.save(file.version, list(entries))


def test_regions_that_are_kept_keep_every_byte(path: Path) -> None:
    file = RegionsFile(path)
    save(file, 0, 1, 2)
    assert path.read_text() == TEXT
    save(file, 0, 1, 2, NEW)
    assert path.read_text().startswith(TEXT)
    assert tomllib.loads(path.read_text())["region"][3] == NEW
    save(file, 3, 0)
    text = path.read_text()
    assert text.startswith("# Regions of the film.\n")
    # Comments above a region go with it.
    assert text.endswith(TEXT[TEXT.index("# The poster") : TEXT.index("[[ region ]]")])
    assert [each.action for each in read_regions(path)] == ["hide", "drop"]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_ends_of_lines_are_kept(path: Path, end: str) -> None:
    data = TEXT.replace("\n", end or "\n").removesuffix("" if end else "\n").encode()
    path.write_bytes(data)
    save(RegionsFile(path), 0, 1, 2, NEW)
    assert path.read_bytes().startswith(data)
    assert len(read_regions(path)) == 4


def test_a_file_is_made_and_goes_with_its_last_region(tmp_path: Path) -> None:
    file = RegionsFile(tmp_path / "new.toml")
    assert file.regions == ()
    save(file, NEW)
    assert tomllib.loads(file.path.read_text()) == {"region": [NEW]}
    save(file)
    assert not file.path.exists()
    save(file)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        'name = "x"\n',
        "[effect]\nstrength = 2\n",
        "not TOML",
        'region = [{ action = "hide", box = "1,1,2,2" }]\n',
        '[["region"]]\naction = "hide"\nbox = "1,1,2,2"\n',
        "[[region]]\naction = 'hide'\nbox = '''\n[[region]]\n'''\n",
        "\xff",
    ],
)
def test_another_kind_of_file_is_refused_and_stays(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"cannot (read|edit) .*in\.regions\.toml"):
        RegionsFile(path)
    assert path.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([0, {**NEW, "action": "blur"}], "region 2: action must be"),
        ([{**NEW, "ellipse": "1,2,0,40"}], "width and height above 0"),
        ([{**NEW, "from": 5, "to": 4}], "must end after it begins"),
        ([{**NEW, "from": float("nan")}], "cannot read regions file"),
        ([{**NEW, "to": 10**400}], "to must be below"),
        ([{**NEW, "to": [1]}], "must be text or a number"),
        ([{**NEW, 'x = 1\n"': 1}], "cannot write a region with"),
        ([{**NEW, "ellipse": '1,2,30,40"\nfollow = true #'}], "must be X,Y,W,H"),
        ([{**NEW, "keys": []}], "cannot write a region with 'keys'"),
        ([3], "the file has no such region"),
        ([-1], "the file has no such region"),
        ([True], "True is none"),
        ([None], "None is none"),
        ({"a": 1}, "not a list"),
    ],
)
def test_impossible_regions_are_refused(path: Path, entries: Any, words: str) -> None:
    file = RegionsFile(path)
    with pytest.raises(ConfigError, match=words):
        file.save(file.version, entries)
    assert path.read_text() == TEXT


def test_a_file_that_changed_meanwhile_is_not_replaced(path: Path) -> None:
    file = RegionsFile(path)
    version = file.version
    path.write_text(TEXT + "# by an editor\n")
    with pytest.raises(ConfigError, match="another program has changed it; reload the page"):
        save(file, NEW)
    file.read()
    with pytest.raises(ConfigError, match="was changed meanwhile; reload the page"):
        file.save(version, [NEW])
    save(file, 0, NEW)
    assert [each.action for each in read_regions(path)] == ["drop", "hide"]


def test_a_failed_save_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    file = RegionsFile(path)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskFullError, match=r"cannot write the regions file .*: disk full"):
        save(file, NEW)
    assert path.read_text() == TEXT
    assert [each.name for each in path.parent.iterdir()] == [path.name]
