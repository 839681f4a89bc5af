"""The faces of every frame as a file: JSON lines, or NumPy arrays.

JSON lines go to the file one by one, so whatever stops a render leaves every line before it.
Arrays are gathered in a hidden file beside the target (an hour of one face is half a gigabyte,
which memory need not hold) and put together when the writer is closed, after an error too.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import ConfigError, OutputError
from bgsoft.face.base import Face
from bgsoft.frame import Frame

__all__ = ["FACE_DATA_SUFFIXES", "FaceDataWriter", "JsonLinesWriter", "NpzWriter", "open_face_data"]

FACE_DATA_SUFFIXES = (".jsonl", ".npz")
_LANDMARK_VALUES = 468 * 3
_COPY_BYTES = 1 << 20


class FaceDataWriter(Protocol):
    """Takes the faces of every frame, in order."""

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add a frame.

        Raises:
            OutputError: The file cannot be written.
        """
        ...

    def close(self) -> None:
        """Complete the file with what was written; safe to call twice.

        Raises:
            OutputError: The file cannot be written.
        """
        ...


def open_face_data(
    path: Path, *, overwrite: bool, others: Sequence[Path] = ()
) -> JsonLinesWriter | NpzWriter:
    """Begin a file of faces.

    Args:
        path: ``.jsonl`` or ``.npz``.
        overwrite: Replace an existing file.
        others: Files that it must not be.

    Raises:
        ConfigError: The name ends in something else, or is another file's.
        OutputError: The file cannot be written, or exists.
    """
    suffix = path.suffix.lower()
    if suffix not in FACE_DATA_SUFFIXES:
        raise ConfigError(f"--face-data is a .jsonl or .npz file, not {path.name!r}", path=path)
    for other in others:
        if path.resolve() == other.resolve():
            raise ConfigError(f"--face-data {path} is the same file as {other}", path=path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"the face data's folder {folder} does not exist", path=path)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"the face data's folder {folder} is not writable", path=path)
    if path.is_dir():
        raise OutputError(f"the face data {path} is a directory", path=path)
    if path.exists() and not overwrite:
        raise OutputError(f"face data {path} exists; use --overwrite to replace it", path=path)
    return JsonLinesWriter(path) if suffix == ".jsonl" else NpzWriter(path)


def _error(exc: OSError, path: Path) -> OutputError:
    return OutputError(f"cannot write {path.name}: {exc.strerror}", path=path, stage="face")


class JsonLinesWriter(Closing):
    """A line of JSON for each frame::

        {"index": 0, "pts": 0, "time": 0.0, "faces": [
            {"id": 0, "score": 0.98, "box": [left, top, right, bottom], "detected": true,
             "landmarks": [[x, y, z], ...]}]}

    Boxes and landmarks are in pixels of the upright frame, to a hundredth.

    Args:
        path: The file; replaced by the first frame.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._closed = False

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add a frame's line; see :meth:`FaceDataWriter.write`."""
        if self._closed:
            raise ValueError("the file is closed")
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
        try:
            if self._file is None:
                self._file = self._path.open("w", encoding="utf-8", newline="\n")
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as exc:
            raise _error(exc, self._path) from exc

    def close(self) -> None:
        """End the file."""
        self._closed = True
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as exc:
            raise _error(exc, self._path) from exc


class NpzWriter(Closing):
    """Arrays, in one file for :func:`numpy.load`.

    ``index``, ``pts`` and ``time`` (F,) of the frames; ``first`` (F + 1,), so that the faces of
    frame f are ``first[f]:first[f + 1]`` of the others: ``id``, ``score``, ``detected`` (K,),
    ``box`` (K, 4) and ``landmarks`` (K, 468, 3), the last two float32 in pixels of the upright
    frame.

    Args:
        path: The file; replaced, at once, when the writer is closed after a frame or more.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        mark = secrets.token_hex(4)
        self._spool_path = path.with_name(f".{path.name[:200]}.{mark}.landmarks.part")
        self._part = path.with_name(f".{path.name[:200]}.{mark}.part")
        self._index, self._pts, self._first = array("q"), array("q"), array("q", [0])
        self._time = array("d")
        self._ids, self._detected = array("q"), array("b")
        self._scores, self._boxes = array("f"), array("f")
        self._spool: IO[bytes] | None = None
        self._closed = False

    def write(self, frame: Frame, faces: Sequence[Face]) -> None:
        """Add a frame; see :meth:`FaceDataWriter.write`."""
        if self._closed:
            raise ValueError("the file is closed")
        try:
            if self._spool is None:
                self._spool = self._spool_path.open("w+b")
            for face in faces:
                self._spool.write(np.ascontiguousarray(face.landmarks, "<f4").tobytes())
        except OSError as exc:
            raise _error(exc, self._path) from exc
        for face in faces:
            self._ids.append(face.id)
            self._detected.append(face.detected)
            self._scores.append(face.score)
            self._boxes.extend(face.box_xyxy)
        self._index.append(frame.index)
        self._pts.append(frame.pts)
        self._time.append(frame.time_seconds)
        self._first.append(len(self._ids))

    def close(self) -> None:
        """Put the file together and let it appear under its name."""
        self._closed = True
        spool, self._spool = self._spool, None
        if spool is None:
            return
        try:
            if self._index:
                self._assemble(spool)
                self._part.replace(self._path)
        except OSError as exc:
            raise _error(exc, self._path) from exc
        finally:
            spool.close()
            self._spool_path.unlink(missing_ok=True)
            self._part.unlink(missing_ok=True)

    def _assemble(self, spool: IO[bytes]) -> None:
        count = self._first[-1]  # an error in the middle of a frame may have left more
        arrays: dict[str, NDArray[np.generic]] = {
            "index": np.array(self._index, np.int64),
            "pts": np.array(self._pts, np.int64),
            "time": np.array(self._time, np.float64),
            "first": np.array(self._first, np.int64),
            "id": np.array(self._ids[:count], np.int64),
            "score": np.array(self._scores[:count], np.float32),
            "detected": np.array(self._detected[:count], np.bool_),
            "box": np.array(self._boxes[: count * 4], np.float32).reshape(count, 4),
        }
        # What numpy.savez writes, but for the landmarks, which go from file to file.
        with zipfile.ZipFile(self._part, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, values, allow_pickle=False)
            with archive.open("landmarks.npy", "w", force_zip64=True) as entry:
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, 468, 3)}
                np.lib.format.write_array_header_1_0(entry, header)
                spool.seek(0, os.SEEK_SET)
                left = count * _LANDMARK_VALUES * 4
                while left:
                    chunk = spool.read(min(left, _COPY_BYTES))
                    entry.write(chunk)
                    left -= len(chunk)
