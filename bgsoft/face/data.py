"""The faces of every frame as a file: JSON lines, or NumPy arrays.

Either appears under its name when the render is done, and what was there stays until then. JSON
lines go to ``NAME.partial.jsonl`` one by one, so whatever stops a render leaves every line before
it. Landmarks for arrays are gathered in a nameless file in the same folder (an hour of one face is
half a gigabyte, which memory need not hold) and put together at the end, as ``NAME.partial.npz``.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
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
from bgsoft.errors import ConfigError, OutputError
from bgsoft.face.base import Face, RecordedFrame
from bgsoft.face.landmarks import LANDMARKS
from bgsoft.frame import Frame
from bgsoft.outputs import check_target, note_receipt, put, writing
from bgsoft.part_names import partial_beside

FACE_DATA_SUFFIXES = (".jsonl", ".npz")
_WHAT = "face data"


class FaceDataWriter(Closing):
    """Takes the faces of every frame, in order; then :meth:`finish` and :meth:`publish`.

    Args:
        path: The file.
        overwrite: It may exist by the time of :meth:`publish`.
        receipt: Where it is noted before it appears; see :func:`bgsoft.outputs.note_receipt`.
    """

    _begins: bytes
    """What its data begins with."""

    def __init__(self, path: Path, *, overwrite: bool, receipt: Path | None = None) -> None:
        self._path = path
        self._overwrite = overwrite
        self._receipt = receipt
        self._target = path.resolve()
        self._partial = partial_beside(self._target)
        self._check_partial()
        self._open = True
        self._is_finished = False
        self._is_published = False
        self.frames = 0
        """Frames that were written whole."""
        self.kept: Path | None = None
        """Where the faces are that were found until something stopped the render."""

    def _check_partial(self) -> None:
        """Raise OutputError where what has the partial file's name was not left by a render."""
        with writing(self._path, _WHAT), suppress(FileNotFoundError):
            found = os.lstat(self._partial)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                with self._partial.open("rb") as file:
                    if file.read(len(self._begins)) in (b"", self._begins):
                        return
            text = f"{self._partial} is in the way: no render has left it"
            raise OutputError(text, path=self._path)

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
        self._open = False
        with writing(self._path, _WHAT):
            self._finish()
        self._is_finished = True

    def publish(self) -> None:
        """Give the finished data its name; without a frame there is none.

        Raises:
            OutputError: That fails; or without ``overwrite``, the file has appeared meanwhile.
        """
        if not self.frames:
            return
        if self._target.exists() and not self._overwrite:
            text = f"the {_WHAT} {self._path} has appeared meanwhile and is not overwritten"
            raise OutputError(text, path=self._path)
        with writing(self._path, _WHAT):
            if self._receipt is not None:
                note_receipt(self._receipt, self._path, self._partial)
            put(self._partial, self._target)
            self._is_published = True

    def close(self) -> None:
        """Keep what was written and not published as :attr:`kept`; safe to call twice."""
        self._open = False
        with suppress(OSError):  # another error has ended the render
            if not self._is_finished:
                self._finish()
            if self.frames and not self._is_published and self._partial.exists():
                is_link = self._path.is_symlink()
                self.kept = self._partial if is_link else partial_beside(self._path)
        with suppress(OSError):
            self._discard()

    @abstractmethod
    def _write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        """Add a frame, whole or not at all."""

    @abstractmethod
    def _finish(self) -> None:
        """Complete the data, perhaps without a frame; called once more after an error."""

    @abstractmethod
    def _discard(self) -> None:
        """Close and remove what nobody needs; safe to call twice."""


