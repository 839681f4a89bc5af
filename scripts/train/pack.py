"""Pack photographs of Clothing Co-Parsing and frames of clips for training.

::

    git clone --bare https://github.com/bearpaw/clothing-co-parsing ccp.git
    git --git-dir=ccp.git archive fe34fb77 photos annotations/pixel-level | tar xf - -C ccp
    python scripts/train/pack.py ccp packed --clips clips/*

Writes archives of WebP pictures: two of photographs that have labels, with 1-bit PNG masks (255 =
person: every label but 0), two of photographs without, and one of frames of clips. Masks of those
are made by ``teach.py``. Needs SciPy, which reads the labels.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

HEIGHT, WIDTH = 832, 560
"""No photograph is larger."""
_ARCHIVES = 2
_QUALITY = 80
_FRAMES = 24
"""Of each clip."""
_SPECK, _PINHOLE = 0.004, 0.0004
"""Parts of the person's area: regions of people that are smaller are removed, holes are filled."""


def person_mask(labels: NDArray[np.integer]) -> NDArray[np.uint8]:
    """A 0/1 mask of a map of labels, without specks and pinholes."""
    mask = (labels > 0).astype(np.uint8)
    area = int(mask.sum())
    for value, least in ((1, _SPECK), (0, _PINHOLE)):
        regions = cv2.connectedComponentsWithStats((mask == value).astype(np.uint8), None, 4)
        _, numbered, stats, _ = regions
        small = np.flatnonzero(stats[:, cv2.CC_STAT_AREA] < least * area)
        mask[np.isin(numbered, small[small > 0])] = 1 - value
    return mask


def _reduced(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture or mask no larger than all are to be."""
    rows, columns = picture.shape[:2]
    scale = min(1.0, HEIGHT / rows, WIDTH / columns)
    size = round(columns * scale), round(rows * scale)
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]


def _write(archive: zipfile.ZipFile, stem: str, picture: NDArray[np.uint8]) -> None:
    webp = cv2.imencode(".webp", _reduced(picture), [cv2.IMWRITE_WEBP_QUALITY, _QUALITY])[1]
    archive.writestr(f"{stem}.webp", webp.tobytes())


def _pack_labelled(source: Path, labels: Sequence[Path], output: Path) -> None:
    with zipfile.ZipFile(output, "w") as archive:
        for path in labels:
            photo = cv2.imread(str(source / "photos" / f"{path.stem}.jpg"))
            mask = person_mask(loadmat(path)["groundtruth"])
            if photo.shape[:2] != mask.shape:
                print(f"{path.stem}: left out, its labels have another size")
                continue
            mask = 255 * (_reduced(255 * mask) > 127).astype(np.uint8)
            png = cv2.imencode(".png", mask, [cv2.IMWRITE_PNG_BILEVEL, 1])[1]
            _write(archive, path.stem, photo)
            archive.writestr(f"{path.stem}.png", png.tobytes())


def _pack_clips(clips: Sequence[Path], output: Path) -> None:
    with zipfile.ZipFile(output, "w") as archive:
        for clip in clips:
            reader = cv2.VideoCapture(str(clip))
            frames = []
            while (read := reader.read())[0]:
                frames.append(read[1])
            for at in np.linspace(0, len(frames) - 1, _FRAMES).round().astype(int):
                _write(archive, f"{clip.stem}-{at:04}", frames[at])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Pack pictures for training.")
    parser.add_argument("source", type=Path, help="folder with photos and annotations")
    parser.add_argument("output", type=Path)
    parser.add_argument("--clips", type=Path, nargs="*", default=[], help="videos of people")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    labels = sorted((options.source / "annotations/pixel-level").glob("*.mat"))
    known = {path.stem for path in labels}
    photos = sorted((options.source / "photos").glob("*.jpg"))
    others = [path for path in photos if path.stem not in known]
    for part in range(_ARCHIVES):
        path = options.output / f"people{part}.zip"
        _pack_labelled(options.source, labels[part::_ARCHIVES], path)
        with zipfile.ZipFile(options.output / f"others{part}.zip", "w") as archive:
            for photo in others[part::_ARCHIVES]:
                _write(archive, photo.stem, cv2.imread(str(photo)))
    if options.clips:
        _pack_clips(options.clips, options.output / "clips.zip")


if __name__ == "__main__":
    main()
