"""Sequences: a video as numbered pictures in a folder, read and written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from bgsoft.errors import OpenError, OutputError, os_errors_as
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.media.containers import STILL_SUFFIXES
from bgsoft.media.info import STILLS, VideoInfo
from bgsoft.media.patterns import is_pattern, picture_name, picture_number
from bgsoft.media.stills import read_file
from bgsoft.outputs import OutputFile, lock_folder, resolved, sync_folder, writing
from bgsoft.part_names import hidden_parts, with_token

_RATE = Fraction(25)
_BROADCAST, _MEANT = (24, 30, 48, 60, 120), Fraction(6, 1000)
"""How far a rate may lie off the broadcast one that it is short for: 23.98 is 24000/1001."""


def list_pictures(path: Path) -> tuple[Path, ...]:
    """Return the pictures of a sequence, in order.

    Of a folder these are all pictures directly in it, ``9.png`` before ``10.png``; of a pattern all
    that it stands for, by their numbers.

    Raises:
        OpenError: There are none; the input cannot be read.
    """
    with os_errors_as(OpenError, f"{path} cannot be read", path=path):
        names = os.listdir(path if path.is_dir() else path.parent)  # noqa: PTH208 - no stat each
    if path.is_dir():
        names = [name for name in names if Path(name).suffix.lower() in STILL_SUFFIXES]
        found = sorted((name for name in names if not name.startswith(".")), key=_natural)
        if not found:
            text = f"cannot read {path}: no picture is in this folder; for videos use bgsoft batch"
            raise OpenError(text, path=path)
        return tuple(path / name for name in found)
    numbered = [
        (number, name) for name in names if (number := picture_number(path, name)) is not None
    ]
    if not numbered:
        raise OpenError(f"cannot read {path}: no picture has such a name", path=path)
    return tuple(path.with_name(name) for _, name in sorted(numbered))


def numbers(path: Path, files: Iterable[Path]) -> list[int]:
    """Return the numbers of a sequence's files.

    A folder whose files differ in more than the last number of their names has none.
    """
    if is_pattern(path):
        return [picture_number(path, file.name) or 0 for file in files]
    found = [re.fullmatch(r"(.*?)(\d+)(\D*)", file.stem) for file in files]
    if len({match and (match[1], match[3]) for match in found}) > 1:
        return []
    return [int(match[2]) for match in found if match]


def gaps(path: Path, files: Iterable[Path]) -> str | None:
    """A notice of numbers that a sequence's files leave out; None: there are none."""
    found = set(numbers(path, files))
    first, last = min(found, default=0), max(found, default=0)
    missing = last - first + 1 - len(found) if found else 0
    if not missing:
        return None
    return f"{missing} numbers between {first} and {last} have no picture: closed up"


def probe_stills(path: Path, files: Sequence[Path], rate: float | None) -> VideoInfo:
    """Describe pictures as a video, by the first of them.

    Args:
        path: The input.
        files: Its pictures, from :func:`list_pictures`.
        rate: Frames per second; None: 25.

    Raises:
        OpenError, UnsupportedFormatError: As :func:`bgsoft.decode.stills.read_still`.
    """
    facts, _ = read_file(files[0])
    width, height = facts.size
    frame_rate = exact_rate(rate) if rate else _RATE
    notices = [gaps(path, files)]
    if facts.has_more_pages:
        notices.append(f"{files[0].name} has several pages: only the first is taken")
    if facts.metadata:
        notices.append(f"{', '.join(facts.metadata)} left out: metadata of pictures is not copied")
    deep = facts.bits > 8 and facts.kind != "avif"  # which Pillow decodes to 8 bits
    return VideoInfo(
        path=path,
        container=STILLS,
        stream_index=0,
        codec=facts.kind,
        pixel_format="bgr48le" if deep else "bgr24",
        sampling="4:4:4",
        coded_width=width,
        coded_height=height,
        format=FrameFormat(
            width=width,
            height=height,
            layout=PixelLayout.P010 if deep else PixelLayout.NV12,
            color=facts.video_color,
        ),
        time_base=1 / frame_rate,
        frame_rate=frame_rate,
        start_pts=0,
        duration_seconds=float(len(files) / frame_rate),
        num_frames_from_header=len(files),
        stills=tuple(files),
        notices=tuple(filter(None, notices)),
    )


def exact_rate(rate: float) -> Fraction:
    """Return the exact frame rate of a rounded one: 29.97 is 30000/1001."""
    whole = round(rate * 1.001)
    broadcast = Fraction(1000 * whole, 1001)
    meant = whole in _BROADCAST and abs(broadcast - Fraction(rate)) < _MEANT
    return broadcast if meant else Fraction(str(rate))


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name.lower())
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


