"""Models: their files, inputs and outputs.

A model is either a table of ``catalog.toml``, next to this module, or a user's ``FILE.onnx`` with a
sidecar ``FILE.toml``, whose keys are those of one table.
"""

from __future__ import annotations

import functools
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, field, replace
from pathlib import Path
from typing import Any

from bgsoft.errors import (
    BackendUnavailableError,
    ConfigError,
    ModelError,
    ModelIntegrityError,
    errors_as,
    os_errors_as,
)
from bgsoft.models import cache
from bgsoft.models.boxes import BOX_KEYS, BOXES, BoxContract, read_boxes
from bgsoft.models.families import FAMILIES, SEGMENTATION_FAMILIES, Family
from bgsoft.models.onnx_check import MAX_SAMPLES, check_model
from bgsoft.models.onnx_file import read_signature
from bgsoft.records import NamedTuple, dataclass
from bgsoft.settings.config import Precision
from bgsoft.settings.setting import is_model_file
from bgsoft.suggestions import did_you_mean
from bgsoft.untrusted import check_regular, read_toml

_CATALOG = Path(__file__).with_name("catalog.toml")
EMBEDDED = Path(__file__).with_name("data")

_LARGEST_NUMBER = 1e30
_AXES = 4
_LARGE_PIXELS = 512 * 512
_SIDECAR_KEYS = (
    'family = "single-shot", [input] width, height (and name, layout, color, divide_by, mean, '
    'std), [[outputs]] (name, channel, activation, stretch); or family = "recurrent"'
)
_DETECTOR_KEYS = 'family = "boxes", [input] width, height, and [boxes] layout, classes'


class ModelFile(NamedTuple):
    """Another file of an embedded model, in addition to its main one."""

    name: str
    bytes: int
    sha256: str
    """Hexadecimal."""

    def check(self, path: Path) -> None:
        """Check the file, with the errors of :func:`bgsoft.models.cache.check_file`."""
        cache.check_file(path, size_bytes=self.bytes, checksum=cache.Checksum(self.sha256))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model: its file, and the contract of its main input and output."""

    name: str
    """Name in the catalogue, or the stem of the user's file."""
    description: str = ""
    family: str
    """One of :data:`bgsoft.models.families.FAMILIES`."""
    file: str
    """File name: under ``models/data`` when embedded, in the model cache when pulled."""
    url: str | None = None
    """None for embedded models and users' files."""
    bytes: int | None = None
    """File size; None: unknown."""
    checksum: cache.Checksum | None = None
    """Hash of the file; None for users' files."""
    fp16: ModelFile | None = None
    """The same model in half precision."""
    gpu: ModelFile | None = None
    """The same model in operators that are fast on GPUs."""
    cuda: ModelFile | None = None
    """The same model in operators of the CUDA provider, which replays them quickly."""
    licence: str = "unknown"
    """SPDX identifier of the weights' licence."""
    source: str = ""
    """Origin of the weights."""
    input: str = ""
    """Name of the image input; empty: the file's first."""
    batch: int = 0
    """Frames of a run, where the file fixes them; 0: any number."""
    layout: str = "NCHW"
    """``NCHW`` or ``NHWC``."""
    color_order: str = "rgb"
    """``rgb`` or ``bgr``."""
    width: int = 0
    height: int = 0
    """Input size in pixels; 0: any size."""
    frame_size: tuple[int, int] = field(default=(0, 0), repr=False)
    """Models that take the frame: its width and height, where the file fixes them."""
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Deviation by channel in ``color_order``: the model takes (value / divisor − mean) / std."""
    divide_by: str = "255"
    """The divisor: ``255``, or ``maximum``, the picture's own largest value."""
    output: str = ""
    """Name of the main output, the mask where the model makes one; empty: the file's first."""
    output_channel: int = 0
    """Channel of the person."""
    activation: str = "none"
    """Function from the output to a probability: ``none``, ``sigmoid`` or ``softmax``."""
    stretch: str = "none"
    """``min-max``: the probabilities of each frame are stretched to 0–1."""
    loops: tuple[tuple[str, str], ...] = ()
    """Recurrent models: output, and the input that takes it on the next frame."""
    ratio_input: str = ""
    """Recurrent models: input for the factor by which they reduce the frame."""
    boxes: BoxContract | None = None
    """Detectors: the meaning of their output."""

    @property
    def of_family(self) -> Family:
        """Properties of the family."""
        return FAMILIES[self.family]

    @property
    def embedded(self) -> bool:
        """True if the file comes with bgsoft."""
        return self.url is None and self.checksum is not None

    @property
    def large(self) -> bool:
        """True if one frame takes all cores, and too much memory to run in parallel to others.

        At 1024×1024 a frame takes IS-Net 0.9 GB on the CPU.
        """
        return self.width * self.height >= _LARGE_PIXELS

    def input_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the image input, with the file's own batch where it fixes one."""
        picture = (self.of_family.channels, self.height, self.width)
        if self.layout == "NHWC":
            picture = (*picture[1:], picture[0])
        return (self.batch or batch, *picture)


