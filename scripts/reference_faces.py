"""Write what another face detector sees in clips, for scripts/measure_faces.py to measure against.

::

    python scripts/reference_faces.py FOLDER clip.mkv photo.jpg

The detector is MediaPipe's full-range one in MediaPipe's own runtime (``model_selection=1`` of
``mp.solutions.face_detection``). bgsoft runs neither this network nor the code around it. Run it in
an environment of its own, with Python 3.11 and ``mediapipe==0.10.21 av``: that MediaPipe needs
NumPy below 2.

It is shown the whole frame and, for small faces, squares of the frame's short side and of halves
and quarters of it, which overlap by 30 %. A detection that touches an edge of its square which is
none of the frame is of a cut face and left out; another square shows that face whole. Of
detections that share 30 % (intersection over union), or of which one lies in the other by 70 %,
the surest is kept.

FOLDER gets NAME.json for each clip, where NAME is the clip's without its ending. Its keys:

* ``tool``, ``version``, ``settings``, ``clip``, and ``model``: file and SHA-256;
* ``width`` and ``height`` of the upright frame;
* ``frames`` in presentation order: each has ``index``, ``time_seconds`` (null where the file has
  none), and ``faces``, best first;
* of each face ``score``, ``box`` (left, top, right, bottom) and ``points`` (right eye, left eye,
  nose, mouth, right ear, left ear; x and y), in frame pixels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import av
import mediapipe as mp
import numpy as np
from mediapipe.python.solution_base import SolutionBase
from numpy.typing import NDArray

MIN_SCORE = 0.2
SIDES, SHARED = (1.0, 0.5, 0.25), 0.3
"""Tile sides as parts of the frame's short side, and what neighbours share of them."""
MODEL_SIDE = 192
"""Of the full-range model's input, pixels: a smaller tile shows nothing new."""
MAX_OVERLAP, MAX_INSIDE = 0.3, 0.7
EDGE = 0.02
"""A box this near to an edge of its tile, in parts of the tile's side, touches it."""
MODEL = "face_detection_full_range_sparse"

Image = NDArray[np.uint8]
"""(H, W, 3) RGB."""


class Found(NamedTuple):
    """One face, in frame pixels."""

    score: float
    box: tuple[float, float, float, float]
    points: tuple[tuple[float, float], ...]


class Tile(NamedTuple):
    """A part of the frame, pixels."""

    x: int
    y: int
    width: int
    height: int


def frames_of(path: Path) -> Iterator[tuple[float | None, Image]]:
    """Time and upright picture of every frame, in presentation order; mirrored ones stay so."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            turns = round(frame.rotation / 90)
            picture = np.rot90(frame.to_ndarray(format="rgb24"), turns)
            yield frame.time, np.ascontiguousarray(picture)


def tiles(width: int, height: int) -> list[Tile]:
    """The whole frame, then squares that cover it, evenly spaced."""
    short = min(width, height)
    found = [Tile(0, 0, width, height)]
    for part in SIDES:
        side = round(short * part)
        if side < MODEL_SIDE or side == max(width, height):
            continue

        def starts(length: int, side: int = side) -> list[int]:
            room = length - side
            count = math.ceil(room / (side * (1 - SHARED))) + 1
            return [round(room * index / max(1, count - 1)) for index in range(count)]

        found += [Tile(x, y, side, side) for y in starts(height) for x in starts(width)]
    return found


class Detector:
    """MediaPipe's full-range model."""

    def __init__(self) -> None:
        # As mp.solutions.face_detection.FaceDetection, which ignores the score that it is given:
        # https://github.com/google-ai-edge/mediapipe/issues/3896
        self._solution = SolutionBase(
            binary_graph_path="mediapipe/modules/face_detection/face_detection_full_range_cpu.binarypb",
            calculator_params={
                "facedetectionfullrange__facedetection__TensorsToDetectionsCalculator."
                "min_score_thresh": MIN_SCORE
            },
            outputs=["detections"],
        )

    def faces(self, picture: Image) -> list[Found]:
        """The faces of a frame, best first."""
        height, width = picture.shape[:2]
        everything: list[Found] = []
        for tile in tiles(width, height):
            seen = self._look(picture, tile)
            everything += [face for face in seen if not is_cut(face, tile, width, height)]
        everything.sort(key=lambda face: -face.score)
        kept: list[Found] = []
        for face in everything:
            if not any(is_same(face, better) for better in kept):
                kept.append(face)
        return kept

    def _look(self, picture: Image, tile: Tile) -> list[Found]:
        x, y, width, height = tile
        part = np.ascontiguousarray(picture[y : y + height, x : x + width])
        found = []
        for detection in self._solution.process({"image": part}).detections or ():
            place = detection.location_data
            box = place.relative_bounding_box
            left, top = x + box.xmin * width, y + box.ymin * height
            corners = (left, top, left + box.width * width, top + box.height * height)
            points = tuple((x + p.x * width, y + p.y * height) for p in place.relative_keypoints)
            found.append(Found(float(detection.score[0]), corners, points))
        return found

    def close(self) -> None:
        self._solution.close()


def is_cut(face: Found, tile: Tile, width: int, height: int) -> bool:
    """Whether an edge that only the tile has goes through the face."""
    margin = EDGE * min(tile.width, tile.height)
    left, top, right, bottom = face.box
    return (
        (tile.x > 0 and left < tile.x + margin)
        or (tile.y > 0 and top < tile.y + margin)
        or (tile.x + tile.width < width and right > tile.x + tile.width - margin)
        or (tile.y + tile.height < height and bottom > tile.y + tile.height - margin)
    )


def is_same(first: Found, second: Found) -> bool:
    a, b = first.box, second.box
    shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(
        0.0, min(a[3], b[3]) - max(a[1], b[1])
    )
    sizes = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared > MAX_OVERLAP * (sum(sizes) - shared) or shared > MAX_INSIDE * min(sizes)


def model_file() -> dict[str, str]:
    path = Path(mp.__file__).parent / "modules" / "face_detection" / f"{MODEL}.tflite"
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def as_json(faces: Sequence[Found]) -> list[dict[str, Any]]:
    return [
        {
            "score": round(face.score, 4),
            "box": [round(value, 2) for value in face.box],
            "points": [[round(x, 2), round(y, 2)] for x, y in face.points],
        }
        for face in faces
    ]


def reference(path: Path, detector: Detector) -> dict[str, Any]:
    """Contents of NAME.json."""
    frames: list[dict[str, Any]] = []
    size = (0, 0)
    for index, (seconds, picture) in enumerate(frames_of(path)):
        if index and picture.shape[1::-1] != size:
            raise SystemExit(f"{path.name}: the picture's size changes at frame {index}")
        size = picture.shape[1::-1]
        faces = as_json(detector.faces(picture))
        frames.append({"index": index, "time_seconds": seconds, "faces": faces})
    print(f"{path.name}: {len(frames)} frames", flush=True)
    return {
        "tool": "mediapipe",
        "version": mp.__version__,
        "model": model_file(),
        "settings": {
            "min_score": MIN_SCORE,
            "sides": SIDES,
            "shared": SHARED,
            "max_overlap": MAX_OVERLAP,
            "max_inside": MAX_INSIDE,
            "edge": EDGE,
        },
        "clip": path.name,
        "width": size[0],
        "height": size[1],
        "frames": frames,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("clips", nargs="+", type=Path, help="videos or photographs")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    detector = Detector()
    for path in options.clips:
        written = json.dumps(reference(path, detector), separators=(",", ":"))
        (options.folder / f"{path.stem}.json").write_text(written + "\n")
    detector.close()


if __name__ == "__main__":
    main()
