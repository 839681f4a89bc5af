"""Pictures next to a boundary of chunks equal those of a whole render."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from tests.face_clips import SAMPLE
from tests.outside import ffmpeg
from tests.rendering import LOSSLESS, psnr, read_back
from tests.synthetic import VideoSpec, regular_times, write_video
from tests.unit.chunks.short_chunks import _short_chunks, reason, render_in_chunks, settings

pytestmark = pytest.mark.usefixtures(_short_chunks.__name__)

MIN_DB = 50.0


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's person, small; mirrored and darker from frame 40 on, which is a new scene."""
    path = tmp_path_factory.mktemp("boundaries") / "person.mkv"
    change = "scale=256:144,hflip=enable='gte(n,40)',lutyuv=y='val*0.6':enable='gte(n,40)'"
    encode = ("-frames:v", "88", "-c:v", "libx264", "-preset", "veryfast", "-crf", "10", "-g", "15")
    ffmpeg("-i", SAMPLE, "-an", "-vf", change, *encode, path)
    return path


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A background of 0.8 s whose frames show their numbers."""
    path = tmp_path_factory.mktemp("waves") / "waves.mkv"
    return write_video(path, VideoSpec(times=regular_times(20), options={"crf": "4"}))


def min_psnr(one: Path, other: Path) -> float:
    pairs = list(zip(read_back(one), read_back(other), strict=True))
    assert [a.seconds for a, _ in pairs] == [b.seconds for _, b in pairs]
    return min(
        psnr(np.asarray(x), np.asarray(y), a.bits)
        for a, b in pairs
        for x, y in zip(a.planes, b.planes, strict=True)
    )


@pytest.mark.parametrize(
    "given",
    [
        {"background": "#00b140", "matte": "fast", "mask_every": 2},
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                {"effect": "blur", "matte": "standard"},
                {"effect": "bokeh", "matte": "fast", "face": "off", "temporal": 0.8},
                {"effect": "alpha", "matte": "best"},
                {"background": "waves", "face": "off", "similarity": 38.0},
                {"preset": "obs"},
            )
        ),
    ],
    ids=str,
)
def test_pictures_are_those_of_a_whole_render(
    given: dict[str, Any], person: Path, waves: Path, tmp_path: Path
) -> None:
    if given.get("background") == "waves":
        given = {**given, "background": waves}
    whole, chunks = tmp_path / "whole.mkv", tmp_path / "chunks.mkv"
    given = {**({"codec": "ffv1"} if given.get("effect") == "alpha" else LOSSLESS), **given}
    first = bgsoft.render(person, whole, **{"preset": None, **given})
    config = settings(person, chunks, chunks=3, **given)
    report = render_in_chunks(config)
    assert len(report.parts) > 1
    assert min_psnr(whole, chunks) >= MIN_DB
    cuts = [[e.frame for e in r.events if e.kind == "scene-cut"] for r in (first, report)]
    assert cuts[0] == cuts[1] == [40]
    if first.faces is not None:
        assert report.faces is not None
        for key in ("tracks", "frames_with_faces", "most_faces", "missed_frames"):
            assert report.faces[key] == first.faces[key]


def test_places_are_hidden_in_all_chunks_at_their_times(person: Path, tmp_path: Path) -> None:
    whole, chunks = tmp_path / "whole.mkv", tmp_path / "chunks.mkv"
    given = {"effect": "dim", "strength": 0, "face": "off", "start": 0.2, **LOSSLESS}
    given |= {"matte": "fast", "mask_every": 16, "temporal": 0.0}
    given["hide"] = ["20%,20%,30%,30%@0.9-1.9", "0,0,10%,10%", "0,0,10%,10%@9-"]
    first = bgsoft.render(person, whole, preset=None, **given)
    report = render_in_chunks(settings(person, chunks, chunks=3, **given))
    assert len(report.parts) > 1
    told = [[e.message for e in r.events if e.stage == "composite"] for r in (first, report)]
    assert told[0] == told[1]
    assert len(told[0]) == 1
    films = [[frame.planes[0] for frame in read_back(path)] for path in (whole, chunks, person)]
    hidden = []
    for one, other, source in zip(films[0], films[1], films[2][6:], strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one[:14, :24] != source[:14, :24]).any()
        hidden.append((one[30:70, 60:120] != source[30:70, 60:120]).any())
    assert hidden == [0.9 <= (number + 6) / 30 < 1.9 for number in range(82)]


def test_cuts_are_seen_as_in_a_whole_render_where_a_chunk_begins(tmp_path: Path) -> None:
    """The picture is mirrored for seven frames around each refresh.

    The change back is no cut only for a chunk that has decoded the first change.
    """
    clip, whole, chunks = (tmp_path / f"{name}.mkv" for name in ("in", "whole", "chunks"))
    change = "scale=256:144,hflip=enable='gte(mod(n,16),11)+eq(mod(n,16),0)*gt(n,0)'"
    encode = ("-frames:v", "88", "-c:v", "libx264", "-preset", "veryfast", "-crf", "10", "-g", "15")
    ffmpeg("-i", SAMPLE, "-an", "-vf", change, *encode, clip)
    look = {"effect": "matte", "matte": "fast", "face": "off", "mask_every": 3, "temporal": 0.0}
    given: dict[str, Any] = {**LOSSLESS, **look}
    first = bgsoft.render_config(settings(clip, whole, **given, chunks=1))
    report = render_in_chunks(settings(clip, chunks, **given, chunks=3))
    assert len(report.parts) == 3
    assert min_psnr(whole, chunks) >= MIN_DB
    cuts = [[e.frame for e in r.events if e.kind == "scene-cut"] for r in (first, report)]
    assert cuts[0] == cuts[1] == [11, 27, 43, 59, 75]


@pytest.mark.slow
def test_the_mask_is_written_in_chunks_too(person: Path, tmp_path: Path) -> None:
    whole, chunks = tmp_path / "whole.mkv", tmp_path / "chunks.mkv"
    for path, more in ((whole, None), (chunks, 3)):
        matte = path.with_name(f"{path.stem}-matte.mkv")
        look = {**LOSSLESS, "effect": "dim", "face": "off", "matte": "fast"}
        config = settings(person, path, matte_out=matte, chunks=more or 1, **look)
        if more is None:
            bgsoft.render_config(config)
        else:
            render_in_chunks(config)
    one, other = (tmp_path / f"{name}-matte.mkv" for name in ("whole", "chunks"))
    assert [a.seconds for a in read_back(one)] == [b.seconds for b in read_back(other)]
    assert min_psnr(one, other) > 35  # it is encoded with loss


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"temporal": 1.0}, "--temporal 1 needs too many earlier frames"),
        ({"duration": 0.5}, "too short"),
    ],
    ids=str,
)
def test_what_cannot_be_divided_is_rendered_whole_and_says_why(
    given: dict[str, Any], why: str, person: Path, tmp_path: Path
) -> None:
    assert why in reason(settings(person, tmp_path / "out.mkv", chunks=3, **given))
    assert not list(tmp_path.iterdir())


def test_a_restarted_clock_is_rendered_whole(tmp_path: Path) -> None:
    one, two = (
        write_video(tmp_path / f"{start}.ts", VideoSpec(times=regular_times(40, start=start)))
        for start in (100, 5)
    )
    joined = tmp_path / "joined.ts"
    joined.write_bytes(one.read_bytes() + two.read_bytes())
    assert "restarts" in reason(settings(joined, tmp_path / "out.mkv", chunks=2))


def test_a_file_without_an_index_is_rendered_whole(tmp_path: Path) -> None:
    raw = write_video(tmp_path / "in.h264", VideoSpec(times=regular_times(40)))
    assert "cannot be read from the middle" in reason(settings(raw, tmp_path / "o.mkv", chunks=2))
