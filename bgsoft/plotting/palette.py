"""Colours of the charts, for light and for dark surroundings."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DARK", "LIGHT"]

# The data colours differ in lightness as well as in hue, so that they stay apart for readers who
# don't see red and green as different.
LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#1d2127",
    "muted": "#5b6470",
    "grid": "#d9dde3",
    "target": "#7d8794",
    "bad": "#b42318",
    "s1": "#2f6fc1",
    "s2": "#e08a1e",
    "s3": "#1f8f6a",
    "s4": "#8757c9",
    "s5": "#c2416b",
    "s6": "#5d6b7a",
}
DARK: Mapping[str, str] = {
    "page": "#14171b",
    "panel": "#1c2026",
    "ink": "#e8ebef",
    "muted": "#a3acb8",
    "grid": "#343a43",
    "target": "#98a2b0",
    "bad": "#ff8a7a",
    "s1": "#6aa5ee",
    "s2": "#f0ab55",
    "s3": "#4cc398",
    "s4": "#b391ea",
    "s5": "#ee7fa3",
    "s6": "#a0acba",
}