class ResolvedModel(NamedTuple):
    """A model whose file exists and has been verified."""

    spec: ModelSpec
    path: Path
    sha256: str
    """Hash of the file, or of all hashes where other files hold weights."""

    def for_provider(
        self, backend: str, precision: Precision, *, replays: bool = True
    ) -> ResolvedModel:
        """Return the file to load for a provider and a precision.

        Args:
            backend: The provider.
            precision: Precision of weights and results.
            replays: Runs are replayed as a CUDA graph. Otherwise the CUDA provider's own operators
                are slower: the host takes three times as long to launch them.

        Raises:
            BackendUnavailableError: This provider lacks this precision of the model.
            ModelIntegrityError: The file differs from the catalogue's.
        """
        spec = self.spec
        if backend == "cpu":
            if precision is Precision.FP32:
                return self
            raise BackendUnavailableError(
                f"cannot use --precision {precision}: the CPU runs only fp32; it needs a GPU"
            )
        if precision is Precision.FP32 or backend == "tensorrt":
            further = (spec.cuda if backend == "cuda" and replays else None) or spec.gpu
        elif spec.fp16 is None:
            raise BackendUnavailableError(
                f"cannot use fp16 with {spec.name}: it has no such file; use TensorRT, which makes"
                " its own"
            )
        else:
            further = spec.fp16
        if further is None:
            return self
        path = self.path.with_name(further.name)
        further.check(path)
        return self._replace(path=path, sha256=further.sha256)


@functools.cache
def catalog() -> Mapping[str, ModelSpec]:
    """Return the models of the catalogue, in its order.

    Raises:
        ModelError: The catalogue is damaged.
    """
    problem = "cannot read the model catalogue"
    with errors_as((OSError, ValueError), ModelError, problem, reason=str, path=_CATALOG):
        tables = read_toml(_CATALOG)
    return {
        name: replace(
            _parse(name, table, "the model catalogue"),
            url=table.get("url"),
            bytes=table.get("bytes"),
            checksum=cache.Checksum(
                *((table["sha256"],) if "sha256" in table else (table["md5"], "md5"))
            ),
            fp16=_further(table, "fp16"),
            gpu=_further(table, "gpu"),
            cuda=_further(table, "cuda"),
        )
        for name, table in tables.items()
    }


def _further(table: Mapping[str, Any], kind: str) -> ModelFile | None:
    if f"{kind}_file" not in table:
        return None
    return ModelFile(*(table[f"{kind}_{key}"] for key in ("file", "bytes", "sha256")))


def find_spec(name: str, families: Collection[str] = ()) -> ModelSpec:
    """Find a model by its catalogue name, or raise ConfigError.

    The error suggests models of the given families; without any, of all.
    """
    models = catalog()
    if name not in models:
        offered = [each for each in models if not families or models[each].family in families]
        raise ConfigError(f"unknown model {name!r}{did_you_mean(name, offered)}")
    return models[name]


def read_spec(name_or_path: str, families: Collection[str] = SEGMENTATION_FAMILIES) -> ModelSpec:
    """Return the contract of a model, whose file may be missing; errors suggest ``families``.

    Raises:
        ConfigError: There is no such model or file, or the sidecar is malformed.
    """
    if is_model_file(name_or_path):
        return _read_sidecar(Path(name_or_path), families)
    return find_spec(name_or_path, families)


