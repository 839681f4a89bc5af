"""``--encoder-option`` reaches the encoder, as other programs read in the file, or is rejected."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import bgsoft
from bgsoft.cli.main import main
from bgsoft.encode.nv_settings import choose_nvenc
from bgsoft.encode.options import _OURS
from bgsoft.encode.specs import SPECS, EncoderSpec
from bgsoft.errors import BackendUnavailableError, ConfigError, EncodeError
from bgsoft.frame import FrameFormat
from bgsoft.media.containers import container_for
from bgsoft.settings.config import Codec, EncodeConfig
from tests.assets import CLIPS
from tests.marks import slow
from tests.outside import described_by_ffmpeg
from tests.rendering import read_back, video_info
from tests.synthetic import VideoSpec, regular_times, write_video

QUICK = ("--face", "off", "--matte", "fast", "--mask-every", "25")


@pytest.fixture
def source(clip_folder: Path) -> Path:
    return CLIPS["bframes.mp4"].build(clip_folder)


def render(source: Path, target: Path, *options: str, **more: Any) -> Path:
    quick: Any = {"face": "off", "matte": "fast", "mask_every": 25}
    bgsoft.render(source, target, encoder_option=options or None, **(quick | more))
    return target


def settings_in(path: Path) -> str:
    """Settings that x264 and x265 write into their streams."""
    return path.read_bytes().decode("latin-1")


def test_x264_has_what_it_was_given(source: Path, tmp_path: Path) -> None:
    made = render(source, tmp_path / "a.mkv", "tune=film", "bf=5", "g=7", "aq-mode=3")
    assert all(word in settings_in(made) for word in (" bframes=5 ", " keyint=7 ", " aq=3:1.00"))
    assert "Baseline" in described_by_ffmpeg(render(source, tmp_path / "b.mp4", "profile=baseline"))


def test_bits_a_second_take_the_place_of_quality(source: Path, tmp_path: Path) -> None:
    assert " rc=abr " in settings_in(render(source, tmp_path / "a.mkv", "b=50k"))
    lossless = render(source, tmp_path / "b.mkv", "qp=0", effect="dim", strength=0, preset=None)
    for one, other in zip(read_back(lossless), read_back(source), strict=True):
        assert np.array_equal(one.planes[0], other.planes[0])


@pytest.mark.parametrize(
    ("name", "codec", "option", "word"),
    [
        ("a.mkv", "hevc", "aq-mode=3", "aq-mode=3"),
        slow("a.mkv", "hevc", "deblock=1,1", "deblock=1:1"),
    ],
)
def test_an_encoders_own_parameters(
    name: str, codec: Any, option: str, word: str, source: Path, tmp_path: Path
) -> None:
    # x265 writes no settings into the file here: its answer to them is other pictures.
    plain = render(source, tmp_path / f"plain-{name}", codec=codec)
    made = render(source, tmp_path / name, option, codec=codec)
    assert made.read_bytes()[-2000:] != plain.read_bytes()[-2000:], word


def test_prores_profile(source: Path, tmp_path: Path) -> None:
    made = render(source, tmp_path / "a.mov", "profile=lt", codec="prores")
    assert "(LT)" in described_by_ffmpeg(made)
    with av.open(str(made)) as container:
        assert container.streams.video[0].codec_context.codec_tag == "apcs"


@pytest.mark.parametrize(
    ("name", "codec", "option", "message"),
    [
        ("o.mp4", "h264", "foo=1", "foo: libx264 does not know it"),
        ("o.mp4", "h264", "ref=3", "ref: libx264 does not know it; did you mean refs?"),
        ("o.mp4", "h264", "bf=x", 'bf=x: libx264: Unable to parse "bf" option'),
        ("o.mp4", "h264", "tune=loud", "tune must consist of animation, fastdecode"),
        ("o.mp4", "h264", "profile=low", "profile must consist of baseline, high"),
        ("o.mp4", "h264", "ar=44100", "ar: it has no effect on libx264"),
        ("o.mp4", "h264", "crf=3", "crf: use --quality instead"),
        ("o.mp4", "h264", "threads=3", "threads: use --threads instead"),
        ("o.mp4", "h264", "colorspace=1", "colorspace: it describes the frames"),
        ("o.mp4", "h264", "x264-params=bframes=1", "x264-params: pass the parameters"),
        ("o.avi", "h264", "bf=2", "bf: it depends on the container"),
        ("o.mp4", "hevc", "aq-mode=x", "libx265: Invalid value for aq-mode: x"),
        ("o.mp4", "hevc", "aq-mode=99", "aq-mode=99: libx265: "),
        ("o.mp4", "hevc", "deblock=1:1", "write a comma for the colon"),
        ("o.mp4", "av1", "film-grain=800", "film-grain=800: libsvtav1: "),
        ("o.webm", "vp9", "aq-mode=77", "out of range [-1 - 4]"),
        ("o.webm", "vp9", "bf=2", "bf: it has no effect on libvpx-vp9"),
        ("o.mov", "prores", "profile=zz", 'Unable to parse "profile" option value "zz"'),
        ("o.mkv", "ffv1", "slices=7", "Unsupported number 7 of slices"),
        ("o.mp4", "h264", "bf", "--encoder-option must be KEY=VALUE, not 'bf'"),
        ("o.mp4", "h264", "bf=", "--encoder-option must be KEY=VALUE, not 'bf='"),
    ],
)
def test_what_is_refused_is_one_line(
    name: str,
    codec: str,
    option: str,
    message: str,
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "new" / name
    argv = ["render", str(source), str(target), "--codec", codec, "--encoder-option", option]
    assert main([*argv, *QUICK]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()  # the encoder itself prints nothing
    assert line.startswith("bgsoft: error: ")
    assert "--encoder-option " in line
    assert message in line
    assert not list(tmp_path.iterdir())


def test_options_that_exclude_each_other(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="encoder_option must name a key once: bf"):
        render(source, tmp_path / "a.mp4", "bf=1", "bf=2")
    with pytest.raises(ConfigError, match="cannot combine quality and encoder_option b"):
        render(source, tmp_path / "a.mp4", "b=1M", quality=20)
    with pytest.raises(ConfigError, match=r"cannot use encoder_option .* libx264: "):
        render(source, tmp_path / "odd.mp4", "profile=baseline", "qp=0")


def test_a_presets_options_go_with_its_codec(source: Path, tmp_path: Path) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text('[encode]\nencoder_option = ["bf=1", "g=9"]\n')
    made = render(source, tmp_path / "a.mkv", preset=str(preset))
    assert " keyint=9 " in settings_in(made)
    render(source, tmp_path / "b.mkv", preset=str(preset), codec="ffv1")  # which knows no bf


def test_nvenc_leaves_them_to_ffmpegs_encoders() -> None:
    config = EncodeConfig(encoder_option=("bf=2",))
    info = video_info(FrameFormat(width=64, height=64))
    with pytest.raises(BackendUnavailableError, match="--encoder-option applies to FFmpeg"):
        choose_nvenc(config, container_for(Path("a.mp4")), info)


def test_no_option_is_taken_and_refused() -> None:
    for spec in SPECS.values():
        assert not {*spec.parameter_keys, *(spec.common_options or ())} & _OURS.keys()
        assert not spec.parameters[0] or spec.parameters[0] in _OURS


def use_spec(monkeypatch: pytest.MonkeyPatch, spec: EncoderSpec) -> None:
    """Add a codec by CONTRIBUTING's recipe, in the place of VP9, which has no code of its own."""
    monkeypatch.setitem(SPECS, Codec.VP9, spec)


