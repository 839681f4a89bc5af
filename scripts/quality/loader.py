"""Reads what the measurements of quality measure: clips, and photographs with masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]
"""(H, W, 3) BGR or (H, W)."""


def read_clip(path: Path) -> list[Image]:
    """Return the frames of a clip, (H, W, 3) uint8 BGR each."""
    try:
        with av.open(str(path)) as container:
            return [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    except (OSError, IndexError) as exc:
        raise SystemExit(f"cannot read {path}: {exc}; name a video") from exc


def read_pairs(images: Path, masks: Path) -> dict[str, tuple[Image, Image]]:
    """Return photographs by stem, each with its person in 0 and 1, uint8.

    Both without the last row or column of an odd size, which many codecs refuse. Photographs
    without a mask of the same stem, and files that are no pictures, are left out.
    """
    drawn = {path.stem: path for path in masks.iterdir()}
    pairs = {}
    for path in sorted(images.iterdir()):
        if path.stem not in drawn:
            continue
        image = cv2.imread(str(path))
        mask = cv2.imread(str(drawn[path.stem]), cv2.IMREAD_GRAYSCALE)
        if image is None or mask is None:
            continue
        person = (cv2.resize(mask, image.shape[1::-1]) > 127).astype(np.uint8)
        height, width = (side // 2 * 2 for side in person.shape)
        pairs[path.stem] = image[:height, :width], person[:height, :width]
    return pairs
