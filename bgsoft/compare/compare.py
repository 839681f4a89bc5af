"""Compares two files, with all results of ``bgsoft compare``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bgsoft.compare.checks import structure_checks, time_checks
from bgsoft.compare.facts import read_facts
from bgsoft.compare.pictures import Region, compare_pictures, difference_of_size
from bgsoft.compare.result import Check, Comparison, Pictures
from bgsoft.compare.vmaf import Ffmpeg, find_ffmpeg
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.records import dataclass
from bgsoft.versions import library_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Lower limits of the mean values; None: no limit."""

    vmaf: float | None = None
    """0–100."""
    psnr_db: float | None = None
    """Luma, dB."""
    ssim: float | None = None
    """Luma, at most 1."""
    strict: bool = False
    """Whether every check must pass."""

    def __post_init__(self) -> None:
        ranges = (("vmaf", self.vmaf, 100), ("psnr", self.psnr_db, 200), ("ssim", self.ssim, 1))
        for name, value, maximum in ranges:
            if value is not None and not 0 <= value <= maximum:
                raise ConfigError(f"--min-{name} must be between 0 and {maximum}, not {value:g}")

    def missed(self, checks: list[Check], pictures: Pictures | None) -> Iterator[str]:
        """Yield the missed limits, as text."""
        for metric, minimum, unit in (
            ("vmaf", self.vmaf, ""),
            ("psnr", self.psnr_db, " dB"),
            ("ssim", self.ssim, ""),
        ):
            if minimum is None or pictures is None:
                continue
            statistic = pictures.statistic(metric, "y")
            name = f"{metric.upper()} (Y)"
            if statistic is None:
                yield f"{name} has no value; the limit is {minimum:g}{unit}"
            elif statistic.mean < minimum:
                yield f"{name} is {statistic.mean:.4f}{unit}; the limit is {minimum:g}{unit}"
        failed = [check.name for check in checks if not check.ok]
        if self.strict and failed:
            yield f"checks failed: {', '.join(failed)}"


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
        b: The video to judge.
        mask: A video, bright on the foreground; figures then apply to ``region`` alone.
        region: The part to measure, if there is a mask.
        limits: Limits of B; missed ones are listed in the result's ``failures``.
        vmaf: False: skip VMAF, which takes most of the time.

    Raises:
        BackendUnavailableError: ``limits`` contain VMAF, which cannot be scored here.
        ConfigError: The mask does not fit the pictures.
        MediaError: A file cannot be read.
    """
    limits = limits or Limits()
    ffmpeg, reason = _find_vmaf(limits, wanted=vmaf)
    facts_a, facts_b = read_facts(a), read_facts(b)
    result = Comparison(a=str(a), b=str(b), versions=library_versions())
    result.pictures_reason = difference_of_size(facts_a.info.format, facts_b.info.format)
    if result.pictures_reason is None:
        found = compare_pictures(a, b, mask=mask, region=region, ffmpeg=ffmpeg, vmaf_reason=reason)
        result.pictures = found.pictures
        result.checks += time_checks(facts_a, facts_b, found.times_a, found.times_b)
        result.notices += found.notices
        if len(found.times_a) != len(found.times_b):
            result.notices.append(
                f"A has {len(found.times_a)} frames and B {len(found.times_b)}:"
                f" only the first {found.pictures.frames} are compared"
            )
        if found.pictures.vmaf_reason is not None and limits.vmaf is not None:
            raise BackendUnavailableError(f"cannot check --min-vmaf: {found.pictures.vmaf_reason}")
    else:
        result.failures.append(result.pictures_reason)
    result.checks += structure_checks(facts_a, facts_b)
    result.failures += limits.missed(result.checks, result.pictures)
    return result


def _find_vmaf(limits: Limits, *, wanted: bool) -> tuple[Ffmpeg | None, str | None]:
    """Return the ffmpeg that scores VMAF, or the reason why none does."""
    if not wanted:
        if limits.vmaf is not None:
            raise ConfigError("cannot combine --min-vmaf and --no-vmaf: choose one")
        return None, "not asked for (--no-vmaf)"
    try:
        return find_ffmpeg(), None
    except BackendUnavailableError as exc:
        if limits.vmaf is not None:
            raise BackendUnavailableError(f"cannot check --min-vmaf: {exc.message}") from exc
        return None, exc.message
