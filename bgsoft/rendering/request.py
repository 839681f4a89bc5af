"""Inputs and outputs of one render, resolved from its settings, with every check of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.encode.base import PictureKind
from bgsoft.errors import ConfigError, OpenError
from bgsoft.media.endpoints import (
    Destination,
    EndpointKind,
    OpenOutput,
    Source,
    WriteOptions,
    destination_for,
    source_for,
)
from bgsoft.media.writer import CopyOptions
from bgsoft.outputs import DASH, check_target, remove_empty, remove_leftovers
from bgsoft.pipes import DEV_STDOUT
from bgsoft.records import NamedTuple
from bgsoft.report import Event
from bgsoft.settings.config import REPLACING, Audio, EffectKind, EncodeConfig, RenderConfig
from bgsoft.settings.setting import is_model_file

if TYPE_CHECKING:
    from bgsoft.face.data import FaceDataWriter
    from bgsoft.media.info import VideoInfo

_PICTURE_KINDS = {EffectKind.ALPHA: PictureKind.COLOR_ALPHA, EffectKind.MATTE: PictureKind.MATTE}


def picture_kind(effect: EffectKind) -> PictureKind:
    """Return the planes that an effect's result consists of."""
    return _PICTURE_KINDS.get(effect, PictureKind.COLOR)


class Output(NamedTuple):
    """One of the videos that a render writes."""

    destination: Destination
    kind: PictureKind
    encode: EncodeConfig
    is_main: bool
    """OUT; it gets the input's other tracks, and its encoder may be chosen."""


