"""Files of regions, well formed and not."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.correct.regions import RegionsFile
from bgsoft.errors import ConfigError
from bgsoft.face.faces_file import read_faces_file
from bgsoft.settings.presets import load_preset
from bgsoft.settings.regions import Length, RegionAction, RegionShape
from bgsoft.settings.regions_file import read_regions

GOOD = """
[[region]]
action = "keep"
ellipse = "10, 5.5%, 20, 30%"
from = "1:05"
to = 70.5
follow = true

[[region]]
action = "drop"
keys = [
  { at = 0, polygon = "0,0 100%,0 50%,100%" },
  { at = "0:02.5", polygon = "0,10 100%,0 50%,90%" },
]
"""


def test_a_file_says_what_and_where_and_when(tmp_path: Path) -> None:
    path = tmp_path / "in.regions.toml"
    path.write_text(GOOD)
    keep, drop = read_regions(path)
    assert (keep.action, keep.shape, keep.follow) == (RegionAction.KEEP, RegionShape.ELLIPSE, True)
    assert (keep.begin, keep.end) == (65, Fraction("70.5"))
    assert keep.keys[0].lengths == (
        *(Length(Fraction(10), False), Length(Fraction("5.5"), True)),
        *(Length(Fraction(20), False), Length(Fraction(30), True)),
    )
    assert (drop.action, drop.shape, drop.end) == (RegionAction.DROP, RegionShape.POLYGON, None)
    assert [key.seconds for key in drop.keys] == [0, Fraction("2.5")]
    assert drop.name == "region 2 of in.regions.toml"


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[[region]]\naction = "hide"\nbox = "0,0,10,10"\n')
    before = read_regions(path)
    path.write_text('[[region]]\naction = "keep"\nbox = "0,0,10,10"\n')
    os.utime(path, ns=(1, 1))
    (after,) = read_regions(path)
    assert (before[0].action, after.action) == (RegionAction.HIDE, RegionAction.KEEP)


@pytest.mark.parametrize(
    "read", [read_regions, RegionsFile, read_faces_file, lambda path: load_preset(str(path))]
)
def test_pipes_are_rejected(read: Callable[[Path], object], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"cannot read .*pipe\.toml: it is not a regular file"):
        read(pipe)


BOX = 'box = "0,0,9,9"'


def test_a_time_may_be_any_number_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'[[region]]\naction = "hide"\n{BOX}\nfrom = 1e-7\nto = 1.5e1\n')
    (region,) = read_regions(path)
    assert (region.begin, region.end) == (Fraction(1, 10**7), 15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"it has no \[\[region\]\]"),
        ("region = 3", r"it has no \[\[region\]\]"),
        ("regions = []", "unknown key regions; did you mean region"),
        ("[[region]\n", "Expected ']]'"),
        (f'[[region]]\naction = "blur"\n{BOX}', "region 1: action must be hide, keep, drop"),
        (f"[[region]]\n{BOX}", "region 1: action must be hide, keep, drop, not None"),
        (f'[[region]]\naction = "hide"\n{BOX}\nform = 1', "region 1: unknown key form"),
        (
            '[[region]]\naction = "hide"',
            "region 1: it must have exactly one of box, ellipse, polygon",
        ),
        (
            f'[[region]]\naction = "hide"\n{BOX}\nellipse = "0,0,1,1"',
            "region 1: it must have exactly one of box, ellipse, polygon",
        ),
        ('[[region]]\naction = "hide"\nbox = "0,0,9"', "box must be X,Y,W,H"),
        ('[[region]]\naction = "hide"\nbox = [0, 0, 9, 9]', "box must be text"),
        (
            '[[region]]\naction = "hide"\nbox = "0,0,0,9"',
            "region 1: must have a width and height above 0",
        ),
        ('[[region]]\naction = "hide"\npolygon = "0,0 9,9"', "polygon must be three or more pairs"),
        ('[[region]]\naction = "hide"\npolygon = "0,0 9,9,9 1"', "must be three or more pairs"),
        (
            f'[[region]]\naction = "hide"\n{BOX}\nfrom = 5\nto = 5',
            "region 1: must end after it begins",
        ),
        (f'[[region]]\naction = "hide"\n{BOX}\nfrom = -1', "from must be 0 or more, not -1"),
        (f'[[region]]\naction = "hide"\n{BOX}\nto = {"9" * 400}', "to must be below 1000000000 s"),
        (f'[[region]]\naction = "hide"\n{BOX}\nto = inf', "to must be seconds or HH:MM:SS"),
        (f'[[region]]\naction = "hide"\nbox = "0,0,9,{"9" * 400}"', "box must be X,Y,W,H"),
        (f'[[region]]\naction = "hide"\n{BOX}\nto = "soon"', "to must be seconds or HH:MM:SS"),
        (f'[[region]]\naction = "hide"\n{BOX}\nto = true', "to must be seconds or HH:MM:SS"),
        (f'[[region]]\naction = "hide"\n{BOX}\nfollow = 1', "follow must be true or false, not 1"),
        ('[[region]]\naction = "hide"\nkeys = []', "keys must be a list of tables"),
        ('[[region]]\naction = "hide"\nkeys = [3]', "a key must be a table, not 3"),
        (f'[[region]]\naction = "hide"\nkeys = [{{ {BOX} }}]', "a key has no time"),
        (
            f'[[region]]\naction = "hide"\nkeys = [{{ at = 2, {BOX} }}, {{ at = 2, {BOX} }}]',
            "keys must be in order of time",
        ),
        (
            f'[[region]]\naction = "hide"\nkeys = [{{ at = 1, {BOX} }},'
            ' { at = 2, ellipse = "0,0,9,9" }]',
            "all keys must have the same shape",
        ),
        (
            f'[[region]]\naction = "hide"\nfollow = true\nkeys = [{{ at = 1, {BOX} }}]',
            "follow and keys cannot be used together",
        ),
        (
            f'[[region]]\naction = "hide"\n{BOX}\nkeys = [{{ at = 1, {BOX} }}]',
            "must have its shape in each key",
        ),
    ],
)
def test_a_malformed_file_is_named_with_the_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_regions(path)
    assert str(caught.value).startswith(f"cannot read regions file {path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read regions file .*: No such file"):
        read_regions(tmp_path / "none.toml")
