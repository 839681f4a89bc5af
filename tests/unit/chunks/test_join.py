"""A file joined from chunks has the packets of one that was rendered in one go."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from tests.assets import _display, _up_to
from tests.outside import described_by_ffmpeg, ffmpeg
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie, write_video
from tests.unit.chunks.short_chunks import _short_chunks, render_in_chunks, settings

pytestmark = pytest.mark.usefixtures(_short_chunks.__name__)

UNCHANGED: dict[str, Any] = {"effect": "dim", "strength": 0.0, "face": "off", "matte": "fast"}
UNCHANGED |= {"mask_every": 16, "temporal": 0.0}
_FAST = {"preset": "veryfast", "crf": "10", "threads": "1"}
_COUNT = 72


def packets(path: Path) -> tuple[list[str], list[int], int, list[int], list[list[str]]]:
    """Return all packets of a file, as far as a joined one must keep them.

    ffmpeg's description of the streams; of the video, the pts in display order, the end of the last
    frame and the dts; of other packets everything, with checksums.
    """
    text = ffmpeg("-copyts", "-i", path, "-map", "0", "-c", "copy", "-f", "framecrc", "-")
    lines = text.splitlines()
    described = [x for x in lines if x.startswith(("#tb", "#codec_id", "#dimensions", "#sar"))]
    fields = [[field.strip() for field in x.split(",")] for x in lines if not x.startswith("#")]
    video = [tuple(map(int, each[1:4])) for each in fields if each[0] == "0"]
    shown = sorted(pts for _, pts, _ in video)
    decoded = [dts for dts, _, _ in video]
    others = [each for each in fields if each[0] != "0"]
    return described, shown, max(pts + length for _, pts, length in video), decoded, others


def description(path: Path) -> list[str]:
    """ffmpeg's description of a file, without its name and the encoder's sizes."""
    lines = [line for line in described_by_ffmpeg(path).splitlines() if line.startswith("  ")]
    return [re.sub(r"bitrate: .*|, \d+ kb/s|chunks-", "", line) for line in lines]


def spec(**more: Any) -> VideoSpec:
    options = _FAST | {"g": "12", "bf": "2"} | more.pop("options", {})
    return VideoSpec(**{"times": regular_times(_COUNT), "options": options, **more})


def movie(path: Path) -> Path:
    """Two tracks of sound, subtitles, chapters and tags."""
    return write_movie(
        path,
        spec(),
        [SoundSpec(seconds=_COUNT / 25, language="deu"), SoundSpec(seconds=2.0, pitch=300)],
        subtitles=path.suffix == ".mkv",
        chapters=[(Fraction(0), Fraction(1), "one"), (Fraction(1), Fraction(2), "two")],
        metadata={"title": "A film", "comment": "of chunks"},
    )


def varying(path: Path) -> Path:
    ticks = [0]
    for number in range(_COUNT - 1):
        ticks.append(ticks[-1] + (1500, 3000, 9000, 4500)[number % 4])
    return write_video(path, spec(times=[Fraction(tick, 90_000) for tick in ticks]))


def open_groups(path: Path) -> Path:
    options = {"bf": "3", "g": "10", "x264-params": "open-gop=1"}
    return write_video(path, spec(options=options))


def late(path: Path) -> Path:
    return write_video(path, spec(times=regular_times(_COUNT, start=1000)))


def cut(path: Path) -> Path:
    times = regular_times(_COUNT, start=Fraction(-4, 25))
    return write_video(path, spec(times=times))


def turned(path: Path) -> Path:
    return write_video(path, spec(turn=_up_to(1), setup=_display(270)))


def stretched(path: Path) -> Path:
    def aspect(stream: Any) -> None:
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)

    return write_video(path, spec(setup=aspect))


@pytest.mark.parametrize(
    ("make", "source", "target", "given"),
    [
        (movie, "in.mkv", "out.mkv", {}),
        (movie, "in.mp4", "out.mp4", {"start": 0.52, "duration": 2.0}),
        (late, "in.ts", "out.ts", {}),
        (stretched, "in.mp4", "out.webm", {"effect": "alpha", "strength": None, "speed": "8"}),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                (movie, "in.mp4", "out.mp4", {}),
                (movie, "in.mkv", "out.mov", {"codec": "prores"}),
                (movie, "in.mkv", "out.webm", {"codec": "vp9", "speed": "8"}),
                (movie, "in.mp4", "out.avi", {}),
                (varying, "in.mkv", "out.mp4", {}),
                (open_groups, "in.mkv", "out.mov", {}),
                (late, "in.ts", "out.mp4", {}),
                (cut, "in.mp4", "out.mp4", {"codec": "hevc", "speed": "ultrafast"}),
                (turned, "in.mp4", "out.mp4", {"codec": "av1", "speed": "12"}),
                (stretched, "in.mp4", "out.mkv", {}),
                (stretched, "in.mp4", "out.mov", {"codec": "prores"}),
            )
        ),
    ],
)
def test_packets_times_and_tags_are_those_of_a_whole_render(
    make: Callable[[Path], Path], source: str, target: str, given: dict[str, Any], tmp_path: Path
) -> None:
    clip = make(tmp_path / source)
    whole, chunks = tmp_path / target, tmp_path / f"chunks-{target}"
    first = bgsoft.render(clip, whole, preset=None, **(UNCHANGED | given))
    config = settings(clip, chunks, chunks=3, **(UNCHANGED | given))
    report = render_in_chunks(config)
    assert len(report.parts) > 1
    assert packets(chunks) == packets(whole)
    assert description(chunks) == description(whole)
    assert report.frames_encoded == first.frames_encoded
    assert report.duration_s == pytest.approx(first.duration_s)
    assert report.audio == first.audio
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source, target, chunks.name])
