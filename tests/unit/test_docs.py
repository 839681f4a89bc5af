"""Pages: their commands parse, their links resolve, and their files exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from bgsoft.cli import app
from bgsoft.errors import ConfigError, PresetError
from bgsoft.rendering.configure import build_config
from bgsoft.settings.options import DEFAULT_PRESET, settings_from_options
from tests.processes import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "samples" / "README.md", *DOCS]
_USAGE_ERROR = typer.BadParameter.__mro__[1]
_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_OURS = re.compile(r"(bgsoft|docs|presets|samples|scripts|tests)/[\w./-]*")


class Command(NamedTuple):
    page: str
    words: tuple[str, ...]
    whole: bool
    """True: a whole command. False: it stands in a sentence, and may leave arguments out."""

    def __str__(self) -> str:
        return f"{self.page}: bgsoft {' '.join(self.words)}"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def split(line: str) -> list[tuple[str, ...]]:
    """Words of each call of bgsoft in a line of shell, a variable being a clip."""
    lexer = shlex.shlex(re.sub(r"\$\w+", "clip.mp4", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    calls: list[list[str]] = []
    words: list[str] | None = None
    for token in lexer:
        if words is None and (token == "bgsoft" or token.endswith("/bgsoft")):
            words = []
            calls.append(words)
        elif set(token) <= set("();<>|&"):
            words = None
        elif words is not None:
            words.append(token)
    return [tuple(call) for call in calls]


def commands() -> list[Command]:
    """Every command line of every page."""
    found = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        blocks = "".join(_FENCE.findall(page.read_text(encoding="utf-8")))
        lines = [line for line in blocks.splitlines() if "bgsoft " in line]
        found += [Command(name, words, True) for line in lines for words in split(line)]
        spans = [span for span in _INLINE.findall(prose(page)) if span.startswith("bgsoft ")]
        found += [Command(name, words, False) for span in spans for words in split(span)]
    return found


@cache
def program() -> Any:
    return typer.main.get_command(app.program())


def parse(command: Command) -> tuple[str, dict[str, Any]]:
    """The path of a command, and the values of its parameters; nothing is run.

    Raises:
        AssertionError: There is no such command.
        typer.BadParameter: And its relatives: flags or arguments are wrong.
    """
    words, path, parser = list(command.words), "bgsoft", program()
    while hasattr(parser, "commands") and words and not words[0].startswith("-"):
        path, parser = f"{path} {words[0]}", parser.commands.get(words.pop(0))
        assert parser is not None, f"there is no {path}"
    try:
        return path, parser.make_context(path, words).params
    except typer.Exit:  # --help and --version
        return path, {}
    except _USAGE_ERROR as exc:
        if not command.whole and type(exc).__name__ == "MissingParameter":
            return path, {}
        raise


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_commands_are_found() -> None:
    """The checks find every kind of command line on the pages."""
    found = {(command.page, command.words) for command in commands()}
    assert ("README.md", ("render", "samples/person.mp4", "soft.mp4")) in found
    assert ("docs/folders.md", ("render", "clip.mp4", "soft/clip.mp4", "--skip-existing")) in found
    assert ("docs/folders.md", ("batch", "--from", "-", "out/")) in found
    assert ("docs/settings.md", ("presets", "show", "soft")) in found
    assert ("docs/background.md", ("presets", "list")) in found


@pytest.mark.parametrize("command", commands(), ids=str)
def test_commands_parse(command: Command) -> None:
    path, given = parse(command)
    if path != "bgsoft render" or not given:
        return
    own = ("input", "output", "preset", "progress", "quiet", "verbose")
    settings = {key: value for key, value in given.items() if key not in own}
    preset = given["preset"] or DEFAULT_PRESET
    chosen = settings_from_options(settings, from_text=True)
    build_config(
        Path(given["input"]),
        given["output"] and Path(given["output"]),
        preset=None if preset.endswith(".toml") else preset,
        flags=chosen,
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("render", _USAGE_ERROR),
        ("render in.mp4 out.mp4 --stength 5", _USAGE_ERROR),
        ("bench --rounds many", _USAGE_ERROR),
        ("models fetch u2net", AssertionError),
        ("render in.mp4 out.mp4 --effect color --strength 5", ConfigError),
        ("render in.mp4 out.mp4 --preset studoi", PresetError),
    ],
)
def test_wrong_commands_do_not(words: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        test_commands_parse(Command("none", tuple(words.split()), True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    text = prose(page)
    for link in _LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    spans = _INLINE.findall(text)
    for name in [span for span in spans if _OURS.fullmatch(span)]:
        assert (ROOT / name).exists(), name
    known = {flag for command in every_command(program()) for flag in command_flags(command)}
    for flag in {flag for span in spans for flag in _FLAG.findall(span)} - known:
        assert any(flag in script for script in scripts()), f"there is no flag {flag}"


def every_command(group: Any) -> list[Any]:
    inner = getattr(group, "commands", {}).values()
    return [group, *(command for each in inner for command in every_command(each))]


def command_flags(command: Any) -> list[str]:
    return ["--help", *(flag for parameter in command.params for flag in parameter.opts)]


@cache
def scripts() -> list[str]:
    files = [*(ROOT / "scripts").glob("*.py"), ROOT / "tests" / "conftest.py"]
    return [path.read_text(encoding="utf-8") for path in files]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_is_linked_and_begins_with_its_task_and_most_common_command(page: Path) -> None:
    assert f"](docs/{page.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    title, empty, task, space, fence, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert task.endswith(".")
    assert not empty + space
    assert fence.startswith("```")


def test_the_map_has_every_folder() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("| folder of `bgsoft/` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(
        path.parent.name for path in (ROOT / "bgsoft").glob("*/__init__.py")
    )


def test_the_table_has_every_variable() -> None:
    files = [*(ROOT / "bgsoft").rglob("*.py"), *(ROOT / "tests").glob("conftest.py")]
    files += [ROOT / "pyproject.toml", ROOT / "hatch_build.py"]
    name = r"\bBGSOFT_[A-Z_]*[A-Z]\b"
    used = {each for path in files for each in re.findall(name, path.read_text(encoding="utf-8"))}
    assert "BGSOFT_CONFIG" in used
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(rf"^\| `({name})` \|", page, re.MULTILINE)) == used


def test_tables_name_everything_there_is() -> None:
    from bgsoft.exitcodes import ExitCode
    from bgsoft.models.catalog import catalog

    presets = {path.stem for path in (ROOT / "presets").glob("*.toml")}
    models = {name for name, spec in catalog().items() if spec.of_family.makes_masks}
    codes = {str(code.value) for code in ExitCode}
    for name, rows in (("background", presets), ("models", models), ("in-and-out", codes)):
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        cells = " ".join(re.findall(r"^\|.*$", page, re.MULTILINE))
        assert rows <= set(re.findall(r"[\w-]+", cells)), name
