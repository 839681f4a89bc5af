"""Results of a comparison, and their JSON form."""

from __future__ import annotations

import math
from dataclasses import asdict, field
from typing import Any, Self

from bgsoft.records import dataclass

SCHEMA = "bgsoft-compare/1"


@dataclass(frozen=True, slots=True)
class Check:
    """A property that is the same in both files, or not."""

    name: str
    ok: bool
    detail: str
    """Result in one line."""

    @classmethod
    def equal(cls, name: str, a: object, b: object, each: str = "") -> Self:
        """Compare two values of a property."""
        return cls(name, a == b, f"{a}{each}" if a == b else f"A has {a}, B {b}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One measure over all frames that it applies to. Higher is better."""

    mean: float
    """PSNR: of the mean squared error over all frames, as FFmpeg's «average». Others: arithmetic
    mean. Infinite PSNR: no sample differs."""
    p1: float
    """1st percentile: the value of a frame that is worse than or equal to 99 % of the frames
    (nearest rank)."""
    worst: float
    worst_frame: int
    """Index of the first frame that has the worst value."""
    worst_seconds: float
    """Time of the worst frame in A, on A's clock."""
    frames: int
    """Frames that the measure applies to."""
    identical: bool = False
    """Whether no sample of any of these frames differs; always False for VMAF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One measure of one plane, frame by frame."""

    metric: str
    """``psnr`` (dB), ``ssim`` (at most 1) or ``vmaf`` (0–100)."""
    plane: str
    """``y``, ``cb``, ``cr``, or ``all``: the planes weighted by their samples; VMAF, which is
    defined on luma: ``y``."""
    values: list[float | None]
    """None where the region is empty in a frame."""
    statistic: Statistic | None
    """None where no frame has a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Differences of the pictures."""

    width: int
    height: int
    bit_depth: int
    """Bit depth of the comparison: the greater of the two files'."""
    frames: int
    """Pairs compared: frame i of A with frame i of B."""
    seconds: list[float]
    """Time of each frame of A."""
    region: str
    """``all``, ``foreground`` or ``background``."""
    region_share: float | None
    """Part of all samples that is in the region, 0–1; None without a mask."""
    curves: list[Curve]
    vmaf_reason: str | None = None
    """Reason that VMAF is missing; None if there is."""
    vmaf_model: str | None = None
    vmaf_by: str | None = None
    """The ffmpeg that scored VMAF."""
    vmaf_region: str | None = None
    """How VMAF was limited to the region; None without a mask."""

    def statistic(self, metric: str, plane: str) -> Statistic | None:
        """Return a curve's statistic; None if there is no value."""
        of_all = {(curve.metric, curve.plane): curve.statistic for curve in self.curves}
        return of_all.get((metric, plane))


@dataclass(slots=True, kw_only=True)
class Comparison:
    """All results. Names in JSON are stable."""

    a: str
    b: str
    checks: list[Check] = field(default_factory=list)
    pictures: Pictures | None = None
    pictures_reason: str | None = None
    """Why the pictures could not be compared; None if they were."""
    notices: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """The user's limits that were missed."""
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain JSON types.

        JSON has no infinity: the PSNR of equal pictures is null. Where all are equal, the
        statistic's ``identical`` is true.
        """
        plain: dict[str, Any] = _finite({"schema": SCHEMA, **asdict(self)})
        return plain


def _finite(value: Any) -> Any:
    """Replace infinities in a value by None."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and math.isinf(value) else value
