"""Renders in which a detector's finds are hidden, judged by the pixels of the output."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.batch.job import BatchJob
from bgsoft.errors import BgsoftError, ConfigError, ModelError
from bgsoft.rendering.configure import build_config
from tests.contract.test_render_hide import AS_IT_IS, pictures
from tests.detectors import write_detector
from tests.marks import slow
from tests.rendering import LOSSLESS
from tests.synthetic import made_once, write_frames

SIZE = 320, 180
SQUARE = 40
GAP = range(6, 9)
"""Frames in which the square is grey, so that the detector misses it."""
FRAMES = 24
LAST = 10
"""First frame without the square."""
NEAR = 6
"""Frame pixels around the square that may be hidden: the margin, and chroma's coarser samples."""
SOLID: dict[str, Any] = {**AS_IT_IS, **LOSSLESS, "anonymize_style": "solid"}


def corner(number: int) -> tuple[int, int]:
    """Left and top of the square in a frame."""
    return 100 + 4 * number, 60


def picture(number: int, seed: int | None = None) -> NDArray[np.uint8]:
    """Grey noise, another in each frame unless seeded, with a red square that moves; RGB."""
    rng = np.random.default_rng(number if seed is None else seed)
    image = np.repeat(rng.integers(60, 200, (*SIZE[::-1], 1), np.uint8), 3, axis=2)
    if number < LAST:
        x, y = corner(number)
        color = (128, 128, 128) if number in GAP else (255, 0, 0)
        cv2.rectangle(image, (x, y), (x + SQUARE - 1, y + SQUARE - 1), color, cv2.FILLED)
    return image


@made_once
def write_clip(path: Path, *, cuts: bool = False) -> Path:
    """Write the pictures; with ``cuts``, each place of the square begins a scene."""
    images = [picture(number, 0 if cuts else None) for number in range(FRAMES)]
    rows, columns = np.indices(SIZE[::-1]) // 40
    for image in images[LAST:] if cuts else []:
        image[(rows + columns) % 2 == 0] = 30
    return write_frames(path, images)


def hidden(path: Path, clip: Path) -> list[NDArray[np.bool_]]:
    """Return where each frame's luma is black; assert that all other samples are the source's."""
    found = []
    for after, before in zip(pictures(path), pictures(clip), strict=True):
        black = after[0] == 16
        np.testing.assert_array_equal(after[0][~black], before[0][~black])
        found.append(black)
    return found


def assert_hidden(black: NDArray[np.bool_], number: int, reach: int = NEAR) -> None:
    """All of the square is hidden, and nothing far from it."""
    x, y = corner(number)
    assert black[y : y + SQUARE, x : x + SQUARE].all()
    far = np.ones(black.shape, np.bool_)
    far[y - reach : y + SQUARE + reach, x - reach : x + SQUARE + reach] = False
    assert not black[far].any()


