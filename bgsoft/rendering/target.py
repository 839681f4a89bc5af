"""The files that a render writes: checked before any work, and the end of its pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bgsoft.decode.base import DecodeStats
from bgsoft.encode.base import Encoder, PictureKind
from bgsoft.encode.codecs import choose_codec, codes_odd_size, kept_chroma
from bgsoft.errors import ConfigError
from bgsoft.frame import Frame
from bgsoft.media.containers import Container, container_for
from bgsoft.media.info import VideoInfo
from bgsoft.media.mux import Muxer
from bgsoft.media.naming import appears_as, is_pattern, is_sequence, output_exists
from bgsoft.media.pipe import PipeInput
from bgsoft.media.probe import probe
from bgsoft.media.sequence import SequenceOutput, probe_stills, still_files
from bgsoft.media.stillfiles import StillFiles
from bgsoft.models.catalog import is_model_file
from bgsoft.outputs import DASH, AtomicOutput, check_apart, check_target
from bgsoft.pipeline.runner import FrameSink
from bgsoft.pipes import DEV_STDOUT, PipeOutput, is_input_pipe, is_output_pipe
from bgsoft.records import NamedTuple
from bgsoft.rendering.backends import matte_out_encoder
from bgsoft.report import Event
from bgsoft.settings.config import REPLACING, EffectKind, EncodeConfig, OutputFormat, RenderConfig

if TYPE_CHECKING:
    from bgsoft.face.data import FaceDataWriter
    from bgsoft.rendering.build import StageBuilder


PICTURE_KINDS = {
    EffectKind.ALPHA: PictureKind.COLOR_ALPHA,
    EffectKind.MATTE: PictureKind.MATTE,
}


def check_outputs(config: RenderConfig) -> bool:
    """Check what can be checked before the input is opened: containers, trace and report.

    Returns:
        Whether there is anything to do; not where the output is there and may be skipped.

    Raises:
        UnsupportedFormatError: A video's extension stands for no container that is written.
        ConfigError: Two sequences would share a folder.
        OpenError: The input is a sequence that is not there.
        OutputError: Trace or report could not be written, or a file that is written would replace
            one that is read, or another.
    """
    for path in config.videos:
        _container(path, config)
    _check_pipes(config)
    folders = [appears_as(path).resolve() for path in config.videos if is_pattern(path)]
    if len(set(folders)) < len(folders):
        raise ConfigError("the sequences of --matte-out and the output need a folder each")
    if config.skip_existing and output_exists(config.output):
        return False
    taken = read_files(config)
    for path in (*config.videos, *filter(None, [config.face_data])):
        if not is_pattern(path) and not is_output_pipe(path):
            check_apart(path, "output", taken)
        taken.append(path)
    for file, what in ((config.trace, "trace"), (config.report, "report")):
        if file is not None:
            check_target(file, what, overwrite=config.overwrite, others=taken)
            taken.append(file)
    return True


def read_files(config: RenderConfig) -> list[Path]:
    """The files that are read, and must not be written; of a sequence each picture.

    Raises:
        OpenError: The input is a sequence that is not there.
    """
    stills = still_files(config.input) if is_sequence(config.input) else None
    model = Path(config.segment.model)
    models = [model, model.with_suffix(".toml")] if is_model_file(config.segment.model) else ()
    return [*config.inputs, *(stills or ()), *models]


def _container(path: Path, config: RenderConfig) -> Container:
    """What one of the videos is written as."""
    return container_for(path, config.format if path is config.output else OutputFormat.AUTO)


def _check_pipes(config: RenderConfig) -> None:
    """Refuse what needs to read a pipe again, or to look at what it has been sent."""
    if is_input_pipe(config.input) and config.start_seconds > 0:
        raise ConfigError("--start needs a file: a pipe is cut where it comes from (ffmpeg -ss)")
    if is_output_pipe(config.output):
        if config.skip_existing:
            raise ConfigError("--skip-existing has no effect on a pipe: it needs a file as OUT")
        if config.output == DEV_STDOUT and config.report == DASH:
            raise ConfigError("--report - and the video exclude each other: both go to stdout")


def probe_input(config: RenderConfig, pipe: PipeInput | None = None) -> VideoInfo:
    """Describe the input: a video, that of a pipe, a still, or a sequence of stills.

    Raises:
        OpenError, UnsupportedFormatError: As :func:`bgsoft.media.probe.probe`.
    """
    files = None if pipe else still_files(config.input)
    if files is None:
        return probe(pipe or config.input)
    return probe_stills(config.input, files, config.fps)


def keeps_chroma(config: RenderConfig, info: VideoInfo) -> bool:
    """Whether the output has colour that is finer than that of frames.

    Raises:
        ConfigError, UnsupportedFormatError: As :func:`bgsoft.encode.codecs.kept_chroma`.
    """
    kind = PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
    container = _container(config.output, config)
    return bool(kept_chroma(config.encode, container, info, kind))


def keeps_profile(config: RenderConfig) -> bool:
    """Whether stills keep the colours of their own profile: where nothing in sRGB joins them."""
    still = _container(config.output, config).still
    return still is not None and still.profiles and config.effect.kind not in REPLACING


def lost_chroma(config: RenderConfig, info: VideoInfo) -> tuple[str, ...]:
    """The notice that colour becomes 4:2:0; none where the encoder's says more."""
    container = _container(config.output, config)
    if container.still is None and config.effect.kind not in PICTURE_KINDS:
        codec = choose_codec(config.encode, container, info.format, PictureKind.COLOR)
        if codes_odd_size(codec, info.format, PictureKind.COLOR):
            return ()
    return info.lost_chroma


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


