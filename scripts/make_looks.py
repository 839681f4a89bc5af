"""Make ``samples/looks.jpg``, the picture at the top of the README: a frame of the sample six ways.

    python scripts/make_looks.py samples/person.mp4 samples/looks.jpg

Needs bgsoft with its ``cpu`` extra.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

import bgsoft

WIDTH, COLUMNS, GAP = 480, 3, 6
"""Of one picture, pixels; pictures a row; white between them."""
CHECKS = 12
"""Edge of the squares behind transparent parts."""
QUALITY = 88
SECONDS = 4.0
"""Where the frame is; the render begins a little before it, as a mask needs some frames."""
LEAD_IN = 0.5

LOOKS: tuple[Mapping[str, Any], ...] = (
    {"effect": "matte"},
    {"preset": "soft"},
    {"preset": "studio"},
    {"background": "#2c5a78"},
    {"preset": "cutout"},
)
Picture = NDArray[np.uint8]


def frame_at(path: Path, seconds: float) -> Picture:
    """The first frame from a time on: (h, w, 4) uint8, blue first, with its opacity."""
    with av.open(path) as container:
        for frame in container.decode(video=0):
            if frame.time is not None and frame.time >= seconds - 1e-6:
                return frame.to_ndarray(format="bgra")
    raise SystemExit(f"{path} has no frame at {seconds:g} s")


def over_checks(picture: Picture) -> Picture:
    """Lay a picture over grey squares, as editors show transparency."""
    rows, columns = np.indices(picture.shape[:2]) // CHECKS
    checks = np.where((rows + columns) % 2, 255, 204)[..., None]
    share = picture[..., 3:] / 255.0
    return np.rint(picture[..., :3] * share + checks * (1 - share)).astype(np.uint8)


def looks(source: Path) -> list[Picture]:
    """The source frame, and the frame in each look."""
    pictures = [frame_at(source, SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        for look in LOOKS:
            # ProRes and FFV1 keep what is transparent, and H.264's losses would be seen here.
            target = Path(folder) / "look.mkv"
            options = {"start": SECONDS - LEAD_IN, "duration": 2 * LEAD_IN, "codec": "ffv1"}
            bgsoft.render(source, target, overwrite=True, **options, **look)
            pictures.append(frame_at(target, LEAD_IN))
    return pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    tiles = []
    for picture in looks(options.source):
        height = round(picture.shape[0] * WIDTH / picture.shape[1])
        small = cv2.resize(picture, (WIDTH, height), interpolation=cv2.INTER_AREA)
        shown = over_checks(small)
        white = (255, 255, 255)
        tiles.append(cv2.copyMakeBorder(shown, 0, GAP, 0, GAP, cv2.BORDER_CONSTANT, value=white))
    rows = [np.hstack(tiles[at : at + COLUMNS]) for at in range(0, len(tiles), COLUMNS)]
    sheet = np.vstack(rows)[:-GAP, :-GAP]
    if not cv2.imwrite(str(options.target), sheet, [cv2.IMWRITE_JPEG_QUALITY, QUALITY]):
        raise SystemExit(f"{options.target} cannot be written")


if __name__ == "__main__":
    main()
