"""Settings of a render: defaults, ranges, choices, flags and help, each declared once.

The command line, preset files and :func:`bgsoft.render` are made from these fields. A new setting
is one line here; ``scripts/make_keywords.py`` then updates the keywords for editors. The classes
validate themselves: a ConfigError names the setting as the command line spells it.
"""

from __future__ import annotations

import math
from dataclasses import field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.settings.backends import BackendConfig as BackendConfig
from bgsoft.settings.backends import CompositeBackend as CompositeBackend
from bgsoft.settings.backends import DecodeBackend as DecodeBackend
from bgsoft.settings.backends import EncodeBackend as EncodeBackend
from bgsoft.settings.backends import InferBackend as InferBackend
from bgsoft.settings.backends import Precision as Precision
from bgsoft.settings.copied import Audio as Audio
from bgsoft.settings.copied import CopyConfig as CopyConfig
from bgsoft.settings.copied import Metadata as Metadata
from bgsoft.settings.detector import DetectorConfig as DetectorConfig
from bgsoft.settings.encode import Chroma as Chroma
from bgsoft.settings.encode import Codec as Codec
from bgsoft.settings.encode import EncodeConfig as EncodeConfig
from bgsoft.settings.formats import OutputFormat as OutputFormat
from bgsoft.settings.hide import HideConfig as HideConfig
from bgsoft.settings.hide import HideShape as HideShape
from bgsoft.settings.hide import HideStyle as HideStyle
from bgsoft.settings.main import MainPlace, parse_main
from bgsoft.settings.regions import Region as Region
from bgsoft.settings.regions import RegionAction, parse_region
from bgsoft.settings.regions import RegionConfig as RegionConfig
from bgsoft.settings.setting import check_ranges, setting
from bgsoft.suggestions import network_address

T = TypeVar("T")


class EffectKind(StrEnum):
    """Effect on the background."""

    BLUR = "blur"
    BOKEH = "bokeh"
    PIXELATE = "pixelate"
    DIM = "dim"
    COLOR = "color"
    IMAGE = "image"
    VIDEO = "video"
    ALPHA = "alpha"
    """Transparent. Colour is black under alpha 0, and the foreground's own next to its edge."""
    MATTE = "matte"


REPLACING = (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO, EffectKind.ALPHA)
"""Effects that remove the old background entirely. The others are computed from it."""


class Refine(StrEnum):
    NONE = "none"
    GUIDED = "guided"


class MatteStyle(StrEnum):
    """Chain of filters from the mask to the matte."""

    SOFT = "soft"
    """Soft alpha throughout; bgsoft's own chain."""
    OBS = "obs"
    """The binary mask of the OBS background-removal filter, including its faults."""


class MatteQuality(StrEnum):
    """Quality of the segmentation by the embedded models."""

    FAST = "fast"
    """One model, one pass a frame."""
    STANDARD = "standard"
    """Two models on every fourth frame; a close pass covers the people on every frame."""
    BEST = "best"
    """As standard, plus close passes of faces and a refining network; a matting model is averaged
    with the result."""


class MatteMode(StrEnum):
    """Use of a matte from a file."""

    REPLACE = "replace"
    """Instead of our own."""
    MAX = "max"
    """It adds to our own."""
    MIN = "min"
    """It takes away from our own."""


class MatteMatch(StrEnum):
    """Choice of the matte of a file that belongs to a frame."""

    FRAME = "frame"
    """The one of the same number; there must be as many mattes as frames."""
    TIME = "time"
    """The one shown at the same time."""


class FaceMode(StrEnum):
    """Treatment of faces."""

    OFF = "off"
    GUARD = "guard"
    """Fill in a face that the mask missed, inside its outline."""
    MAIN = "main"
    """Keep only the main people sharp; their faces are guarded."""
    ANONYMIZE = "anonymize"
    """Make faces unrecognisable, except those of the main people."""


LOOKAHEAD_FRAMES = 8
"""Frames whose faces are known beyond the one whose faces are hidden."""

LENGTH_EFFECTS = frozenset({EffectKind.BLUR, EffectKind.BOKEH, EffectKind.PIXELATE})
"""Effects whose strength is a length, in percent of the frame height."""

