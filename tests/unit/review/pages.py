"""Small pairs of videos, reports of them, and pages as they are parsed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tests.synthetic import write_frames

Picture = NDArray[np.uint8]
RATE = 25


def room(frames: int) -> list[Picture]:
    """Grey pictures of 320x180, all the same: smooth, with one dark square."""
    picture = np.tile(np.linspace(80, 170, 320, dtype=np.uint8), (180, 1))
    picture[20:40, 20:40] = 30
    return [picture.copy() for _ in range(frames)]


def write(path: Path, pictures: Sequence[Picture], rate: int = RATE) -> Path:
    return write_frames(path, pictures, rate=rate, options={"g": "1"})  # no frame needs another


def write_report(
    path: Path, source: Path, result: Path, area: Sequence[float], **faces: Any
) -> Path:
    files = [
        {"role": role, "name": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for role, file in (("input", source), ("output", result))
    ]
    cuts = [{"kind": "scene-cut", "frame": frame} for frame in faces.pop("cuts", [])]
    report = {
        "files": files,
        "timeline": {"matte_area_pct": list(area), "faces": [1] * len(area)},
        "events": [{"kind": "notice", "frame": None}, *cuts],
        "hidden": faces.pop("hidden", []),
        "faces": {"mode": "anonymize", **faces},
    }
    path.write_text(json.dumps(report))
    return path


class Page(HTMLParser):
    """The parts of a page.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.articles: list[dict[str, Any]] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self._open.append(tag)
        self.links += (known[name] for name in ("href", "src") if name in known)
        if tag == "article":
            self.articles.append({**known, "pictures": [], "pre": "", "h2": "", "boxes": []})
        elif tag == "img":
            data = base64.b64decode(known["src"].partition("base64,")[2])
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
            self.articles[-1]["pictures"].append(picture)
        elif tag == "i":
            self.articles[-1]["boxes"].append(known["style"])

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        within = next((tag for tag in self._open[::-1] if tag in ("pre", "h2")), None)
        if within is not None and self.articles:
            self.articles[-1][within] += data
        self.words.append(data)