def spec_path(spec: ModelSpec) -> Path:
    """Return the path of a catalogue model, which may be missing."""
    return EMBEDDED / spec.file if spec.embedded else cache.cache_folder() / spec.file


def is_present(spec: ModelSpec) -> bool:
    """Return whether the file of a catalogue model exists.

    Raises:
        ModelError: The system does not say.
    """
    path = spec_path(spec)
    with os_errors_as(ModelError, f"cannot read {path}", path=path):
        try:
            return stat.S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def check_files(spec: ModelSpec) -> None:
    """Check all files of a catalogue model, those for GPUs included, by size and hash.

    Raises:
        ModelError: A file cannot be read.
        ModelIntegrityError: A file differs from the catalogue's.
    """
    path = spec_path(spec)
    if spec.checksum is not None:
        cache.check_file(path, size_bytes=spec.bytes, checksum=spec.checksum)
    for further in filter(None, (spec.fp16, spec.gpu, spec.cuda)):
        further.check(path.with_name(further.name))


def resolve(name_or_path: str, families: tuple[str, ...] | None = None) -> ResolvedModel:
    """Find a model and verify its file.

    Raises:
        ConfigError: There is no such model or file, it is of another family, or its sidecar is
            malformed.
        ModelError: The model has not been pulled yet, or its file cannot be read.
        ModelIntegrityError: The file differs from the catalogue's.
    """
    families = families or SEGMENTATION_FAMILIES
    spec = read_spec(name_or_path, families)
    path = Path(name_or_path) if is_model_file(name_or_path) else spec_path(spec)
    if spec.family not in families:
        raise ConfigError(
            f"cannot use model {spec.name}: it is of family {spec.family}; choose one of "
            f"{' or '.join(families)}"
        )
    if spec.checksum is not None:
        if not is_present(spec):
            if spec.embedded:
                raise ModelIntegrityError(
                    f"cannot use {path}: it is missing; reinstall bgsoft", path=path
                )
            raise ModelError(
                f"cannot use model {spec.name}: it is not downloaded; run bgsoft models pull "
                f"{spec.name}"
            )
        cache.check_file(path, size_bytes=spec.bytes, checksum=spec.checksum)
    known = spec.checksum
    if known is not None and known.algorithm == "sha256":
        sha256 = known.value
    else:
        sha256 = cache.hash_files([path, *(check_model(path) if known is None else ())])
    return ResolvedModel(spec=_completed(spec, path), path=path, sha256=sha256)


def _completed(spec: ModelSpec, path: Path) -> ModelSpec:
    """Complete the contract by the file: names that were left out, and its batch."""
    if spec.embedded:  # the catalogue is complete, and only the batch is free
        return spec
    found = read_signature(path)
    spec = replace(
        spec, input=spec.input or next(iter(found.inputs)), output=spec.output or found.outputs[0]
    )
    shape = found.inputs.get(spec.input, ())
    if not spec.of_family.in_order:
        spec = replace(spec, batch=shape[0] if shape else 0)
    if spec.of_family.takes_frame and len(shape) == _AXES:  # of any size, or of the file's
        rows, columns = shape[2:] if spec.layout == "NCHW" else shape[1:3]
        spec = replace(spec, frame_size=(columns, rows))
    wanted = spec.input_shape(1)
    axes = zip(shape[1:], wanted[1:], strict=False)
    if len(shape) not in (0, len(wanted)) or any(
        axis and size and axis != size for axis, size in axes
    ):
        taken = "x".join(str(axis or "?") for axis in shape)
        given = "x".join(str(axis or "?") for axis in wanted[1:])
        raise ModelError(
            f"cannot use {path.name}: its input is {taken}, not batches of {given}", path=path
        )
    return spec