_MAX_LENGTH_PCT = 25.0
DEFAULT_STRENGTH_PCT = {
    EffectKind.BLUR: 2.5,
    EffectKind.BOKEH: 2.5,
    EffectKind.PIXELATE: 3.0,
    EffectKind.DIM: 60.0,
}
_OF_HEIGHT = " % of the frame height"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectConfig:
    """Background and effect."""

    kind: EffectKind = setting(
        EffectKind.BLUR,
        "Effect on the background; alpha makes it transparent, matte writes the mask instead.",
        brief="{choices}",
        name="effect",
    )
    strength: float | None = setting(
        None,
        f"Strength. {', '.join(sorted(LENGTH_EFFECTS))}: size in percent of the frame height,"
        f" 0 to {_MAX_LENGTH_PCT:g}; dim: percent of light removed, 0 to 100.",
        brief="Strength; of blur in percent of the frame height.",
        metavar="PCT",
        shown_default=", ".join(f"{kind} {pct:g}" for kind, pct in DEFAULT_STRENGTH_PCT.items()),
        belongs_to="kind",
        without_effect=("no strength",),
    )
    """blur: standard deviation, bokeh: disc radius, pixelate: block edge."""
    background: str | None = setting(
        None,
        "Picture, video (looped), or colour such as '#00b140' or green, to put behind people."
        " It also chooses the effect, unless --effect does.",
        brief="Picture, video or colour to put behind people.",
        metavar="FILE|COLOR",
        is_path=True,
        belongs_to="kind",
        without_effect=("no background",),
    )
    invert: bool = setting(
        False, "Apply the effect to people, and keep their surroundings unchanged."
    )
    highlights: float = setting(0.6, range=(0, 1))
    """bokeh: how much brighter highlights bloom than their surroundings, 0–1."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.strength is not None:
            unit = _OF_HEIGHT if self.kind in LENGTH_EFFECTS else " %"
            if not 0 <= self.strength <= self.max_strength:
                raise ConfigError(
                    f"--strength must be between 0 and {self.max_strength:g}{unit},"
                    f" not {self.strength:g}"
                )
        if self.kind in (EffectKind.IMAGE, EffectKind.VIDEO) and not self.background:
            raise ConfigError(f"cannot use --effect {self.kind}: it needs --background FILE")
        address = network_address(self.background or "")
        if address is not None:
            raise ConfigError(
                f"cannot read --background {address}: it is an address; name a local file"
            )

    @property
    def effective_strength(self) -> float:
        """``strength``, or the effect's default where it is None; 0 for effects without one."""
        if self.strength is not None and self.kind in DEFAULT_STRENGTH_PCT:
            return self.strength
        return DEFAULT_STRENGTH_PCT.get(self.kind, 0.0)

    @property
    def max_strength(self) -> float:
        """Upper limit of ``strength``: percent of the frame height, or percent."""
        return _MAX_LENGTH_PCT if self.kind in LENGTH_EFFECTS else 100.0

    def strength_px(self, height: int) -> float | None:
        """Return the strength in pixels for a frame height; None where it is not a length."""
        if self.kind not in LENGTH_EFFECTS:
            return None
        return self.effective_strength * height / 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentConfig:
    """The segmentation model, and when it runs."""

    model: str = setting(
        "selfie-general",
        "Model that finds people: a name from bgsoft models list, or your own ONNX file with a"
        " FILE.toml in the same folder.",
        metavar="NAME|FILE.onnx",
        is_path=True,
        without_effect=("matte given",),
    )
    matte: MatteQuality = setting(
        MatteQuality.STANDARD,
        "Quality of the segmentation. fast: one model, one pass a frame. standard: two models, and"
        " a close pass over the people. best: also refines edges with another network. A matting"
        " model such as rvm-mobilenetv3 runs in one pass; best averages it with all of these.",
        brief="{choices}: quality of the mask.",
        without_effect=("matte given", "single pass"),
    )
    """For the embedded models. Other models have one pass; ``best`` averages it with these."""
    mask_every: int = setting(
        1, "Segment only every Nth frame, {range}.", range=(1, 300), without_effect=("matte given",)
    )
    similarity_db: float | None = setting(
        None,
        "Reuse the last mask while frames are this similar: PSNR in dB, {range}, or off.",
        name="similarity",
        metavar="DB",
        range=(0, 100),
        unit=" dB",
        shown_default="off",
        without_effect=("matte given",),
    )
    """Measured on the analysis frame's luma, against the frame that was segmented last."""

    matte_in: str | None = setting(
        None,
        "Take the matte from a grey video, pictures, or an alpha channel, made by any tool.",
        metavar="FILE|PATTERN",
        is_path=True,
    )
    matte_mode: MatteMode = setting(
        MatteMode.REPLACE,
        "Use of --matte-in: replace our own matte, or the larger (max) or smaller (min) of both.",
        without_effect=("no matte in",),
    )
    matte_match: MatteMatch = setting(
        MatteMatch.FRAME,
        "Match --matte-in to the frames of the video by number, or by time.",
        without_effect=("no matte in",),
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def replaces_matte(self) -> bool:
        """True if no model makes the matte."""
        return self.matte_in is not None and self.matte_mode is MatteMode.REPLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceConfig:
    """Treatment and detection of faces."""

    mode: FaceMode = setting(
        FaceMode.GUARD,
        "guard: keep faces sharp that the mask missed. main: keep only the main person sharp."
        " anonymize: make other people's faces unrecognisable.",
        brief="{choices}",
        name="face",
        without_effect=("nobody seen",),
    )
    subjects: int = setting(
        1,
        "Number of main people for --face main or anonymize: the largest, most central and longest"
        " in view; 0 hides every face.",
        brief="Number of main people; 0 hides every face.",
        range=(0, 32),
        without_effect=("nobody is main", "nobody seen"),
    )
    detect_every: int | None = setting(
        None,
        "Detect faces on every Nth frame, and predict their movement in between. N is at most"
        f" {LOOKAHEAD_FRAMES} where faces are hidden.",
        name="face_every",
        range=(1, 300),
        shown_default="by time; with --face-data 1",
        without_effect=("no faces",),
    )
    main: tuple[str, ...] = setting(
        (),
        "Name a main person: a place and a time (50%,40%@0:10), or the id of a track of --faces."
        " Repeatable; replaces --subjects.",
        metavar="X,Y[@T]|ID",
        without_effect=("nobody is main", "nobody seen"),
    )
    file: str | None = setting(
        None,
        "Use exactly the faces in a file of bgsoft faces, which may be edited.",
        name="faces",
        metavar="FILE.jsonl",
        is_path=True,
        without_effect=("no faces",),
    )
    small_faces: bool = setting(
        False,
        "Also detect faces smaller than a twentieth of the frame height; anonymize always does.",
        without_effect=("no faces",),
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.subjects == 0 and self.mode is not FaceMode.ANONYMIZE:
            raise ConfigError(
                f"cannot use --subjects 0 with --face {self.mode}: it needs --face anonymize"
            )
        if self.mode is FaceMode.ANONYMIZE and (self.detect_every or 0) > LOOKAHEAD_FRAMES:
            raise ConfigError(
                f"cannot use --face-every {self.detect_every} with --face anonymize: faces may stay"
                f" visible in between; use at most {LOOKAHEAD_FRAMES}"
            )
        if self.main and self.subjects != FaceConfig.__dataclass_fields__["subjects"].default:
            raise ConfigError("cannot combine --main and --subjects: choose one")
        for text in self.main:
            if isinstance(parse_main(text), int) and self.file is None:
                raise ConfigError(
                    f"cannot use --main {text}: the id of a track needs --faces; or name a place,"
                    " like 50%,40%"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatteConfig:
    """Steps from the model's mask to the matte."""

    style: MatteStyle = MatteStyle.SOFT
    threshold: float | None = setting(
        0.5,
        "Probability from which a pixel is a person; off uses the probability as opacity.",
        range=(0, 1),
        without_effect=("own matte", "matte given"),
    )
    softness: float = setting(
        0.5,
        "Width of the soft edge around the threshold; 0 is a hard edge.",
        range=(0, 1),
        without_effect=("obs", "no threshold", "own matte", "matte given"),
    )
    min_area: float = setting(
        0.002,
        "Remove islands, and uncertain holes, smaller than this fraction of the frame.",
        range=(0, 1),
        without_effect=("obs without threshold", "own matte", "matte given"),
    )
    """In style obs: contours of at most this area are dropped."""
    smooth: float = setting(
        0.5,
        "Smoothness of the outline; 0 is off.",
        range=(0, 1),
        without_effect=("obs without threshold", "own matte", "matte given"),
    )
    expand_pct: float = setting(
        0.0,
        "Move the edge outwards, or inwards if negative, in percent of the frame height, {range}.",
        name="expand",
        metavar="PCT",
        range=(-5, 5),
        unit=_OF_HEIGHT,
        without_effect=("obs without threshold",),
    )
    feather_pct: float = setting(
        0.0,
        "Width of an extra soft rim outside the person, or on both sides with preset obs, in"
        " percent of the frame height, {range}.",
        name="feather",
        metavar="PCT",
        range=(0, 10),
        unit=_OF_HEIGHT,
        without_effect=("obs without threshold",),
    )
    temporal: float = setting(
        0.7,
        "Steadiness of the edge over time; 0 is off, 1 is strongest.",
        range=(0, 1),
        without_effect=("own matte", "matte given"),
    )
    """OBS's own factor is 1 minus this."""
    refine: Refine = setting(
        Refine.GUIDED,
        "guided: fit the edge to the picture. none: keep the edge of the mask.",
        without_effect=("obs", "own matte", "matte given"),
    )

    def __post_init__(self) -> None:
        check_ranges(self)


def _section(kind: type[T], panel: str) -> T:
    """Declare a section of the settings, with its flags' title in the help."""
    return field(default_factory=kind, metadata={"panel": panel})


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderConfig:
    """All settings of one render."""

    input: Path
    output: Path
    effect: EffectConfig = _section(EffectConfig, "Look")
    segment: SegmentConfig = _section(SegmentConfig, "Model")
    face: FaceConfig = _section(FaceConfig, "Faces")
    hide: HideConfig = _section(HideConfig, "Faces")
    regions: RegionConfig = _section(RegionConfig, "Faces")
    detector: DetectorConfig = _section(DetectorConfig, "Faces")
    matte: MatteConfig = _section(MatteConfig, "Edge of the person")
    encode: EncodeConfig = _section(EncodeConfig, "Output")
    copy: CopyConfig = _section(CopyConfig, "Output")
    backends: BackendConfig = _section(BackendConfig, "Machine")
    start_seconds: float = setting(
        0.0,
        "Start at this time: seconds or HH:MM:SS.",
        brief="Start at this time: seconds or HH:MM:SS.",
        name="start",
        metavar="TIME",
        range=(0, math.inf),
        unit=" seconds",
    )
    fps: float | None = setting(
        None,
        "Frame rate of an input sequence of pictures, {range}.",
        range=(0.1, 1000),
        shown_default="25",
        without_effect=("no sequence",),
    )
    """Frame rate of the input; only picture sequences lack their own timestamps."""
    duration_seconds: float | None = setting(
        None,
        "Render at most this length: seconds or HH:MM:SS.",
        brief="Render at most this length.",
        name="duration",
        metavar="TIME",
        unit=" seconds",
        shown_default="to the end",
    )
    face_data: Path | None = setting(
        None,
        "Also write the faces of every frame, with 468 landmarks each.",
        metavar="FILE.jsonl|FILE.npz",
        panel="Faces",
    )
    format: OutputFormat = setting(
        OutputFormat.AUTO,
        "Container of OUT; auto: by the extension of its name, mkv for a pipe.",
        brief="{choices}",
        short="-f",
    )
    matte_out: Path | None = setting(
        None,
        "Also write the mask as a grey video or picture.",
        brief="Also write the mask.",
        metavar="FILE",
    )
    overwrite: bool = setting(
        False,
        "Replace OUT and the other output files if they exist.",
        brief="Replace OUT if it exists.",
        short="-y",
    )
    skip_existing: bool = setting(
        False,
        "Skip the render, with exit code 0, if OUT exists.",
        brief="Skip the render, with exit code 0, if OUT exists.",
    )
    report: Path | None = setting(
        None, "Write a report as JSON: frames, speed, backends, notices.", metavar="FILE.json"
    )
    chunks: int | None = setting(
        None,
        "Render a long video in up to N parallel chunks and join them; auto: where that is"
        " faster. Repeat an interrupted command to continue with its finished chunks.",
        range=(1, 10_000),
        shown_default="auto",
        panel="Machine",
    )
    trace: Path | None = setting(
        None,
        "Write a timeline of threads and GPU streams; open it in ui.perfetto.dev.",
        metavar="FILE.json",
    )
    preset: str | None = None
    """Name of the preset behind these settings; used by the report only."""
    preset_file: Path | None = field(default=None, compare=False)
    """Its file, which may not be overwritten."""
    config_file: Path | None = None
    """The user's config file behind these settings, which may not be overwritten."""
    left_out: str = field(default="", compare=False)
    """Notice that a preset's codec does not fit the output; empty: it does."""
    receipt: Path | None = None
    """File in which a batch notes output files before they appear;
    :func:`bgsoft.outputs.note_receipt`."""

    def __post_init__(self) -> None:
        check_ranges(self)
        length = self.duration_seconds
        if length is not None and not (math.isfinite(length) and length > 0):
            raise ConfigError(f"--duration must be more than 0 seconds, not {length:g}")
        if self.trace is not None and (self.chunks or 1) > 1:
            raise ConfigError("cannot combine --trace and --chunks: a trace covers one process")
        for name in ("matte_out", "face_data", "trace"):
            if getattr(self, name) == Path("-"):
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"cannot write {flag} to stdout: name a file")
        by_number = self.segment.matte_match is MatteMatch.FRAME
        if self.segment.matte_in is not None and by_number and self.start_seconds:
            raise ConfigError("cannot combine --start and --matte-in: they need --matte-match time")
        start = Fraction(str(self.start_seconds))
        for each in map(parse_main, self.face.main):
            if isinstance(each, MainPlace) and each.seconds < start:
                place = each.text.partition("@")[0]
                raise ConfigError(
                    f"cannot use --main {each.text}: its time is before --start; write"
                    f" {place}@{self.start_seconds:.15g} or a later time"
                )
        if self.overwrite and self.skip_existing:
            raise ConfigError("cannot combine --overwrite and --skip-existing: choose one of them")
        if self.matte_out is not None and self.matte_out.absolute() == self.output.absolute():
            raise ConfigError("cannot write --matte-out: it is the same file as the output")

    def check_for_arrays(self) -> None:
        """Raise ConfigError where a setting belongs to the frames of one file."""
        for flag, value in (("--matte-in", self.segment.matte_in), ("--faces", self.face.file)):
            if value is not None:
                raise ConfigError(f"cannot use {flag}: it works only with a video or picture file")

    @property
    def is_part(self) -> bool:
        """True if a part of the video is rendered."""
        return self.start_seconds > 0 or self.duration_seconds is not None

    @property
    def hides(self) -> bool:
        """True if faces or places are made unrecognisable."""
        if self.face.mode is FaceMode.ANONYMIZE or self.detector.file is not None:
            return True
        return any(region.action is RegionAction.HIDE for region in self.all_regions)

    @property
    def all_regions(self) -> tuple[Region, ...]:
        """Regions of the flags, then those of the file; where they overlap, the last one counts.

        Raises:
            ConfigError: The file cannot be read, or is malformed.
        """
        named = (
            (RegionAction.HIDE, self.hide.regions),
            (RegionAction.KEEP, self.regions.keep),
            (RegionAction.DROP, self.regions.drop),
        )
        flags = tuple(parse_region(text, action) for action, texts in named for text in texts)
        if self.regions.file is None:
            return flags
        from bgsoft.settings.regions_file import read_regions

        return flags + read_regions(Path(self.regions.file))

    @property
    def hide_style(self) -> HideStyle:
        """``hide.style``, or its default where that is None."""
        everybody = self.face.subjects == 0
        return self.hide.style or (HideStyle.SOLID if everybody else HideStyle.BLUR)

    @property
    def strips_metadata(self) -> bool:
        """True if tags and tracks that identify people or places are left out."""
        if self.copy.metadata is Metadata.AUTO:
            return self.hides
        return self.copy.metadata is Metadata.STRIP

    @property
    def videos(self) -> tuple[Path, ...]:
        """The videos to write, the output first."""
        return (self.output,) if self.matte_out is None else (self.output, self.matte_out)

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files to read, the video first; none of them may be overwritten."""
        background = self.effect.background
        files = [self.input]
        if background and self.effect.kind in (EffectKind.IMAGE, EffectKind.VIDEO):
            files.append(Path(background))
        named = self.regions.file, self.segment.matte_in, self.face.file
        detector = self.detector.file, self.detector.sidecar
        files += [Path(name) for name in (*named, *detector) if name]
        return tuple(files)
