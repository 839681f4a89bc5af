"""The benchmark's page: what it shows, and what it says where nothing was measured."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from copy import deepcopy
from pathlib import Path
from typing import Any

import cv2
import pytest

from bgsoft.bench.plot import write_plot
from bgsoft.errors import ConfigError, OutputError
from bgsoft.plotting.charts import Bar, Series, Stack, bar_chart, line_chart, stacked_chart, ticks
from bgsoft.plotting.drawing import Drawing, Rect, Text
from bgsoft.plotting.drawing import Path as Polyline

STAGES = {"decode": 6.0, "segment": 3.0, "matte": 1.0, "composite": 2.0, "encode": 20.0}


def phase(number: int, fps: float | None, reason: str | None = None) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"phase <{number}>",
        "backends": {"decode": "cpu", "infer": "cpu", "composite": "cpu", "encode": "cpu"},
        "available": fps is not None,
        "reason": reason,
        "target": [5, 7] if number else None,
        "fps": fps,
        "fps_samples": [] if fps is None else [fps - 1, fps, fps + 1],
        "run_fps": None if fps is None else fps - 2,
        "run_fps_samples": [] if fps is None else [fps - 3, fps - 2, fps - 1],
        "speedup": None if fps is None else fps / 40,
        "stage_ms": {} if fps is None else STAGES,
        "load": {} if fps is None else {name: ms / 21 for name, ms in STAGES.items()},
        "cpu_load": None if fps is None else 0.9,
        "psnr_db": 52.1 if number else None,
        "ssim": 0.99 if number else None,
        "h2d_bytes": 0.0,
        "d2h_bytes": 3_000_000.0,
        "peak_rss_bytes": 300_000_000,
        "peak_vram_bytes": None,
    }


def stage(group: str, name: str, median: float | None, **more: Any) -> dict[str, Any]:
    return {
        "group": group,
        "name": name,
        "backend": "cpu",
        "available": median is not None,
        "reason": None if median is not None else "no driver & no GPU",
        "median_ms": median,
        "p95_ms": None if median is None else median * 1.2,
        "mean_ms": median,
        "fps": None if median is None else 1000 / median,
        **more,
    }


@pytest.fixture
def results() -> dict[str, Any]:
    return {
        "schema": "bgsoft-bench/1",
        "created": "2026-01-01T00:00:00+00:00",
        "bgsoft_version": "0",
        "settings": {"preset": "soft", "rounds": 3, "command": ["bgsoft", "bench"]},
        "hardware": {"cpu": "a CPU", "cores": 2, "usable_cores": 2, "memory_bytes": 8 << 30,
                     "os": "Linux", "gpu": None, "gpu_reason": "no driver"},
        "versions": {"numpy": "2"},
        "clip": {"name": "<b>x.mp4", "width": 96, "height": 72, "bit_depth": 8,
                 "codec": "h264", "frames": 10},
        "phases": [phase(0, 40.0), phase(1, 80.0), phase(2, None, "NVDEC: no driver")],
        "transcodes": [{"name": "ffmpeg", "available": True, "reason": None, "fps": None,
                        "run_fps": 90.0, "run_fps_samples": [89.0, 90.0], "ratio": 0.87,
                        "ratio_phase": 1}],
        "bottleneck": {"phase": 1, "stage": "encode", "load": 0.97, "text": "encode-bound: busy"},
        "stages": [
            stage("decode", "decode", 3.0),
            stage("decode", "nvdec", None),
            stage("encode", "veryfast", 12.0, bitrate_kbps=900.0, vmaf=None, vmaf_reason="none"),
            stage("copy", "upload", None),
        ],
        "timeline": {
            "phase": 1,
            "t_s": [0.0, 0.5, 1.0, 1.5],
            "counters": {"decoded": [0, 2, 4, 4], "finished": [0, 0, 0, 0]},
            "capacity": {"decoded": 4, "finished": 4},
            "gpu": {"t_s": [0.0, 1.0], "counters": {"sm_pct": [5.0, 40.0],
                                                    "encoder_pct": [None, None]}},
        },
        "metrics_overhead": {"block_ns": 900, "blocks_per_frame": 5, "us_per_frame": 4.5,
                             "share": 0.00019, "ab_ratio": None},
        "tune": {"baseline_fps": 40.0, "chosen": {"batch": 4}, "preset": "",
                 "trials": [{"setting": "batch", "value": 1, "fps": 40.0, "samples": [39, 41]},
                            {"setting": "batch", "value": 4, "fps": 44.0, "samples": [43, 45]}]},
        "baseline": {"file": "old.json", "comparable": True, "notes": [], "rows": [
            {"what": "phase 0", "before": 40.0, "after": 44.0, "unit": "frames/s",
             "change_pct": -9.1, "noise_pct": 2.0, "verdict": "faster"}]},
    }  # fmt: skip


def page(results: dict[str, Any], folder: Path) -> str:
    path = folder / "p.html"
    write_plot(results, path)
    return path.read_text(encoding="utf-8")


def test_page_is_whole_and_loads_nothing(results: dict[str, Any], tmp_path: Path) -> None:
    text = page(results, tmp_path)
    assert not re.search(r"(?:src=|href=|url\(|@import|https?://)", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "<b>x.mp4" not in text
    assert "&lt;b&gt;x.mp4" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    # speed, speed-up, breakdown, two queues, one GPU counter, decode, encode, tuning
    assert len(drawings) == 9
    for drawing in drawings:
        root = ET.fromstring(drawing)
        width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
        for shape in root.iter():
            for key, most in (("x", width), ("x2", width), ("y", height), ("y2", height)):
                assert -0.1 <= float(shape.attrib.get(key, 0)) <= most + 0.1
        marks = [s for s in root.iter() if s.tag == "polyline" or float(s.get("width", 0)) > 0]
        assert marks, "a chart without data was drawn"


def test_what_was_not_measured_has_its_reason(results: dict[str, Any], tmp_path: Path) -> None:
    text = page(results, tmp_path)
    assert text.count("not run: NVDEC: no driver") == 3  # in each chart of the phases
    assert "Not run: NVDEC: no driver" in text
    assert "nvdec, cpu. Not run: no driver &amp; no GPU" in text
    assert "Not run: upload, cpu: no driver &amp; no GPU." in text
    assert "not run: none" in text  # the encoder's VMAF
    assert "GPU nvenc load: not run" in text
    assert "empty in 100%" in text  # a line along zero is explained


@pytest.mark.parametrize(
    ("key", "empty", "words"),
    [
        ("phases", [], "Not run: the phases were not asked for."),
        ("stages", [], "Not run: the stages were not asked for."),
        ("timeline", None, "Not run: no render was traced."),
    ],
)
def test_missing_parts(
    results: dict[str, Any], tmp_path: Path, key: str, empty: Any, words: str
) -> None:
    changed = deepcopy(results)
    changed[key] = empty
    assert words in page(changed, tmp_path)


def test_nothing_at_all(results: dict[str, Any], tmp_path: Path) -> None:
    for key in ("phases", "stages", "transcodes"):
        results[key] = []
    for key in ("timeline", "bottleneck", "metrics_overhead", "tune", "baseline"):
        results[key] = None
    assert "<svg" not in page(results, tmp_path)


def test_failed_phase_zero(results: dict[str, Any], tmp_path: Path) -> None:
    results["phases"] = [phase(0, None, "no model"), phase(1, None, "no GPU")]
    results["transcodes"] = []
    text = page(results, tmp_path)
    assert "Not run: no phase gave a speed." in text
    assert "there is nothing to compare with" in text
    assert "Not run: no phase was measured." in text


@pytest.mark.parametrize("outlines", [True, False])
def test_png(
    results: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outlines: bool
) -> None:
    if not outlines:  # as with OpenCV 4
        monkeypatch.delattr(cv2, "FontFace", raising=False)
    path = tmp_path / "p.png"
    write_plot(results, path)
    picture = cv2.imread(str(path))
    assert picture is not None
    assert picture.shape[1] >= 1840
    blue, green, ink = (0xC1, 0x6F, 0x2F), (0x6A, 0x8F, 0x1F), (0x27, 0x21, 0x1D)
    for color in (blue, green, ink):  # bars of speed and of speed-up, and words, as BGR
        assert cv2.countNonZero(cv2.inRange(picture, color, color)) > 1000


def test_unwritable(results: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.html or \.png"):
        write_plot(results, tmp_path / "p.pdf")
    with pytest.raises(OutputError, match="cannot write"):
        write_plot(results, tmp_path / "none" / "p.html")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.7, [0, 0.2, 0.4, 0.6]),
        (36.9, 45.2, [38, 40, 42, 44]),
        (0, 4, [0, 1, 2, 3, 4]),
        (5, 5, [5]),
    ],
)
def test_ticks(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def bars_of(chart: Drawing | None) -> list[Rect]:
    assert chart is not None
    return [shape for shape in chart.shapes if isinstance(shape, Rect)]


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar(label="a", value=2.0), Bar(label="b", value=8.0), Bar(label="c", value=None)]
    short, long = bars_of(bar_chart("t", "x", bars))
    assert long.width == pytest.approx(4 * short.width)


def test_no_band_lies_under_the_words_of_what_was_not_run() -> None:
    bars = [
        Bar(label="a", value=2.0, text="2"),
        Bar(label="b", value=None, text="no GPU", target=(5.0, 7.0)),
    ]
    chart = bar_chart("t", "x", bars)
    assert chart is not None
    rects = [shape for shape in chart.shapes if isinstance(shape, Rect)]
    assert [rect.fill for rect in rects] == ["s1"]
    bars.append(Bar(label="c", value=6.0, text="6", target=(5.0, 7.0)))
    chart = bar_chart("t", "x", bars)
    assert chart is not None
    fills = [shape.fill for shape in chart.shapes if isinstance(shape, Rect)]
    assert fills.count("target") == 1


def test_stacks_touch_and_add_up() -> None:
    chart = stacked_chart("t", "ms", ["p", "q"], [Stack(label="a", parts=[1.0, 3.0])])
    first, second = [bar for bar in bars_of(chart) if bar.tooltip]
    assert second.x == pytest.approx(first.x + first.width)
    assert second.width == pytest.approx(3 * first.width)


def test_lines_leave_gaps_and_keep_spikes() -> None:
    values: list[float | None] = [1.0] * 10_000
    values[5_000] = None
    values[7_777] = 50.0
    chart = line_chart("t", "s", "x", list(range(10_000)), [Series(name="a", values=values)])
    assert chart is not None
    lines = [shape for shape in chart.shapes if isinstance(shape, Polyline)]
    assert len(lines) == 2
    assert sum(len(line.points) for line in lines) < 3_000
    ys = [y for line in lines for _, y in line.points]
    assert min(ys) < max(ys) - 100  # the spike is still there


def test_nothing_to_draw_is_no_chart() -> None:
    assert bar_chart("t", "x", []) is None
    assert bar_chart("t", "x", [Bar(label="a", value=None), Bar(label="b", value=0.0)]) is None
    assert stacked_chart("t", "x", ["p"], [Stack(label="a", parts=[None])]) is None
    assert line_chart("t", "s", "x", [0.0], [Series(name="a", values=[1.0])]) is None
    assert line_chart("t", "s", "x", [0, 1], [Series(name="a", values=[1.0, None])]) is None


def test_long_names_stay_inside() -> None:
    chart = bar_chart("t", "x", [Bar(label="n" * 300, value=1.0, text="1")])
    assert chart is not None
    label = next(s for s in chart.shapes if isinstance(s, Text) and s.anchor == "end")
    assert label.text.endswith("…")
    assert len(label.text) < 60
