"""The files of a batch, and their settings."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bgsoft.batch.find import Found
from bgsoft.errors import ConfigError, ModelError, OpenError
from bgsoft.media.containers import STILL_SUFFIXES
from bgsoft.media.endpoints import EndpointKind, source_for, suffix_like
from bgsoft.models.cache import hash_file
from bgsoft.models.catalog import read_spec
from bgsoft.models.onnx_check import check_model
from bgsoft.outputs import real_path, stamp
from bgsoft.records import dataclass
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.request import Request
from bgsoft.settings.config import EffectKind, RenderConfig
from bgsoft.settings.options import SECTIONS, TOP
from bgsoft.settings.presets import Layer, Preset, load_preset
from bgsoft.settings.regions_file import REGIONS_SUFFIX
from bgsoft.suggestions import did_you_mean

_WIDEST = 255
"""Maximum width of a field in a name; file names cannot be longer."""
_NEXT_TO_OUTPUT = ("matte_out", "face_data", "trace")
"""Settings that name a file next to the output; here they are templates."""
_NO_PART_OF_THE_RESULT = {
    *("input", "output", "preset", "overwrite", "skip_existing", "report", "trace", "receipt"),
    *("backends", "chunks", "preset_file", "config_file", "left_out"),
}
"""Settings that do not change the result, such as backends and the name of the preset."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A file to render."""

    config: RenderConfig
    number: int
    """Number of the file, from 1, in the order in which files were first found."""

    @property
    def files(self) -> list[Path]:
        """Files that the render writes, the output first."""
        return [*self.config.videos, *filter(None, (self.config.face_data, self.config.trace))]

    @property
    def mattes(self) -> set[Path]:
        """Files with its matte, other than the input, with symbolic links followed."""
        matte = self.config.segment.matte_in
        files: Sequence[Path] = ()
        with suppress(OpenError):  # the render reports that there are none
            files = () if matte is None else source_for(Path(matte)).files
        return set(map(real_path, files)) - {real_path(self.config.input)}

    def made_from(self, folder: Path) -> dict[str, str]:
        """Return all that the result depends on: files that are read, and settings.

        Files are given by their current stamp or hash. Settings with their default value are left
        out, so that new settings of a later version change nothing. ``backends``, ``chunks`` and
        the version are left out, too. Written files are given by their name inside ``folder``.
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
            found["segment.matte_in"] = source_for(Path(config.segment.matte_in)).stamp()
        if config.detector.file is not None:
            found["detector.file"] = _model_identity(config.detector.file)
        for key, file in (("regions.file", config.regions.file), ("face.file", config.face.file)):
            if file is not None:
                found[key] = _hashed(Path(file))
        return {key: str(value) for key, value in found.items()}


def _model_identity(name: str) -> str:
    """Return the checksum of a model in the catalogue, or hashes of a file; empty if missing."""
    try:
        spec = read_spec(name)
    except ConfigError:
        return ""
    if spec.checksum is not None:
        return str(spec.checksum)
    path = Path(name)
    weights: list[Path] = []
    with suppress(ModelError):  # such a model cannot be loaded
        weights = _weights(path, stamp(path))
    return f"{' '.join(map(_hashed, [path, *weights]))} {spec}".strip()


@functools.lru_cache(maxsize=8)
def _weights(path: Path, _stamp: str) -> list[Path]:
    """Return the files with weights next to a model."""
    return check_model(path)


def _hashed(path: Path) -> str:
    """Return the SHA-256 of a file that most jobs share; empty if it cannot be read."""
    return _hash(path, stamp(path)) if path.is_file() else ""  # a pipe would block


@functools.lru_cache(maxsize=8)
def _hash(path: Path, _stamp: str) -> str:
    try:
        return hash_file(path)
    except ModelError:
        return ""


class JobFactory:
    """Maker of jobs for files that were found.

    ``name`` and those ``flags`` that name a file next to the output are templates (:func:`expand`).

    Raises:
        ConfigError: A setting is wrong.
        UnsupportedFormatError: The suffix of ``name`` is not that of a format bgsoft writes.
    """

    def __init__(self, folder: Path, *, name: str, preset: str | Preset, flags: Layer) -> None:
        self._folder = folder
        self._name = name
        self._preset = preset if isinstance(preset, Preset) else load_preset(preset)
        top = dict(flags.get(TOP, {}))
        self._templates = {key: str(top.pop(key)) for key in _NEXT_TO_OUTPUT if key in top}
        for key, template in self._templates.items():
            if template == "-":
                flag = key.replace("_", "-")
                raise ConfigError(
                    f"cannot write --{flag} to stdout: a batch has several files; name a file"
                )
        self._flags = {**flags, TOP: top}
        self.numbers: dict[Path, int] = {}
        """Numbers of inputs from earlier runs."""
        self.own: set[Path] = set()
        """Files made by the batch, with symbolic links followed.

        They are inputs only if the command names them."""
        self._taken: dict[Path, Path] = {}
        """Written file, with symbolic links followed → its input."""
        self._mattes: set[Path] = set()
        """Mattes of all jobs, with symbolic links followed."""
        self._inputs: dict[Path, Path] = {}
        """Path with symbolic links followed → input."""
        # A setting that is wrong for every file is reported before the first.
        self.settings = self._config(Found(Path("in.mp4"), Path()), 1, None, has_regions=True)
        """Settings that every file has."""

    def plan(self, found: Iterable[Found]) -> list[BatchJob]:
        """Return the jobs for these files, without outputs and mattes of other jobs.

        Raises:
            ConfigError: Two outputs have the same name, an output replaces an input, or a setting
                is wrong.
        """
        left = {
            each: self._companion(each.path)
            for each in found
            if (path := real_path(each.path)) not in self._taken
            and (each.is_named or path not in self.own)
        }
        earlier = dict(self.numbers)
        jobs = self._jobs(left)
        self._mattes = self._mattes.union(*(job.mattes for job in jobs))
        others = {one: left[one] for one in left if real_path(one.path) not in self._mattes}
        if len(others) < len(left):  # mattes need no numbers
            self.numbers = earlier
            jobs = self._jobs(others)
        inputs = {real_path(job.config.input): job.config.input for job in jobs}
        written = {real_path(path): job for job in jobs for path in job.files}
        if self.settings.overwrite:
            known = {**self._inputs, **inputs}
            for path in sorted(known.keys() & written.keys() - self.own):
                source = written[path].config.input
                raise ConfigError(
                    f"cannot render {source}: its output would replace the input {known[path]};"
                    " change names with --name, or leave files out with --exclude"
                )
        jobs = [job for job in jobs if real_path(job.config.input) not in written]
        self._inputs |= inputs
        for job in jobs:
            self._check_names(job)
        return jobs

    def plan_each(
        self, find: Callable[[], Iterable[Found]], on_notice: Callable[[str], None]
    ) -> list[BatchJob]:
        """Return the jobs for files found now; report and leave out a file with an error."""
        jobs = []
        for found in find():
            try:
                jobs += self.plan([found])
            except ConfigError as exc:
                on_notice(f"{found.path}: left out: {exc}")
        return jobs

    def _companion(self, path: Path) -> Path | None:
        """Return the regions file next to a video, which may be unreadable; None: there is none."""
        companion = path.with_name(path.stem + REGIONS_SUFFIX)
        if "file" in self._flags.get("regions", {}) or not os.path.lexists(companion):
            return None
        named = self._preset.settings.get("regions", {}).get("file")
        if named is not None and real_path(Path(named)) != real_path(companion):
            text = f"the settings name {named}; choose one with --regions"
            raise ConfigError(f"cannot use {companion}: {text}")
        return companion

    def _jobs(self, companions: Mapping[Found, Path | None]) -> list[BatchJob]:
        has_regions = any(companions.values())
        return [self._job(each, own, has_regions=has_regions) for each, own in companions.items()]

    def _job(self, found: Found, companion: Path | None, *, has_regions: bool) -> BatchJob:
        path = found.path.absolute()
        number = self.numbers.setdefault(path, 1 + max(self.numbers.values(), default=0))
        config = self._config(found, number, companion, has_regions=has_regions)
        try:
            same = found.path.samefile(config.output)
        except OSError as exc:
            if exc.errno == errno.ENAMETOOLONG:
                raise ConfigError(
                    f"cannot write {config.output}: {exc.strerror}; choose shorter names by --name"
                ) from exc
            same = False
        if same:
            raise ConfigError(
                f"cannot write {config.output}: it would replace its input; choose another folder,"
                " or other names (--name '{stem}-soft{suffix}')"
            )
        return BatchJob(config, number)

    def _config(
        self, found: Found, number: int, companion: Path | None, *, has_regions: bool
    ) -> RenderConfig:
        """Return the settings of a file.

        With ``has_regions``, files of the batch may have regions files, in which something is
        hidden: settings for that are no error.
        """
        files = {
            key: self._folder / expand(template, found, number)
            for key, template in self._templates.items()
        }
        flags: dict[str, Any] = {**self._flags, TOP: {**self._flags[TOP], **files}}
        if suffix_like(found.path).lower() in STILL_SUFFIXES:
            # Flags for the sound of videos are no error for the pictures among them.
            copied = flags.get("copy", {})
            flags["copy"] = {k: v for k, v in copied.items() if k not in ("audio", "mute")}
        if companion is not None:
            flags["regions"] = {**flags.get("regions", {}), "file": str(companion)}
        output = self._folder / expand(self._name, found, number)
        unchecked = ("nothing hidden",) if has_regions else ()
        config = build_config(
            found.path, output, preset=self._preset, flags=flags, unchecked=unchecked
        )
        matte = config.segment.matte_in
        if matte is not None and "{" in matte:
            path = found.path.parent / expand(
                matte, dataclasses.replace(found, folder=Path()), number
            )
            segment = dataclasses.replace(config.segment, matte_in=str(path))
            config = dataclasses.replace(config, segment=segment)
        for destination in (each.destination for each in Request(config).outputs):
            if destination.container.still and destination.kind is EndpointKind.SEQUENCE:
                text = (
                    f"cannot write {destination.path}: a batch cannot write sequences of pictures"
                )
                raise ConfigError(text)
        return config

    def _check_names(self, job: BatchJob) -> None:
        source = job.config.input
        for path in job.files:
            other = self._taken.setdefault(real_path(path), source)
            if other != source:
                next_to = [key for key in _NEXT_TO_OUTPUT if getattr(job.config, key) == path]
                flag = (*next_to, "name")[0].replace("_", "-")
                raise ConfigError(
                    f"cannot render {source}: its output {path} is also that of {other}; change"
                    f" names with --{flag}, by {{stem}}, {{suffix}}, {{parent}} or {{index}}"
                )


def shared_inputs(settings: RenderConfig, jobs: Sequence[BatchJob]) -> list[Path]:
    """Return files that show whether a machine can read all inputs of some jobs.

    They are the first file of each input folder, the background, and a model that is a file.
    """
    first = {job.config.input.parent: job.config.input for job in reversed(jobs)}
    others = [*settings.inputs[1:], Path(settings.segment.model)]
    return [*first.values(), *(path for path in others if path.is_file())]


def expand(template: str, found: Found, index: int) -> Path:
    """Return a file's name in the output folder, by a template like ``{stem}{suffix}``.

    Fields are ``{stem}``, the input's name without suffix; ``{suffix}``, by
    :func:`bgsoft.media.endpoints.suffix_like`; ``{parent}``, its folder inside the given one;
    ``{index}``, its number. A template without ``{parent}`` keeps the tree of folders.

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
        # A wide field would be made in memory first.
        widths = re.findall(r"\d+", " ".join(each[2] or "" for each in fields))
        if any(int(width) > _WIDEST for width in widths):
            raise ValueError(f"a field must be at most {_WIDEST} wide")
        unknown = min(used - values.keys(), default=None)
        if unknown is not None:
            near = did_you_mean(unknown, values)
            raise ConfigError(f"cannot use name {template!r}: unknown field {{{unknown}}}{near}")
        name = Path(template.format_map(values))
    except (ValueError, LookupError, AttributeError) as exc:
        raise ConfigError(f"cannot use name {template!r}: it is malformed: {exc}") from exc
    path = name if "parent" in used else found.folder / name
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ConfigError(f"cannot use name {template!r}: it leads out of the output folder")
    return path