def _write_all(file: FileIO, data: bytes) -> None:
    """Write to a file without a buffer, which may take less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def open_face_data(
    path: Path,
    *,
    overwrite: bool,
    others: Sequence[Path] = (),
    exact: bool = False,
    receipt: Path | None = None,
) -> FaceDataWriter:
    """Begin a file of faces.

    Args:
        path: ``.jsonl`` or ``.npz``.
        overwrite: Replace an existing file.
        others: Files that it must not be.
        exact: In a ``.npz`` file scores and boxes are float64, to be read again
            (:func:`read_faces`).
        receipt: See :class:`FaceDataWriter`.

    Raises:
        ConfigError: The name ends in something else.
        OutputError: The file cannot be written, exists, or is another file.
    """
    suffix = path.suffix.lower()
    if suffix not in FACE_DATA_SUFFIXES:
        raise ConfigError(f"--face-data is a .jsonl or .npz file, not {path.name!r}", path=path)
    check_target(path, _WHAT, overwrite=overwrite, others=others)
    if path.exists() and not path.is_file():
        raise OutputError(f"the {_WHAT} {path} is not a regular file", path=path)
    if suffix == ".jsonl":
        return _JsonLinesWriter(path, overwrite=overwrite, receipt=receipt)
    return _NpzWriter(path, overwrite=overwrite, receipt=receipt, exact=exact)


class _JsonLinesWriter(FaceDataWriter):
    """A line of JSON for each frame::

        {"index": 0, "pts": 0, "time": 0.0, "faces": [
            {"id": 0, "score": 0.98, "box": [left, top, right, bottom], "detected": true,
             "landmarks": [[x, y, z], ...]}]}

    Boxes and landmarks are in pixels of the upright frame, to a hundredth.
    """

    _begins = b'{"index":'
    _file: FileIO | None = None
    _bytes = 0

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
        if self._file is None:
            self._file = self._begin()
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            _write_all(self._file, data)
        except OSError:
            self._file.truncate(self._bytes)  # no half line
            raise
        self._bytes += len(data)

    def _begin(self) -> FileIO:
        """Open the partial file, which only one render writes at a time."""
        how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = FileIO(os.open(self._partial, how, 0o666), "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            file.close()
            text = f"another render is writing {self._partial.name}"
            raise OutputError(text, path=self._path) from exc
        except OSError:
            pass  # a file system without locks
        file.truncate(0)
        return file

    def _finish(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def _discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            if not self.frames:
                self._partial.unlink(missing_ok=True)


class _NpzWriter(FaceDataWriter):
    """Arrays, in one file for :func:`numpy.load`.

    ``index``, ``pts`` and ``time`` (F,) of the frames; ``first`` (F + 1,), so that the faces of
    frame f are ``first[f]:first[f + 1]`` of the others: ``id``, ``score``, ``detected`` (K,),
    ``box`` (K, 4) and ``landmarks`` (K, 468, 3), the last two float32 in pixels of the upright
    frame.
    """

    _begins = b"PK"

    def __init__(
        self, path: Path, *, overwrite: bool, receipt: Path | None = None, exact: bool
    ) -> None:
        super().__init__(path, overwrite=overwrite, receipt=receipt)
        real = "d" if exact else "f"
        kinds = {"index": "q", "pts": "q", "time": "d", "first": "q", "id": "q", "detected": "b"}
        kinds |= {"score": real, "box": real}
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in kinds.items()}
        self._columns["first"].append(0)
        self._spool: FileIO | None = None

    def _write(self, frame: Frame | RecordedFrame, faces: Sequence[Face]) -> None:
        if self._spool is None:
            folder = self._target.parent
            self._spool = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        for face in faces:
            _write_all(self._spool, np.ascontiguousarray(face.landmarks, "<f4").tobytes())
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

    def _discard(self) -> None:
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()

    def _finish(self) -> None:
        if self._spool is None or not self._columns["index"]:
            return
        try:
            self._assemble(self._spool)
        except OSError:
            self._partial.unlink(missing_ok=True)
            raise

    def _assemble(self, spool: FileIO) -> None:
        columns: dict[str, Any] = {name: np.array(each) for name, each in self._columns.items()}
        count = int(columns["first"][-1])  # an error in the middle of a frame may have left more
        for name in ("id", "score", "detected"):
            columns[name] = columns[name][:count]
        columns["detected"] = columns["detected"].astype(np.bool_)
        columns["box"] = columns["box"][: 4 * count].reshape(count, 4)
        shape = count, LANDMARKS, 3
        # Mapped, so that landmarks go from file to file; nothing of no length can be mapped.
        landmarks = np.memmap(spool, "<f4", "r", shape=shape) if count else np.zeros(shape, "<f4")
        # numpy.savez would lengthen a name that does not end in .npz.
        with self._partial.open("wb") as file:
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
