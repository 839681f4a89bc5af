"""Pages of charts: what they show, and that nothing is drawn for what was not measured."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import cv2
import pytest

from bgsoft.bench.plot import write_plot
from bgsoft.errors import BackendUnavailableError, ConfigError, OutputError
from bgsoft.plotting.charts import Bar, bar_chart, line_chart, stacked_chart
from bgsoft.plotting.page import check_plot, write_page
from tests.unit.bench_results import results

pytest.importorskip("matplotlib")


def page(found: dict[str, Any], folder: Path) -> str:
    path = folder / "p.html"
    write_plot(found, path)
    return path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    text = page(results(), tmp_path)
    assert not re.search(r"""(?:src|href)="(?!#)|url\((?!#)|@import""", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "<b>a.mp4" not in text
    assert "&lt;b&gt;a.mp4" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    # speed, breakdown, two queues, GPU load, matte, encode, tuning
    assert len(drawings) == 8
    for drawing in drawings:
        ET.fromstring(drawing)
        assert "var(--s1)" in drawing or "var(--s3)" in drawing
        assert "#2f6fc1" not in drawing, "fixed colours do not follow the reader's system"


def test_reasons_are_beside_the_charts(tmp_path: Path) -> None:
    text = page(results(), tmp_path)
    assert "phase 1: infer: no GPU here" in text
    assert "not here: matte cuda: no GPU here" in text
    assert "VMAF: no ffmpeg" in text
    assert "empty in 100%" in text  # a line along zero is explained


def test_parts_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    found = results()
    found |= {"phases": [], "stages": [], "transcodes": []}
    found |= dict.fromkeys(("timeline", "bottleneck", "tune", "baseline"))
    text = page(found, tmp_path)
    assert "<svg" not in text
    assert "Machine and versions" in text


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    write_plot(results(), path)
    if suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")
        assert "#2f6fc1" in text
        return
    picture = cv2.imread(str(path))
    assert picture is not None
    blue, ink = (0xC1, 0x6F, 0x2F), (0x27, 0x21, 0x1D)  # bars and words, as BGR
    for color in (blue, ink):
        assert cv2.countNonZero(cv2.inRange(picture, color, color)) > 1000


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"\.html, \.png or \.svg"):
        check_plot(tmp_path / "p.pdf")
    with pytest.raises(OutputError, match="cannot write"):
        write_plot(results(), tmp_path / "none" / "p.html")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(BackendUnavailableError, match=r"pip install '\.\[plot\]'"):
        check_plot(tmp_path / "p.html")


def axes_of(chart: Any) -> Any:
    from matplotlib.figure import Figure

    assert chart is not None
    axes = Figure().add_subplot()
    chart.draw(axes)
    return axes


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar(label="a", value=2.0, text="2"), Bar(label="b", value=8.0, text="8")]
    axes = axes_of(bar_chart("t", "x", bars))
    assert [patch.get_width() for patch in axes.patches] == [2.0, 8.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlim()[1] > 8


def test_stacks_touch_and_add_up() -> None:
    axes = axes_of(stacked_chart("t", "ms", ["p", "q"], {"a": [1.0, 3.0]}))
    first, second = axes.patches
    assert (first.get_x(), first.get_width()) == (0.0, 1.0)
    assert (second.get_x(), second.get_width()) == (1.0, 3.0)


def test_lines_leave_gaps() -> None:
    axes = axes_of(line_chart("t", "x", [0, 1, 2, 3], {"a": [1.0, None, 3.0, 4.0]}))
    (line,) = axes.get_lines()
    assert [value == value for value in line.get_ydata()] == [True, False, True, True]


def test_nothing_to_draw_is_no_chart() -> None:
    assert bar_chart("t", "x", []) is None
    assert stacked_chart("t", "x", ["p"], {}) is None
    assert line_chart("t", "x", [0, 1], {"a": [1.0, None]}) is None


@pytest.mark.parametrize("name", ["$x_1$ and $", "фильм 🎬", "%03d"])
@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_odd_names_are_drawn_as_they_are(tmp_path: Path, name: str, suffix: str) -> None:
    chart = bar_chart(name, "x", [Bar(label=name, value=1.0, text=name)])
    path = tmp_path / f"p{suffix}"
    write_page(name, [name, chart, name], path)
    assert path.stat().st_size > 1000
