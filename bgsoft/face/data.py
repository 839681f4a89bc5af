"""Write the faces of every frame to a file, as JSON lines or NumPy arrays, and read them again.

Lines are written one by one. Landmarks for arrays are gathered in a nameless file in the same
folder: an hour of one face is half a gigabyte.
"""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bgsoft.closing import Closing
from bgsoft.errors import ConfigError
from bgsoft.face.base import Face, RecordedFrame
from bgsoft.face.landmarks import LANDMARKS
from bgsoft.frame import Frame
from bgsoft.outputs import AtomicOutput, writing

FACE_DATA_SUFFIXES = (".jsonl", ".npz")
_WHAT = "face data"


class FaceDataWriter(Closing):
    """Takes the faces of every frame, in order; then :meth:`finish` and :meth:`publish`.

    What was written and is not published is kept as a partial file.

    Args:
        path: The file.
        file: Commits the data under their name.
        stream: Where frames are written to, without a buffer; closed with the writer.
    """

    wants_landmarks = True

    def __init__(self, path: Path, file: AtomicOutput, stream: FileIO) -> None:
        self._path = path
        self._file = file
        self._stream = stream
        self._open = True
        self.frames = 0
        """Frames that were written whole."""

    @property
    def kept(self) -> Path | None:
        """The partial file that something that stopped the render has left."""
        return self._file.kept

    def write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        """Add a frame; raises OutputError where the file cannot be written."""
        if not self._open:
            raise ValueError("the file is closed")
        with writing(self._path, _WHAT):
            self._write(frame, faces)
        self.frames += 1

    def finish(self) -> None:
        """Complete the data, still under another name; no frame comes after it.

        Raises:
            OutputError: The file cannot be written.
        """
        if self._open:
            self._open = False
            with writing(self._path, _WHAT):
                self._finish()

    def publish(self) -> None:
        """Give the finished data its name; without a frame there is none.

        Raises:
            OutputError: That fails, or the file has appeared meanwhile.
        """
        if self.frames:
            self._file.commit()

    def close(self) -> None:
        """Keep what was written and not published; safe to call twice."""
        with suppress(OSError):  # another error has ended the render
            if self._open:
                self._open = False
                self._finish()
        self._stream.close()
        self._file.close()

    @abstractmethod
    def _write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        """Add a frame, whole or not at all."""

    def _finish(self) -> None:
        """Complete the data."""

    def _write_all(self, data: bytes) -> None:
        """Write to the stream, which may take less at a time."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) or 0 :]


def open_face_data(
    path: Path,
    *,
    overwrite: bool,
    others: Sequence[Path] = (),
    receipt: Path | None = None,
) -> FaceDataWriter:
    """Begin a file of faces.

    Args:
        path: ``.jsonl`` or ``.npz``.
        overwrite: Replace an existing file.
        others: Files that it must not be.
        receipt: See :class:`AtomicOutput`.

    Raises:
        ConfigError: The name ends in something else.
        OutputError: The file cannot be written, exists, or is another file.
    """
    suffix = path.suffix.lower()
    if suffix not in FACE_DATA_SUFFIXES:
        raise ConfigError(
            f"--face-data must be a .jsonl or .npz file, not {path.name!r}", path=path
        )
    file = AtomicOutput(path, overwrite=overwrite, inputs=others, receipt=receipt, keeps=True)
    with writing(path, _WHAT):
        return _JsonLinesWriter(path, file) if suffix == ".jsonl" else _NpzWriter(path, file)


class _JsonLinesWriter(FaceDataWriter):
    """A writer of one line of JSON for each frame.

    For example::

            {"index": 0, "pts": 0, "time": 0.0, "faces": [
                {"id": 0, "score": 0.98, "box": [left, top, right, bottom], "detected": true,
                 "landmarks": [[x, y, z], ...]}]}

        Boxes and landmarks are in pixels of the upright frame, to a hundredth.
    """

    def __init__(self, path: Path, file: AtomicOutput) -> None:
        super().__init__(path, file, FileIO(file.temporary, "w"))
        self._bytes = 0

    def _write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        line = {
            "index": frame.index,
            "pts": frame.pts,
            "time": round(frame.time_seconds, 6),
            "faces": [
                {
                    "id": face.id,
                    "score": round(float(face.score), 4),
                    "box": [round(float(value), 2) for value in face.box_xyxy],
                    "detected": face.detected,
                    "landmarks": np.round(face.landmarks.astype(np.float64), 2).tolist(),
                }
                for face in faces
            ],
        }
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            self._write_all(data)
        except OSError:
            self._stream.truncate(self._bytes)  # no half line
            raise
        self._bytes += len(data)


class _NpzWriter(FaceDataWriter):
    """Arrays, in one file for :func:`numpy.load`.

    ``index``, ``pts`` and ``time`` (F,) of the frames; ``first`` (F + 1,), so that the faces of
    frame f are ``first[f]:first[f + 1]`` of the others: ``id``, ``score``, ``detected`` (K,),
    ``box`` (K, 4) and float32 ``landmarks`` (K, 468, 3), both in pixels of the upright frame.
    """

    def __init__(self, path: Path, file: AtomicOutput) -> None:
        stream = tempfile.TemporaryFile(dir=file.temporary.parent, buffering=0)  # noqa: SIM115
        super().__init__(path, file, stream)
        kinds = {"index": "q", "pts": "q", "time": "d", "first": "q", "id": "q", "detected": "b"}
        kinds |= {"score": "d", "box": "d"}
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in kinds.items()}
        self._columns["first"].append(0)

    def _write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        for face in faces:
            self._write_all(np.ascontiguousarray(face.landmarks, "<f4").tobytes())
        columns = self._columns
        for face in faces:
            columns["id"].append(face.id)
            columns["detected"].append(face.detected)
            columns["score"].append(face.score)
            columns["box"].extend(face.box_xyxy)
        columns["index"].append(frame.index)
        columns["pts"].append(frame.pts)
        columns["time"].append(frame.time_seconds)
        columns["first"].append(len(columns["id"]))

    def _finish(self) -> None:
        if not self._columns["index"]:
            return
        try:
            self._assemble()
        except OSError:
            self._file.temporary.write_bytes(b"")
            raise

    def _assemble(self) -> None:
        columns: dict[str, Any] = {name: np.array(each) for name, each in self._columns.items()}
        count = int(columns["first"][-1])  # an error in the middle of a frame may have left more
        for name in ("id", "score", "detected"):
            columns[name] = columns[name][:count]
        columns["detected"] = columns["detected"].astype(np.bool_)
        columns["box"] = columns["box"][: 4 * count].reshape(count, 4)
        shape = count, LANDMARKS, 3
        landmarks = np.zeros(shape, "<f4")
        if count:  # mapped, so that landmarks go from file to file
            landmarks = np.memmap(self._stream, "<f4", "r", shape=shape)
        # numpy.savez would lengthen a name that does not end in .npz.
        with self._file.temporary.open("wb") as file:
            np.savez(file, **columns, landmarks=landmarks)


def read_faces(path: Path) -> Iterator[RecordedFrame]:
    """The frames of a ``.npz`` file of faces, landmarks read frame by frame.

    How old their tracks are is not in it: ages are 0.
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
            yield RecordedFrame(index=index, pts=pts, time_seconds=seconds, faces=faces)
