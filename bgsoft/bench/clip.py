"""The clip that is measured: the user's or the sample, joined to itself until long enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe

__all__ = ["BenchClip", "prepare", "sample_path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchClip:
    """What every row is measured on."""

    path: Path
    name: str
    """Of the file it was made from."""
    loops: int
    duration_seconds: float | None
    """Only so much of it; None: all."""
    info: VideoInfo

    def to_dict(self, frames: int) -> dict[str, Any]:
        """For the results, with the number of frames that a render of it had."""
        info = self.info
        rate = float(info.frame_rate) if info.frame_rate else None
        return {
            "name": self.name,
            "loops": self.loops,
            "frames": frames,
            "width": info.format.width,
            "height": info.format.height,
            "bit_depth": info.format.bit_depth,
            "codec": info.codec,
            "frame_rate": rate,
            "duration_s": self.duration_seconds or info.duration_seconds,
        }


def sample_path() -> Path | None:
    """The sample clip of a checkout; None in an installed package, which comes without it."""
    path = Path(__file__).parents[2] / "samples" / "person.mp4"
    return path if path.is_file() else None


def prepare(source: Path | None, folder: Path, seconds: float) -> BenchClip:
    """Find the clip and make it about as long as asked.

    A longer clip is measured in part; a shorter one is joined to itself, packets copied, without
    its sound.

    Args:
        source: The user's video; None: the sample, or where there is none, a drawn one.
        folder: For what has to be written.
        seconds: Of video, to measure on.

    Raises:
        OpenError, UnsupportedFormatError: The input cannot be read.
    """
    path = source or sample_path() or _drawn(folder)
    info = probe(path)
    length = info.duration_seconds
    if length is None:  # the header does not tell
        return _clip(path, path, 1, seconds, info)
    if length >= seconds:
        return _clip(path, path, 1, seconds if length > seconds else None, info)
    loops = math.ceil(seconds / length)
    target = folder / f"looped{path.suffix}"
    try:
        _join(info, loops, target)
        joined = probe(target)
        _read_to_the_end(target, joined)
    except (av.FFmpegError, ValueError, ArithmeticError):
        # No container of its own takes these packets twice: measured as it is.
        return _clip(path, path, 1, None, info)
    return _clip(target, path, loops, seconds, joined)


def _clip(
    path: Path, source: Path, loops: int, seconds: float | None, info: VideoInfo
) -> BenchClip:
    return BenchClip(path=path, name=source.name, loops=loops, duration_seconds=seconds, info=info)


def _drawn(folder: Path) -> Path:
    from bgsoft.selftest.clips import ClipSpec, write_clip

    spec = ClipSpec(
        name="drawn.mp4",
        width=1280,
        height=720,
        frames=100,
        options={"preset": "veryfast", "crf": "20"},
    )
    return write_clip(folder, spec)


def _join(info: VideoInfo, loops: int, target: Path) -> None:
    """Write the video stream several times over, packets copied."""
    with av.open(str(target), "w") as output:
        offset, stream = 0, None
        for _ in range(loops):
            with av.open(str(info.path)) as source:
                video = source.streams[info.stream_index]
                assert isinstance(video, av.VideoStream)
                stream = stream or output.add_stream_from_template(video)
                first: int | None = None
                end = 0
                for packet in source.demux(video):
                    if packet.pts is None or packet.dts is None:
                        continue
                    first = packet.pts if first is None else first
                    packet.stream = stream
                    packet.pts += offset - first
                    packet.dts += offset - first
                    end = max(end, packet.pts + (packet.duration or 1))
                    output.mux(packet)
                offset = end


def _read_to_the_end(path: Path, info: VideoInfo) -> None:
    """Raise where the joined file is not what it should be."""
    with CpuDecoder(path, DecodeSettings()) as decoder:
        if decoder.info.format != info.format:
            raise ValueError("joined clip differs")
