"""What a render writes: its files, checked before any work, and the end of its pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.decode.base import DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.errors import ConfigError
from bgsoft.face.data import FaceDataWriter, open_face_data
from bgsoft.frame import Frame
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.outputs import AtomicOutput, check_target, made_folders
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, RenderConfig

if TYPE_CHECKING:
    from bgsoft.rendering.build import StageBuilder


_PICTURE_KINDS = {
    EffectKind.ALPHA: PictureKind.COLOR_ALPHA,
    EffectKind.MATTE: PictureKind.MATTE,
}


def check_outputs(config: RenderConfig) -> bool:
    """Check what can be checked before the input is looked at: containers, trace and report.

    Returns:
        Whether there is anything to do; not where the output is there and may be skipped.

    Raises:
        UnsupportedFormatError: A video's extension stands for no container that is written.
        OutputError: Trace or report could not be written.
    """
    for path in config.videos:
        container_for(path)
    if config.skip_existing and config.output.exists():
        return False
    taken = [config.input, *config.videos, *filter(None, [config.face_data])]
    for file, what in ((config.trace, "trace"), (config.report, "report")):
        if file is not None:
            check_target(file, what, overwrite=config.overwrite, others=taken)
            taken.append(file)
    return True


def open_faces(config: RenderConfig, *, exact: bool = False) -> FaceDataWriter | None:
    """Begin the file of faces that the settings ask for; None where they ask for none.

    Args:
        config: The settings.
        exact: As :func:`bgsoft.face.data.open_face_data` says.

    Raises:
        ConfigError, OutputError: It cannot be written.
    """
    if config.face_data is None:
        return None
    return open_face_data(
        config.face_data,
        overwrite=config.overwrite,
        others=[config.input, *config.videos],
        exact=exact,
        receipt=config.receipt,
    )


@contextmanager
def all_folders(config: RenderConfig, on_notice: Callable[[str], None]) -> Iterator[None]:
    """:func:`bgsoft.outputs.made_folders` for all that a render writes."""
    others = filter(None, (config.face_data, config.trace, config.report))
    with made_folders([*config.videos, *others], on_notice):
        yield


def open_target(
    path: Path,
    config: RenderConfig,
    info: VideoInfo,
    files: ExitStack,
    stack: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
) -> tuple[AtomicOutput, Muxer]:
    """Begin one of the videos that are written: its file, which appears when it is whole and is
    closed with ``files``, and its muxer, which is closed with ``stack``."""
    file = files.enter_context(
        AtomicOutput(path, overwrite=config.overwrite, inputs=config.inputs, receipt=config.receipt)
    )
    muxer = stack.enter_context(
        Muxer(
            file.temporary,
            container_for(path),
            info,
            copy_tracks=copy_tracks,
            copy_pictures=not config.hides,
            start_seconds=config.start_seconds,
            duration_seconds=config.duration_seconds,
            output_path=path,
            on_event=on_event,
        )
    )
    return file, muxer


class Target:
    """One video being written: temporary file, muxer and encoder; arguments as
    :func:`open_target`."""

    def __init__(
        self,
        path: Path,
        config: RenderConfig,
        info: VideoInfo,
        builder: StageBuilder,
        files: ExitStack,
        stack: ExitStack,
        on_event: Callable[[Event], None],
        *,
        copy_tracks: bool,
    ) -> None:
        main = path is config.output
        self.file, self.muxer = open_target(
            path, config, info, files, stack, on_event, copy_tracks=main and copy_tracks
        )
        self.encoder: Encoder
        if main:
            kind = _PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
            self.encoder = builder.open_encoder(self.muxer, config.encode, info, kind)
        else:
            self.encoder = builder.open_matte_encoder(self.muxer, info)
        stack.callback(self.encoder.close)


class Sink:
    """Gives every finished frame to each target, but those before a pts."""

    def __init__(self, targets: list[Target], stats: DecodeStats, trim_start: int | None) -> None:
        self._targets = targets
        self._stats = stats
        self._trim_start = trim_start
        self.frames = 0
        """Those that were taken."""
        self.concealed = 0
        """Damaged frames among those that were taken."""
        self.damage_before = 0
        """Packets that were unreadable by the time of the first frame that was taken."""

    def encode(self, frame: Frame) -> None:
        if self._trim_start is not None and frame.pts < self._trim_start:
            self.damage_before = self._stats.corrupt_packets
            return
        self.frames += 1
        self.concealed += frame.concealed
        for target in self._targets:
            target.encoder.encode(frame)

    def finish(self) -> None:
        if self.frames == 0:
            raise ConfigError("no frame lies in the part that --start and --duration ask for")
        for target in self._targets:
            target.encoder.finish()
            target.muxer.finish()
