"""The report as a record: the hidden places, and the files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import bgsoft
from bgsoft.models.catalog import catalog, resolve, spec_path
from bgsoft.report import Event
from tests.contract.test_render_hide import AS_IT_IS, FRAMES, pictures, write_noise
from tests.contract.test_render_regions import write_regions
from tests.face_clips import SAMPLE
from tests.rendering import LOSSLESS
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.chunks.short_chunks import _short_chunks, render_in_chunks, settings

MOVING = 'action = "hide"\nkeys = [{at = 0, box = "40,20,60,40"}, {at = 0.2, box = "60,40,60,40"}]'


def sha256(path: Path) -> str:
    return subprocess.check_output(["sha256sum", str(path)], text=True).split()[0]


def changed(one: Path, other: Path) -> list[tuple[int, ...]]:
    """Return the box around the difference in each frame of the second video."""
    found, after = [], pictures(other)
    for a, b in zip(pictures(one, len(after)), after, strict=True):
        differs: NDArray[Any] = a[0] != b[0]
        rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
        found.append((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    return found


def test_files_that_change_during_the_render_have_no_hash(tmp_path: Path) -> None:
    clip, file = write_noise(tmp_path / "in.mkv"), tmp_path / "r.json"
    regions = Path(write_regions(tmp_path / "r.toml", MOVING))
    picture = tmp_path / "b.png"
    Image.new("RGB", (8, 8), "red").save(picture)

    def change(event: Event) -> None:
        if event.kind == "fallback":  # the first event, while stages are made
            regions.write_text(regions.read_text() + "\n")

    told = bgsoft.render(
        *(clip, tmp_path / "out.mkv"),
        **{**AS_IT_IS, "effect": None, "strength": None, "regions": regions, "report": file},
        background=picture,
        on_event=change,
    )
    warnings = [event.message for event in told.events if event.kind == "warning"]
    assert f"{regions} changed while the video was rendered" in warnings
    found = {entry["role"]: entry["sha256"] for entry in json.loads(file.read_text())["files"]}
    assert (found["regions"], found["background"]) == (None, sha256(picture))


def test_the_record_has_what_changed_and_the_files(tmp_path: Path) -> None:
    clip, out, file = write_noise(tmp_path / "in.mkv"), tmp_path / "out.mkv", tmp_path / "r.json"
    regions = Path(write_regions(tmp_path / "r.toml", MOVING))
    own = {**AS_IT_IS, "codec": "ffv1", "anonymize_style": "solid"}
    bgsoft.render(clip, out, regions=regions, report=file, matte_out=tmp_path / "m.mkv", **own)
    report = json.loads(file.read_text())
    (run,) = report["hidden"]
    assert (run["source"], run["region"]) == ("region", "region 1 of r.toml")
    boxes = changed(clip, out)
    assert run["boxes"] == [[n, *boxes[n]] for n in (0, FRAMES - 1)]
    found = {entry["role"]: (entry["name"], entry["sha256"]) for entry in report["files"]}
    files = {"input": clip, "regions": regions, "output": out, "matte": tmp_path / "m.mkv"}
    model = found.pop("model")
    assert found == {role: (str(path), sha256(path)) for role, path in files.items()}
    assert model == ("selfie-general", sha256(resolve("selfie-general").path))


def test_every_network_of_best_is_hashed(tmp_path: Path) -> None:
    clip, file = write_noise(tmp_path / "in.mkv"), tmp_path / "r.json"
    own = {**AS_IT_IS, "matte": "best", "mask_every": 1, "duration": 0.05, "codec": "ffv1"}
    bgsoft.render(clip, tmp_path / "out.mkv", report=file, **own)
    files = json.loads(file.read_text())["files"]
    found = {entry["name"]: entry["sha256"] for entry in files if entry["role"] == "model"}
    specs = [catalog()[name] for name in ("selfie-general", "selfie-landscape", "refiner", "yunet")]
    assert found == {spec.name: sha256(spec_path(spec)) for spec in specs}


@pytest.mark.parametrize(
    ("look", "is_told"),
    [
        ({"strength": 9.0}, True),
        ({"effect": "matte", "strength": None}, True),
        ({"strength": 9.0, "face": "main"}, True),
        ({"strength": 9.0, "drop": "0,0,9,9"}, False),
        ({"strength": 9.0, "keep": "0,0,9,9"}, False),
        ({"strength": 0.0}, False),
        ({"strength": 0.0, "matte_out": True}, True),
    ],
)
def test_nobody_is_reported(tmp_path: Path, look: dict[str, Any], is_told: bool) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    own = {**AS_IT_IS, **look, "overwrite": True}
    if "matte_out" in look:
        own["matte_out"] = tmp_path / "matte.mkv"
    report = bgsoft.render(clip, tmp_path / "out.mkv", **own)
    told = [each.message for each in report.events if "whole picture" in each.message]
    who = "no main person" if "face" in look else "nobody"
    assert told == is_told * [
        f"{who} was found in {FRAMES} frames, so the whole picture is background"
    ]
    assert report.timeline is None


def test_areas_of_mattes_are_listed(tmp_path: Path) -> None:
    clip, file = write_noise(tmp_path / "in.mkv"), tmp_path / "r.json"
    regions = (
        'action = "drop"\nbox = "0,0,320,180"',
        'action = "keep"\nbox = "0,0,160,90"\nto = 0.1',
    )
    own = {**AS_IT_IS, "codec": "ffv1", "regions": write_regions(tmp_path / "r.toml", *regions)}
    bgsoft.render(clip, tmp_path / "out.mkv", report=file, **own)
    timeline = json.loads(file.read_text())["timeline"]
    # Three of 25 frames a second begin before 0.1 s; a cell of the grid is cut at 90.
    assert timeline["matte_area_pct"] == pytest.approx([25.0] * 3 + [0.0] * (FRAMES - 3), abs=0.4)
    assert timeline["faces"] is None


def test_nothing_is_hashed_or_measured_without_a_report_file(tmp_path: Path) -> None:
    clip = write_noise(tmp_path / "in.mkv")
    report = bgsoft.render(clip, tmp_path / "out.mkv", hide="0,0,20,20", codec="ffv1", **AS_IT_IS)
    assert (report.files, report.timeline) == ([], None)
    assert [run.region for run in report.hidden] == ["--hide 0,0,20,20"]


def test_hidden_faces_are_recorded(tmp_path: Path) -> None:
    out, file = tmp_path / "out.mkv", tmp_path / "r.json"
    own = {**AS_IT_IS, **LOSSLESS, "face": "anonymize", "subjects": 0, "duration": 0.1}
    bgsoft.render(SAMPLE, out, report=file, **own)
    report = json.loads(file.read_text())
    (run,) = report["hidden"]
    assert (run["source"], run["region"]) == ("network", None)
    frames = report["frames_encoded"]
    assert [run["first_frame"], run["last_frame"]] == [0, frames - 1]
    assert report["timeline"]["faces"] == [1] * frames
    box = run["boxes"][0][1:]
    left, top, right, bottom = changed(SAMPLE, out)[0]
    assert box[0] <= left < right <= box[2]
    assert box[1] <= top < bottom <= box[3]
    models = {entry["name"] for entry in report["files"] if entry["role"] == "model"}
    assert models == {"selfie-general", "yunet", "yunet-smoothed", "mmod", "face-mesh"}


@pytest.mark.slow
@pytest.mark.usefixtures(_short_chunks.__name__)
def test_chunks_have_the_record_of_a_whole_render(tmp_path: Path) -> None:
    clip = write_video(tmp_path / "in.mkv", VideoSpec(times=regular_times(64), options={"g": "12"}))
    regions = write_regions(tmp_path / "r.toml", MOVING.replace("0.2", "1.5"))
    own = {"effect": "dim", "face": "off", "matte": "fast", "codec": "ffv1", "regions": regions}
    found = []
    for name, chunks in (("whole", 1), ("parts", 3)):
        file = tmp_path / f"{name}.json"
        config = settings(clip, tmp_path / f"{name}.mkv", report=file, chunks=chunks, **own)
        _ = render_in_chunks(config) if chunks > 1 else bgsoft.render_config(config)
        found.append(json.loads(file.read_text()))
    whole, parts = found
    assert len(parts["parts"]) == 3
    assert parts["hidden"] == whole["hidden"]
    assert [box[0] for box in whole["hidden"][0]["boxes"]] == [0, 30, 60, 63]
    assert parts["timeline"] == whole["timeline"]
    hashed = [{entry["role"]: entry["sha256"] for entry in report["files"]} for report in found]
    assert hashed[0]["input"] == hashed[1]["input"] == sha256(clip)
    assert hashed[1]["output"] == sha256(tmp_path / "parts.mkv")
