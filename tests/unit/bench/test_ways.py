"""Comparisons of whole commands: chunks, batches and shell loops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bgsoft.bench import ways
from bgsoft.bench.phases import Measurement
from bgsoft.bench.process import Run
from bgsoft.bench.side_by_side import render_chunks
from bgsoft.cli.bench_tables import tables
from bgsoft.cli.results import plain_text
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.media.probe import probe
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import RenderConfig
from tests.cli.conftest import Run as Command
from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.outside import shown_by_ffmpeg
from tests.synthetic import VideoSpec, regular_times, write_video


def config_of(folder: Path, frames: int, **more: Any) -> RenderConfig:
    clip = write_video(folder / "clip.mp4", VideoSpec(times=regular_times(frames)))
    flags = {"effect": {"kind": "dim"}, "segment": {"matte": "fast"}, "face": {"mode": "off"}}
    return build_config(clip, folder / "out.mkv", flags=flags, **more)


def test_each_row_is_compared_with_the_first() -> None:
    walls = {"loop": iter([9.0, 6.0, 8.0, 4.0]), "batch": iter([9.0, 3.0, 2.0, 1.0])}

    def row(name: str) -> Measurement:
        def given(_config: RenderConfig) -> Run:
            return Run(frames=60, wall_s=next(walls[name]), cpu_s=1.0, report={})

        return Measurement(name, given, [RenderConfig(input=Path("a"), output=Path("b"))])

    def missing(_config: RenderConfig) -> Run:
        raise BackendUnavailableError("no ffmpeg found")

    absent = replace(row("loop"), name="ffmpeg", run=missing)
    found = ways.measure([row("loop"), row("batch"), absent], 3, lambda _text: None)
    assert [each["wall_s"] for each in found] == [6.0, 2.0, None]
    assert [each["speedup"] for each in found] == [1.0, 3.0, None]
    assert [each["run_fps"] for each in found] == [10.0, 30.0, None]
    clip = {"name": "a.mp4", "frames": 60, "width": 2, "height": 2}
    (table,) = tables({"clip": clip, "hardware": {"cpu": "x"}, "ways": found})
    text = plain_text(table)
    for words in ("60 frames of 2x2", "3.00×", "ffmpeg: no ffmpeg found"):
        assert words in text


def test_clips_are_cut_from_all_over_the_video(tmp_path: Path) -> None:
    config = config_of(tmp_path, 75, duration_seconds=0.4)
    loop, batch = ways.file_rows(config, probe(config.input), tmp_path, 3)
    assert (loop.name, batch.name) == ("shell loop", "batch")
    clips = sorted((tmp_path / "in").iterdir())
    assert [len(shown_by_ffmpeg(clip)) for clip in clips] == [10, 10, 10]


def test_a_render_that_was_not_divided_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, 20)

    def run_render(_config: RenderConfig, _folder: Path, chunks: int) -> Run:
        parts = [{}] * (chunks if chunks < 4 else 1)
        return Run(frames=20, wall_s=1.0, cpu_s=1.0, report={"parts": parts})

    monkeypatch.setattr(ways, "run_render", run_render)
    rows = ways.chunk_rows(config, probe(config.input), tmp_path, [1, 2, 4])
    names = [row.name for row in rows]
    assert names[::2] == ["1 chunk", "2 chunks", "4 chunks", names[-1]]
    assert "transcode" in names[-1]
    for row in rows[:6:2]:
        row.take(keep=True)
    assert [len(row.runs) for row in rows[:6:2]] == [1, 1, 0]
    assert "rendered whole" in rows[4].result()["reason"]


def test_what_cannot_be_divided_has_no_floor_either(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="it has fewer than two key frames"):
        render_chunks(config_of(tmp_path, 20), 2)


def test_clips_need_a_length(tmp_path: Path) -> None:
    config = config_of(tmp_path, 20)
    info = replace(probe(config.input), duration_seconds=None)
    with pytest.raises(ConfigError, match="its length is unknown"):
        ways.file_rows(config, info, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "names"),
    [
        (("--chunks", "1,2"), ["1 chunk", "1 chunk without encoder", "2 chunks"]),
        (("--files", "2"), ["shell loop", "batch"]),
    ],
)
def test_whole_commands_are_measured(
    run: Command,  # noqa: F811
    tmp_path: Path,
    flag: tuple[str, str],
    names: list[str],
) -> None:
    clip = config_of(tmp_path, 400).input
    results = tmp_path / "results.json"
    quick = ("--rounds", "1", "--effect", "dim", "--matte", "fast", "--face", "off")
    outcome = run("bench", clip, *flag, "--seconds", "20", *quick, "--json", results)
    assert outcome.code == 0, outcome.err
    found = json.loads(results.read_text())
    assert found["schema"] == "bgsoft-bench-ways/1"
    assert [way["name"] for way in found["ways"]][: len(names)] == names
    assert all(way["available"] for way in found["ways"]), found["ways"]
    frames = 400 if flag[0] == "--chunks" else 2 * 400
    assert found["clip"]["frames"] == frames
    for way in found["ways"]:
        assert way["run_fps"] == pytest.approx(frames / way["wall_s"])
    assert names[-1] in outcome.out
