"""The files of a batch, and their settings."""

from __future__ import annotations

import dataclasses
import errno
import functools
import re
import string
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bgsoft.batch.find import Found
from bgsoft.errors import ConfigError, ModelError
from bgsoft.media.containers import STILL_SUFFIXES, suffix_like
from bgsoft.media.endpoints import EndpointKind
from bgsoft.models.cache import hash_file
from bgsoft.models.catalog import read_spec
from bgsoft.models.onnx_check import check_model
from bgsoft.outputs import real_path, stamp
from bgsoft.records import dataclass
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.request import Request
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.options import SECTIONS, TOP
from bgsoft.settings.presets import Layer, Preset
from bgsoft.settings.regions_file import REGIONS_SUFFIX
from bgsoft.suggestions import did_you_mean

_WIDEST = 255
"""Characters of one field of a name: no file's may be longer."""
_BESIDE = ("matte_out", "face_data", "trace")
"""Settings that name a file beside the output: they are templates here."""
_NO_PART_OF_THE_RESULT = {
    *("input", "output", "preset", "overwrite", "skip_existing", "report", "trace", "receipt"),
    *("backends", "chunks", "config_file"),
}
"""Settings that do not change what is made: which preset others came from, and where it runs."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A file to render."""

    config: RenderConfig
    number: int
    """From 1, in the order in which files were found first."""

    @property
    def files(self) -> list[Path]:
        """What is written, the output first."""
        return [*self.config.videos, *filter(None, (self.config.face_data, self.config.trace))]

    def made_from(self, folder: Path) -> dict[str, str]:
        """What the result depends on, as it is now: the input and other files that are read, and
        every setting that is not the default, so that a later version's new settings change
        nothing.

        Where it runs (``backends``, ``chunks``) does not count, nor does the version. Files that
        are written count by their name inside ``folder``.
        """
        config = self.config
        found: dict[str, object] = {}
        for entry in dataclasses.fields(config):
            name, value = entry.name, getattr(config, entry.name)
            if name in _NO_PART_OF_THE_RESULT:
                continue
            if name in SECTIONS:
                usual = SECTIONS[name]()
                for key in value.__dataclass_fields__:
                    if getattr(value, key) != getattr(usual, key):
                        found[f"{name}.{key}"] = getattr(value, key)
            elif value != entry.default:
                found[name] = value.relative_to(folder) if isinstance(value, Path) else value
        found["input"] = stamp(config.input)
        found["segment.model"] = _model_identity(config.segment.model)
        if config.effect.kind in (EffectKind.IMAGE, EffectKind.VIDEO):
            found["effect.background"] = _hashed(Path(config.effect.background or ""))
        if config.segment.matte_in is not None:
            found["segment.matte_in"] = stamp(Path(config.segment.matte_in))
        if config.detector.file is not None:
            found["detector.file"] = _model_identity(config.detector.file)
        if config.regions.file is not None:
            found["regions.file"] = _hashed(Path(config.regions.file))
        return {key: str(value) for key, value in found.items()}


def _model_identity(name: str) -> str:
    """The model's contents, of one in the catalogue what they have to be; empty: it is gone."""
    try:
        spec = read_spec(name)
    except ConfigError:
        return ""
    if spec.checksum is not None:
        return str(spec.checksum)
    path = Path(name)
    weights: list[Path] = []
    with suppress(ModelError):  # it is not to be loaded
        weights = _weights(path, stamp(path))
    return f"{' '.join(map(_hashed, [path, *weights]))} {spec}".strip()


@functools.lru_cache(maxsize=8)
def _weights(path: Path, _stamp: str) -> list[Path]:
    """The files beside a model that hold weights."""
    return check_model(path)


def _hashed(path: Path) -> str:
    """SHA-256 of a file that most jobs share; empty: it cannot be read."""
    return _hash(path, stamp(path))


@functools.lru_cache(maxsize=8)
def _hash(path: Path, _stamp: str) -> str:
    try:
        return hash_file(path)
    except ModelError:
        return ""