def _read_sidecar(path: Path, families: Collection[str]) -> ModelSpec:
    """Read the contract of a user's ONNX file from its sidecar."""
    check_regular(path, ConfigError, f"cannot read model {path}")
    sidecar = path.with_suffix(".toml")
    if not sidecar.is_file():
        raise ConfigError(
            f"cannot use {path.name}: it needs {sidecar.name} in the same folder, with "
            f"{_DETECTOR_KEYS if BOXES in families else _SIDECAR_KEYS}",
            path=sidecar,
        )
    with errors_as((OSError, ValueError), ConfigError, str(sidecar), reason=str, path=sidecar):
        table = read_toml(sidecar)
    spec = _parse(path.stem, {**table, "file": path.name}, str(sidecar))
    _check_keys(table, sidecar)
    _check_effects(table, spec, sidecar)
    for key in ("state", "downsample_ratio"):
        if key in table and not spec.of_family.in_order:
            raise ConfigError(
                f'cannot use {sidecar}: [{key}] has no effect; it needs family = "recurrent"',
                path=sidecar,
            )
    if not spec.of_family.takes_frame and not 0 < 3 * spec.width * spec.height <= MAX_SAMPLES:
        text = "needs width and height" if not spec.width * spec.height else "is too large"
        raise ConfigError(f"cannot use {sidecar}: [input] {text}", path=sidecar)
    return spec


def _check_keys(table: Mapping[str, Any], sidecar: Path) -> None:
    """Raise ConfigError if a sidecar, which has been read, has unknown keys."""
    places: dict[str, set[str]] = {
        "": {"input", "outputs", "state", "downsample_ratio", BOXES},
        "state": {"inputs", "outputs"},
        BOXES: {*BOX_KEYS},
    }
    for key in _KEYS.values():
        places.setdefault(key.section, set()).add(key.name)
    sections = [("", table), *((name, table.get(name, {})) for name in ("input", "state"))]
    sections += [(name, table.get(name, {})) for name in ("downsample_ratio", BOXES)]
    sections += [("output", output) for output in table.get("outputs", ())]
    for name, values in sections:
        for key in values:
            if key not in places[name] and not _NOT_READ.fullmatch(key):
                near = did_you_mean(key, places[name])
                raise ConfigError(f"cannot use {sidecar}: unknown key {key!r}{near}", path=sidecar)


def _check_effects(table: Mapping[str, Any], spec: ModelSpec, sidecar: Path) -> None:
    """Raise ConfigError if a sidecar has keys without effect."""
    outputs = table.get("outputs", [])
    sections = [("", table), *((name, table.get(name, {})) for name in ("input", "state"))]
    unread = [
        (key, f"[{name}]" if name else "a sidecar")
        for name, values in [*sections, *(("outputs", output) for output in outputs)]
        for key in values
        if _NOT_READ.fullmatch(key)
    ]
    if spec.of_family.takes_frame:
        fixed = {"width", "height"} & {*table.get("input", {})}
        text = f"[input]: {spec.family} models take frames of any size"
        unread += [(key, text) for key in fixed]
    if spec.family == BOXES:
        keys = {key for output in outputs for key in output} - {"name"}
        unread += [(key, '[[outputs]] of family = "boxes"') for key in keys]
    mask = _mask_output(outputs) if outputs else None
    others = (output for output in outputs if output is not mask)
    unread += [
        (key, "[[outputs]]: the mask is another output")
        for output in others
        for key in output
        if key != "name"
    ]
    if unread:
        key, where = min(unread)
        raise ConfigError(
            f"cannot use {sidecar}: {key} has no effect in {where}; leave it out", path=sidecar
        )