@pytest.mark.parametrize("settings", [{}, slow({"layout": "yolov5", "batch": "any"})])
def test_what_is_found_is_hidden_and_stays_hidden_where_it_is_missed(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx", **settings)
    report = bgsoft.render(clip, tmp_path / "out.mkv", detector=file, **SOLID)
    black = hidden(tmp_path / "out.mkv", clip)
    for number in range(LAST):
        held = number - GAP.start + 1 if number in GAP else 0
        assert_hidden(black[number], number, NEAR + 4 * held)
    last = LAST + 12  # half a second after frame 9
    assert all(each.any() for each in black[LAST:last])
    assert not any(each.any() for each in black[last:])
    counts = report.to_dict()["detector"]
    assert counts["model"] == "own"
    assert counts["frames"] == last
    assert counts["classes"]["blue"] == {"boxes": 0, "held": 0, "frames": 0}
    red = counts["classes"]["red"]
    assert red["frames"] == last
    assert red["boxes"] == LAST - len(GAP)
    assert red["held"] == last - red["boxes"]
    (run,) = report.hidden
    assert (run.source, run.region) == ("detector", "red")
    assert (run.first_frame, run.last_frame) == (0, last - 1)
    for number, *sides in run.boxes:
        rows, columns = np.nonzero(black[number])
        assert sides == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_a_cut_ends_what_is_held(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "in.mkv", cuts=True)
    file = write_detector(tmp_path / "own.onnx")
    report = bgsoft.render(clip, tmp_path / "out.mkv", detector=file, **SOLID)
    assert [event.frame for event in report.events if event.kind == "scene-cut"] == [LAST]
    black = hidden(tmp_path / "out.mkv", clip)
    assert [number for number, each in enumerate(black) if each.any()] == [*range(LAST)]


def test_every_frame_is_searched_whatever_is_segmented(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx")
    settings = {**SOLID, "mask_every": 25, "similarity": 1, "detector": file}
    bgsoft.render(clip, tmp_path / "out.mkv", **settings)
    for number, black in enumerate(hidden(tmp_path / "out.mkv", clip)[: GAP.start]):
        assert_hidden(black, number)


def test_classes_that_are_not_hidden_stay(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx", keys='hide = ["blue"]')
    events: list[Any] = []
    bgsoft.render(clip, tmp_path / "out.mkv", detector=file, on_event=events.append, **SOLID)
    assert not any(black.any() for black in hidden(tmp_path / "out.mkv", clip))
    assert any("detector own found nothing to hide" in event.message for event in events)


def test_the_margin_enlarges_what_is_hidden(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx")
    sizes = []
    for margin in (0, 100):
        settings = {**SOLID, "detector": file, "anonymize_margin": margin, "duration": 0.04}
        bgsoft.render(clip, tmp_path / f"{margin}.mkv", **settings)
        ((luma, *_),) = pictures(tmp_path / f"{margin}.mkv")
        sizes.append(int(np.sqrt((luma == 16).sum())))
    assert abs(sizes[0] - 1.1 * SQUARE) <= 4
    assert abs(sizes[1] - 2.1 * SQUARE) <= 4


def test_frames_pictures_and_single_images(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "in.mkv")
    file = write_detector(tmp_path / "own.onnx")
    settings = {**AS_IT_IS, "anonymize_style": "solid", "detector": file}
    x, y = corner(0)
    place = slice(y, y + SQUARE), slice(x, x + SQUARE)
    with bgsoft.frames(clip, duration=0.04, **settings) as frames:
        (first,) = [frame.picture for frame in frames]
    del settings["mask_every"]
    with bgsoft.Processor(**settings) as processor:
        single, empty = processor.process(picture(0)), processor.process(picture(LAST))
    cv2.imwrite(str(tmp_path / "in.png"), picture(0)[..., ::-1])
    bgsoft.render(tmp_path / "in.png", tmp_path / "out.png", **settings)
    still = cv2.imread(str(tmp_path / "out.png"))
    for image in (first, single, still):
        assert image[place].max() <= 2
        assert image[:20].min() > 40
    assert empty.min() > 40  # nothing is held from one picture to another


def test_a_preset_names_a_detector_next_to_it(tmp_path: Path) -> None:
    write_detector(tmp_path / "own.onnx")
    preset = tmp_path / "own.preset.toml"
    preset.write_text('[detector]\nfile = "own.onnx"\n')
    clip = write_clip(tmp_path / "in.mkv")
    settings = {**SOLID, "preset": str(preset), "duration": 0.04, "report": tmp_path / "r.json"}
    bgsoft.render(clip, tmp_path / "out.mkv", **settings)
    assert (pictures(tmp_path / "out.mkv")[0][0] == 16).any()
    found = json.loads((tmp_path / "r.json").read_text())["files"]
    files = {each["role"]: (each["name"], each["sha256"]) for each in found}
    for role, name in (("detector", "own.onnx"), ("detector sidecar", "own.toml")):
        path = tmp_path / name
        assert files[role] == (str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def test_metadata_is_removed_and_the_files_are_protected(tmp_path: Path) -> None:
    file = write_detector(tmp_path / "own.onnx")
    flags = {"detector": {"file": str(file)}}
    config = build_config(tmp_path / "in.mkv", tmp_path / "out.mkv", preset=None, flags=flags)
    assert config.hides
    assert config.strips_metadata
    assert {file, file.with_suffix(".toml")} <= set(config.inputs)
    clip = write_clip(tmp_path / "in.mkv")
    sidecar = file.with_suffix(".toml")
    with pytest.raises(BgsoftError, match=r"own\.toml"):
        bgsoft.render(
            clip, tmp_path / "out.mkv", report=sidecar, overwrite=True, detector=file, **SOLID
        )
    assert sidecar.read_text().startswith("family")


def test_a_changed_detector_is_noticed_by_a_batch(tmp_path: Path) -> None:
    file = write_detector(tmp_path / "own.onnx")
    write_clip(tmp_path / "in.mkv")
    flags = {"detector": {"file": str(file)}}
    config = build_config(tmp_path / "in.mkv", tmp_path / "out.mkv", preset=None, flags=flags)
    job = BatchJob(config, 1)
    before = job.made_from(tmp_path)["detector.file"]
    assert job.made_from(tmp_path)["detector.file"] == before
    write_detector(file, keys="threshold = 0.3")
    after = job.made_from(tmp_path)["detector.file"]
    write_detector(file, gain=0.5)
    assert len({before, after, job.made_from(tmp_path)["detector.file"]}) == 3


@pytest.mark.parametrize(
    ("changes", "settings", "error", "message"),
    [
        ({}, {"detector": "plates"}, ConfigError, r"detector must be a file FILE\.onnx"),
        ({}, {"detector": "none.onnx"}, ConfigError, r"none\.onnx: No such file"),
        ({}, {"effect": "matte"}, ConfigError, "detector .*has no effect"),
        ({"keys": "threshold = 3"}, {}, ConfigError, "threshold must be above 0"),
        (
            {"keys": 'hide = ["red"]\n[[outputs]]\nname = "x"'},
            {},
            ModelError,
            "has no output 'x', only found",
        ),
        ({"gain": 9}, {}, ModelError, "scores reach from 0 to 8.*probabilities"),
    ],
)
def test_wrong_files_are_one_line_and_leave_nothing(
    tmp_path: Path,
    changes: dict[str, Any],
    settings: dict[str, Any],
    error: type[BgsoftError],
    message: str,
) -> None:
    clip, target = write_clip(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    file = write_detector(tmp_path / "own.onnx", **changes)
    given = {**AS_IT_IS, **LOSSLESS, "detector": file, **settings}
    if settings.get("effect") == "matte":
        del given["strength"]
    with pytest.raises(error, match=message) as caught:
        bgsoft.render(clip, target, **given)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"in.mkv", "own.onnx", "own.toml"}
