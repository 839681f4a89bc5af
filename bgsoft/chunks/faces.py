"""The faces of a video's chunks as those of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bgsoft.face.base import Box, RecordedFrame, box_overlap
from bgsoft.face.data import read_faces
from bgsoft.rendering.chunk import ChunkResult

_SAME_FACE = 0.5
"""Faces of one frame, found on the way from two places, are the same from this overlap on."""


def joined_faces(chunks: Sequence[ChunkResult], files: Sequence[Path]) -> Iterator[RecordedFrame]:
    """The faces of all frames, in order.

    Args:
        chunks: What is known of the chunks in which they were found.
        files: The faces of each chunk's frames, as ``.npz``.
    """
    for numbers, file in zip(joined_ids(chunks), files, strict=True):
        for frame in read_faces(file):
            for face in frame.faces:
                face.id = numbers[face.id]
            yield frame


def joined_ids(chunks: Sequence[ChunkResult]) -> list[dict[int, int]]:
    """For each chunk, the ids in the whole video of the ids in the chunk.

    Tracks go on from chunk to chunk by place.
    """
    known = 0
    last: dict[int, Box] = {}
    tables = []
    for chunk in chunks:
        assert chunk.faces is not None
        numbers = _same_faces(_boxes(chunk.faces["before"]), last)
        for id in chunk.faces["ids"]:
            if id not in numbers:
                numbers[id] = known
                known += 1
        last = {numbers[id]: box for id, box in _boxes(chunk.faces["last"]).items()}
        tables.append(numbers)
    return tables


def _boxes(faces: Sequence[Sequence[float]]) -> dict[int, Box]:
    return {int(id): (left, top, right, bottom) for id, left, top, right, bottom in faces}


def _same_faces(found: dict[int, Box], known: dict[int, Box]) -> dict[int, int]:
    """Of the faces of one frame: which number those have that are known."""
    numbers: dict[int, int] = {}
    for id, box in found.items():
        free = [number for number in known if number not in numbers.values()]
        best = max(free, key=lambda number: box_overlap(box, known[number]), default=None)
        if best is not None and box_overlap(box, known[best]) >= _SAME_FACE:
            numbers[id] = best
    return numbers
