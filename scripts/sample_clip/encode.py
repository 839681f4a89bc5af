"""Write frames and sound to an MP4 file, and the true opacities to a lossless one."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Final

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

from sample_clip.sound import SAMPLE_RATE

FloatArray = npt.NDArray[np.float32]

_AUDIO_FRAME: Final = 1024
_KEYFRAME_SECONDS: Final = 2


class ClipWriter:
    """Writes H.264 (4:2:0, BT.709, limited range) and AAC, index first, ready to stream."""

    def __init__(
        self, path: Path, *, size: tuple[int, int], frame_rate: int, metadata: dict[str, str]
    ) -> None:
        """Open ``path``; size is (width, height).

        Raises:
            av.error.FFmpegError: if the file can't be written.
        """
        self._container = av.open(str(path), "w", options={"movflags": "+faststart"})
        self._container.metadata.update(metadata)
        # Four references keep the level at 3.1, which every decoder takes.
        options = {"crf": "20", "preset": "veryslow", "profile": "high", "tune": "film"}
        options["refs"] = "4"
        self._video = self._container.add_stream("libx264", rate=frame_rate, options=options)
        self._video.width, self._video.height = size
        self._video.pix_fmt = "yuv420p"
        self._video.time_base = Fraction(1, frame_rate)
        self._video.gop_size = _KEYFRAME_SECONDS * frame_rate
        context = self._video.codec_context
        context.colorspace = Colorspace.ITU709
        context.color_primaries = ColorPrimaries.BT709
        context.color_trc = ColorTrc.BT709
        context.color_range = ColorRange.MPEG
        # x264's output depends on how many threads share the work.
        context.thread_count = 1
        self._audio = self._container.add_stream("aac", rate=SAMPLE_RATE, layout="stereo")
        self._audio.bit_rate = 96_000
        self._frame_rate = frame_rate
        self._frames = 0

    def __enter__(self) -> ClipWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._container.close()

    def write_sound(self, sound: FloatArray) -> None:
        """Encode all the sound, (2, samples) in -1..1."""
        for start in range(0, sound.shape[1], _AUDIO_FRAME):
            block = np.ascontiguousarray(sound[:, start : start + _AUDIO_FRAME])
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = SAMPLE_RATE, start
            frame.time_base = Fraction(1, SAMPLE_RATE)
            self._container.mux(self._audio.encode(frame))
        self._container.mux(self._audio.encode(None))

    def write_frame(self, image: FloatArray) -> None:
        """Encode one frame, (H, W, 3) RGB in 0..1."""
        samples = np.round(image * 255.0).astype(np.uint8)
        frame = av.VideoFrame.from_ndarray(samples, format="rgb24").reformat(
            format="yuv420p",
            src_colorspace=Colorspace.ITU709,
            dst_colorspace=Colorspace.ITU709,
            src_color_range=ColorRange.JPEG,
            dst_color_range=ColorRange.MPEG,
        )
        frame.pts = self._frames
        frame.time_base = Fraction(1, self._frame_rate)
        self._frames += 1
        self._container.mux(self._video.encode(frame))

    def finish(self) -> None:
        """Encode what the encoder still holds."""
        self._container.mux(self._video.encode(None))


def write_alpha(path: Path, alphas: Iterable[npt.NDArray[np.uint8]], frame_rate: int) -> None:
    """Write opacities, (H, W) uint8 each, as a lossless grey FFV1 file.

    Raises:
        av.error.FFmpegError: if the file can't be written.
    """
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=frame_rate)
        stream.pix_fmt = "gray"
        for index, alpha in enumerate(alphas):
            if index == 0:
                stream.height, stream.width = alpha.shape
            frame = av.VideoFrame.from_ndarray(alpha, format="gray")
            frame.pts, frame.time_base = index, Fraction(1, frame_rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
