from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from av.video.stream import VideoStream

from bgsoft.composite.clip import ClipBackground, ClipPlayer, LoopedClip, cover_size
from bgsoft.errors import ConfigError
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.media.probe import probe
from bgsoft.ops.placement import HOST
from tests.assets import CLIPS, Clip
from tests.carried import SAMPLE_ENTRY, clean_aperture, insert_box
from tests.outside import ffmpeg
from tests.pictures import Array, flat_frame, frame_format, planes_behind
from tests.synthetic import VideoSpec, read_index, regular_times, write_fields, write_video

CLIP_SIZE = (96, 72)


def shown_at(background: ClipBackground, format: FrameFormat, milliseconds: list[int]) -> list[int]:
    frame = flat_frame(format, 0, 0, 0)
    seen = []
    for time in milliseconds:
        frame.pts = time
        background.advance(frame)
        luma = planes_behind(background, format)[0][: format.height]
        seen.append(read_index(luma, 8 if format.layout is PixelLayout.P010 else 0))
    background.close()
    background.close()
    return seen


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("layout", [PixelLayout.NV12, PixelLayout.P010])
def test_frames_follow_time_and_loop(layout: PixelLayout, suffix: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / f"clip{suffix}", VideoSpec(times=regular_times(5, 25)))
    format = frame_format(CLIP_SIZE, layout)
    times = list(range(7000, 7460, 20))  # the frame before each 40 ms step, twice
    seen = shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, times)
    assert seen == [(time - 7000) // 40 % 5 for time in times]


def test_times_of_the_clip_itself_are_kept(tmp_path: Path) -> None:
    """The clip has a variable frame rate and does not start at zero."""
    times = [Fraction(n, 1000) for n in (500, 540, 700, 710, 1000)]
    spec = VideoSpec(times=times, rate=Fraction(10))  # the last one lasts 100 ms
    path = write_video(tmp_path / "clip.mkv", spec)
    format = frame_format(CLIP_SIZE)
    wanted = {0: 0, 39: 0, 40: 1, 199: 1, 205: 2, 210: 3, 499: 3, 500: 4, 590: 4, 620: 0, 645: 1}
    seen = shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, list(wanted))
    assert seen == list(wanted.values())


def test_pictures_of_avi_come_in_order(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(8, 25), options={"bf": "2"}, time_base=Fraction(1, 25))
    path = write_video(tmp_path / "clip.avi", spec)
    format = frame_format(CLIP_SIZE)
    times = list(range(0, 320, 40))
    assert shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, times) == [*range(8)]


def test_fields_are_made_one_picture(tmp_path: Path) -> None:
    format = frame_format(CLIP_SIZE)
    player = ClipPlayer(write_fields(tmp_path / "clip.mov", 2), format)
    frame = flat_frame(format, 0, 0, 0)
    frame.pts = 40
    player.show(frame)
    frame.pts = 80
    player.show(frame)
    assert np.abs(np.diff(player.luma[8:-8].astype(int), axis=0)).max() <= 6


def test_gaps_in_the_video_skip_frames_and_whole_loops(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(5, 25)))
    format = frame_format(CLIP_SIZE)
    times = [0, 130, 200, 3_600_000, 3_600_090]
    seen = shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, times)
    assert seen == [0, 3, 0, 0, 2]


def test_an_earlier_time_shows_its_frame_again(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(5, 25)))
    format = frame_format(CLIP_SIZE)
    times = [0, 450, 410, 290, 130, 119, 80, 0]
    seen = shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, times)
    assert seen == [time // 40 % 5 for time in times]


def test_a_single_frame_is_a_still(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(1)))
    format = frame_format(CLIP_SIZE)
    assert shown_at(ClipBackground(HOST, ClipPlayer(path, format)), format, [0, 40, 4000]) == [
        0,
        0,
        0,
    ]


def test_each_frame_is_handed_out_once(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(3, 25)))
    clip = LoopedClip(probe(path))
    changes = [clip.at(Fraction(time, 100)) is not None for time in range(13)]
    assert [time for time, changed in enumerate(changes) if changed] == [0, 4, 8, 12]
    clip.close()


@pytest.mark.parametrize(
    "clip",
    [clip for name, clip in CLIPS.items() if name.startswith(("upright", "mirrored"))],
    ids=lambda clip: clip.name,
)
def test_the_clip_stands_upright(clip: Clip, tmp_path: Path) -> None:
    format = frame_format((clip.width, clip.height))
    background = ClipBackground(HOST, ClipPlayer(clip.build(tmp_path), format))
    # Fails on a turned or mirrored picture.
    assert shown_at(background, format, [0, 40, 80]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "target", "size"),
    [
        ((96, 72), (96, 72), (96, 72)),
        ((96, 72), (192, 72), (192, 144)),
        ((96, 72), (65, 47), (66, 50)),
        ((1920, 1080), (1080, 1080), (1920, 1080)),
        ((16, 9), (1, 1), (2, 2)),
    ],
)
def test_cover_size(
    source: tuple[int, int], target: tuple[int, int], size: tuple[int, int]
) -> None:
    assert cover_size((Fraction(source[0]), Fraction(source[1])), target) == size


