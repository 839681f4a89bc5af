"""Compares two files: everything that ``bgsoft compare`` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bgsoft.compare.facts import read_facts
from bgsoft.compare.pictures import Region, compare_pictures, difference_of_size
from bgsoft.compare.result import Check, Comparison, Pictures
from bgsoft.compare.structure import structure_checks, time_checks
from bgsoft.compare.vmaf import Ffmpeg, find_ffmpeg
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.versions import library_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the mean values must reach; None: anything will do."""

    vmaf: float | None = None
    """0–100."""
    psnr_db: float | None = None
    """Luma, dB."""
    ssim: float | None = None
    """Luma, at most 1."""
    strict: bool = False
    """Every check must pass."""

    def __post_init__(self) -> None:
        ranges = (("vmaf", self.vmaf, 100), ("psnr", self.psnr_db, 200), ("ssim", self.ssim, 1))
        for name, value, most in ranges:
            if value is not None and not 0 <= value <= most:
                raise ConfigError(f"--min-{name} must be between 0 and {most}, not {value:g}")


def compare(
    a: Path,
    b: Path,
    *,
    mask: Path | None = None,
    region: Region = Region.FOREGROUND,
    limits: Limits | None = None,
    vmaf: bool = True,
) -> Comparison:
    """Compare B with A, the reference.

    Args:
        a: The reference video.
        b: The video that is judged.
        mask: A video, bright on the foreground; figures are then of ``region`` alone.
        region: The part that counts, if there is a mask.
        limits: What B must reach; what it misses is listed in the result's ``failures``.
        vmaf: False: leave VMAF out, which takes most of the time.

    Raises:
        BackendUnavailableError: ``limits`` ask for VMAF, which cannot be scored here.
        ConfigError: The mask does not fit the pictures.
        MediaError: A file cannot be read.
    """
    limits = limits or Limits()
    if limits.vmaf is not None and not vmaf:
        raise ConfigError("--min-vmaf and --no-vmaf contradict each other")
    ffmpeg: Ffmpeg | None = None
    reason: str | None = None
    if vmaf:
        try:
            ffmpeg = find_ffmpeg()
        except BackendUnavailableError as exc:
            if limits.vmaf is not None:
                raise BackendUnavailableError(f"--min-vmaf: {exc.message}") from exc
            reason = exc.message
    else:
        reason = "not asked for (--no-vmaf)"

    facts_a, facts_b = read_facts(a), read_facts(b)
    checks: list[Check] = []
    notices: list[str] = []
    pictures: Pictures | None = None
    pictures_reason = difference_of_size(facts_a.info.format, facts_b.info.format)
    if pictures_reason is None:
        found = compare_pictures(a, b, mask=mask, region=region, ffmpeg=ffmpeg, vmaf_reason=reason)
        pictures = found.pictures
        checks += time_checks(facts_a, facts_b, found.times_a, found.times_b)
        notices += found.notices
        if len(found.times_a) != len(found.times_b):
            notices.append(
                f"A has {len(found.times_a)} frames and B {len(found.times_b)}:"
                f" only the first {pictures.frames} are compared"
            )
        if pictures.vmaf_reason is not None and limits.vmaf is not None:
            raise BackendUnavailableError(f"--min-vmaf: {pictures.vmaf_reason}")
    checks += structure_checks(facts_a, facts_b)
    return Comparison(
        a=str(a),
        b=str(b),
        checks=checks,
        pictures=pictures,
        pictures_reason=pictures_reason,
        notices=notices,
        failures=_failures(limits, checks, pictures, pictures_reason),
        versions=library_versions(),
    )


def _failures(
    limits: Limits, checks: list[Check], pictures: Pictures | None, reason: str | None
) -> list[str]:
    failures: list[str] = []
    if pictures is None:
        failures.append(reason or "the pictures were not compared")
    else:
        wanted = (
            ("VMAF", "vmaf", limits.vmaf, ""),
            ("PSNR", "psnr", limits.psnr_db, " dB"),
            ("SSIM", "ssim", limits.ssim, ""),
        )
        for name, metric, least, unit in wanted:
            if least is None:
                continue
            statistic = pictures.statistic(metric, "y")
            if statistic is None:
                failures.append(f"{name} (Y) has no value, {least:g}{unit} is asked")
            elif statistic.mean < least:
                failures.append(
                    f"{name} (Y) is {statistic.mean:.4f}{unit}, {least:g}{unit} is asked"
                )
    if limits.strict:
        failed = [check.name for check in checks if not check.ok]
        if failed:
            failures.append(f"checks failed: {', '.join(failed)}")
    return failures
