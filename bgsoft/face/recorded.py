"""Faces that were found before, in the place of a finder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from bgsoft.errors import VerificationError
from bgsoft.face.base import Face, RecordedFrame
from bgsoft.face.landmarks import LANDMARKS
from bgsoft.frame import Frame


def read_faces(path: Path) -> Iterator[RecordedFrame]:
    """The frames of a ``.npz`` file of faces, written by :func:`bgsoft.face.data.open_face_data`.

    Landmarks are read frame by frame. Ages and cuts are not in it: they are 0 and False.
    """
    size = LANDMARKS * 3 * 4
    with np.load(path) as known, known.zip.open("landmarks.npy") as landmarks:
        np.lib.format.read_magic(landmarks)
        np.lib.format.read_array_header_1_0(landmarks)
        ids, scores = known["id"].tolist(), known["score"].tolist()
        boxes, detected = known["box"].tolist(), known["detected"].tolist()
        frames = zip(
            *(known[name].tolist() for name in ("index", "pts", "time")),
            pairwise(known["first"].tolist()),
            strict=True,
        )
        for index, pts, seconds, (first, end) in frames:
            faces = [
                Face(
                    id=ids[at],
                    score=scores[at],
                    box_xyxy=tuple(boxes[at]),
                    landmarks=np.frombuffer(landmarks.read(size), "<f4").reshape(LANDMARKS, 3),
                    detected=detected[at],
                    age_frames=0,
                )
                for at in range(first, end)
            ]
            yield RecordedFrame(index=index, pts=pts, time_seconds=seconds, faces=faces, cut=False)


class RecordedFaces:
    """Gives the faces of a video's frames as they were found before.

    Args:
        frames: All frames of the video, in order, also those before and after the ones that are
            asked for.
    """

    def __init__(self, frames: Iterator[RecordedFrame]) -> None:
        self._frames = frames
        self._next: RecordedFrame | None = None

    def before(self, frame: Frame) -> Iterator[RecordedFrame]:
        """What was found before the first frame that is asked for."""
        for found in self._frames:
            if found.pts >= frame.pts:
                self._next = found
                return
            yield found

    def take(self, frame: Frame) -> RecordedFrame:
        """What was found in the next frame.

        Raises:
            VerificationError: The next frame was another one.
        """
        found = self._next or next(self._frames, None)
        self._next = None
        if found is None or found.pts != frame.pts:
            raise VerificationError(f"no faces are known of the frame with pts {frame.pts}")
        return found

    def following(self, count: int) -> Sequence[RecordedFrame]:
        """What was found in some frames after the last that was asked for."""
        return list(islice(self._frames, count))
