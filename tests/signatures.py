"""Types of the operations' arguments, read from their sources and compared with each call."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import bgsoft.ops
from bgsoft.ops.placement import Operation

FOLDER = Path(bgsoft.ops.__file__).parent
_DEFINED = re.compile(r"KERNEL\((\w+)\)\(((?:[^()]|\(\w+\))*)\)")
_DECLARED = re.compile(r"(?:const )?(\w+) ?\*|BY_(VALUE)|(float)|int")
_ITEMS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "int": 4, "float": 4, "float4": 4, "double": 8}
"""Bytes of a pointer's items; of those that have several parts, of a part."""


@cache
def declared(file: str) -> dict[str, list[list[str]]]:
    """Return the argument types of a file's kernels, of each of their definitions.

    A pointer is its items' type; VALUE is a structure, given as an array of one item. A number is
    ``i`` (int) or ``f`` (float).
    """
    text = re.sub(r"//.*", "", (FOLDER / f"{file}.cu").read_text(encoding="utf-8"))
    found: dict[str, list[list[str]]] = {}
    for name, arguments in _DEFINED.findall(text):
        types = [_DECLARED.match(argument.strip()) for argument in arguments.split(",")]
        assert all(types), f"{file}.cu: {name} cannot be read"
        kinds = [each[1] or each[2] or ("f" if each[3] else "i") for each in types if each]
        found.setdefault(name, []).append(kinds)
    return found


def _fits(argument: Any, kind: str, sample_bits: int) -> bool:
    if kind in ("i", "f"):
        return isinstance(argument, int if kind == "i" else float)
    if argument is None:
        return True
    dtype = getattr(argument, "dtype", None)
    if dtype is None or isinstance(argument, float):
        return False
    if kind == "sample_t":
        return bool(dtype == f"u{sample_bits // 8}")
    if kind == "VALUE":
        return dtype.kind == "V" and argument.shape == (1,)
    wanted = "f" if kind.startswith(("float", "double")) else "uib"
    return kind not in _ITEMS or (dtype.kind in wanted and dtype.itemsize == _ITEMS[kind])


def checked(launch: Operation, file: str, name: str, sample_bits: int) -> Operation:
    """Return an operation that raises AssertionError if arguments differ from its source."""

    def launched(size: tuple[int, ...], *arguments: Any) -> None:
        assert any(
            len(kinds) == len(arguments)
            and all(map(lambda each, kind: _fits(each, kind, sample_bits), arguments, kinds))
            for kinds in declared(file)[name]
        ), f"{name} takes {declared(file)[name]}, not {[_shown(each) for each in arguments]}"
        launch(size, *arguments)

    return launched


def _shown(argument: Any) -> str:
    return str(getattr(argument, "dtype", type(argument).__name__))
