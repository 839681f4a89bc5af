"""Outputs of detectors: the boxes read from them, and outputs that are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.detect.boxes import Boxes, BoxReader, Letterbox, join_boxes, overlaps
from bgsoft.detect.detector import Detector
from bgsoft.detect.step import HOLD_SECONDS, BoxHolder, FoundBox
from bgsoft.errors import ConfigError, ModelError
from bgsoft.frame import FrameFormat
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models.boxes import BOXES, BoxContract, BoxLayout
from bgsoft.models.catalog import ModelSpec, resolve
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.threads import LanePool
from tests.detectors import write_detector
from tests.pictures import frame_of

HALVES = "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]"
FORMAT = FrameFormat(width=320, height=180)


def spec_of(**changes: Any) -> ModelSpec:
    contract = {"layout": BoxLayout.YOLOV8, "classes": ("a", "b"), "hide": ("a", "b")} | changes
    return ModelSpec(
        name="own", family=BOXES, file="own.onnx", width=320, height=320,
        boxes=BoxContract(**contract),
    )  # fmt: skip


def read(rows: list[list[float]], **changes: Any) -> list[FoundBox]:
    """Read rows of x, y, width, height, score of a, score of b."""
    spec = spec_of(**changes)
    raw = np.array(rows, np.float32).T
    return BoxReader(spec, (1, *raw.shape), 1, Letterbox.of(spec, FORMAT)).read(raw)


def test_boxes_are_moved_from_the_input_to_the_frame() -> None:
    """A frame of 320x180 lies 70 pixels below the top of an input of 320x320."""
    (found,) = read([[100, 150, 40, 20, 0.1, 0.9]])
    assert found.name == "b"
    np.testing.assert_allclose(found.box, (80, 70, 120, 90))


@pytest.mark.parametrize("size", [(640, 640), (320, 640), (96, 32)])
def test_a_frame_keeps_its_proportions_in_the_input(size: tuple[int, int]) -> None:
    spec = spec_of()
    object.__setattr__(spec, "width", size[0])
    object.__setattr__(spec, "height", size[1])
    place = Letterbox.of(spec, FORMAT)
    scale = min(size[0] / 320, size[1] / 180)
    assert abs(place.width - 320 * scale) <= 0.5
    assert abs(place.height - 180 * scale) <= 0.5
    corners = (place.left, place.top, place.left + place.width, place.top + place.height)
    np.testing.assert_allclose(place.in_frame(np.array([corners])), [(0, 0, 320, 180)])


def test_only_what_is_hidden_and_likely_enough_is_found() -> None:
    rows = [[50, 100, 9, 9, 0.9, 0.0], [150, 100, 9, 9, 0.1, 0.3], [250, 100, 9, 9, 0.1, 0.19]]
    assert [name for name, _ in read(rows)] == ["a", "b"]
    assert [name for name, _ in read(rows, hide=("b",))] == ["b"]
    assert [name for name, _ in read(rows, threshold=0.05)] == ["a", "b", "b"]


def test_a_class_that_is_hidden_counts_though_another_is_likelier() -> None:
    (found,) = read([[50, 100, 9, 9, 0.9, 0.3]], hide=("b",))
    assert found.name == "b"


def test_boxes_of_one_thing_are_one_around_all_of_them() -> None:
    rows = [[50, 100, 20, 20, 0.6, 0], [52, 100, 20, 20, 0.9, 0], [52, 100, 20, 20, 0, 0.9]]
    one, other = read(rows)
    assert (one.name, other.name) == ("a", "b")
    np.testing.assert_allclose(one.box, (40, 20, 62, 40))
    assert len(read(rows, nms=1.0)) == 3


@pytest.mark.parametrize("limit", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("reach", [0.02, 0.3])
def test_boxes_are_joined_with_those_that_opencv_suppresses(limit: float, reach: float) -> None:
    rng = np.random.default_rng(5)
    begins, sizes = reach * rng.uniform(0, 600, (400, 2)), rng.uniform(20, 90, (400, 2))
    joined = join_boxes(np.hstack([begins, begins + sizes]), limit)
    places, scores = np.hstack([begins, sizes]), np.linspace(1, 0.5, 400)
    kept = cv2.dnn.NMSBoxes(places.tolist(), scores.tolist(), 0.1, limit)
    assert len(joined) == len(kept) < 400
    for box, head in zip(joined, kept, strict=True):
        assert (box[:2] <= begins[head]).all()
        assert (box[2:] >= (begins + sizes)[head]).all()
    covered = np.hstack([joined[:, :2].min(axis=0), joined[:, 2:].max(axis=0)])
    np.testing.assert_allclose(covered, [*begins.min(axis=0), *(begins + sizes).max(axis=0)])


def test_few_of_many_boxes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 boxes in a grid: each has 8 near neighbours, and 200 start at the same height."""
    compared = []

    def counted(box: Boxes, boxes: Boxes) -> NDArray[np.float64]:
        compared.append(len(boxes))
        return overlaps(box, boxes)

    monkeypatch.setattr("bgsoft.detect.boxes.overlaps", counted)
    begins = np.stack(np.meshgrid(np.arange(200.0), np.arange(50.0)), axis=-1).reshape(-1, 2) * 10
    assert len(join_boxes(np.hstack([begins, begins + 9]), 0.5)) == 10_000
    assert sum(compared) < 10_000 * 400


