"""A render without its encoder, and its decoder alone: lower limits of a render's time.

The results are ``frames``, and ``wall_s`` and ``first_frame_s`` as in a render's report.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from bgsoft.decode.base import DecodeSettings
from bgsoft.encode.base import PictureKind
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.runner import FrameStage, Pipeline
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.chunk import Chunk
from bgsoft.rendering.session import hand_over_frames
from bgsoft.settings.config import RenderConfig


class _NoPicture(FrameStage):
    """A picture stage that leaves frames unchanged."""

    batch, held = 1, 0

    def start(self) -> None:
        pass

    def process_batch(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        return frames

    def flush(self) -> Sequence[Frame]:
        return ()


class _ThrownAway:
    """Discards finished frames where they are, once the device has finished them."""

    name, pixel_format, kind, waits = "none", "", PictureKind.COLOR, 0
    on_host_only = False

    def __init__(self) -> None:
        self.frames = 0

    def open(self, info: VideoInfo) -> None:
        pass

    def encode(self, frame: Frame) -> None:
        if frame.ready is not None:
            frame.ready.synchronize()
        self.frames += 1

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


def render_picture(
    config: RenderConfig, chunk: Chunk | None = None, info: VideoInfo | None = None
) -> dict[str, Any]:
    """Run a render, or a chunk of it, and discard its frames; return the times.

    ``info`` is the probed input, if known.
    """
    report = hand_over_frames(config, _ThrownAway(), chunk=chunk, info=info)
    return {
        "frames": report.frames_encoded,
        "wall_s": report.wall_s,
        "first_frame_s": report.first_frame_s,
    }


def decode_alone(config: RenderConfig) -> dict[str, Any]:
    """Run the decoder of a render; return the times."""
    started = time.perf_counter()
    with ExitStack() as stack:
        # The full render, which this is compared with, reports every event.
        builder = StageBuilder(config.backends, lambda _event: None)
        stack.callback(builder.close)
        settings = DecodeSettings(duration_seconds=config.duration_seconds)
        decoder = stack.enter_context(builder.open_decoder(config.input, settings))
        pipeline = Pipeline(
            decoder=decoder,
            stage=_NoPicture(),
            sink=_ThrownAway(),
            ring=builder.make_ring(decoder.info.format),
            metrics=Metrics(),
        )
        setup = time.perf_counter() - started
        result = pipeline.run()
    first = result.first_frame_seconds
    return {
        "frames": len(result.encoded_pts),
        "wall_s": time.perf_counter() - started,
        "first_frame_s": None if first is None else setup + first,
    }
