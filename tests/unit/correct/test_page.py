"""The page's server: frames, results, the timeline, and who may use it."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bgsoft.correct.page import CorrectionPage
from bgsoft.errors import BgsoftError, ConfigError, UnsupportedFormatError
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import FaceMode, MatteQuality
from bgsoft.settings.regions_file import read_regions
from tests.processes import wait_until
from tests.unit.live.conftest import ask
from tests.unit.review.pages import Picture, room, write, write_report

FRAMES = 40
KEY_FRAMES = """\
[[region]]
action = "drop"  # by hand
keys = [{ at = 0, box = "0,0,50%,50%" }, { at = 1, box = "50%,0,50%,50%" }]
"""
Open = Callable[..., CorrectionPage]


def numbered(frames: int) -> list[Picture]:
    """Pictures of a room; the brightness of a corner shows each one's number."""
    pictures = room(frames)
    for number, picture in enumerate(pictures):
        picture[100:, 220:] = 40 + 4 * number
    return pictures


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("clip") / "in.mkv", numbered(FRAMES))


@pytest.fixture
def regions(tmp_path: Path) -> Path:
    return tmp_path / "in.regions.toml"


@pytest.fixture
def opened(clip: Path, regions: Path) -> Iterator[Open]:
    pages: list[CorrectionPage] = []

    def open_page(flags: dict[str, Any] | None = None, **given: Any) -> CorrectionPage:
        quick = {"face": {"mode": FaceMode.OFF}, "segment": {"matte": MatteQuality.FAST}}
        chosen = {"effect": {"strength": 3.0}, **quick, **(flags or {})}
        config = build_config(clip, Path("/dev/null"), preset="soft", flags=chosen)
        pages.append(CorrectionPage(config, regions, **given))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def answer(page: CorrectionPage, path: str, body: Any = None) -> dict[str, Any]:
    status, data, _ = ask(page, path, body)
    assert status == 200, data
    value: dict[str, Any] = json.loads(data)
    return value


def picture(data: bytes) -> Picture:
    shown = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert shown is not None
    return np.asarray(shown, np.uint8)


def result(page: CorrectionPage, number: int, *regions: object) -> dict[str, Any]:
    version = answer(page, "/state")["version"]
    made = answer(page, "/result", {"number": number, "version": version, "regions": regions})
    pictures = {name: picture(base64.b64decode(made[name])) for name in ("result", "matte")}
    return {**made, **pictures}


@pytest.mark.parametrize("number", [0, 39, 20, 21, 5])
def test_each_frame_is_the_one_asked_for(opened: Open, number: int) -> None:
    page = opened()
    for each in (17, number):
        status, data, headers = ask(page, f"/source?number={each}")
        assert (status, headers["Content-Type"]) == (200, "image/jpeg")
        shown = picture(data)
        assert shown.shape == (180, 320)
        assert abs(shown[110:170, 230:310].mean() - (40 + 4 * each)) < 1.5


def test_frames_in_any_order_are_the_same(opened: Open) -> None:
    page = opened()
    first = result(page, 30)["result"]
    for number in (31, 2, 29):
        result(page, number)
    assert np.array_equal(result(page, 30)["result"], first)


def test_a_background_video_shows_the_frame_of_a_render(opened: Open, tmp_path: Path) -> None:
    behind = write(tmp_path / "behind.mkv", numbered(15))
    page = opened({"effect": {"kind": "video", "background": str(behind)}})
    for number in (38, 3, 2, 20):
        shown = result(page, number)["result"]
        assert abs(shown[110:170, 230:310].mean() - (40 + 4 * (number % 15))) < 1.5


def test_regions_take_effect_where_and_when_they_are(opened: Open) -> None:
    page = opened()
    keep = {"action": "keep", "box": "0,0,100,100", "from": 0.8, "to": 0.84}
    mattes = [result(page, number, keep)["matte"] for number in (19, 20, 21)]
    inside = [float(matte[5:95, 5:95].mean()) for matte in mattes]
    assert inside[1] > 250
    assert max(inside[0], inside[2]) < 128
    assert mattes[1][120:, 120:].mean() < 128
    source = picture(ask(page, "/source?number=20")[1])
    hide = {"action": "hide", "ellipse": "10,10,40,40"}
    with_both = result(page, 20, keep, hide)["result"]
    kept = result(page, 20, keep)["result"]
    # A kept place is as in the source, and a hidden one is not.
    square = np.s_[20:40, 20:40]
    assert np.abs(kept[square].astype(int) - source[square]).mean() < 3
    assert np.abs(with_both[square].astype(int) - source[square]).mean() > 8


def test_regions_of_flags_count_too(opened: Open) -> None:
    page = opened({"regions": {"keep": ("0,0,50%,100%",)}})
    assert result(page, 3)["matte"][:, 5:150].mean() > 250
    drop = {"action": "drop", "polygon": "0,0 50%,0 50%,50% 0,50%"}
    matte = result(page, 3, drop)["matte"]
    assert matte[5:85, 5:150].mean() < 5
    assert matte[95:, 5:150].mean() > 250


