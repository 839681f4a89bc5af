"""Make ``samples/person.mp4``, a short clip of a real-looking person in a detailed room.

Provenance: the person is cut out of ``skimage.data.astronaut()``, a NASA photograph of the
astronaut Eileen Collins, which is in the public domain and comes with scikit-image. Everything
else (room, motion, sound) is drawn and synthesised here from seeded random numbers, and is under
this project's licence. Nothing is downloaded.

The clip has what a background blur must cope with: hair and a shiny collar in front of books,
lettering and lights; a moving, hand-held camera with parallax; a person who sways. At each whole
second the radio's light on the shelf goes on for three frames, the clock's second hand steps
and a click sounds, so sound out of step with the picture is noticed.

Run it with Python 3.11 or newer and ``numpy opencv-python-headless scikit-image av``::

    python scripts/make_sample.py samples/person.mp4

The same versions of these packages on the same kind of machine give the same bytes.
``--alpha`` also writes the true opacity of the person in each frame, to measure mattes with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from sample_clip.encode import ClipWriter, write_alpha
from sample_clip.motion import FRAME_HEIGHT, FRAME_WIDTH, Choreography, Stage
from sample_clip.portrait import cut_out_person
from sample_clip.room import Layer, draw_room
from sample_clip.sound import synthesise

FRAME_RATE: Final = 30
DURATION_SECONDS: Final = 6
FLASH_FRAMES: Final = 3
ROOM_SEED: Final = 8
MOTION_SEED: Final = 11
GRAIN_SEED: Final = 13

_METADATA: Final = {
    "title": "bgsoft sample: a person in a room",
    "comment": (
        "Synthesised clip. Person: Eileen Collins, NASA portrait, public domain, via "
        "scikit-image (skimage.data.astronaut). Room, motion and sound: scripts/make_sample.py."
    ),
}


def make_clip(path: Path) -> list[npt.NDArray[np.uint8]]:
    """Render and write the clip; return each frame's true opacity, (H, W) uint8."""
    stage = Stage(cut_out_person())
    choreography = Choreography(np.random.default_rng(MOTION_SEED), DURATION_SECONDS)
    grain = np.random.default_rng(GRAIN_SEED)
    alphas: list[npt.NDArray[np.uint8]] = []
    layers: list[Layer] = []
    size = (FRAME_WIDTH, FRAME_HEIGHT)
    with ClipWriter(path, size=size, frame_rate=FRAME_RATE, metadata=_METADATA) as writer:
        writer.write_sound(synthesise(DURATION_SECONDS))
        for index in range(DURATION_SECONDS * FRAME_RATE):
            second, frame_in_second = divmod(index, FRAME_RATE)
            if frame_in_second in (0, FLASH_FRAMES):
                lit = frame_in_second < FLASH_FRAMES
                layers = draw_room(np.random.default_rng(ROOM_SEED), second, lit)
            image, alpha = stage.render(layers, choreography.at(index / FRAME_RATE))
            # A little sensor noise binds portrait and drawing together.
            noise = grain.standard_normal(image.shape[:2], np.float32)[..., None] * (0.9 / 255.0)
            writer.write_frame(np.clip(image + noise, 0.0, 1.0))
            alphas.append(np.round(alpha * 255.0).astype(np.uint8))
        writer.finish()
    return alphas


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make the sample clip.")
    parser.add_argument("output", type=Path, help="MP4 file to write")
    parser.add_argument("--alpha", type=Path, help="also write the true opacities (FFV1, .mkv)")
    options = parser.parse_args(arguments)
    alphas = make_clip(options.output)
    if options.alpha is not None:
        write_alpha(options.alpha, alphas, FRAME_RATE)


if __name__ == "__main__":
    main()
