"""Types of the operations' arguments, read from their sources and compared with each call."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import bgsoft.ops
from bgsoft.ops.placement import Operation

_FOLDER = Path(bgsoft.ops.__file__).parent
_DEFINED = re.compile(r"KERNEL\((\w+)\)\(((?:[^()]|\(\w+\))*)\)")
_ITEMS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "int": 4, "float": 4, "float4": 4, "double": 8}
"""Bytes of a pointer's items; of those that have several parts, of a part."""


@cache
def _pointers(file: str, name: str) -> list[list[str | None]]:
    """What each argument of a kernel points to, None: a number; of each of its definitions.

    VALUE: a structure, given as an array of one.
    """
    text = re.sub(r"//.*", "", (_FOLDER / f"{file}.cu").read_text(encoding="utf-8"))
    found = [arguments for defined, arguments in _DEFINED.findall(text) if defined == name]
    assert found, f"{file}.cu has no {name} that can be read"
    pointer = re.compile(r"(?:const )?(\w+) ?\*|BY_(VALUE)")
    kinds = []
    for arguments in found:
        each = [pointer.match(argument.strip()) for argument in arguments.split(",")]
        kinds.append([match and (match[1] or match[2]) for match in each])
    return kinds


def _fits(argument: Any, pointee: str | None, sample_bits: int) -> bool:
    if not isinstance(argument, np.ndarray):
        return argument is None or pointee is None
    if pointee is None:
        return False
    if pointee == "sample_t":
        return argument.dtype == f"u{sample_bits // 8}"
    kind = argument.dtype.kind
    if pointee == "VALUE":
        return kind == "V" and argument.shape == (1,)
    wanted = "f" if pointee.startswith(("float", "double")) else "uib"
    return pointee not in _ITEMS or (kind in wanted and argument.dtype.itemsize == _ITEMS[pointee])


def checked(launch: Operation, file: str, name: str, sample_bits: int) -> Operation:
    """An operation of the host that refuses arrays of another type than it reads."""

    def launched(size: tuple[int, ...], *arguments: Any) -> None:
        assert any(
            len(kinds) == len(arguments)
            and all(map(lambda each, kind: _fits(each, kind, sample_bits), arguments, kinds))
            for kinds in _pointers(file, name)
        ), f"{name} takes {_pointers(file, name)}, not {[_shown(each) for each in arguments]}"
        launch(size, *arguments)

    return launched


def _shown(argument: Any) -> str:
    return str(getattr(argument, "dtype", type(argument).__name__))
