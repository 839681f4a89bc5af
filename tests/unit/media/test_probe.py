"""Properties of a file, as probed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from bgsoft.errors import OpenError
from bgsoft.frame import ContentLight
from bgsoft.media.info import Orientation
from bgsoft.media.probe import content_light_of, mastering_display_of, orientation_of, probe
from tests.assets import CLIPS, NTSC, Clip
from tests.outside import ffmpeg
from tests.synthetic import SoundSpec, VideoSpec, damage, regular_times, write_movie, write_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.mark.parametrize("clip", [pytest.param(clip, id=name) for name, clip in CLIPS.items()])
def test_clips(clip: Clip, folder: Path) -> None:
    info = probe(clip.build(folder))
    assert (info.format.width, info.format.height) == (clip.width, clip.height)
    coded = (clip.width, clip.height)
    if clip.orientation.swaps_axes:
        coded = (clip.height, clip.width)
    assert (info.coded_width, info.coded_height) == coded
    assert info.format.layout is clip.layout
    assert info.format.color.full_range is clip.full_range
    assert info.orientation == clip.orientation
    assert info.interlaced is clip.interlaced
    assert info.sample_aspect_ratio == 1
    notices = [*info.notices, *info.lost_chroma]
    assert len(notices) == len(clip.notices)
    for notice, beginning in zip(notices, clip.notices, strict=True):
        assert notice.startswith(beginning)


def test_timing(folder: Path) -> None:
    info = probe(CLIPS["bframes.mp4"].build(folder))
    assert info.time_base == Fraction(1, 90_000)
    assert info.frame_rate == NTSC
    assert info.num_frames_from_header == 30
    assert info.estimated_frames == 30
    assert info.duration_seconds == pytest.approx(30 / float(NTSC))
    assert info.start_pts == 0
    assert probe(CLIPS["late.mp4"].build(folder)).start_pts == 270_000


def test_names(folder: Path) -> None:
    info = probe(CLIPS["prores.mov"].build(folder))
    assert (info.codec, info.pixel_format) == ("prores", "yuv422p10le")
    assert "mov" in info.container.split(",")
    assert probe(CLIPS["vp9-odd.webm"].build(folder)).codec == "vp9"


def test_hdr10(folder: Path) -> None:
    info = probe(CLIPS["hdr10.mp4"].build(folder))
    color = info.format.color
    assert (color.primaries, color.transfer, color.matrix) == (9, 16, 9)
    assert color.is_hdr
    assert color.range_specified
    display = info.mastering_display
    assert display is not None
    unit = 50_000  # SMPTE ST 2086 chromaticities count in 0.00002
    assert display.green == (Fraction(13_250, unit), Fraction(34_500, unit))
    assert display.blue == (Fraction(7_500, unit), Fraction(3_000, unit))
    assert display.red == (Fraction(34_000, unit), Fraction(16_000, unit))
    assert display.white == (Fraction(15_635, unit), Fraction(16_450, unit))
    assert display.max_luminance == 1000
    assert display.min_luminance == Fraction(50, 10_000)
    assert info.content_light == ContentLight(max_content=1000, max_frame_average=400)


def test_hlg(folder: Path) -> None:
    info = probe(CLIPS["hlg.mkv"].build(folder))
    color = info.format.color
    assert (color.primaries, color.transfer, color.matrix) == (9, 18, 9)
    assert info.mastering_display is None
    assert info.content_light is None


def test_untagged_colour_stays_unspecified(folder: Path) -> None:
    color = probe(CLIPS["cfr.mp4"].build(folder)).format.color
    assert (color.primaries, color.transfer, color.matrix) == (2, 2, 2)
    assert not color.range_specified


def test_rgb_is_tagged_as_what_it_becomes(folder: Path) -> None:
    color = probe(CLIPS["bgr0.mkv"].build(folder)).format.color
    assert color.matrix == 1
    assert color.range_specified
    assert not color.full_range


@pytest.mark.parametrize(("degrees", "want"), [(0, Fraction(4, 3)), (90, Fraction(3, 4))])
def test_pixel_shape_is_upright(degrees: int, want: Fraction, tmp_path: Path) -> None:
    def setup(stream: object) -> None:
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)  # type: ignore[attr-defined]
        stream.set_display_rotation(degrees)  # type: ignore[attr-defined]

    spec = VideoSpec(times=regular_times(2), setup=setup)
    info = probe(write_video(tmp_path / "wide.mp4", spec))
    assert info.sample_aspect_ratio == want


def test_a_slanted_rotation_is_rounded_with_a_notice(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(2), setup=lambda stream: stream.set_display_rotation(-100))
    info = probe(write_video(tmp_path / "slanted.mp4", spec))
    assert info.orientation == Orientation(rotation=90)
    assert info.notices == ("rotation of 100° rounded to 90°",)


def test_no_data_are_no_fault() -> None:
    assert orientation_of({}) == (Orientation(), None)
    assert mastering_display_of({}) is None
    assert content_light_of({}) is None


def test_the_first_frame_shown_counts(tmp_path: Path) -> None:
    options = {"preset": "veryfast", "bf": "0", "g": "10", "threads": "1"}
    spec = VideoSpec(times=regular_times(30), options=options)
    path = damage(write_video(tmp_path / "headless.mkv", spec), [0], whole=True)
    assert probe(path).start_pts == 400


def test_nothing_decodable(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(3), codec="ffv1", options={"g": "1"})
    path = damage(write_video(tmp_path / "broken.mkv", spec), [0, 1, 2], whole=True)
    with pytest.raises(OpenError, match="no video frame can be decoded"):
        probe(path)


def test_the_length_is_the_videos_own(tmp_path: Path) -> None:
    # Matroska's header knows the length of the file only, which longer sound decides.
    spec = VideoSpec(times=regular_times(25), options={"preset": "ultrafast", "threads": "1"})
    path = write_movie(tmp_path / "in.mkv", spec, [SoundSpec(seconds=4)])
    assert probe(path).duration_seconds == pytest.approx(1, abs=0.05)


def test_the_rate_is_the_nominal_one(tmp_path: Path) -> None:
    times = [time for i, time in enumerate(regular_times(60, 30)) if i % 3]
    spec = VideoSpec(times=times, rate=Fraction(30), options={"preset": "ultrafast"})
    assert probe(write_movie(tmp_path / "in.mp4", spec, [])).frame_rate == 30


@pytest.mark.parametrize(
    ("name", "codec"), [("a.webm", "libvpx-vp9"), ("a.mp4", "libx265"), ("a.mkv", "libx265")]
)
def test_alpha_that_the_decoder_ignores_is_reported(tmp_path: Path, name: str, codec: str) -> None:
    """It is a second stream in VP9, and a second layer in HEVC."""
    given = ["-f", "lavfi", "-i", "color=red@0.5:s=96x72:d=0.1,format=yuva420p", "-c:v", codec]
    ffmpeg(*given, tmp_path / name)
    assert probe(tmp_path / name).notices == ("alpha channel dropped",)
    ffmpeg(*given, "-pix_fmt", "yuv420p", tmp_path / f"opaque-{name}")
    assert probe(tmp_path / f"opaque-{name}").notices == ()


def test_what_the_output_lacks_is_reported(tmp_path: Path) -> None:
    """Stereo views lose their arrangement."""
    packed = VideoSpec(times=regular_times(2), options={"x264-params": "frame-packing=3"})
    (notice,) = probe(write_video(tmp_path / "stereo.mp4", packed)).notices
    assert notice.startswith("stereo 3D")
