"""Kinds of files that are written."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """Containers, by the ending that names usually have."""

    AUTO = "auto"
    """By the name; of what has none, like a pipe, Matroska."""
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
    """Animated; by its name alone, a file is a picture."""