class SequenceOutput(OutputFile):
    """A sequence that is being written, in a hidden folder; without :meth:`commit` nothing stays.

    A folder that is not there yet appears whole. In one that is there already, the pictures take
    their names one after the other once all are complete; of those of an earlier sequence of the
    same name none stay, and other files are left alone.

    Args:
        pattern: Names of the pictures.
        overwrite: The folder may have files in it.
        inputs: Files that must not be overwritten.

    Raises:
        OutputError: The folder has files and ``overwrite`` is False; it is not writable; a picture
            would replace an input.
    """

    def __init__(
        self, pattern: Path, *, overwrite: bool = False, inputs: Iterable[Path] = ()
    ) -> None:
        self._pattern = pattern
        self._folder = folder = resolved(pattern.absolute().parent, "output folder")
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"cannot write to {pattern.parent}: it is not a folder", path=pattern)
        for other in inputs:
            places = (other.parent.resolve() / other.name, other.resolve())  # a link is a name, too
            if any(
                picture_number(pattern, x.name) is not None and x.parent == folder for x in places
            ):
                raise OutputError(
                    f"cannot write {pattern}: it would replace its input {other}; choose another"
                    " folder",
                    path=pattern,
                )
        with os_errors_as(OutputError, f"cannot write to {pattern.parent}", path=pattern):
            self._is_new = not folder.exists()
            taken = [] if self._is_new else [x for x in folder.iterdir() if x.name[0] != "."]
        if taken and not overwrite:
            text = f"cannot write to {pattern.parent}: the folder is not empty; use --overwrite"
            raise OutputError(text, path=pattern)
        self.temporary, self._lock = self._create()
        """The hidden folder."""

    def _create(self) -> tuple[Path, int | None]:
        """Make and lock the hidden folder, next to the one to come, or in the one that is there."""
        lock_name = _lock_name(self._folder)
        prefix, ending = hidden_parts(lock_name)
        with writing(self._pattern):
            lock_name.parent.mkdir(parents=True, exist_ok=True)
            _remove_hidden(lock_name)
            while True:
                temporary = with_token(lock_name, prefix, ending)
                temporary.mkdir()
                # Another run may take it for a leftover before it is locked.
                with suppress(FileNotFoundError, BlockingIOError):
                    lock = lock_folder(temporary)
                    if temporary.exists():
                        return temporary, lock
                    if lock is not None:
                        os.close(lock)

    def part(self, number: int) -> Path:
        return self.temporary / picture_name(self._pattern, number)

    def prepare_commit(self) -> None:
        self._synced()

    def _synced(self) -> list[str]:
        """Return the names of all pictures, once they are on the disk."""
        with writing(self._pattern):
            written = sorted(os.listdir(self.temporary))  # noqa: PTH208 - names only, no stat each
            for name in written:
                with (self.temporary / name).open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(self.temporary)
        return written

    def commit(self) -> None:
        with self, writing(self._pattern):
            written = self._synced()
            if self._is_new:
                # Takes the place of an empty folder, but not of one with files.
                self.temporary.rename(self._folder)
            else:
                for name in written:
                    (self.temporary / name).replace(self._folder / name)
                for name in set(os.listdir(self._folder)) - set(written):  # noqa: PTH208
                    if picture_number(self._pattern, name) is not None:
                        (self._folder / name).unlink()
            sync_folder(self._folder.parent)

    def close(self) -> None:
        """Remove what is not committed; safe to call twice."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _lock_name(folder: Path) -> Path:
    """A name next to the hidden folder of a sequence."""
    return folder / folder.name if folder.exists() else folder


def remove_leftover_sequences(pattern: Path) -> None:
    """Remove the hidden folders of runs that were killed while they wrote a sequence."""
    folder = pattern.absolute().parent.resolve()
    for lock_name in {folder, _lock_name(folder)}:
        with suppress(OSError):
            _remove_hidden(lock_name)


def _remove_hidden(lock_name: Path) -> None:
    """Remove hidden folders next to a path whose owners have died: their locks are free."""
    prefix, ending = hidden_parts(lock_name)
    for name in os.listdir(lock_name.parent):  # noqa: PTH208 - names only, no stat each
        if name.startswith(prefix) and name.endswith(ending):
            _remove_leftover(lock_name.with_name(name))


def _remove_leftover(folder: Path) -> None:
    """Remove the hidden folder of a run that was killed: its lock is free."""
    with suppress(OSError):
        lock = lock_folder(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
