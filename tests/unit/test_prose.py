"""Plain words: short sentences in pages and messages, and docstrings that begin in one form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.sources import PACKAGE, tree

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_WORDS = 35
QUESTIONS = {"How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`+[^`]+`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*>#]+|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9x])")


def sentences(text: str) -> list[str]:
    return [each for each in _END.split(" ".join(text.split())) if each]


def too_long(texts: Iterator[str]) -> list[str]:
    return [
        f"{len(sentence.split())} words: {sentence}"
        for text in texts
        if len(text.split()) > MAX_WORDS
        for sentence in sentences(text)
        if len(sentence.split()) > MAX_WORDS
    ]


def paragraphs(page: str) -> Iterator[str]:
    """Paragraphs, list items and cells of a page; code in them is the word x."""
    text = _LINK.sub(r"\1", _CODE.sub("x", _FENCE.sub("", page)))
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        cells = line.strip().startswith("|")
        if paragraph and (cells or not line.strip() or _ITEM.match(line)):
            yield " ".join(paragraph)
            paragraph = []
        if cells:
            yield from line.strip().strip("|").split("|")
        elif line.strip():
            paragraph.append(_ITEM.sub("", line, count=1))


def documented(module: Path) -> Iterator[tuple[str, str]]:
    """(name, docstring) of a module and all that it defines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree(module)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", module.stem), text


def messages(module: Path) -> Iterator[str]:
    """Strings of a module but for docstrings; a value in one is the word x."""
    inner = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = [each for each in node.values if isinstance(each, ast.Constant)]
            inner.update(parts)
            yield "".join(str(each.value) if each in parts else "x" for each in node.values)
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield from node.value.split("\n\n")


def faults(docstring: str) -> list[str]:
    """How a docstring's beginning differs from an imperative or a noun phrase on one line."""
    first, *rest = docstring.splitlines()
    found = []
    if not first.endswith("."):
        found.append("no period at the end of the first line")
    if rest and rest[0]:
        found.append("a first sentence of several lines")
    if first.split()[0].strip(",") in QUESTIONS:
        found.append("begins like a question")
    if first[0].islower():
        found.append("begins with a small letter")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_of_pages_are_short(page: Path) -> None:
    assert not too_long(paragraphs(page.read_text(encoding="utf-8")))


def test_sentences_of_messages_are_short() -> None:
    assert not too_long(text for module in MODULES for text in messages(module))


def test_docstrings_begin_alike() -> None:
    found = [
        f"{module.relative_to(ROOT)}: {name}: {fault}"
        for module in MODULES
        for name, text in documented(module)
        for fault in faults(text)
    ]
    assert not found


def test_what_is_found() -> None:
    words = " ".join(["word"] * 34)
    long, short = f"A {words} end.", f"A {words}."
    page = (
        f"# {short}\n\n```\n{long}\n```\n\n- {short}\n- {long}\n\n| {short} | {short} |\n\n{long}"
    )
    assert len(too_long(paragraphs(page))) == 2
    assert not too_long(iter([f"{short} {short}"]))
    assert faults("Return the packets.") == faults("A decoded frame.\n\nMore of it.") == []
    assert len(faults("what there is\nof it.")) == 3
    assert faults("Whether it is.") == ["begins like a question"]
