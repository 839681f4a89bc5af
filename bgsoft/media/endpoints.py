"""Sources and destinations of frames: files, pipes and sequences of pictures.

The kind of a path is decided here, once.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bgsoft.errors import ConfigError, OpenError, UnsupportedFormatError
from bgsoft.media.containers import (
    CONTAINERS,
    STILL_SUFFIXES,
    Container,
    container_for,
    with_extension,
)
from bgsoft.media.patterns import is_pattern, picture_number
from bgsoft.media.writer import COPY_ALL, CopyOptions, Writer
from bgsoft.outputs import AtomicOutput, OutputFile, check_distinct, remove_leftovers, stamp
from bgsoft.pipes import DEV_STDIN, DEV_STDOUT, PipeOutput
from bgsoft.records import NamedTuple, dataclass
from bgsoft.report import Event
from bgsoft.settings.config import OutputFormat

if TYPE_CHECKING:
    from bgsoft.media.info import VideoInfo
    from bgsoft.media.pipe import PipeInput


class EndpointKind(StrEnum):
    """Kind of a path."""

    FILE = "file"
    """A video or a picture."""
    PIPE = "pipe"
    """A stream that is read or written once, in order."""
    SEQUENCE = "sequence"
    """Numbered pictures."""


def _is_fifo(path: Path) -> bool:
    with suppress(OSError):  # opening it reports what is wrong
        return path.is_fifo()
    return False


class Source:
    """A file that is read: a video or a picture, as its contents show."""

    kind: ClassVar = EndpointKind.FILE

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamps = {path: stamp(path)}
        """Of each file that is read."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read, and must not be written."""
        return (self.path,)

    @cached_property
    def pictures(self) -> tuple[Path, ...]:
        """The picture files that its frames are, in order; none where it is a video.

        Raises:
            OpenError: It cannot be read, or holds no pictures.
        """
        from bgsoft.media.source import read_head
        from bgsoft.media.stills import still_kind

        return (self.path,) if still_kind(read_head(self.path)) else ()

    def open_pipe(self, cancel: threading.Event) -> PipeInput | None:
        """Return the opened pipe; None for files, which are opened as often as need be."""
        return None

    def probe(self, pipe: PipeInput | None = None, rate: float | None = None) -> VideoInfo:
        """Describe the video, or the pictures as a video.

        Args:
            pipe: Result of :meth:`open_pipe`.
            rate: Frames per second of pictures; None: 25.

        Raises:
            OpenError, UnsupportedFormatError: As :func:`bgsoft.media.probe.probe`.
        """
        if pipe is None and self.pictures:
            from bgsoft.media.sequence import probe_stills

            return probe_stills(self.path, self.pictures, rate)
        from bgsoft.media.probe import probe

        return probe(pipe or self.path)

    def stamp(self) -> str:
        """Return sizes and times of the files, as one text; empty for pipes and if missing."""
        return stamp(self.path)

    def has_changed(self) -> bool:
        """Return whether a file has changed since this was made, or its pictures were listed."""
        return any(stamp(path) not in (before, "") for path, before in self._stamps.items())


class PipeSource(Source):
    """A pipe that is read: standard input, or a named pipe."""

    kind = EndpointKind.PIPE

    def open_pipe(self, cancel: threading.Event) -> PipeInput:
        from bgsoft.media.pipe import PipeInput

        return PipeInput(self.path, cancel)

    def stamp(self) -> str:
        return ""

    def has_changed(self) -> bool:
        """Return False: a pipe has no contents to compare."""
        return False


class SequenceSource(Source):
    """Pictures that are read: those of a pattern, or all in a folder."""

    kind = EndpointKind.SEQUENCE

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, *self.pictures)

    @cached_property
    def pictures(self) -> tuple[Path, ...]:
        from bgsoft.media.sequence import list_pictures

        pictures = list_pictures(self.path)
        self._stamps = {picture: stamp(picture) for picture in pictures}
        return pictures

    def stamp(self) -> str:
        with suppress(OpenError):
            text = "".join(f"{file.name}\0{stamp(file)}\n" for file in self.pictures)
            return hashlib.sha256(os.fsencode(text)).hexdigest()
        return ""


