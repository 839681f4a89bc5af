"""Decode and encode with nothing in between: how fast a render could be at best.

Run as ``python -m bgsoft.bench.transcode IN OUT SETTINGS.toml [SECONDS]``: the pipeline, decoder,
muxer and encoder of a render with these settings, whose picture stage does nothing. One line of
JSON on stdout has ``frames``, ``wall_s`` and ``first_frame_s`` as a render's report does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cv2

from bgsoft.cli.console import Console
from bgsoft.cli.exitcodes import exit_code, one_line
from bgsoft.config import RenderConfig
from bgsoft.decode.base import DecodeSettings
from bgsoft.frame import Frame
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.runner import Pipeline
from bgsoft.presets import build_config
from bgsoft.report import Event
from bgsoft.stages import StageBuilder

__all__ = ["transcode"]


class _Nothing:
    """A picture stage that leaves frames as they are."""

    batch = 1
    held = 0

    def start(self) -> None:
        """Nothing to prepare."""

    def process_batch(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Nothing to do."""
        return frames

    def flush(self) -> Sequence[Frame]:
        """Nothing is kept back."""
        return ()


def _ignore(event: Event) -> None:
    """The render that this is compared with has told of everything."""


def transcode(config: RenderConfig) -> dict[str, Any]:
    """Decode and encode.

    Args:
        config: Of a render; its effect and model play no part. The output is overwritten.

    Returns:
        ``frames``, ``wall_s``, ``first_frame_s``.

    Raises:
        BgsoftError: As a render.
    """
    started = time.perf_counter()
    cv2.setNumThreads(1)
    with ExitStack() as stack:
        builder = StageBuilder(config.backends, _ignore)
        stack.callback(builder.close)
        decoder = stack.enter_context(
            builder.open_decoder(
                config.input, DecodeSettings(duration_seconds=config.duration_seconds)
            )
        )
        muxer = stack.enter_context(
            Muxer(
                config.output,
                container_for(config.output),
                decoder.info,
                duration_seconds=config.duration_seconds,
            )
        )
        encoder = builder.open_encoder(muxer, config.encode, decoder.info)
        stack.callback(encoder.close)
        pipeline = Pipeline(
            decoder=decoder,
            stage=_Nothing(),
            sink=encoder,
            ring=builder.make_ring(decoder.info.format),
            metrics=Metrics(),
        )
        setup = time.perf_counter() - started
        result = pipeline.run()
        muxer.finish()
    first = result.first_frame_seconds
    return {
        "frames": len(result.encoded_pts),
        "wall_s": time.perf_counter() - started,
        "first_frame_s": None if first is None else setup + first,
    }


def main(argv: list[str]) -> int:
    """Run as a program; exit codes as ``bgsoft``'s."""
    source, target, settings, *seconds = argv
    try:
        config = build_config(
            Path(source),
            Path(target),
            preset=settings,
            duration_seconds=float(seconds[0]) if seconds else None,
        )
        made = transcode(config)
    except Exception as exc:
        Console().error(one_line(exc))
        return exit_code(exc)
    Console().out(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
