"""Containers of the output."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """Containers, named by their usual file suffix."""

    AUTO = "auto"
    """Container by the output's suffix; Matroska if there is none, as for a pipe."""
    MP4 = "mp4"
    MOV = "mov"
    MKV = "mkv"
    WEBM = "webm"
    TS = "ts"
    AVI = "avi"
    NUT = "nut"
    Y4M = "y4m"
    GIF = "gif"
    WEBP = "webp"
    """Animated WebP. By its suffix alone, a WebP file is a single picture."""