def source_for(path: Path) -> Source:
    """Return what a path names as an input."""
    if path == DEV_STDIN or _is_fifo(path):
        return PipeSource(path)
    # pathlib's raise where a name is too long; opening it reports that.
    if os.path.isdir(path) or (is_pattern(path) and not os.path.exists(path)):  # noqa: PTH110, PTH112
        return SequenceSource(path)
    return Source(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of writing a destination."""

    overwrite: bool = False
    """It may be replaced where it exists."""
    inputs: tuple[Path, ...] = ()
    """Files that must not be overwritten."""
    receipt: Path | None = None
    """See :func:`bgsoft.outputs.note_receipt`."""
    copied: CopyOptions = COPY_ALL
    on_event: Callable[[Event], None] = lambda _event: None
    """Called for conversions, and for tracks that cannot be kept."""
    stops: Callable[[], bool] = lambda: False
    """Return whether to wait no longer for a pipe's reader."""


class OpenOutput(NamedTuple):
    """A destination that is being written."""

    file: OutputFile
    """It appears with its ``commit``."""
    writer: Writer
    """Takes the encoded pictures."""


class Destination:
    """A file that is written: a video or a picture.

    Args:
        path: As the user named it.
        format: Container of a video; AUTO: the extension chooses it.
    """

    kind: ClassVar = EndpointKind.FILE

    def __init__(self, path: Path, format: OutputFormat = OutputFormat.AUTO) -> None:
        self.path = path
        self._format = format

    @cached_property
    def container(self) -> Container:
        """The container that is written.

        Raises:
            UnsupportedFormatError: There is none for the extension, or the format does not fit.
        """
        return container_for(self.path, self._format)

    @property
    def place(self) -> Path:
        """The file or folder that appears."""
        return self.path

    def exists(self) -> bool:
        """Return whether there is such an output."""
        return os.path.exists(self.path)  # noqa: PTH110 - also of a name too long

    def check_distinct(self, others: Iterable[Path]) -> None:
        """Raise OutputError where it would replace one of these files."""
        check_distinct(self.path, "output", others)

    def check_writable(self, info: VideoInfo, options: WriteOptions) -> None:
        """Raise what :meth:`open` would, as far as it shows without the input's tracks."""
        self._create(info, options).close()

    def open(self, info: VideoInfo, options: WriteOptions) -> OpenOutput:
        """Begin to write the video of an input.

        Raises:
            ConfigError: One picture is to be written of an input that has more.
            OpenError: The input cannot be opened for its other tracks.
            OutputError: It cannot be written, or exists.
        """
        file = self._create(info, options)
        try:
            return OpenOutput(file, self._make_writer(file, info, options))
        except BaseException:
            file.close()
            raise

    def _create(self, info: VideoInfo, options: WriteOptions) -> OutputFile:
        """Create the file, folder or pipe to write to."""
        path = self.path
        if self.container.still is not None and len(info.stills) != 1:
            raise ConfigError(
                f"cannot write {path}: one picture cannot hold a video; name a pattern like"
                f" {path.stem}/%05d{path.suffix}, use bgsoft preview for one frame, or write .gif"
                " or add --format webp for an animation"
            )
        overwrite, receipt = options.overwrite, options.receipt
        return AtomicOutput(path, overwrite=overwrite, inputs=options.inputs, receipt=receipt)

    def _make_writer(self, file: OutputFile, info: VideoInfo, options: WriteOptions) -> Writer:
        path, copied, on_event = self.path, options.copied, options.on_event
        if self.container.still is not None:
            from bgsoft.media.stillfiles import StillFiles

            return StillFiles(
                file.part, self.container, info, copied, output_path=path, on_event=on_event
            )
        from bgsoft.media.mux import Muxer

        target = file if isinstance(file, PipeOutput) else file.temporary
        return Muxer(target, self.container, info, copied, output_path=path, on_event=on_event)

    def remove_leftovers(self) -> None:
        """Remove the hidden files of renders that have died."""
        remove_leftovers(self.path)


class PipeDestination(Destination):
    """Standard output, or a named pipe."""

    kind = EndpointKind.PIPE

    @cached_property
    def container(self) -> Container:
        if self._format is OutputFormat.AUTO:
            streams = (each for each in CONTAINERS if each.streams)
            found = with_extension(self.path.suffix.lower(), streams)
            return found or container_for(self.path, OutputFormat.MKV)
        container = container_for(self.path, self._format)
        if not container.streams:
            fits = ", ".join(each.extensions[0][1:] for each in CONTAINERS if each.streams)
            text = f"{container.name} cannot be written to a pipe; use --format {fits}"
            raise UnsupportedFormatError(text, stage="encode", path=self.path)
        return container

    def check_distinct(self, others: Iterable[Path]) -> None:
        """Do nothing: a pipe replaces no file."""

    def _create(self, info: VideoInfo, options: WriteOptions) -> OutputFile:
        return PipeOutput(self.path, options.stops)

    def remove_leftovers(self) -> None:
        """Do nothing: a pipe leaves no file."""


class SequenceDestination(Destination):
    """Numbered pictures in a folder."""

    kind = EndpointKind.SEQUENCE

    @property
    def place(self) -> Path:
        return self.path.absolute().parent

    def exists(self) -> bool:
        with suppress(OSError):
            names = os.listdir(self.path.parent)  # noqa: PTH208 - names only, no stat each
            return any(picture_number(self.path, name) is not None for name in names)
        return False

    def check_distinct(self, others: Iterable[Path]) -> None:
        """Do nothing: the pictures' names are compared when the folder is made."""

    def _create(self, info: VideoInfo, options: WriteOptions) -> OutputFile:
        from bgsoft.media.sequence import SequenceOutput

        return SequenceOutput(self.path, overwrite=options.overwrite, inputs=options.inputs)

    def remove_leftovers(self) -> None:
        from bgsoft.media.sequence import remove_leftover_sequences

        remove_leftover_sequences(self.path)


def destination_for(path: Path, format: OutputFormat = OutputFormat.AUTO) -> Destination:
    """Return what a path names as an output; arguments as :class:`Destination`."""
    if path == DEV_STDOUT or _is_fifo(path):
        return PipeDestination(path, format)
    if format is OutputFormat.AUTO and is_pattern(path):
        return SequenceDestination(path)
    return Destination(path, format)


def suffix_like(path: Path) -> str:
    """Return the extension of an output that is like an input: its own, if such files are written.

    Otherwise it is that of Matroska, which holds most codecs and tracks. A picture whose name does
    not say its kind gets the extension of the kind; kinds that are only read get that of JPEG.
    """
    with suppress(UnsupportedFormatError):
        container_for(path)
        return path.suffix
    kind = None
    if path.suffix.lower() not in STILL_SUFFIXES:
        from bgsoft.media.source import read_head
        from bgsoft.media.stills import still_kind

        with suppress(OpenError):  # the render reports it
            kind = still_kind(read_head(path))
        if kind is None:
            return ".mkv"
    usual = {each.name.lower(): each.extensions[0] for each in CONTAINERS if each.still}
    return usual.get(kind or "", ".jpg")
