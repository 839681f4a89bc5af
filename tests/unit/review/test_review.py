"""The page of a review, parsed and judged."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import BgsoftError, ConfigError, UnsupportedFormatError
from bgsoft.regions.places import PlacedRegion
from bgsoft.review.doubts import MAX_SHOWN
from bgsoft.review.evidence import read_face_data
from bgsoft.review.review import write_review
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.regions_file import read_regions
from tests.fakes import host_frames
from tests.movies import shown_pts, write_vp8_with_hidden_frames
from tests.outside import ffmpeg
from tests.synthetic import write_frames
from tests.unit.review.pages import RATE, Page, room, write, write_report

FRAMES = 60
SPOT = np.s_[60:120, 100:200]
"""Rows and columns that change."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and a result in which a spot is white from frame 30 on."""
    folder = tmp_path_factory.mktemp("pair")
    pictures = room(FRAMES)
    source = write(folder / "in.mkv", pictures)
    for picture in pictures[30:]:
        picture[SPOT] = 235
    return source, write(folder / "out.mkv", pictures)


def review(pair: tuple[Path, Path], folder: Path, **given: Any) -> Page:
    write_review(*pair, folder / "page.html", **given)
    return Page(folder / "page.html")


def regions(article: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The one region of an article, which a regions file takes."""
    path = folder / "r.toml"
    path.write_text(article["pre"])
    assert len(read_regions(path)) == 1
    (region,) = tomllib.loads(article["pre"])["region"]
    return dict(region)


def edges(box: str) -> list[int]:
    left, top, width, height = map(int, box.split(","))
    return [top, top + height, left, left + width]


def test_a_change_is_shown_and_mended_where_it_is(pair: tuple[Path, Path], tmp_path: Path) -> None:
    area = [20.0] * 30 + [8.0] * 30
    page = review(pair, tmp_path, report=write_report(tmp_path / "r.json", *pair, area))
    (article,) = page.articles
    assert article["data-frame"] == "30"
    assert "The area shrinks suddenly" in article["h2"]
    source, result = article["pictures"]
    assert source.shape == result.shape == (180, 320)
    assert abs(float(source[SPOT].mean()) - float(room(1)[0][SPOT].mean())) < 12
    assert result[SPOT].mean() > 225
    region = regions(article, tmp_path)
    assert region["action"] == "keep"  # the matte lost a part
    assert np.abs(np.array(edges(region["box"])) - [60, 120, 100, 200]).max() <= 8
    assert (region["from"], region["to"]) == (30 / RATE, 31 / RATE)


def test_the_videos_alone_show_it_too(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (article,) = review(pair, tmp_path).articles
    assert article["data-frame"] == "30"
    region = regions(article, tmp_path)
    assert region["action"] == "keep"
    assert np.abs(np.array(edges(region["box"])) - [60, 120, 100, 200]).max() <= 8


def test_a_frame_that_does_not_decode_shifts_no_other(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "out.mkv"
    with av.open(str(pair[1])) as file, av.open(str(broken), "w") as output:
        stream = output.add_stream_from_template(file.streams.video[0])
        for number, packet in enumerate(file.demux(video=0)):
            if packet.size:
                sent = av.Packet(b"\xff") if number == 10 else packet
                sent.pts, sent.dts, sent.time_base = packet.pts, packet.dts, packet.time_base
                sent.stream = stream
                output.mux(sent)
    (article,) = review((pair[0], broken), tmp_path).articles
    assert article["data-frame"] == "30"


def test_changes_at_cuts_are_none_and_flicker_is_named(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    area = [20.0] * 30 + [8.0] * 30
    area[45] = 25.0
    report = write_report(tmp_path / "r.json", *pair, area, cuts=[30])
    page = review(pair, tmp_path, report=report)
    assert [article["data-frame"] for article in page.articles] == ["45"]
    assert "Flicker" in page.articles[0]["h2"]
    assert page.text.count('class="cut"') == 1


def test_faces_of_the_report_are_shown_gravest_first(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    def at(frame: int, **more: Any) -> dict[str, Any]:
        return {"frame": frame, "pts": 40 * frame, "time_s": frame / RATE, **more}

    report = write_report(
        tmp_path / "r.json",
        *pair,
        [20.0] * FRAMES,
        cuts=[20],
        vanished=[at(10, id=0, box=[100, 60, 140, 110])],
        doubtful=[at(n, boxes=[[200, 20, 240, 60]]) for n in (3, 4, 5)],
        hidden=[
            {
                "source": "network",
                "region": None,
                "first_frame": 5,
                "last_frame": 20,
                "boxes": [[5, 0, 50, 30, 90], [20, 60, 50, 90, 90]],
            },
            {
                "source": "detector",
                "region": "plate",
                "first_frame": 5,
                "last_frame": 20,
                "boxes": [[5, 0, 90, 30, 120], [20, 60, 90, 90, 120]],
            },
        ],
    )
    page = review(pair, tmp_path, report=report)
    kinds = [article["h2"].split(maxsplit=1)[1] for article in page.articles]
    assert kinds == [
        "A face vanished",
        "May be a face, not taken for one",
        "A hidden face comes or goes at the edge",
    ]
    vanished, likely, edge = (regions(article, tmp_path) for article in page.articles)
    assert {vanished["action"], likely["action"], edge["action"]} == {"hide"}
    # It is hidden no more 0.8 s after it was seen last; but the scene ends before.
    assert page.articles[0]["data-frame"] == "19"
    assert (vanished["from"], vanished["to"]) == (10 / RATE, 20 / RATE)
    top, bottom, left, right = edges(vanished["box"])
    assert top <= 60 < 110 <= bottom
    assert left <= 100 < 140 <= right
    assert (likely["from"], likely["to"]) == (3 / RATE, 6 / RATE)  # three frames are one doubt
    assert page.text.count('class="hidden"') == 2  # a detector's finds are no faces


def test_without_a_place_nothing_is_proposed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    main = [{"frame": 12, "pts": 0, "time_s": 0.48, "ids": [1]}]
    report = write_report(tmp_path / "r.json", *pair, [20.0] * FRAMES, main_changes=main)
    page = review(pair, tmp_path, report=report)
    assert page.articles[0]["boxes"] == ["display:none"] * 2
    assert "<div class=mend hidden>" in page.text
    assert "No place was found: draw one." in "".join(page.words)


def test_face_data_has_low_scores_and_the_places_of_faces(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    faces = tmp_path / "faces.jsonl"
    with faces.open("w") as file:
        for n in range(FRAMES):
            face = {"id": 7, "score": 0.4 if n == 12 else 0.9, "box": [100, 50, 150, 110]}
            known = [{**face, "detected": True, "landmarks": []}]
            file.write(json.dumps({"index": n, "pts": n, "time": n / RATE, "faces": known}) + "\n")
    missed = [{"frame": 20, "pts": 0, "time_s": 0.8, "missed_pct": {"7": 60.0}}]
    area = [20.0] * FRAMES
    report = write_report(tmp_path / "r.json", *pair, area, mode="guard", missed=missed)
    page = review(pair, tmp_path, report=report, face_data=faces)
    assert [article["data-frame"] for article in page.articles] == ["20", "12"]
    for article in page.articles:
        region = regions(article, tmp_path)
        assert region["action"] == "keep"
        top, bottom, left, right = edges(region["box"])
        assert (top <= 50, bottom >= 110, left <= 100, right >= 150) == (True,) * 4


def test_the_page_is_small_loads_nothing_and_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bgsoft.review.review._PICTURES_BYTES", 50_000)
    rng = np.random.default_rng(3)
    count = 2 * 43
    noise = rng.integers(0, 256, (46, 80), np.uint8)
    pictures = [noise] * count
    pair = write(tmp_path / "in.mkv", pictures), write(tmp_path / "<out>.mkv", pictures)
    corners = [(5 * (n % 15), 10 * (n // 15)) for n in range(43)]
    doubtful = [
        {"frame": 2 * n, "boxes": [[left, top, left + 4, top + 4]]}
        for n, (left, top) in enumerate(corners)
    ]
    report = write_report(tmp_path / "r.json", *pair, [20.0] * count, doubtful=doubtful)
    page = review(pair, tmp_path, report=report)
    assert len(page.articles) == MAX_SHOWN
    found = " ".join(page.words)
    assert "40 doubtful places shown, 3 of less weight left out" in found
    assert "&lt;out&gt;.mkv" in page.text
    assert all(link.startswith(("data:image/webp;base64,", "#d")) for link in page.links)
    assert "default-src 'none'" in page.text
    pictures_of = [size for article in page.articles for size in article["pictures"]]
    assert len(pictures_of) == 2 * MAX_SHOWN
    assert sum(len(link) for link in page.links) < 50_000 * 4 / 3 + 50 * len(page.links)


def test_videos_that_do_not_belong_together_are_rejected(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    shorter = write(tmp_path / "short.mkv", room(FRAMES - 1))
    smaller = write(tmp_path / "small.mkv", [each[:90] for each in room(FRAMES)])
    page = tmp_path / "page.html"
    with pytest.raises(ConfigError, match=r"it has 59 frames, and .*in.mkv has 60"):
        write_review(pair[0], shorter, page)
    with pytest.raises(ConfigError, match=r"it is 320x90, and .*in.mkv is 320x180"):
        write_review(pair[0], smaller, page)
    other = write_report(tmp_path / "r.json", pair[0], shorter, [20.0] * FRAMES)
    with pytest.raises(ConfigError, match=r"out.mkv is not the output that it describes"):
        write_review(*pair, page, report=other)
    wrong = write_report(tmp_path / "w.json", *pair, [20.0] * (FRAMES + 1))
    with pytest.raises(ConfigError, match="its frames are not the 60 of"):
        write_review(*pair, page, report=wrong)
    assert not page.exists()


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"files": 3}', '{"files": [{"role": 1}]}'])
def test_a_broken_report_or_face_file_is_one_error(
    pair: tuple[Path, Path], tmp_path: Path, text: str
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(text)
    with pytest.raises(ConfigError, match=r"cannot use the report .*; render with --report"):
        write_review(*pair, tmp_path / "page.html", report=broken)
    good = write_report(tmp_path / "r.json", *pair, [20.0] * FRAMES)
    with pytest.raises(ConfigError, match="cannot read the face data"):
        write_review(*pair, tmp_path / "page.html", report=good, face_data=broken)


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda data: data[:-9], lambda data: data.replace(b"first.npy", b"third.npy")],
)
def test_damaged_arrays_of_faces_are_one_error(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path, counts = tmp_path / "faces.npz", np.arange(3)
    np.savez(path, id=counts[1:], score=counts[1:], box=np.ones((2, 4)), detected=counts[1:])
    known = dict(np.load(path))
    np.savez(path, first=counts, index=counts[:2], **known)
    assert [face.id for faces in read_face_data(path, 2).values() for face in faces] == [1, 2]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"cannot read the face data .*did not write it"):
        read_face_data(path, 2)


def test_face_data_that_is_missing_is_named_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.npz: No such file"):
        read_face_data(tmp_path / "gone.npz", 2)


def test_a_picture_or_folder_is_no_video(pair: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(UnsupportedFormatError, match="it is not a video file; name one"):
        write_review(pair[0], tmp_path, page)
    with pytest.raises(BgsoftError):
        write_review(pair[0], tmp_path / "none.mkv", page)


def test_proposed_times_are_those_of_the_frames(tmp_path: Path) -> None:
    """At 30 frames a second, most times are not whole milliseconds."""
    pictures = room(12)
    pair = (
        write(tmp_path / "in.nut", pictures, rate=30),
        write(tmp_path / "out.nut", pictures, rate=30),
    )
    doubtful = [{"frame": n, "boxes": [[20 * n, 0, 20 * n + 20, 40]]} for n in range(11)]
    report = write_report(tmp_path / "r.json", *pair, [20.0] * 12, doubtful=doubtful)
    video = ReviewVideo(pair[0])
    for article in review(pair, tmp_path, report=report).articles:
        file = tmp_path / "r.toml"
        file.write_text(article["pre"])
        placed = PlacedRegion(read_regions(file)[0], video.info)
        with CpuDecoder(pair[0]) as decoder:
            held = [frame.index for frame in host_frames(decoder) if placed.holds_in(frame)]
        assert held == [int(article["data-frame"])]


def test_packets_that_show_nothing_are_no_frames(tmp_path: Path) -> None:
    """Pictures whose references a cut has taken away, and pictures of VP8 that others need."""
    whole, cut = tmp_path / "in.ts", tmp_path / "cut.ts"
    drawn = ("-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3")
    ffmpeg(*drawn, "-c:v", "libx264", "-g", "20", "-x264-params", "open-gop=1:bframes=3", whole)
    ffmpeg("-ss", "1.5", "-i", whole, "-c", "copy", cut)
    for path in (cut, write_vp8_with_hidden_frames(tmp_path / "in.webm")):
        with av.open(str(path)) as file:
            packets = sum(1 for packet in file.demux(video=0) if packet.size)
        assert ReviewVideo(path).pts == shown_pts(path)
        assert len(shown_pts(path)) < packets


def test_joined_recordings_are_rejected(tmp_path: Path) -> None:
    """A clock that steps back a little is not one that restarts."""
    joined, short = tmp_path / "joined.ts", tmp_path / "short.ts"
    part = write_frames(tmp_path / "part.ts", room(30), codec="mpeg2video")
    joined.write_bytes(part.read_bytes() * 2)
    assert len(ReviewVideo(part).pts) == 30
    short.write_bytes(write_frames(part, room(12), codec="mpeg2video").read_bytes() * 2)
    assert len(ReviewVideo(short).pts) == 24
    with pytest.raises(UnsupportedFormatError, match=r"joined\.ts: its clock restarts midway"):
        ReviewVideo(joined)


@pytest.mark.parametrize("by_report", [True, False])
def test_a_part_of_a_video_is_reviewed(
    pair: tuple[Path, Path], tmp_path: Path, by_report: bool
) -> None:
    """Of frames 20 to 49 of the source; the spot is white from frame 30 on."""
    pictures = room(30)
    for picture in pictures[10:]:
        picture[SPOT] = 235
    part = pair[0], write(tmp_path / "part.mkv", pictures)
    given: dict[str, Any] = {"start_seconds": 0.8}
    if by_report:
        doubtful = [{"frame": 10, "boxes": [[100, 60, 140, 110]]}]
        given["report"] = write_report(tmp_path / "r.json", *part, [20.0] * 30, doubtful=doubtful)
        report = json.loads(given["report"].read_text())
        report["settings"] = {"start_seconds": given.pop("start_seconds"), "duration_seconds": 1.2}
        given["report"].write_text(json.dumps(report))
    page = review(part, tmp_path, **given)
    (article,) = page.articles
    assert article["data-frame"] == "10"
    assert "0:01.200, frame 10" in "".join(page.words)
    assert "30 frames, 0:00.800 to 0:01.960." in "".join(page.words)
    assert regions(article, tmp_path)["from"] == 30 / RATE
    source, result = article["pictures"]
    assert np.abs(source.astype(int) - result).max() > 60


def test_a_part_needs_its_start(pair: tuple[Path, Path], tmp_path: Path) -> None:
    part = pair[0], write(tmp_path / "part.mkv", room(30))
    with pytest.raises(ConfigError, match="for a part of it --report or --start"):
        review(part, tmp_path)
    with pytest.raises(ConfigError, match=r"has 20 from 1\.6 s on"):
        review(part, tmp_path, start_seconds=1.6)
