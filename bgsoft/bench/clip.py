"""The clip that is measured: the user's or the sample, joined to itself until long enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av

from bgsoft.decode.cpu import CpuDecoder
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.selftest.clips import ClipSpec, write_clip

_DRAWN = ClipSpec(
    name="drawn.mp4",
    width=1280,
    height=720,
    frames=100,
    options={"preset": "veryfast", "crf": "20"},
)


@dataclass(frozen=True, slots=True)
class BenchClip:
    """What every row is measured on."""

    info: VideoInfo
    name: str
    """Of the file it was made from."""
    duration_seconds: float | None = None
    """Only so much of it; None: all."""
    loops: int = 1

    def to_dict(self, frames: int) -> dict[str, Any]:
        """For the results, with the number of frames that a render of it had."""
        info = self.info
        return {
            "name": self.name,
            "loops": self.loops,
            "frames": frames,
            "width": info.format.width,
            "height": info.format.height,
            "bit_depth": info.format.bit_depth,
            "codec": info.codec,
            "frame_rate": float(info.frame_rate) if info.frame_rate else None,
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
    path = source or sample_path() or write_clip(folder, _DRAWN)
    info = probe(path)
    length = info.duration_seconds
    if length is None or length > seconds:  # or the header does not tell
        return BenchClip(info, path.name, seconds)
    loops = math.ceil(seconds / length)
    if loops > 1:
        target = folder / f"looped{path.suffix}"
        try:
            _join(info, loops, target)
            with CpuDecoder(target) as decoder:
                if decoder.info.format == info.format:
                    return BenchClip(decoder.info, path.name, seconds, loops)
        except (av.FFmpegError, ValueError, ArithmeticError):
            pass  # no container of its own takes these packets twice: measured as it is
    return BenchClip(info, path.name)


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
