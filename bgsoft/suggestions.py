"""What the user may have meant: the nearest known word, or an address where a file is wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_ADDRESS = r"(?s)([a-zA-Z][a-zA-Z0-9+.-]+):/+(.*)"


def network_address(path: str | Path) -> str | None:
    """The address that stands where a file is wanted; None where it is a file's path.

    Of ``https://host/in.mp4`` :class:`pathlib.Path` takes a slash, which is given back.
    """
    text = str(path)
    match = re.fullmatch(_ADDRESS, text) if ":/" in text else None
    if match is None or Path(f"{match[1]}:").exists():
        return None
    return f"{match[1]}://{match[2]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A phrase to put behind «unknown WORD»: ``"; did you mean X?"`` where a known word is near,
    else ``" (choose from X, Y, Z)"``, or nothing where none is known."""
    import difflib

    words = list(known)
    if not words:
        return ""
    folded = {known_word.lower(): known_word for known_word in words}
    # 0.7 takes two letters swapped in a word of four, but not «cpu» for «gpu».
    near = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.7)
    if not near:  # a part of a longer name counts as near too
        near = [w for w in folded if len(word) >= 3 and word.lower() in w]
    return f"; did you mean {folded[near[0]]}?" if near else f" (choose from {', '.join(words)})"