def test_more_boxes_than_a_scene_shows_are_an_error() -> None:
    rows = [[20 * (n % 50), 12 * (n // 50), 9, 9, 0.5, 0] for n in range(1001)]
    assert len(read(rows[:-1])) == 1000
    with pytest.raises(ModelError, match=r"finds 1001 boxes of class 'a' in one frame.*threshold"):
        read(rows)


def test_of_yolov5_both_scores_count() -> None:
    spec = spec_of(layout=BoxLayout.YOLOV5)
    raw = np.array(
        [[50, 100, 9, 9, 0.9, 0.9, 0], [99, 100, 9, 9, 0.9, 0.2, 0], [9, 100, 9, 9, 0.2, 0.9, 0]],
        np.float32,
    )
    (found,) = BoxReader(spec, (1, *raw.shape), 1, Letterbox.of(spec, FORMAT)).read(raw)
    np.testing.assert_allclose(found.box, (45.5, 25.5, 54.5, 34.5))


def test_boxes_of_negative_size_are_left_out_and_reported_once() -> None:
    spec, told = spec_of(), list[str]()
    raw = np.array(
        [[50, 100, -9, 9, 0.9, 0], [150, 100, 9, 9, 0.9, 0], [250, 100, 9, -0.1, 0.9, 0]],
        np.float32,
    ).T
    reader = BoxReader(spec, (1, *raw.shape), 1, Letterbox.of(spec, FORMAT), told.append)
    for _ in range(2):
        ((name, box),) = reader.read(raw)
        assert (name, *box) == ("a", 145.5, 25.5, 154.5, 34.5)
    assert reader.read(raw[:, :1]) == []
    assert told == [
        "detector own finds boxes of negative width or height, which are left out; check its export"
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([50, 100, -np.inf, 9, 0.9, 0], "a box without a finite place"),
        ([50, 100, 9, 9, 7.5, 0], "scores reach from 0 to 7.5"),
        ([50, 100, 9, 9, -3, 0], "scores reach from -3 to 0"),
        ([50, 100, 9, 9, np.nan, 0], "scores reach from nan to nan"),
        ([50, np.inf, 9, 9, 0.9, 0], "a box without a finite place"),
        ([50, 100, np.nan, 9, 0.9, 0], "a box without a finite place"),
        ([0.5, 0.6, 0.1, 0.1, 0.9, 0], "all its boxes lie within 8 pixels of a corner"),
    ],
)
def test_what_is_no_box_and_probability_is_an_error(row: list[float], message: str) -> None:
    """An invalid number must not leave a face visible."""
    with pytest.raises(ModelError, match=message):
        read([row])


@pytest.mark.parametrize(
    ("layout", "shape", "message"),
    [
        ("yolov8", (1, 7, 99), r"has 6 numbers a box, not 7; correct .boxes. classes"),
        ("yolov8", (1, 99, 7), r"has 6 numbers a box, not 99; layout = 'yolov5' fits"),
        ("yolov5", (1, 6, 99), r"has 7 numbers a box, not 99; layout = 'yolov8' fits"),
        ("yolov8", (6, 99), r"shape \(6, 99\), and layout yolov8 is \(1, 4 \+ classes, N\)"),
        ("yolov5", (1, 0, 7), r"layout yolov5 is \(1, N, 5 \+ classes\)"),
    ],
)
def test_an_output_of_another_shape_is_rejected(
    layout: str, shape: tuple[int, ...], message: str
) -> None:
    spec = spec_of(layout=BoxLayout(layout))
    with pytest.raises(ModelError, match=message):
        BoxReader(spec, shape, 1, Letterbox.of(spec, FORMAT))


def noise(size: tuple[int, int]) -> NDArray[np.uint8]:
    """Grey noise, in which the detector finds nothing."""
    rng = np.random.default_rng(3)
    grey = rng.integers(40, 200, (size[1], size[0], 1), np.uint8)
    return np.repeat(grey, 3, axis=2)


def boxes_of(path: Path, pictures: list[NDArray[np.uint8]]) -> list[list[FoundBox]]:
    frames = [frame_of(np.ascontiguousarray(picture[..., ::-1])) for picture in pictures]
    pool = LanePool(2)
    model, format = resolve(str(path), (BOXES,)), frames[0].format
    factory = HostSegmenterFactory("cpu", format, pool)
    detector = Detector(model.spec, factory.driver(NetworkLoader(model)), format, pool)
    detector.start()
    found = detector.find(frames, Reducer(format, pool, batch=len(frames)).reduce(frames))
    detector.close()
    pool.close()
    return found


@pytest.mark.parametrize(
    ("size", "frame", "settings"),
    [
        ((128, 128), (320, 180), {}),
        ((128, 128), (320, 180), {"layout": "yolov5"}),
        ((128, 128), (320, 180), {"batch": 3}),
        ((128, 128), (320, 180), {"batch": "any", "half": True}),
        ((128, 128), (320, 180), {"last": True, "input_keys": 'layout = "NHWC"'}),
        ((128, 64), (90, 160), {}),
        ((64, 128), (96, 54), {}),
        ((128, 128), (1280, 720), {"input_keys": HALVES, "gain": 0.5}),
    ],
)
def test_a_network_finds_what_is_in_the_frame(
    tmp_path: Path, size: tuple[int, int], frame: tuple[int, int], settings: dict[str, Any]
) -> None:
    path = write_detector(tmp_path / "own.onnx", size, **settings)
    red, blue = noise(frame), noise(frame)
    side = round(0.3 * min(frame))
    x, y = round(0.55 * frame[0]), round(0.3 * frame[1])
    cv2.rectangle(red, (x, y), (x + side - 1, y + side - 1), (255, 0, 0), cv2.FILLED)
    cv2.rectangle(blue, (y, y), (y + side - 1, y + side - 1), (0, 0, 255), cv2.FILLED)
    first, second, none = boxes_of(path, [red, blue, noise(frame)])
    assert none == []
    pixel = 1 / min(size[0] / frame[0], size[1] / frame[1])
    for found, name, left in ((first, "red", x), (second, "blue", y)):
        ((at, box),) = found
        assert at == name
        # Chroma has half the samples, and colours of the edge are mixed.
        np.testing.assert_allclose(box, (left, y, left + side, y + side), atol=2 + 1.5 * pixel)


def test_a_missed_box_is_held_where_it_was_and_would_be() -> None:
    holder = BoxHolder()
    for frame in range(4):
        moved = np.array([10.0 + 2 * frame, 10, 50 + 2 * frame, 30])
        assert holder.update([FoundBox("a", moved)], frame / 25) == []
    for frame in range(4, 4 + round(25 * HOLD_SECONDS) - 1):
        ((name, box),) = holder.update([], frame / 25)
        assert name == "a"
        np.testing.assert_allclose(box, (16, 10, 50 + 2 * frame, 30))
    assert holder.update([], 3 / 25 + HOLD_SECONDS + 0.01) == []


def test_a_box_that_is_found_again_is_held_no_more() -> None:
    holder = BoxHolder()
    one, other = np.array([10.0, 10, 50, 30]), np.array([100.0, 10, 140, 30])
    holder.update([FoundBox("a", one), FoundBox("a", other)], 0)
    ((_, held),) = holder.update([FoundBox("a", one + 4)], 0.04)
    np.testing.assert_allclose(held, other)
    assert len(holder.update([FoundBox("b", other)], 0.08)) == 2  # of another class
    holder.reset()
    assert holder.update([], 0.12) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("treshold = 0.3", "unknown key 'treshold'.*threshold"),
        ("threshold = 0", "threshold must be above 0 and below 1, not 0"),
        ("threshold = 1.5", "threshold must be above 0 and below 1, not 1.5"),
        ('threshold = "low"', "threshold must be above 0"),
        ("threshold = nan", "threshold must be above 0"),
        ("nms = 0", "nms must be above 0 up to 1, not 0"),
        ('hide = ["rad"]', "hide names 'rad', which is none of its classes.*red"),
        ("hide = []", r"hide must be a list of names, not \[\]"),
        ('hide = "red"', "hide must be a list of names"),
        ('hide = ["red", "red"]', "hide names 'red' twice"),
        ("[[outputs]]\nchannel = 1", r"channel has no effect in \[\[outputs\]\] of family"),
        ("[state]\ninputs = []", r'\[state\] has no effect; it needs family = "recurrent"'),
    ],
)
def test_wrong_keys_are_named(tmp_path: Path, keys: str, message: str) -> None:
    path = write_detector(tmp_path / "own.onnx", keys=keys)
    with pytest.raises(ConfigError, match=message):
        resolve(str(path), (BOXES,))


