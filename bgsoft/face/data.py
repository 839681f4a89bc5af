"""Write the faces of every frame to a file, as JSON lines or NumPy arrays, and read them again.

Lines are written one by one. Landmarks for arrays are gathered in a nameless file in the same
folder: an hour of one face is half a gigabyte.
"""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bgsoft.closing import Closing
from bgsoft.errors import ConfigError, OutputError
from bgsoft.face.base import LANDMARKS, Face
from bgsoft.frame import Frame
from bgsoft.outputs import AtomicOutput, writing

FACE_DATA_SUFFIXES = (".jsonl", ".npz")
_WHAT = "face data"


FrameTime = tuple[int, int, float]
"""Index, pts and seconds of a frame."""


class FaceDataWriter(Closing):
    """Takes the faces of every frame, in order; then :meth:`finish`.

    The file that it returns is still to be committed. Frames that were written and not committed
    are kept as a partial file. They go to a stream without a buffer, which is closed with the
    writer.
    """

    wants_landmarks = True

    def __init__(self, path: Path, file: AtomicOutput, stream: FileIO) -> None:
        self._path, self.file, self._stream = path, file, stream
        self.frames = 0
        """Frames that were written whole."""
        self._failed: OSError | None = None

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add a frame; see :meth:`add`."""
        self.add((frame.index, frame.pts, frame.time_seconds), faces)

    def add(self, time: FrameTime, faces: Sequence[Face]) -> None:
        """Add a frame; raises OutputError where it, or a frame before it, cannot be written."""
        begin = self._stream.tell()
        with writing(self._path, _WHAT):
            if self._failed is not None:
                raise self._failed
            try:
                rest = memoryview(self._encoded(time, faces))
                while rest:
                    rest = rest[self._stream.write(rest) or 0 :]
            except OSError as exc:
                self._failed = exc
                self._stream.truncate(begin)  # no half frame
                raise
        self.frames += 1

    def finish(self) -> list[AtomicOutput]:
        """Complete the data, still under another name; no frame comes after it.

        Returns:
            The file, if it has a frame.

        Raises:
            OutputError: The file cannot be written.
        """
        if not self._stream.closed:
            with writing(self._path, _WHAT), self._stream:
                self._finish()
        return [self.file] if self.frames else []

    def close(self) -> None:
        """Keep what was written and not committed; safe to call twice."""
        with suppress(OutputError):  # another error has ended the render
            self.finish()
        self.file.close()

    @abstractmethod
    def _encoded(self, time: FrameTime, faces: Sequence[Face]) -> bytes:
        """Return what is written to the stream for a frame."""

    def _finish(self) -> None:
        """Complete the data."""


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
    """A writer of one line of JSON for each frame; boxes and landmarks in upright frame pixels."""

    def __init__(self, path: Path, file: AtomicOutput) -> None:
        super().__init__(path, file, FileIO(file.temporary, "w"))

    def _encoded(self, time: FrameTime, faces: Sequence[Face]) -> bytes:
        index, pts, seconds = time
        line = {
            "index": index,
            "pts": pts,
            "time": round(seconds, 6),
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
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


_FRAME = np.dtype([("index", "i8"), ("pts", "i8"), ("time", "f8"), ("end", "i8")])
_FACE = np.dtype([("id", "i8"), ("detected", "?"), ("score", "f8"), ("box", "f8", 4)])


class _NpzWriter(FaceDataWriter):
    """Arrays, in one file for :func:`numpy.load`.

    ``index``, ``pts`` and ``time`` (F,) of the frames; ``first`` (F + 1,), so that the faces of
    frame f are ``first[f]:first[f + 1]`` of the others: ``id``, ``score``, ``detected`` (K,),
    ``box`` (K, 4) and float32 ``landmarks`` (K, 468, 3), both in pixels of the upright frame.
    """

    def __init__(self, path: Path, file: AtomicOutput) -> None:
        stream = tempfile.TemporaryFile(dir=file.temporary.parent, buffering=0)  # noqa: SIM115
        super().__init__(path, file, stream)
        self._frames, self._faces = bytearray(), bytearray()

    def _encoded(self, time: FrameTime, faces: Sequence[Face]) -> bytes:
        rows = [(face.id, face.detected, face.score, face.box_xyxy) for face in faces]
        self._faces += np.array(rows, _FACE).tobytes()
        row = *time, len(self._faces) // _FACE.itemsize
        self._frames += np.array(row, _FRAME).tobytes()
        return b"".join(face.landmarks.astype("<f4").tobytes() for face in faces)

    def _finish(self) -> None:
        if not self.frames:
            return
        frames = np.frombuffer(self._frames, _FRAME)[: self.frames]
        first = np.append(0, frames["end"])
        faces = np.frombuffer(self._faces, _FACE)[: first[-1]]
        columns: dict[str, Any] = {name: frames[name] for name in ("index", "pts", "time")}
        columns |= {"first": first} | {name: faces[name] for name in _FACE.names or ()}
        columns["landmarks"] = np.zeros((0, LANDMARKS, 3), "<f4")
        if len(faces):  # mapped, so that landmarks go from file to file
            shape = len(faces), LANDMARKS, 3
            columns["landmarks"] = np.memmap(self._stream, "<f4", "r", shape=shape)
        try:
            # numpy.savez would lengthen a name that does not end in .npz.
            with self.file.temporary.open("wb") as file:
                np.savez(file, **columns)
        except OSError:
            self.file.temporary.write_bytes(b"")
            raise


def read_faces(path: Path) -> Iterator[tuple[FrameTime, list[Face]]]:
    """The frames of a ``.npz`` file of faces, landmarks read frame by frame.

    How old their tracks are is not in it: ages are 0.
    """
    size = LANDMARKS * 3 * 4
    with np.load(path) as known, known.zip.open("landmarks.npy") as landmarks:
        np.lib.format.read_magic(landmarks)
        np.lib.format.read_array_header_1_0(landmarks)
        columns = {name: known[name].tolist() for name in known.files if name != "landmarks"}
        every = zip(*(columns[name] for name in ("id", "score", "box", "detected")), strict=True)
        frames = zip(*(columns[name] for name in ("index", "pts", "time")), strict=True)
        for time, (first, end) in zip(frames, pairwise(columns["first"]), strict=True):
            faces = [
                Face(
                    id=id,
                    score=score,
                    box_xyxy=tuple(box),
                    landmarks=np.frombuffer(landmarks.read(size), "<f4").reshape(LANDMARKS, 3),
                    detected=detected,
                    age_frames=0,
                )
                for id, score, box, detected in islice(every, end - first)
            ]
            yield time, faces
