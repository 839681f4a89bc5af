"""What a comparison found, and its JSON form."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from bgsoft.outputs import write_whole

SCHEMA = "bgsoft-compare/1"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is the same in both files, or is not."""

    name: str
    ok: bool
    detail: str
    """What was found, in one line."""

    @classmethod
    def of_counts(cls, name: str, a: int, b: int) -> Self:
        """Whether both have as many of something."""
        return cls(name, a == b, f"{a} each" if a == b else f"A has {a}, B {b}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One measure over all frames that it applies to. Higher is better."""

    mean: float
    """PSNR: of the mean squared error over all frames, as FFmpeg's «average». Others: arithmetic
    mean. Infinite PSNR: no sample differs."""
    p1: float
    """1st percentile: the value of the frame that one frame in a hundred is worse than or as bad
    as (nearest rank)."""
    worst: float
    worst_frame: int
    """Index of the first frame that has the worst value."""
    worst_seconds: float
    """That frame's time in A, on A's clock."""
    frames: int
    """Frames that the measure applies to."""
    identical: bool = False
    """True where no sample of any of these frames differs; never of VMAF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One measure of one plane, frame by frame."""

    metric: str
    """``psnr`` (dB), ``ssim`` (at most 1) or ``vmaf`` (0–100)."""
    plane: str
    """``y``, ``cb``, ``cr``, or ``all``: the planes weighted by their samples; VMAF, which is
    defined on luma: ``y``."""
    values: list[float | None]
    """None where nothing of the frame is in the region."""
    statistic: Statistic | None
    """None where no frame has a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """How far the pictures are apart."""

    width: int
    height: int
    bit_depth: int
    """Of the comparison: the greater one of the two files'."""
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
    """Why there is no VMAF; None where there is."""
    vmaf_model: str | None = None
    vmaf_by: str | None = None
    """The ffmpeg that scored."""
    vmaf_region: str | None = None
    """How VMAF was held to the region; None without a mask."""

    def statistic(self, metric: str, plane: str) -> Statistic | None:
        """A curve's statistic; None where there is no value."""
        for curve in self.curves:
            if (curve.metric, curve.plane) == (metric, plane):
                return curve.statistic
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that was found. Stable names in JSON."""

    a: str
    b: str
    checks: list[Check]
    pictures: Pictures | None
    pictures_reason: str | None = None
    """Why the pictures could not be compared; None where they were."""
    notices: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Which of the user's limits were missed."""
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types. JSON has no infinity: the PSNR of equal pictures is null; where all are
        equal, the statistic's ``identical`` is true.
        """
        result = {"schema": SCHEMA, **asdict(self)}
        for curve in (result["pictures"] or {}).get("curves", ()):
            curve["values"] = [_finite(value) for value in curve["values"]]
            statistic = curve["statistic"]
            if statistic is not None:
                for key in ("mean", "p1", "worst"):
                    statistic[key] = _finite(statistic[key])
        return result

    def write_json(self, path: Path) -> None:
        """Write the comparison.

        Raises:
            OutputError: The file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False)
        write_whole(path, "comparison", text + "\n")


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
