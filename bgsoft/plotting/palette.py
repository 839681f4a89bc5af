"""Colours of pages and charts, for light and for dark surroundings."""

from __future__ import annotations

__all__ = ["BAD", "DARK", "INK", "LIGHT", "SERIES"]

# The data colours differ in lightness as well as in hue, so that they stay apart for readers who
# don't see red and green as different. Each light colour stands for its role: no two are equal.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#1d2127",
    "muted": "#5b6470",
    "grid": "#d9dde3",
    "bad": "#b42318",
    "s1": "#2f6fc1",
    "s2": "#e08a1e",
    "s3": "#1f8f6a",
    "s4": "#8757c9",
    "s5": "#c2416b",
    "s6": "#5d6b7a",
}
DARK = {
    "page": "#14171b",
    "panel": "#1c2026",
    "ink": "#e8ebef",
    "muted": "#a3acb8",
    "grid": "#343a43",
    "bad": "#ff8a7a",
    "s1": "#6aa5ee",
    "s2": "#f0ab55",
    "s3": "#4cc398",
    "s4": "#b391ea",
    "s5": "#ee7fa3",
    "s6": "#a0acba",
}
INK, BAD = LIGHT["ink"], LIGHT["bad"]
SERIES = tuple(color for role, color in LIGHT.items() if role[1:].isdigit())
"""Of the data, in the order of its series."""
