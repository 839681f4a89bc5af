"""Channel layouts: the nearest one by name, and the destination of each channel."""

from __future__ import annotations

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.filter import Graph

from bgsoft.media.layouts import Layout, Mix, named, nearest

SAMPLES = 64


def matrix_of_ffmpeg(source: str, target: str) -> list[dict[str, float]]:
    """libswresample's own matrix for each channel."""
    names = named(target).channels
    count = len(named(source).channels)
    steps = np.repeat(np.eye(count, dtype=np.float32), SAMPLES, axis=0).reshape(1, -1)
    frame = AudioFrame.from_ndarray(steps, format="flt", layout=source)
    frame.sample_rate, frame.pts = 48_000, 0
    graph = Graph()
    first = graph.add_abuffer(sample_rate=48_000, format="flt", layout=source)
    shape = graph.add("aformat", f"sample_fmts=flt:channel_layouts={target}")
    graph.link_nodes(first, shape, graph.add("abuffersink")).configure()
    graph.push(frame)
    mixed = graph.pull()
    assert isinstance(mixed, AudioFrame)
    rows = mixed.to_ndarray().reshape(-1, len(names))[SAMPLES // 2 :: SAMPLES]
    return [
        {name: float(gain) for name, gain in zip(names, row, strict=True) if abs(gain) > 1e-6}
        for row in rows
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("5.1", "stereo"), ("5.1(side)", "stereo"), ("7.1", "stereo"), ("quad", "stereo")),
        *(("7.1", "5.1"), ("7.1", "5.1(side)"), ("6.1", "5.1"), ("7.1(wide)", "5.1")),
        *(("4.0", "5.0"), ("4.0", "quad"), ("octagonal", "7.1"), ("5.1(side)", "5.1")),
        *(("3.0", "stereo"), ("3.0(back)", "stereo"), ("4.1", "5.1"), ("stereo", "mono")),
        *(("5.1.2", "5.1"), ("downmix", "stereo"), ("hexagonal", "5.0"), ("2.1", "5.1")),
    ],
)
def test_coefficients_are_libswresample_s(source: str, target: str) -> None:
    expected = matrix_of_ffmpeg(source, target)
    gains = Mix.of(named(source), named(target)).gains
    assert [dict(each) for each in gains] == [pytest.approx(each) for each in expected]


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("5.1", "5.1", ""),
        ("2.1", "5.1", "2.1 becomes 5.1: FC, BL, BR silent"),
        (
            "5.1",
            "stereo",
            "5.1 becomes stereo: FC into FL and FR, LFE left out, BL into FL, BR into FR",
        ),
        ("5.1(side)", "5.1", "5.1(side) becomes 5.1: SL as BL, SR as BR"),
        ("3 channels", "2.1", "its channels have no names and are taken as 2.1"),
        ("2 channels", "stereo", ""),
        ("2 channels (FR+FL)", "stereo", ""),
        ("12 channels", "mono", "its 12 channels have no names: mixed to mono"),
    ],
)
def test_what_is_said_of_channels(source: str, target: str, said: str) -> None:
    assert Mix.of(named(source), named(target)).describe() == said


@pytest.mark.parametrize(
    ("source", "offered", "target"),
    [
        ("2.1", ("stereo", "5.1"), "5.1"),
        ("4.0", ("quad", "5.0", "5.1", "6.1"), "5.0"),
        ("5.1(side)", ("5.0", "5.1", "7.1"), "5.1"),
        ("5.1.4", ("5.1", "7.1"), "7.1"),
        ("6.0", ("5.1", "6.1", "7.1"), "6.1"),
        ("mono", ("mono", "stereo"), "mono"),
        ("2 channels (FL+FL)", ("mono", "stereo"), "mono"),
        ("ambisonic 1", ("mono", "stereo", "quad", "5.1"), "stereo"),
        ("binaural", ("mono", "stereo", "quad"), "stereo"),
    ],
)
def test_the_nearest_layout(source: str, offered: tuple[str, ...], target: str) -> None:
    found = next(mix for mix in nearest(named(source)) if mix.target.name in offered)
    assert found.target.name == target


def test_every_channel_that_ffmpeg_names_has_a_place() -> None:
    names = {
        channel.name
        for layout in ("22.2", "hexadecagonal", "9.1.6", "7.2.3", "binaural", "downmix", "5.1")
        for channel in av.AudioLayout(layout).channels
    }
    for name in names - {"LFE"}:
        (gains,) = Mix.of(Layout(name, (name,)), named("5.1")).gains
        assert sum(gain**2 for gain in gains.values()) > 0.2, name


def test_the_sum_of_whole_numbers_stays_in_range() -> None:
    mix = Mix.of(named("5.1"), named("stereo"))
    loud = mix.filter("5.1", limited=True)
    assert loud is not None
    gains = [float(part.split("*")[0]) for part in loud.split("|")[1].split("=")[1].split("+")]
    assert sum(gains) == pytest.approx(1)