def test_key_frames_of_the_file_move_and_are_kept(opened: Open, regions: Path) -> None:
    regions.write_text(KEY_FRAMES)
    page = opened({"regions": {"keep": ("0,0,100%,100%",)}})
    (region,) = answer(page, "/state")["regions"]
    assert [(key["at"], key["place"]) for key in region["keys"]] == [
        (0, "0,0,50%,50%"),
        (1, "50%,0,50%,50%"),
    ]
    for number, left in ((0, 0), (12, 77), (25, 160)):
        row = result(page, number, 0)["matte"][40]
        assert row[left + 5 : left + 155].max() < 10
        assert row[: max(left - 5, 0)].min(initial=255) > 245
    state = answer(page, "/state")
    new = {"action": "hide", "box": "1,2,30,40", "to": 1.2}
    saved = answer(page, "/save", {"version": state["version"], "regions": [0, new]})
    assert regions.read_text().startswith(KEY_FRAMES)
    assert tomllib.loads(regions.read_text())["region"][1] == new
    assert saved["version"] != state["version"]
    assert [each["action"] for each in saved["regions"]] == ["drop", "hide"]
    assert [each.action for each in read_regions(regions)] == ["drop", "hide"]


def test_a_region_outside_the_frame_is_not_saved(opened: Open, regions: Path) -> None:
    page = opened()
    version = answer(page, "/state")["version"]
    outside = {"action": "hide", "box": "320,0,10,10"}
    body = {"version": version, "regions": [outside], "number": 1}
    for path in ("/save", "/result"):
        status, data, _ = ask(page, path, body)
        assert (status, b"outside the frame of 320x180" in data) == (400, True)
    assert not regions.exists()


@pytest.mark.parametrize("number", [-1, FRAMES, "x", None, 1.5])
def test_a_frame_that_is_none_is_refused(opened: Open, number: Any) -> None:
    page = opened()
    assert ask(page, f"/source?number={number}")[0] == 404
    body = {"number": number, "version": answer(page, "/state")["version"], "regions": []}
    status, data, _ = ask(page, "/result", body)
    assert (status, b"there is no such frame" in data) == (400, True)


def test_only_the_printed_address_is_answered(opened: Open, regions: Path) -> None:
    page = opened()
    body = {"version": answer(page, "/state")["version"], "regions": [], "number": 0}
    for path in ("/", "/state", "/timeline", "/source?number=0"):
        assert ask(page, path, token="x")[0] == 403
        assert ask(page, path, headers={"Host": "evil.example"})[0] == 403
    for path in ("/save", "/result"):
        assert ask(page, path, body, token="x")[0] == 403
        assert ask(page, path, body, headers={"Host": "evil.example"})[0] == 403
    assert ask(page, "/other")[0] == ask(page, "/other", {})[0] == 404
    status, text, headers = ask(page, "/")
    assert (status, b"http://www.w3.org/2000/svg" in text) == (200, True)
    assert text.replace(b"http://www.w3.org/2000/svg", b"").count(b"http") == 0
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_timeline_is_found_in_the_background(opened: Open) -> None:
    page = opened({"regions": {"keep": ("0,0,100%,100%",)}})
    wait_until(lambda: answer(page, "/timeline")["frames"] == FRAMES)
    known = answer(page, "/timeline")
    assert known["failure"] is None
    assert "Matte area" in known["svg"]
    assert "Faces" not in known["svg"]  # none are looked for with --face off


def test_a_report_gives_the_timeline_and_its_doubts(
    opened: Open, clip: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "out.mkv", room(1))
    doubtful = [{"frame": 9, "boxes": [[10, 10, 40, 40]]}]
    area = [20.0] * FRAMES
    report = write_report(tmp_path / "r.json", clip, other, area, doubtful=doubtful, cuts=[25])
    known = answer(opened(report=report), "/timeline")
    assert known["frames"] == FRAMES
    assert 'href="#9"' in known["svg"]
    assert "cut, frame 25" in known["svg"]
    foreign = write_report(tmp_path / "r.json", other, other, area)
    with pytest.raises(ConfigError, match="is not the input that it describes"):
        opened(report=foreign)


def test_it_begins_at_a_time(opened: Open) -> None:
    assert answer(opened(at_seconds=0.81), "/state")["start"] == 21
    assert answer(opened(), "/state")["times"][:3] == [0, 0.04, 0.08]
    with pytest.raises(ConfigError, match=r"--at must be between 0 and 1\.56 s"):
        opened(at_seconds=1.57)


def test_what_is_no_video_file_is_refused(tmp_path: Path, regions: Path) -> None:
    picture = tmp_path / "in.png"
    cv2.imwrite(str(picture), room(1)[0])
    config = build_config(picture, Path("/dev/null"), preset="soft")
    with pytest.raises(UnsupportedFormatError, match=r"cannot correct .*: it is not a video file"):
        CorrectionPage(config, regions)


def test_a_broken_regions_file_is_one_error(opened: Open, regions: Path) -> None:
    regions.write_text("[[region]]\n")
    with pytest.raises(BgsoftError, match="region 1: action must be"):
        opened()
    regions.unlink()
    page = opened()
    regions.write_text("[[region]]\n")
    status, data, _ = ask(page, "/state")
    assert (status, b"region 1: action must be" in data) == (400, True)


def test_given_mattes_are_those_of_the_frames(opened: Open, tmp_path: Path) -> None:
    """Frames are asked for in any order, although a file of mattes is read forwards."""
    pictures = [np.full((180, 320), 40 + 5 * number, np.uint8) for number in range(FRAMES)]
    mattes = write(tmp_path / "mattes.mkv", pictures)
    page = opened({"segment": {"matte_in": str(mattes)}, "matte": {"style": "soft"}})
    shown = [float(result(page, number)["matte"].mean()) for number in (30, 5, 6, 38)]
    assert shown[1] < shown[2] < shown[0] < shown[3]