def _mask_output(outputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the output with a channel for the person; else the first."""
    return next((output for output in outputs if "channel" in output), outputs[0])


def _parse(name: str, table: Mapping[str, Any], where: str) -> ModelSpec:
    """Parse a table of the catalogue, or a sidecar; raises ConfigError naming ``where``."""
    family = FAMILIES.get(str(table.get("family")), Family())
    table = {**family.defaults, **table}
    image = table.get("input", {} if family.takes_frame else None)
    outputs = table.get("outputs", [{}])
    if (
        not isinstance(image, Mapping)
        or not (isinstance(outputs, list) and outputs)
        or not all(isinstance(output, Mapping) for output in outputs)
    ):
        keys = _DETECTOR_KEYS if table.get("family") == BOXES else _SIDECAR_KEYS
        raise ConfigError(f"cannot use {where}: model {name} needs {keys}")
    output = _mask_output(outputs)
    ratio = table.get("downsample_ratio", {})
    sections = {"": table, "input": image, "output": output, "downsample_ratio": ratio}
    try:
        if not isinstance(ratio, Mapping):
            raise ConfigError(f"downsample_ratio must be a table, not {ratio!r}")
        values = {
            field: _read(sections[key.section], key, ModelSpec.__dataclass_fields__[field].default)
            for field, key in _KEYS.items()
        }
        if any(
            (1 + abs(mean)) / abs(std) > _LARGEST_NUMBER
            for mean, std in zip(values["mean"], values["std"], strict=True)
        ):
            raise ConfigError(
                f"std must be larger, not {list(values['std'])}: values become too large"
            )
        loops = _read_loops(table.get("state", {}))
        boxes = read_boxes(table.get(BOXES), values["family"])
    except ConfigError as exc:
        raise ConfigError(f"cannot use {where}: model {name}: {exc}") from None
    values["color_order"] = values["color_order"].lower()
    return ModelSpec(name=name, loops=loops, boxes=boxes, **values)


class _Key(NamedTuple):
    """Place of a value in a model's table; its type is that of the field's default."""

    section: str
    name: str
    choices: Collection[str] = ()


_KEYS: Mapping[str, _Key] = {
    "description": _Key("", "description"),
    "family": _Key("", "family", FAMILIES),
    "file": _Key("", "file"),
    "licence": _Key("", "licence"),
    "source": _Key("", "source"),
    "input": _Key("input", "name"),
    "layout": _Key("input", "layout", ("NCHW", "NHWC")),
    "color_order": _Key("input", "color", ("RGB", "BGR")),
    "width": _Key("input", "width"),
    "height": _Key("input", "height"),
    "mean": _Key("input", "mean"),
    "std": _Key("input", "std"),
    "divide_by": _Key("input", "divide_by", ("255", "maximum")),
    "output": _Key("output", "name"),
    "output_channel": _Key("output", "channel"),
    "activation": _Key("output", "activation", ("none", "sigmoid", "softmax")),
    "stretch": _Key("output", "stretch", ("none", "min-max")),
    "ratio_input": _Key("downsample_ratio", "name"),
}
"""Keys by field of :class:`ModelSpec`."""
_NOT_READ = re.compile(r"url|md5|values|shape|(\w+_)?(file|bytes|sha256)")
"""Keys that only tables of the catalogue use."""


def _read(table: Mapping[str, Any], key: _Key, default: Any) -> Any:
    """Return a value of a table, or its field's default."""
    if key.name not in table and default is not MISSING:
        return default
    value = table.get(key.name)
    if isinstance(default, tuple):
        numbers = value if isinstance(value, list) else []
        real = all(type(n) in (int, float) and abs(n) <= _LARGEST_NUMBER for n in numbers)
        if len(numbers) != 3 or not real or (key.name == "std" and 0 in numbers):
            which = ", none of them 0" if key.name == "std" else ""
            raise ConfigError(f"{key.name} must be three numbers{which}, not {value!r}")
        return tuple(map(float, numbers))
    if isinstance(default, int):
        if type(value) is not int or value < 0:
            raise ConfigError(f"{key.name} must be a whole number from 0, not {value!r}")
    elif not isinstance(value, str):
        raise ConfigError(f"{key.name} must be a text, not {value!r}")
    elif key.choices and value not in key.choices:
        offered = (*SEGMENTATION_FAMILIES, BOXES) if key.name == "family" else key.choices
        near = did_you_mean(value, offered)
        raise ConfigError(f"unknown {key.name} {value!r}{near}")
    return value


def _read_loops(table: Any) -> tuple[tuple[str, str], ...]:
    """Return pairs of state output and state input."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"state must be a table, not {table!r}")
    made, taken = (table.get(key, []) for key in ("outputs", "inputs"))
    if not all(isinstance(names, list) for names in (made, taken)) or len(made) != len(taken):
        raise ConfigError("[state] has different numbers of inputs and outputs")
    return tuple((str(one), str(other)) for one, other in zip(made, taken, strict=True))