SIZE = "[input]\nwidth = 128\nheight = 128\n"


@pytest.mark.parametrize(
    ("sidecar", "message"),
    [
        (f'family = "boxes"\n{SIZE}', r"needs \[boxes\] layout and classes"),
        (f'family = "boxes"\nboxes = 3\n{SIZE}', r"needs \[boxes\] layout and classes"),
        (f'family = "boxes"\n{SIZE}[boxes]\nlayout = "yolo8"\nclasses = ["a"]', "yolov8"),
        (f'family = "boxes"\n{SIZE}[boxes]\nlayout = "yolov8"', "classes must be a list of names"),
        (f'family = "boxes"\n{SIZE}[boxes]\nlayout = "yolov8"\nclasses = [1]', "classes must be"),
        ('family = "boxes"\n[input]\n[boxes]\nlayout = "yolov8"\nclasses = ["a"]', "needs width"),
        ('family = "boxes"\n', r"needs family = .boxes., .*\[boxes\] layout, classes"),
        (f'family = "single-shot"\nboxes = 3\n{SIZE}', r'\[boxes\] is for family = "boxes"'),
        (f'family = "single-shot"\n{SIZE}', "of family single-shot; choose one of boxes"),
        (f'family = "box"\n{SIZE}', "unknown family 'box'.*boxes"),
    ],
)
def test_wrong_sidecars_are_named(tmp_path: Path, sidecar: str, message: str) -> None:
    path = write_detector(tmp_path / "own.onnx", sidecar=sidecar)
    with pytest.raises(ConfigError, match=message):
        resolve(str(path), (BOXES,))


def test_a_detector_without_a_sidecar(tmp_path: Path) -> None:
    path = write_detector(tmp_path / "own.onnx")
    path.with_suffix(".toml").unlink()
    with pytest.raises(ConfigError, match=r"it needs own\.toml .* family = .boxes."):
        resolve(str(path), (BOXES,))


def test_a_detector_makes_no_masks(tmp_path: Path) -> None:
    path = write_detector(tmp_path / "own.onnx")
    with pytest.raises(ConfigError, match="of family boxes; choose one of single-shot"):
        resolve(str(path))
