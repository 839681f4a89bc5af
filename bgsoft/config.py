"""Settings of a render: every default and every check of a value, in one place.

All classes are frozen. They validate themselves and raise :class:`bgsoft.errors.ConfigError`
with the name of the setting as the command line spells it. Nothing heavy is imported here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from bgsoft.errors import ConfigError
from bgsoft.suggest import network_address

__all__ = [
    "BackendConfig",
    "Codec",
    "CompositeBackend",
    "DecodeBackend",
    "EffectConfig",
    "EffectKind",
    "EncodeBackend",
    "EncodeConfig",
    "FaceConfig",
    "FaceMode",
    "InferBackend",
    "Looks",
    "MatteConfig",
    "MatteStyle",
    "Precision",
    "Refine",
    "RenderConfig",
    "SegmentConfig",
]


class EffectKind(StrEnum):
    """What happens to the background."""

    BLUR = "blur"
    BOKEH = "bokeh"
    PIXELATE = "pixelate"
    DIM = "dim"
    COLOR = "color"
    IMAGE = "image"
    VIDEO = "video"
    ALPHA = "alpha"
    """Transparent. Colour under alpha 0 is black; next to the foreground its own runs out."""
    MATTE = "matte"


class Refine(StrEnum):
    """How the mask's edge is fitted to the picture."""

    NONE = "none"
    GUIDED = "guided"


class MatteStyle(StrEnum):
    """Which chain of filters makes the matte."""

    SOFT = "soft"
    """Soft alpha throughout; bgsoft's own."""
    OBS = "obs"
    """The binary mask maths of the OBS background-removal filter, faults included."""


class Looks(StrEnum):
    """How thoroughly the embedded models look for people."""

    FAST = "fast"
    """One model, once a frame."""
    STANDARD = "standard"
    """A close look at the people on every frame; two models look at all of it in turn."""
    BEST = "best"
    """All looks on every frame, and mirrored."""


class DecodeBackend(StrEnum):
    AUTO = "auto"
    NVDEC = "nvdec"
    CPU = "cpu"


class InferBackend(StrEnum):
    AUTO = "auto"
    TENSORRT = "tensorrt"
    CUDA = "cuda"
    CPU = "cpu"


class CompositeBackend(StrEnum):
    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class EncodeBackend(StrEnum):
    AUTO = "auto"
    NVENC = "nvenc"
    CPU = "cpu"