def test_a_new_codec_takes_its_encoders_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = VideoSpec(times=regular_times(4), time_base=Fraction(1, 12800))
    source = write_video(tmp_path / "in.mp4", spec)
    use_spec(monkeypatch, EncoderSpec(encoder="mpeg4", label="MPEG-4", depths=(8,)))
    made = render(source, tmp_path / "a.mkv", "g=1", "mpeg_quant=1", "b=2M", codec="vp9")
    assert "Video: mpeg4" in described_by_ffmpeg(made)
    with av.open(str(made)) as container:
        assert all(packet.is_keyframe for packet in container.demux(video=0) if packet.size)
    with pytest.raises(ConfigError, match="mpeg4 does not know it"):
        render(source, tmp_path / "b.mkv", "nonsense=1", codec="vp9")
    with pytest.raises(ConfigError, match=r"mpeg_quant=9: mpeg4: Value 9.* out of range"):
        render(source, tmp_path / "b.mkv", "mpeg_quant=9", codec="vp9")


def test_ffmpegs_reason_is_kept_where_an_encoder_does_not_open(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_spec(monkeypatch, EncoderSpec(encoder="mpeg4", label="MPEG-4", depths=(8,)))
    with pytest.raises(EncodeError, match="timebase 1/90000 not supported by MPEG 4 standard"):
        render(source, tmp_path / "a.mkv", codec="vp9")
    use_spec(monkeypatch, EncoderSpec(encoder="snow", label="Snow", depths=(10,)))
    with pytest.raises(EncodeError, match="format yuv420p10le is not supported by the snow"):
        render(source, tmp_path / "a.mkv", codec="vp9")


@pytest.mark.parametrize("spec", [spec for spec in SPECS.values() if spec.parameter_keys])
def test_every_parameter_named_is_known_to_the_encoder(spec: EncoderSpec) -> None:
    """The encoder may reject the value 1, but never calls a parameter unknown."""
    option = spec.parameters[0]
    for parameter in spec.parameter_keys:
        context: Any = av.CodecContext.create(spec.encoder, "w")
        context.width, context.height, context.pix_fmt = 64, 64, "yuv420p"
        context.time_base = Fraction(1, 25)
        context.options = {option: f"{parameter}=1", "err_detect": "explode"}
        with av.logging.Capture() as said:
            av.logging.set_level(av.logging.WARNING)
            try:
                context.open()
            except av.FFmpegError:
                pass
            finally:
                av.logging.set_level(None)
        wrong = [text for _, _, text in said if "Unknown option" in text or "parsing" in text]
        assert not wrong, parameter