class Request:
    """The settings of a render, with its source and outputs.

    Args:
        config: The settings.
        writes: Whether videos are written; otherwise somebody takes the frames.
    """

    def __init__(self, config: RenderConfig, *, writes: bool = True) -> None:
        self.config = config
        self.source: Source = source_for(config.input)
        self.outputs: tuple[Output, ...] = _outputs(config) if writes else ()

    @property
    def _main(self) -> Output | None:
        return self.outputs[0] if self.outputs else None

    @property
    def read_files(self) -> list[Path]:
        """The files that are read, and must not be written; of sequences each picture.

        Raises:
            OpenError: The input is a sequence without pictures.
        """
        segment = self.config.segment
        model = Path(segment.model)
        others = [model, model.with_suffix(".toml")] if is_model_file(segment.model) else []
        if segment.matte_in is not None:
            with suppress(OpenError):  # MatteReader reports that there are no pictures
                others += source_for(Path(segment.matte_in)).files
        others += filter(None, (self.config.preset_file, self.config.config_file))
        return [*self.source.files, *self.config.inputs[1:], *others]

    def stamps(self) -> dict[Path, str]:
        """Return the present sizes and times of the files that are read, except for the input."""
        return {path: source_for(path).stamp() for path in self.config.inputs[1:]}

    @property
    def written_paths(self) -> list[Path]:
        """The files that appear; of a sequence, its folder."""
        config = self.config
        places = [output.destination.place for output in self.outputs]
        return [*places, *filter(None, (config.face_data, config.trace, config.report))]

    @property
    def passes_through_pipe(self) -> bool:
        """Return whether it reads or writes a pipe."""
        kinds = [self.source.kind, *(output.destination.kind for output in self.outputs)]
        return EndpointKind.PIPE in kinds

    @cached_property
    def is_skipped(self) -> bool:
        """Return whether there is nothing to do: the output exists, and is to be kept."""
        main = self._main
        return self.config.skip_existing and main is not None and main.destination.exists()

    def check(self) -> None:
        """Check what can be checked before the input is opened.

        Raises:
            UnsupportedFormatError: An extension stands for no container that is written.
            ConfigError: Two sequences would share a folder, or a setting does not fit a pipe.
            OpenError: The input is a sequence without pictures.
            OutputError: Trace or report could not be written; or a file that is written would
                replace one that is read, or another.
        """
        config, destinations = self.config, [output.destination for output in self.outputs]
        pictures = [each for each in destinations if each.container.still is not None]
        self._check_pipes()
        sequences = [each for each in pictures if each.kind is EndpointKind.SEQUENCE]
        if len({each.place.resolve() for each in sequences}) < len(sequences):
            raise ConfigError(
                "cannot write --matte-out: its pictures and the output's need different folders"
            )
        if self.is_skipped:
            return
        taken = self.read_files
        if config.face_data is not None:
            destinations.append(destination_for(config.face_data))
        for destination in destinations:
            destination.check_distinct(taken)
            taken.append(destination.path)
        self.check_reports(taken)

    def check_reports(self, taken: Sequence[Path] = ()) -> None:
        """Raise OutputError if trace or report cannot be written, or are files of ``taken``."""
        config, others = self.config, [*taken]
        for file, what in ((config.trace, "trace"), (config.report, "report")):
            if file is not None:
                check_target(file, what, overwrite=config.overwrite, others=others)
                others.append(file)

    def _check_pipes(self) -> None:
        """Reject what needs to read a pipe again, or to inspect what has been sent."""
        config = self.config
        if self.source.kind is EndpointKind.PIPE and config.start_seconds > 0:
            raise ConfigError(
                "cannot use --start with a pipe: cut the video before the pipe, with ffmpeg -ss"
            )
        if self._main is not None and self._main.destination.kind is EndpointKind.PIPE:
            if config.skip_existing:
                raise ConfigError("cannot use --skip-existing with a pipe: it needs a file as OUT")
            if config.output == DEV_STDOUT and config.report == DASH:
                raise ConfigError(
                    "cannot combine --report - and a video on stdout: name a file for one"
                )

    def keeps_chroma(self, info: VideoInfo) -> bool:
        """Return whether the main output has colour that is finer than that of frames.

        Raises:
            ConfigError, UnsupportedFormatError: As :func:`bgsoft.encode.codecs.kept_chroma`.
        """
        from bgsoft.encode.codecs import kept_chroma

        main = self._main
        return main is not None and bool(
            kept_chroma(main.encode, main.destination.container, info, main.kind)
        )

    @property
    def keeps_profile(self) -> bool:
        """Return whether pictures keep their own profile: where nothing in sRGB joins them."""
        still = None if self._main is None else self._main.destination.container.still
        is_kept, effect = still is not None and still.profiles, self.config.effect.kind
        return is_kept and (effect is EffectKind.ALPHA or effect not in REPLACING)

    def chroma_notices(self, info: VideoInfo) -> tuple[str, ...]:
        """The notice that colour becomes 4:2:0; none where it is kept, or the encoder reports it.

        Raises:
            ConfigError, UnsupportedFormatError: As :meth:`keeps_chroma`.
        """
        from bgsoft.encode.codecs import reports_lost_chroma

        main = self._main
        reported = main is not None and reports_lost_chroma(
            main.encode, main.destination.container, info, main.kind
        )
        return () if reported or self.keeps_chroma(info) else info.lost_chroma

    def check_writable(self, info: VideoInfo) -> None:
        """Raise what writing any of the files would, before there is anything to write."""
        for output in self.outputs:
            output.destination.check_writable(info, self._write_options(output))
        faces = self.open_faces()
        if faces is not None:
            faces.close()

    def open_output(
        self,
        output: Output,
        info: VideoInfo,
        on_event: Callable[[Event], None],
        *,
        copies_tracks: bool = True,
        stops: Callable[[], bool] = lambda: False,
    ) -> OpenOutput:
        """Begin to write one of the outputs.

        Args:
            output: The output.
            info: The input.
            on_event: Called for conversions, and for tracks that cannot be kept.
            copies_tracks: The main output gets the input's other tracks.
            stops: Whether to wait no longer for a pipe's reader.

        Raises:
            ConfigError, OpenError, OutputError: As
                :meth:`bgsoft.media.endpoints.Destination.open`.
        """
        return output.destination.open(
            info,
            self._write_options(
                output, on_event=on_event, copies_tracks=copies_tracks, stops=stops
            ),
        )

    def _write_options(
        self, output: Output, *, copies_tracks: bool = True, **others: Any
    ) -> WriteOptions:
        config = self.config
        copied = CopyOptions(
            tracks=output.is_main and copies_tracks,
            sound=config.copy.audio is Audio.KEEP,
            muted=config.copy.muted_spans(),
            pictures=not (config.hides or config.effect.kind in REPLACING),
            identifying=not config.strips_metadata,
            start_seconds=config.start_seconds,
            duration_seconds=config.duration_seconds,
        )
        return WriteOptions(
            overwrite=config.overwrite,
            inputs=tuple(self.read_files),
            receipt=config.receipt,
            copied=copied,
            **others,
        )

    def open_faces(self) -> FaceDataWriter | None:
        """Begin the file of faces; None where none is asked for.

        Raises:
            ConfigError, OutputError: It cannot be written.
        """
        config = self.config
        if config.face_data is None:
            return None
        from bgsoft.face.data import open_face_data

        return open_face_data(
            config.face_data,
            overwrite=config.overwrite,
            others=[config.input, *config.videos],
            receipt=config.receipt,
        )

    def remove_unfinished(self, missing: Sequence[Path]) -> None:
        """Remove the hidden files of a render that has died, and those folders that are empty.

        Faces that were found get the name of a partial file, as after any failure.
        """
        for output in self.outputs:
            output.destination.remove_leftovers()
        if self.config.face_data is not None:
            remove_leftovers(self.config.face_data, keeps=True)
        remove_empty(missing)


def _outputs(config: RenderConfig) -> tuple[Output, ...]:
    main = Output(
        destination_for(config.output, config.format),
        picture_kind(config.effect.kind),
        config.encode,
        is_main=True,
    )
    if config.matte_out is None:
        return (main,)
    matte = destination_for(config.matte_out)
    return (main, Output(matte, PictureKind.MATTE, EncodeConfig(), is_main=False))