@pytest.mark.parametrize("full_range", [False, True])
def test_range_becomes_the_frames(full_range: bool, tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(1)))
    assert not probe(path).format.color.full_range
    plain, format = frame_format(CLIP_SIZE), frame_format(CLIP_SIZE, full_range=full_range)
    limited, luma = (
        planes_behind(ClipBackground(HOST, ClipPlayer(path, each)), each)[0].astype(float)
        for each in (plain, format)
    )
    wanted = (limited - 16) * 255 / 219 if full_range else limited
    assert np.abs(luma - wanted).max() <= 2


def colours(background: ClipBackground, format: FrameFormat) -> Array:
    """R'G'B' in [0, 1] of every chroma sample, by the frame's matrix and range."""
    height = format.height
    kr, kb = format.color.kr_kb(height)
    black, white = format.luma_range
    luma, chroma = (plane.astype(float) for plane in planes_behind(background, format))
    luma = (luma[::2, ::2] - black) / (white - black)
    chroma = chroma[: height // 2] - format.chroma_neutral
    cb, cr = np.moveaxis(chroma / (2 * format.chroma_amplitude), -1, 0)
    red, blue = luma + 2 * (1 - kr) * cr, luma + 2 * (1 - kb) * cb
    return np.stack([red, (luma - kr * red - kb * blue) / (1 - kr - kb), blue], axis=-1)


@pytest.mark.parametrize("layout", [PixelLayout.NV12, PixelLayout.P010])
def test_matrix_becomes_the_frames(layout: PixelLayout, tmp_path: Path) -> None:
    def setup(stream: VideoStream) -> None:
        stream.colorspace, stream.color_range = 6, 1

    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(1), setup=setup))
    assert probe(path).format.color.matrix == 6
    same = frame_format(CLIP_SIZE, layout, matrix=6)
    other = frame_format(CLIP_SIZE, layout, matrix=1)
    before, after = (
        ClipBackground(HOST, ClipPlayer(path, same)),
        ClipBackground(HOST, ClipPlayer(path, other)),
    )
    assert not np.array_equal(planes_behind(before, same)[0], planes_behind(after, other)[0][:72])
    difference = np.abs(colours(before, same) - colours(after, other))
    # Away from the edges between colours, which chroma's interpolation reaches.
    assert np.median(difference) < 0.01
    assert np.quantile(difference, 0.8) < 0.02


@pytest.mark.parametrize("size", [(1, 1), (65, 47), (47, 65), (2, 300)])
def test_any_frame_size_is_covered(size: tuple[int, int], tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", VideoSpec(times=regular_times(2)))
    format = frame_format(size)
    background = ClipBackground(HOST, ClipPlayer(path, format))
    assert planes_behind(background, format)[0][: size[1]].shape == format.luma_shape
    assert planes_behind(background, format)[1][: (size[1] + 1) // 2].shape == format.chroma_shape
    assert planes_behind(background, format)[0][: size[1]].min() >= 16
    background.close()


def test_a_size_that_changes_in_mid_stream_is_covered_without_distortion(tmp_path: Path) -> None:
    """A square on grey; its pixels are 2:1 at first, and square then."""
    parts = []
    for number, (wide, aspect) in enumerate(((64, 2), (256, 1))):
        square = f"color=gray:s={wide}x128:r=25:d=0.08,setsar={aspect}"
        square += f",drawbox=x={wide // 4}:y=32:w={64 // aspect}:h=64:c=white:t=fill"
        parts.append(tmp_path / f"{number}.ts")
        ffmpeg("-f", "lavfi", "-i", square, "-c:v", "libx264", parts[-1])
    path = tmp_path / "clip.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    player = ClipPlayer(path, frame_format((128, 128)))
    frame = flat_frame(player.format, 0, 0, 0)
    shown = []
    for frame.pts in (0, 40, 80, 120):
        player.show(frame)
        shown.append(player.luma > 180)
    player.close()
    for bright in shown:
        sides = [np.ptp(places) + 1 for places in np.nonzero(bright)]
        assert sides == pytest.approx([64, 64], abs=2)


def test_what_is_no_clip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--background: .*does not exist"):
        ClipPlayer(tmp_path / "nothing.mp4", frame_format((8, 8)))


def test_what_a_container_hides_of_a_clip_is_not_shown(tmp_path: Path) -> None:
    path, hidden = tmp_path / "clip.mov", (24, 8, 8, 24)
    # A white rim around grey, 24 to the left and at the bottom, 8 elsewhere.
    grey = "color=gray:s=64x48:r=25:d=0.08,format=yuv420p,pad=96:80:24:8:white"
    ffmpeg("-f", "lavfi", "-i", grey, "-c:v", "libx264", "-qp", "1", path)
    insert_box(path, SAMPLE_ENTRY, clean_aperture((96, 80), *hidden))
    for size in ((64, 48), (90, 48), (64, 96)):
        player = ClipPlayer(path, frame_format(size))
        assert 110 < player.luma[2:-2, 2:-2].min() <= player.luma[2:-2, 2:-2].max() < 140
        player.close()
