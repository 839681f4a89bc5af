"""Write the keywords of the Python interface from ``bgsoft.settings.config``.

Their types go to ``bgsoft.settings.keywords``, and their help to ``bgsoft.render``. So editors and
type checkers know them without running anything. Run it after a change to a setting; with
``--check`` it only says whether that was forgotten.
"""

from __future__ import annotations

import re
import sys
import textwrap
from enum import StrEnum
from pathlib import Path

from bgsoft.settings.options import OPTIONS, TEXTS, TOP, Option, field_type, in_keywords

API = Path(__file__).parents[1] / "bgsoft" / "api.py"
KEYWORDS = API.parent / "settings" / "keywords.py"
WIDTH = 100
_OF_FILES = {"encode", "chunks"}
"""Settings of written files only, in addition to the section of the codec."""
_OF_SEQUENCES = {
    *("mask_every", "similarity", "face_every", "temporal"),
    *("start", "duration", "decode", "batch", "stall"),
}
"""Settings that have no meaning for one picture."""
_CLASSES = re.compile(r"class PictureSettings.*", re.DOTALL)
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


def for_frames(option: Option) -> bool:
    """Whether a setting means something where no file is written."""
    if option.section in ("encode", "copy", TOP):
        return option.name in ("start", "duration")
    return option.name not in _OF_FILES


def wrapped(kind: str) -> str:
    """A long ``Literal[...]``, in the lines that ruff makes of it."""
    words = kind.removesuffix("]").removeprefix("Literal[")
    if len(words) > WIDTH - 12:
        words = words.replace(", ", ",\n            ") + ","
    return f"Literal[\n            {words}\n        ]"


def keyword_classes(text: str) -> str:
    """The text of the module of keywords, with the settings in its classes."""
    of_picture, of_frames, of_render = (
        'class PictureSettings(TypedDict, total=False):\n    """Settings of one picture."""\n\n',
        "class FrameSettings(PictureSettings, total=False):\n"
        '    """Settings of consecutive frames, in addition to those of one picture."""\n\n',
        "class RenderSettings(FrameSettings, total=False):\n"
        '    """Settings of written files, in addition to those of frames."""\n\n',
    )
    for name, option in OPTIONS.items():
        line = f"    {name}: {annotation(option)} | None\n"
        if len(line) > WIDTH + 1:
            kinds = line.strip().partition(": ")[2].split(" | ")
            lines = "\n        | ".join(
                kind if len(kind) < WIDTH - 10 else wrapped(kind) for kind in kinds
            )
            line = f"    {name}: (\n        {lines}\n    )\n"
        if name in _OF_SEQUENCES:
            of_frames += line
        elif for_frames(option):
            of_picture += line
        else:
            of_render += line
    return _CLASSES.sub(lambda _: f"{of_picture}\n\n{of_frames}\n\n{of_render}", text)


def written(text: str) -> str:
    """The module's text with the help in its place."""
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
    return _ARGUMENTS.sub(lambda _: "\n".join(helps) + "\n", text, count=1)


if __name__ == "__main__":
    for path, make in ((API, written), (KEYWORDS, keyword_classes)):
        before = path.read_text(encoding="utf-8")
        after = make(before)
        if before != after and "--check" in sys.argv[1:]:
            sys.exit(f"{path} is not up to date: run {sys.argv[0]}")
        path.write_text(after, encoding="utf-8")
