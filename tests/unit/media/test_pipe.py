"""Input that can be read once: which reader gets which bytes and packets, and the limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bgsoft.errors import DecodeError, OpenError, RenderCancelledError
from bgsoft.media import pipe as pipes
from bgsoft.media.copied import adts_config
from bgsoft.media.pipe import PipeInput, PipePackets
from bgsoft.media.probe import probe
from bgsoft.media.source import open_input, read_packets, rendered_packets
from tests.synthetic import SoundSpec, VideoSpec, regular_times, write_movie

FRAMES = 50


@pytest.fixture
def movie(tmp_path: Path) -> Path:
    spec = VideoSpec(times=regular_times(FRAMES), width=96, height=72)
    return write_movie(tmp_path / "in.mkv", spec, [SoundSpec(seconds=2.0)])


@pytest.fixture
def piped(movie: Path, tmp_path: Path) -> Iterator[PipeInput]:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    sender = threading.Thread(target=_send, args=(movie.read_bytes(), path))
    with PipeInput(path, threading.Event()) as pipe:
        sender.start()
        yield pipe
    sender.join()


def _send(data: bytes, path: Path) -> None:
    with ExitStack() as stack:
        try:
            stack.enter_context(path.open("wb", buffering=0)).write(data)
        except BrokenPipeError:
            return


def sizes(path: Path, *indices: int) -> list[int]:
    return [packet.size for packet in read_packets(path, *indices)]


def test_the_beginning_can_be_opened_again_until_the_render_begins(
    movie: Path, piped: PipeInput
) -> None:
    info = probe(piped)
    assert info.pipe is piped
    assert (info.path, info.format) == (piped.path, probe(movie).format)
    first = next(read_packets(piped, 1))
    with open_input(piped) as again:
        assert [stream.type for stream in again.streams] == ["video", "audio"]
    packets = rendered_packets(piped, 0)
    assert rendered_packets(piped, 0) is packets
    assert [packet.size for packet in packets.video()] == sizes(movie, 0)
    assert first.size == sizes(movie, 1)[0]
    late = piped.reader()
    with pytest.raises(OpenError, match="no longer in memory"):
        late.read(1)


@pytest.mark.parametrize("ahead", ["video", "sound", "both"])
def test_each_packet_goes_to_its_reader_once(movie: Path, piped: PipeInput, ahead: str) -> None:
    packets = rendered_packets(piped, 0)
    packets.copy()
    video, others = packets.video(), packets.others()
    got_video, got_sound, times = [], [], []
    if ahead == "video":
        got_video += [packet.size for packet in video]
    for packet in others:
        (got_sound if packet.size else times).append(packet.size or packet.pts)
        if ahead == "both":
            got_video += [each.size for each in [next(video, None)] if each is not None]
    got_video += [packet.size for packet in video]
    assert got_video == sizes(movie, 0)
    assert got_sound == sizes(movie, 1)
    assert sorted(times) == sorted(packet.pts for packet in read_packets(movie, 0))


def test_what_nobody_wants_is_not_kept(piped: PipeInput) -> None:
    packets = rendered_packets(piped, 0)
    assert len(list(packets.video())) == FRAMES
    assert next(packets.others(), None) is None


@pytest.mark.parametrize("kind", ["pictures", "sound and subtitles", "times"])
def test_one_kind_far_before_the_other_is_an_error(
    piped: PipeInput, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    most = {"pictures": 8000, "sound and subtitles": 6000, "times": 1500}[kind]
    monkeypatch.setattr(pipes, "MAX_WAITING_BYTES", most)
    if kind == "times":
        monkeypatch.setattr(pipes, "_ITEM_BYTES", 500)
    packets = rendered_packets(piped, 0)
    packets.copy()
    reader = packets.others() if kind == "pictures" else packets.video()
    with pytest.raises(DecodeError, match="ahead of its other tracks"):
        list(reader)


def test_a_beginning_without_video_is_not_kept_for_ever(
    piped: PipeInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "MAX_HEAD_BYTES", 1000)
    with pytest.raises(OpenError, match="contain no video; write it to a file"):
        probe(piped)


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_read_ends_with_the_render(tmp_path: Path, how: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    cancel = threading.Event()
    with PipeInput(path, cancel) as pipe:
        threading.Timer(0.2, pipe.stop if how == "stop" else cancel.set).start()
        with pytest.raises(RenderCancelledError):
            probe(pipe)
        assert pipe.waits > 0


def test_closing_is_seen_by_the_writer(piped: PipeInput) -> None:
    packets = rendered_packets(piped, 0)
    assert isinstance(packets, PipePackets)
    next(packets.video())
    piped.close()
    piped.close()


def test_the_description_of_aac_is_ffmpegs(tmp_path: Path) -> None:
    spec = VideoSpec(times=regular_times(5), width=96, height=72)
    path = write_movie(tmp_path / "in.ts", spec, [SoundSpec(seconds=0.5)])
    packet = bytes(next(read_packets(path, 1)))
    with open_input(write_movie(tmp_path / "in.mp4", spec, [SoundSpec(seconds=0.5)])) as mp4:
        described = mp4.streams[1].codec_context.extradata
    assert described is not None
    assert adts_config(packet) == described[:2]
    assert adts_config(packet[1:]) is None
    assert adts_config(packet[:3]) is None
    without_channels = bytes([*packet[:2], packet[2] & 0xFE, packet[3] & 0x3F, *packet[4:]])
    assert adts_config(without_channels) is None
