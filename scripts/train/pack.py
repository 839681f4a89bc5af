"""Pack the photographs of Clothing Co-Parsing and their people's masks for training.

::

    git clone --bare https://github.com/bearpaw/clothing-co-parsing ccp.git
    git --git-dir=ccp.git archive fe34fb77 photos annotations/pixel-level | tar xf - -C ccp
    python scripts/train/pack.py ccp packed

Writes two archives of WebP photographs and 1-bit PNG masks (255 = person: every label but 0).
Needs SciPy, which reads the labels.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

HEIGHT, WIDTH = 832, 560
"""No photograph is larger."""
_ARCHIVES = 2
_QUALITY = 80
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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Pack Clothing Co-Parsing for training.")
    parser.add_argument("source", type=Path, help="folder with photos and annotations")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    labels = sorted((options.source / "annotations/pixel-level").glob("*.mat"))
    for part in range(_ARCHIVES):
        with zipfile.ZipFile(options.output / f"people{part}.zip", "w") as archive:
            for path in labels[part::_ARCHIVES]:
                photo = cv2.imread(str(options.source / "photos" / f"{path.stem}.jpg"))
                mask = person_mask(loadmat(path)["groundtruth"])
                if photo.shape[:2] != mask.shape:
                    print(f"{path.stem}: left out, its labels have another size")
                    continue
                scale = min(1.0, HEIGHT / mask.shape[0], WIDTH / mask.shape[1])
                size = round(mask.shape[1] * scale), round(mask.shape[0] * scale)
                photo = cv2.resize(photo, size, interpolation=cv2.INTER_AREA)
                mask = cv2.resize(255 * mask, size, interpolation=cv2.INTER_AREA)
                mask = 255 * (mask > 127).astype(np.uint8)
                webp = cv2.imencode(".webp", photo, [cv2.IMWRITE_WEBP_QUALITY, _QUALITY])[1]
                png = cv2.imencode(".png", mask, [cv2.IMWRITE_PNG_BILEVEL, 1])[1]
                archive.writestr(f"{path.stem}.webp", webp.tobytes())
                archive.writestr(f"{path.stem}.png", png.tobytes())


if __name__ == "__main__":
    main()
