"""Suggestions for mistyped words, and detection of network addresses given as files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_ADDRESS = r"(?s)([a-zA-Z][a-zA-Z0-9+.-]+):/+(.*)"


def network_address(path: str | Path) -> str | None:
    """Return the network address in place of a file path; None for a path.

    :class:`pathlib.Path` reduces the slashes of ``https://host/in.mp4`` to one: both are restored.
    """
    text = str(path)
    match = re.fullmatch(_ADDRESS, text) if ":/" in text else None
    if match is None or Path(f"{match[1]}:").exists():
        return None
    return f"{match[1]}://{match[2]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a phrase to append to «unknown WORD».

    It is ``"; did you mean X?"`` where a known word is similar, else
    ``" (choose from X, Y, Z)"``, or empty where no word is known.
    """
    words = list(known)
    if not words:
        return ""
    near = nearest(word, words)
    return f"; did you mean {near}?" if near else f" (choose from {', '.join(words)})"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar, in whatever case; None if none is similar."""
    import difflib

    folded = {known_word.lower(): known_word for known_word in known}
    # 0.7 accepts two swapped letters in a word of four, but not «cpu» for «gpu».
    near = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.7)
    if not near:  # part of a longer name is similar too
        near = [w for w in folded if len(word) >= 3 and word.lower() in w]
    return folded[near[0]] if near else None
