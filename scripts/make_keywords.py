"""Write the keywords of ``bgsoft.render``, with types and help, from ``bgsoft.settings.config``.

So editors and type checkers know them without running anything. Run it after a change to a setting;
with ``--check`` it only says whether that was forgotten.
"""

from __future__ import annotations

import re
import sys
import textwrap
from enum import StrEnum
from pathlib import Path

from bgsoft.settings.options import OPTIONS, TEXTS, Option, field_type, in_keywords

API = Path(__file__).parents[1] / "bgsoft" / "api.py"
WIDTH = 100
_SIGNATURE = re.compile(r"(?<=DEFAULT_PRESET,\n).*?(?=    on_progress: )", re.DOTALL)
_ARGUMENTS = re.compile(r"(?<=None: the bare defaults\.\n).*?(?= {8}on_progress: )", re.DOTALL)


def annotation(option: Option) -> str:
    """The type of a keyword, without None."""
    kind, optional = field_type(option.section, option.field.name)
    if kind == TEXTS:
        return "str | Sequence[str]"
    if issubclass(kind, StrEnum):
        words = ", ".join(f'"{word}"' for word in option.choices)
        return f"config.{kind.__name__} | Literal[{words}]"
    if kind is Path or option.setting.is_path:
        return "FilePath"
    if option.setting.unit == " seconds":
        return "float | str"
    return f"{kind.__name__} | Off" if optional and kind is not str else kind.__name__


def written(text: str) -> str:
    """The module's text with the keywords in their places."""
    types = []
    for name, option in OPTIONS.items():
        line = f"    {name}: {annotation(option)} | None = None,\n"
        types.append(line if len(line) <= WIDTH + 1 else line.replace(" | ", "\n    | "))
    helps = [
        textwrap.fill(
            f"{name}: {in_keywords(option.help)}",
            width=WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_on_hyphens=False,
        )
        for name, option in OPTIONS.items()
    ]
    text = _SIGNATURE.sub(lambda _: "".join(types), text, count=1)
    return _ARGUMENTS.sub(lambda _: "\n".join(helps) + "\n", text, count=1)


if __name__ == "__main__":
    before = API.read_text(encoding="utf-8")
    after = written(before)
    if "--check" in sys.argv[1:]:
        sys.exit(None if before == after else f"{API} is not up to date: run {sys.argv[0]}")
    API.write_text(after, encoding="utf-8")