def commit(files: Sequence[AtomicOutput | PipeOutput | SequenceOutput]) -> None:
    """Let videos take their names: all of them or, where one cannot be written, none."""
    if len(files) > 1:
        for file in files:
            file.settle()
    for file in files:
        file.commit()


def open_target(
    path: Path,
    config: RenderConfig,
    info: VideoInfo,
    files: ExitStack,
    stack: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
    stops: Callable[[], bool] = lambda: False,
) -> tuple[AtomicOutput | PipeOutput | SequenceOutput, Muxer | StillFiles]:
    """Begin one of the videos that are written: its file, which appears when it is whole and is
    closed with ``files``, and its muxer, which is closed with ``stack``; ``stops`` ends waiting
    for a pipe's reader."""
    container = _container(path, config)
    if container.still is not None:
        return _open_stills(path, config, info, files, on_event, copy_tracks=copy_tracks)
    file: AtomicOutput | PipeOutput
    target: Path | PipeOutput
    if is_output_pipe(path):
        file = target = files.enter_context(PipeOutput(path, stops))
    else:
        receipt, overwrite = config.receipt, config.overwrite
        file = AtomicOutput(path, overwrite=overwrite, inputs=config.inputs, receipt=receipt)
        target = files.enter_context(file).temporary
    muxer = stack.enter_context(
        Muxer(
            target,
            container,
            info,
            copy_tracks=copy_tracks and not info.stills,
            copy_pictures=not (config.hides or config.effect.kind in REPLACING),
            copy_identifying=not config.strips_metadata,
            start_seconds=config.start_seconds,
            duration_seconds=config.duration_seconds,
            output_path=path,
            on_event=on_event,
        )
    )
    return file, muxer


def _open_stills(
    path: Path,
    config: RenderConfig,
    info: VideoInfo,
    files: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
) -> tuple[AtomicOutput | SequenceOutput, StillFiles]:
    """:func:`open_target` of a picture, or of a sequence of them.

    Raises:
        ConfigError: One picture is to be written of an input that has more.
    """
    file: AtomicOutput | SequenceOutput
    if is_pattern(path):
        inputs = [*config.inputs[1:], *info.stills]
        file = SequenceOutput(path, overwrite=config.overwrite, inputs=inputs)
    elif len(info.stills) == 1:
        file = AtomicOutput(
            path, overwrite=config.overwrite, inputs=config.inputs, receipt=config.receipt
        )
    else:
        raise ConfigError(
            f"{path} is one picture: for all frames of a video name a pattern like"
            f" {path.stem}/%05d{path.suffix}, for one of them use bgsoft preview, for an animation"
            " write .gif or add --format webp"
        )
    files.enter_context(file)
    muxer = StillFiles(
        file.part,
        container_for(path),
        info,
        copy_tracks=copy_tracks,
        output_path=path,
        on_event=on_event,
    )
    return file, muxer


class Target(NamedTuple):
    """One video being written."""

    file: AtomicOutput | PipeOutput | SequenceOutput
    muxer: Muxer | StillFiles
    encoder: Encoder

    def encode(self, frame: Frame) -> None:
        """See :class:`bgsoft.pipeline.runner.FrameSink`."""
        self.encoder.encode(frame)

    def finish(self) -> None:
        """See :class:`bgsoft.pipeline.runner.FrameSink`."""
        self.encoder.finish()
        self.muxer.finish()


def open_targets(
    config: RenderConfig,
    info: VideoInfo,
    builder: StageBuilder,
    files: ExitStack,
    stack: ExitStack,
    on_event: Callable[[Event], None],
    *,
    copy_tracks: bool,
    stops: Callable[[], bool],
) -> list[Target]:
    """Begin all videos: the output and, where it is asked for, the matte's; arguments as
    :func:`open_target`."""
    targets = []
    for path in config.videos:
        main = path is config.output
        file, muxer = open_target(
            *(path, config, info, files, stack, on_event),
            copy_tracks=main and copy_tracks,
            stops=stops,
        )
        if main:
            kind = PICTURE_KINDS.get(config.effect.kind, PictureKind.COLOR)
            encoder = builder.open_encoder(muxer, config.encode, info, kind)
        else:
            backend, kind = matte_out_encoder(), PictureKind.MATTE
            encoder = builder.make_encoder(backend, muxer, EncodeConfig(), info, kind)
        stack.callback(encoder.close)
        targets.append(Target(file, muxer, encoder))
    return targets


class Sink:
    """Gives every finished frame to each taker, but those before a pts."""

    def __init__(
        self, takers: Sequence[FrameSink], stats: DecodeStats, trim_start: int | None
    ) -> None:
        self._takers = takers
        self._stats = stats
        self._trim_start = trim_start
        self.frames = 0
        """Those that were taken."""
        self.concealed = 0
        """Damaged frames among those that were taken."""
        self.damage_before = 0
        """Packets that were unreadable by the time of the first frame that was taken."""
        self.messages: Counter[str] = Counter()
        """Messages of the frames that were taken, by kind."""

    def encode(self, frame: Frame) -> None:
        if self._trim_start is not None and frame.pts < self._trim_start:
            self.damage_before = self._stats.corrupt_packets
            return
        self.frames += 1
        self.concealed += frame.concealed
        if frame.messages:
            self.messages.update(kind for kind, _ in frame.messages)
        for taker in self._takers:
            taker.encode(frame)

    def finish(self) -> None:
        if self.frames == 0:
            raise ConfigError("no frame lies in the part that --start and --duration ask for")
        for taker in self._takers:
            taker.finish()