class Precision(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"


class Codec(StrEnum):
    """Video codec of the output."""

    AUTO = "auto"
    """H.264, except where the container, the bit depth or the alpha channel asks for another."""
    H264 = "h264"
    HEVC = "hevc"
    AV1 = "av1"
    PRORES = "prores"
    VP9 = "vp9"
    FFV1 = "ffv1"


class FaceMode(StrEnum):
    """What is done for faces."""

    OFF = "off"
    GUARD = "guard"
    """A face that the mask has missed is filled in, inside its outline."""
    MAIN = "main"
    """Only the main people stay sharp; their faces are guarded."""
    ANONYMIZE = "anonymize"
    """Faces other than the main people's are made unrecognisable."""


DEFAULT_DETECT_EVERY = 8


def _check(name: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Raise ConfigError unless ``low <= value <= high`` and value is finite."""
    if not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} must be between {low:g} and {high:g}{unit}, not {value:g}")


LENGTH_EFFECTS = frozenset({EffectKind.BLUR, EffectKind.BOKEH, EffectKind.PIXELATE})
"""Effects whose strength is a length, in percent of the frame height."""

MAX_LENGTH_PCT = 25.0
DEFAULT_STRENGTH_PCT = {
    EffectKind.BLUR: 2.5,
    EffectKind.BOKEH: 2.5,
    EffectKind.PIXELATE: 3.0,
    EffectKind.DIM: 60.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectConfig:
    """What the background becomes."""

    kind: EffectKind = EffectKind.BLUR
    strength: float | None = None
    """blur: standard deviation, bokeh: disc radius, pixelate: block edge, each in percent of the
    frame height (0–25); dim: percent of light taken away (0–100); None: the effect's default."""
    background: str | None = None
    """image, video: path of a file; color: ``#rrggbb`` or a colour name; else None."""
    highlights: float = 0.6
    """bokeh: how much brighter than their surroundings highlights bloom, 0–1."""

    def __post_init__(self) -> None:
        if self.strength is not None:
            if self.kind in LENGTH_EFFECTS:
                _check("--strength", self.strength, 0, MAX_LENGTH_PCT, " % of the frame height")
            else:
                _check("--strength", self.strength, 0, 100, " %")
        _check("highlights", self.highlights, 0, 1)
        if self.kind in (EffectKind.IMAGE, EffectKind.VIDEO) and not self.background:
            raise ConfigError(f"--effect {self.kind} needs --background FILE")
        address = network_address(self.background or "")
        if address is not None:
            raise ConfigError(f"--background {address} is an address: only local files are read")

    @property
    def effective_strength(self) -> float:
        """``strength``, or the effect's default where it is None; 0 where it has no meaning."""
        if self.strength is not None and self.kind in DEFAULT_STRENGTH_PCT:
            return self.strength
        return DEFAULT_STRENGTH_PCT.get(self.kind, 0.0)

    def strength_px(self, height: int) -> float | None:
        """Strength in pixels of a frame ``height`` pixels high; None where it is no length."""
        if self.kind not in LENGTH_EFFECTS:
            return None
        return self.effective_strength * height / 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatteConfig:
    """How the model's mask becomes the matte."""

    style: MatteStyle = MatteStyle.SOFT
    threshold: float | None = 0.5
    """Mask value where alpha is one half, 0–1; None: the mask is taken as it is."""
    softness: float = 0.5
    """Width of the soft step around the threshold, 0 (hard edge)–1 (whole mask range)."""
    min_area: float = 0.002
    """Islands of person smaller than this fraction of the frame are removed, and holes in a
    person smaller than it are filled; 0–1. In style obs: contours up to it are dropped."""
    smooth: float = 0.5
    """Smoothing of the contour, 0–1."""
    expand_pct: float = 0.0
    """Moves the edge outwards (> 0) or inwards, percent of the frame height, −5–5."""
    feather_pct: float = 0.0
    """Extra soft rim outside the person, percent of the frame height, 0–10."""
    temporal: float = 0.7
    """Smoothing over time, 0 (off)–1 (heaviest). OBS's factor is 1 minus this."""
    refine: Refine = Refine.GUIDED

    def __post_init__(self) -> None:
        if self.threshold is not None:
            _check("--threshold", self.threshold, 0, 1)
        _check("--softness", self.softness, 0, 1)
        _check("--min-area", self.min_area, 0, 1)
        _check("--smooth", self.smooth, 0, 1)
        _check("--expand", self.expand_pct, -5, 5, " % of the frame height")
        _check("--feather", self.feather_pct, 0, 10, " % of the frame height")
        _check("--temporal", self.temporal, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentConfig:
    """Which model makes the mask, and how often."""

    model: str = "selfie-general"
    """Catalogue name, or path of an ONNX file with a sidecar TOML."""
    looks: Looks = Looks.STANDARD
    """How thoroughly the embedded models look; other models look once."""
    mask_every: int = 1
    """Run the model on every Nth frame, 1–300; the mask is held in between."""
    similarity_db: float | None = None
    """Hold the mask while the PSNR of the reduced luma against the last segmented frame is above
    this, 0–100 dB; None: never."""

    def __post_init__(self) -> None:
        _check("--mask-every", self.mask_every, 1, 300)
        if self.similarity_db is not None:
            _check("--similarity", self.similarity_db, 0, 100, " dB")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceConfig:
    """What is done for faces, and how they are looked for."""

    mode: FaceMode = FaceMode.GUARD
    subjects: int = 1
    """How many people are main, 0–32; 0 (nobody) only with anonymize."""
    detect_every: int | None = None
    """Frames between searches for new faces, 1–300; those found are followed on every frame. None:
    8, and 1 with anonymize, so that no new face is shown."""
    small_faces: bool = False
    """Also search parts of the frame, for faces under an eighth of its height; always with main
    and anonymize, which are about everybody."""

    def __post_init__(self) -> None:
        _check("--subjects", self.subjects, 0, 32)
        if self.subjects == 0 and self.mode is not FaceMode.ANONYMIZE:
            raise ConfigError(f"--subjects 0 needs --face anonymize, not {self.mode}")
        if self.detect_every is not None:
            _check("--face-every", self.detect_every, 1, 300)

    @property
    def effective_detect_every(self) -> int:
        """``detect_every``, or the mode's default where it is None."""
        if self.detect_every is not None:
            return self.detect_every
        return 1 if self.mode is FaceMode.ANONYMIZE else DEFAULT_DETECT_EVERY


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeConfig:
    """The output's codec and its settings."""

    codec: Codec = Codec.AUTO
    quality: int | None = None
    """The encoder's own constant-quality value (CRF, CQ, ProRes qscale); None: its default here."""
    speed: str | None = None
    """The encoder's own preset: an x264/x265 name, an SVT-AV1 or VP9 number, or NVENC P1–P7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """Where each stage runs."""

    decode: DecodeBackend = DecodeBackend.AUTO
    infer: InferBackend = InferBackend.AUTO
    composite: CompositeBackend = CompositeBackend.AUTO
    encode: EncodeBackend = EncodeBackend.AUTO
    gpu: int | None = None
    """CUDA device number; it has to be there. None: the first, where there is one."""
    require_gpu: bool = False
    batch: int | None = None
    """Frames worked on at a time, 1–64; None: chosen by the backend."""
    precision: Precision = Precision.FP32
    ring_slots: int | None = None
    """Frame slots, a power of two from 4 to 256; None: chosen by the device."""
    threads: int = 0
    """Cores that decoder, picture stages and encoder are planned for, 1–256; 0: all there are."""

    def __post_init__(self) -> None:
        _check("--threads", self.threads, 0, 256)
        if self.gpu is not None:
            _check("--gpu", self.gpu, 0, 63)
        if self.batch is not None:
            _check("--batch", self.batch, 1, 64)
        if self.ring_slots is not None:
            _check("ring slots", self.ring_slots, 4, 256)
            if self.ring_slots & (self.ring_slots - 1):
                raise ConfigError(f"ring slots must be a power of two, not {self.ring_slots}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderConfig:
    """Everything that one render needs to know."""

    input: Path
    output: Path
    effect: EffectConfig = field(default_factory=EffectConfig)
    matte: MatteConfig = field(default_factory=MatteConfig)
    segment: SegmentConfig = field(default_factory=SegmentConfig)
    face: FaceConfig = field(default_factory=FaceConfig)
    encode: EncodeConfig = field(default_factory=EncodeConfig)
    backends: BackendConfig = field(default_factory=BackendConfig)
    start_seconds: float = 0.0
    """Render from this time of the input on."""
    duration_seconds: float | None = None
    """Render at most this long; None: to the end."""
    overwrite: bool = False
    """Replace an existing output; otherwise it is an error."""
    matte_out: Path | None = None
    """Also write the matte as a grey video here."""
    face_data: Path | None = None
    """Also write the faces of every frame here, as ``.jsonl`` or ``.npz``."""
    preset: str | None = None
    """Name of the preset these settings came from, for the report only."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.start_seconds) or self.start_seconds < 0:
            raise ConfigError(f"--start must be 0 or more seconds, not {self.start_seconds:g}")
        if self.duration_seconds is not None and not (
            math.isfinite(self.duration_seconds) and self.duration_seconds > 0
        ):
            raise ConfigError(
                f"--duration must be more than 0 seconds, not {self.duration_seconds:g}"
            )