class Planner:
    """Makes jobs of what was found.

    ``name`` and those ``flags`` that name a file beside the output are templates (:func:`expand`).

    Raises:
        ConfigError: A setting is wrong.
        UnsupportedFormatError: The names' ending stands for no video that can be written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        preset: str | Preset,
        flags: Layer,
    ) -> None:
        self._folder = folder
        self._name = name
        self._preset = preset
        top = dict(flags.get(TOP, {}))
        self._beside = {key: str(top.pop(key)) for key in _BESIDE if key in top}
        for key, template in self._beside.items():
            if template == "-":
                flag = key.replace("_", "-")
                raise ConfigError(f"--{flag} cannot be written to stdout: name a file")
        self._flags = {**flags, TOP: top}
        self.numbers: dict[Path, int] = {}
        """Of inputs that have one already."""
        self.own: set[Path] = set()
        """What the batch has made, with symbolic links followed: where a folder is IN and OUT,
        these are no inputs unless they are named."""
        self._taken: dict[Path, Path] = {}
        """What is written, with symbolic links followed → the input it comes from."""
        self._inputs: dict[Path, Path] = {}
        """By where symbolic links lead to."""
        # A setting that is wrong for every file is reported before the first.
        self.settings = self._config(Found(Path("in.mp4"), Path()), 1)
        """Those of every file."""

    def plan(self, found: Iterable[Found]) -> list[BatchJob]:
        """The jobs for these files, without those that others of them are rendered to.

        Raises:
            ConfigError: Two would have the same name, or one would replace an input; a setting is
                wrong.
        """
        jobs = [
            self._job(each)
            for each in found
            if (path := real_path(each.path)) not in self._taken
            and (each.is_named or path not in self.own)
        ]
        inputs = {real_path(job.config.input): job.config.input for job in jobs}
        written = {real_path(path): job for job in jobs for path in job.files}
        if self.settings.overwrite:
            known = {**self._inputs, **inputs}
            for path in sorted(known.keys() & written.keys() - self.own):
                source = written[path].config.input
                raise ConfigError(
                    f"{known[path]} would be replaced by what is made of {source}:"
                    " see --name and --exclude"
                )
        jobs = [job for job in jobs if real_path(job.config.input) not in written]
        self._inputs |= inputs
        for job in jobs:
            self._check_names(job)
        return jobs

    def plan_each(
        self, find: Callable[[], Iterable[Found]], tell: Callable[[str], None]
    ) -> list[BatchJob]:
        """The jobs for what is found now; a file that is none is reported, and left out."""
        jobs = []
        for found in find():
            try:
                jobs += self.plan([found])
            except ConfigError as exc:
                tell(f"{found.path}: left out: {exc}")
        return jobs

    def _job(self, found: Found) -> BatchJob:
        path = found.path.absolute()
        number = self.numbers.setdefault(path, 1 + max(self.numbers.values(), default=0))
        config = self._config(found, number)
        try:
            same = found.path.samefile(config.output)
        except OSError as exc:
            if exc.errno == errno.ENAMETOOLONG:
                raise ConfigError(f"{config.output}: {exc.strerror}: see --name") from exc
            same = False
        if same:
            raise ConfigError(
                f"{config.output} would replace its input: name another folder, or the outputs"
                " otherwise (--name '{stem}-soft{suffix}')"
            )
        return BatchJob(config, number)

    def _config(self, found: Found, number: int) -> RenderConfig:
        beside = {
            key: self._folder / expand(template, found, number)
            for key, template in self._beside.items()
        }
        flags: dict[str, Any] = {**self._flags, TOP: {**self._flags[TOP], **beside}}
        if found.path.suffix.lower() in STILL_SUFFIXES:
            # Flags for the sound of videos are no error for the pictures among them.
            copied = flags.get("copy", {})
            flags["copy"] = {k: v for k, v in copied.items() if k not in ("audio", "mute")}
        output = self._folder / expand(self._name, found, number)
        config = build_config(found.path, output, preset=self._preset, flags=flags)
        matte = config.segment.matte_in
        if matte is not None and "{" in matte:
            path = found.path.parent / expand(
                matte, dataclasses.replace(found, folder=Path()), number
            )
            segment = dataclasses.replace(config.segment, matte_in=str(path))
            config = dataclasses.replace(config, segment=segment)
        companion = found.path.with_name(found.path.stem + REGIONS_SUFFIX)
        if config.regions.file is None and companion.is_file():
            config = dataclasses.replace(
                config, regions=dataclasses.replace(config.regions, file=str(companion))
            )
        for destination in (each.destination for each in Request(config).outputs):
            if destination.container.still and destination.kind is EndpointKind.SEQUENCE:
                text = f"a batch writes no sequences of pictures: {destination.path}"
                raise ConfigError(text)
        return config

    def _check_names(self, job: BatchJob) -> None:
        source = job.config.input
        for path in job.files:
            other = self._taken.setdefault(real_path(path), source)
            if other != source:
                raise ConfigError(f"{other} and {source} would both become {path}: see --name")


def shared_inputs(settings: RenderConfig, jobs: Sequence[BatchJob]) -> list[Path]:
    """What a machine has to see to render some jobs: the first file of each folder that is read,
    the background, and a model that is a file."""
    first = {job.config.input.parent: job.config.input for job in reversed(jobs)}
    others = [*settings.inputs[1:], Path(settings.segment.model)]
    return [*first.values(), *(path for path in others if path.is_file())]


def expand(template: str, found: Found, index: int) -> Path:
    """A name for one input, relative to the output folder, by a template like ``{stem}{suffix}``.

    Its fields are ``{stem}``, the input's name without its ending; ``{suffix}``, its ending, or
    ``.mkv`` where bgsoft does not write that kind; ``{parent}``, its folder inside the one that was
    given, whose tree is kept where the template does not place it; ``{index}``, its number.

    Raises:
        ConfigError: The template is malformed, or leads out of the output folder.
    """
    values = {
        "stem": found.path.stem,
        "suffix": suffix_like(found.path),
        "parent": str(found.folder),
        "index": index,
    }
    try:
        fields = [each for each in string.Formatter().parse(template) if each[1] is not None]
        used = {name or "" for _, name, _, _ in fields}
        # What is filled up so far would be made in memory first.
        widths = re.findall(r"\d+", " ".join(each[2] or "" for each in fields))
        if any(int(width) > _WIDEST for width in widths):
            raise ValueError(f"a field is wider than {_WIDEST}")
        unknown = min(used - values.keys(), default=None)
        if unknown is not None:
            near = did_you_mean(unknown, values)
            raise ConfigError(f"unknown field {{{unknown}}} in the name {template!r}{near}")
        name = Path(template.format_map(values))
    except (ValueError, LookupError, AttributeError) as exc:
        raise ConfigError(f"malformed name {template!r}: {exc}") from exc
    path = name if "parent" in used else found.folder / name
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ConfigError(f"the name {template!r} leads out of the output folder")
    return path
