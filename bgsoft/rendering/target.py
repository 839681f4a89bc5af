"""The files that a render writes: checked before any work, and the end of its pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bgsoft.decode.base import DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.errors import ConfigError
from bgsoft.frame import Frame
from bgsoft.media.containers import container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.outputs import AtomicOutput, check_target
from bgsoft.rendering.backends import matte_out_encoder
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind, EncodeConfig, RenderConfig

if TYPE_CHECKING:
    from bgsoft.face.data import FaceDataWriter
    from bgsoft.rendering.build import StageBuilder


_PICTURE_KINDS = {
    EffectKind.ALPHA: PictureKind.COLOR_ALPHA,
    EffectKind.MATTE: PictureKind.MATTE,
}


def check_outputs(config: RenderConfig) -> bool:
    """Check what can be checked before the input is opened: containers, trace and report.

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
    from bgsoft.face.data import open_face_data

    return open_face_data(
        config.face_data,
        overwrite=config.overwrite,
        others=[config.input, *config.videos],
        exact=exact,
        receipt=config.receipt,
    )


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


class Target(NamedTuple):
    """One video being written."""

    file: AtomicOutput
    muxer: Muxer
    encoder: Encoder


def open_targets(
    config: RenderConfig,
    info: VideoInfo,
    builder: StageBuilder,
    files: ExitStack,
    stack: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
) -> list[Target]:
    """Begin all videos: the output and, where it is asked for, the matte's; arguments as
    :func:`open_target`."""
    targets = []
    for path in config.videos:
        main = path is config.output
        file, muxer = open_target(
            path, config, info, files, stack, on_event, copy_tracks=main and copy_tracks
        )
        if main:
            kind = _PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
            encoder = builder.open_encoder(muxer, config.encode, info, kind)
        else:
            backend, kind = matte_out_encoder(), PictureKind.MATTE
            encoder = builder.make_encoder(backend, muxer, EncodeConfig(), info, kind)
        stack.callback(encoder.close)
        targets.append(Target(file, muxer, encoder))
    return targets


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
