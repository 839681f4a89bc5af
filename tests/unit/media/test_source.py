"""Opening files: which are accepted, which rejected, and the messages."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from bgsoft.errors import MediaError, OpenError, UnsupportedFormatError
from bgsoft.media.probe import probe
from bgsoft.media.source import open_input, select_video_stream
from tests.assets import CLIPS
from tests.hostile.media import with_size
from tests.synthetic import (
    SoundSpec,
    VideoSpec,
    make_frame,
    regular_times,
    truncate,
    write_movie,
    write_video,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.mark.parametrize(
    "name",
    [
        "a:b.mp4",
        "-x.mp4",
        "http:foo.mp4",
        "file:foo.mp4",
        "concat:a|b.mp4",
        "%03d.png",
        "%d.jpg",
        "list.m3u8",
        "ünï 日本.mp4",
        "no suffix",
    ],
)
@pytest.mark.parametrize("source", ["cfr.mp4", "bframes.mkv", "bluray.ts"])
def test_odd_names_are_just_names(
    name: str, source: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(CLIPS[source].build(folder), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with open_input(Path(name)) as container:
        assert select_video_stream(container, Path(name)).codec_context.name == "h264"


def _fails(path: Path, error: type[MediaError], words: str) -> None:
    with pytest.raises(error) as caught:
        open_input(path).close()
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert caught.value.path == path


def test_missing_folder_empty_and_unreadable(tmp_path: Path) -> None:
    _fails(tmp_path / "none.mp4", OpenError, "does not exist")
    _fails(tmp_path, OpenError, "is a folder")
    empty = tmp_path / "empty.mp4"
    empty.touch()
    _fails(empty, OpenError, "is empty")
    _fails(empty / "inside.mp4", OpenError, "cannot read")
    _fails(Path("nul\0byte.mp4"), OpenError, "cannot read")
    if os.geteuid() != 0:
        empty.write_bytes(b"data")
        empty.chmod(0)
        _fails(empty, OpenError, "permission denied")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    _fails(pipe, OpenError, "not a regular file")


def test_not_media(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("Not a video at all.\n" * 50)
    _fails(text, OpenError, "is not a media file")
    noise = tmp_path / "noise.mkv"
    noise.write_bytes(np.random.default_rng(1).integers(0, 256, 5000, np.uint8).tobytes())
    _fails(noise, OpenError, "is not a media file")


def test_a_cut_off_mp4_is_named_as_such(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    shutil.copy(CLIPS["bframes.mp4"].build(folder), path)
    _fails(truncate(path, 0.5), OpenError, "damaged or incomplete")


@pytest.mark.parametrize(
    ("suffix", "codec", "pixel_format"),
    [("jpg", "mjpeg", "yuvj420p"), ("png", "png", "rgb24"), ("bmp", "bmp", "bgr24")],
)
@pytest.mark.parametrize("name", ["picture", "video.mp4"])
def test_images(suffix: str, codec: str, pixel_format: str, name: str, tmp_path: Path) -> None:
    context = av.CodecContext.create(codec, "w")
    context.width, context.height, context.pix_fmt = 64, 48, pixel_format
    context.time_base = Fraction(1, 25)
    packets = context.encode(make_frame(1, 64, 48, pixel_format)) + context.encode(None)
    path = tmp_path / (name if "." in name else f"{name}.{suffix}")
    path.write_bytes(b"".join(bytes(packet) for packet in packets))
    _fails(path, UnsupportedFormatError, "is an image")


@pytest.mark.parametrize("name", ["list.m3u8", "list.mp4", "list.txt", "list.mpd", "list.sdp"])
@pytest.mark.parametrize("kind", ["hls", "concat", "dash", "sdp"])
def test_playlists_open_nothing(kind: str, name: str, folder: Path, tmp_path: Path) -> None:
    shutil.copy(CLIPS["bluray.ts"].build(folder), tmp_path / "other.ts")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = f"http://127.0.0.1:{port}/clip.ts"
        texts = {
            "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n"
            f"#EXTINF:9,\n{address}\n#EXTINF:9,\nother.ts\n#EXT-X-ENDLIST\n",
            "concat": f"ffconcat version 1.0\nfile other.ts\nfile {address}\n",
            "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011">'
            f"<BaseURL>{address}</BaseURL></MPD>",
            "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
            f"m=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        }
        path = tmp_path / name
        path.write_text(texts[kind])
        _fails(path, UnsupportedFormatError, "is a playlist")
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_picture_too_large_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    """A kilobyte of H.264 that claims 256 megapixels took 1.8 GB and a minute."""
    options = {"profile": "baseline"}
    spec = VideoSpec(times=regular_times(6), time_base=Fraction(1, 25), options=options)
    path = write_video(tmp_path / "in.h264", spec)
    units = path.read_bytes().split(b"\0\0\0\1")
    made = [with_size(u, 1000, 1000) if u[:1] and u[0] & 31 == 7 else u for u in units]
    path.write_bytes(b"\0\0\0\1".join(made))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnsupportedFormatError, match="16000x15992 exceed the limit"):
        probe(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_sound_only(tmp_path: Path) -> None:
    path = write_movie(tmp_path / "sound.m4a", None, [SoundSpec()])
    with open_input(path) as container, pytest.raises(OpenError, match="sound but no video"):
        select_video_stream(container, path)
    wave = write_movie(tmp_path / "sound.wav", None, [SoundSpec(codec="pcm_s16le")])
    _fails(wave, OpenError, "it holds sound (WAV) but no video")
    foreign = write_movie(tmp_path / "sound.au", None, [SoundSpec(codec="pcm_s16be")])
    _fails(foreign, UnsupportedFormatError, "its container is not supported")


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("Holiday.MP4", "; did you mean holiday.mp4?"),
        ("holiday.mov", "; did you mean holiday.mp4?"),
        ("birthday party.mp4", "it does not exist"),
        ("holidays.jpg", "it does not exist"),
        ("none/holiday.mp4", "it does not exist"),
        ("link.mp4", "it is a broken link to holiday.mov"),
    ],
)
def test_a_missing_file_suggests_a_similar_one(tmp_path: Path, asked: str, answer: str) -> None:
    (tmp_path / "holiday.mp4").touch()
    (tmp_path / "link.mp4").symlink_to("holiday.mov")
    with pytest.raises(OpenError) as caught:
        open_input(tmp_path / asked)
    assert str(caught.value).endswith(answer)


def test_cover_art_is_not_the_video(tmp_path: Path) -> None:
    video = VideoSpec(times=regular_times(5))
    path = write_movie(tmp_path / "cover.mp4", video, [SoundSpec()], cover=True)
    with open_input(path) as container:
        assert len(container.streams.video) == 2
        assert select_video_stream(container, path).codec_context.name == "h264"
    path = write_movie(tmp_path / "only.mp4", None, [SoundSpec()], cover=True)
    with open_input(path) as container, pytest.raises(OpenError, match="cover picture"):
        select_video_stream(container, path)


def test_nothing_is_printed(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "noise.ts"
    data = bytearray(CLIPS["bluray.ts"].build(folder).read_bytes())
    data[4000:9000:7] = bytes(len(data[4000:9000:7]))
    path.write_bytes(bytes(data))
    with open_input(path) as container:
        for packet in container.demux():
            try:
                packet.decode()
            except av.FFmpegError:
                continue
    assert capfd.readouterr() == ("", "")
