"""The lines that a finished render ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bgsoft.config import DEFAULT_STRENGTH_PCT, LENGTH_EFFECTS, EffectKind
from bgsoft.report import RenderReport

__all__ = ["summary_lines"]


def summary_lines(report: RenderReport, *, verbose: bool = False) -> list[str]:
    """What a render did, for people.

    Percent lengths are shown with their size in this video's pixels. Events are not repeated:
    they were reported while it ran.
    """
    if report.skipped:
        return [f"{report.output}: exists, skipped"]
    lines = [report.output, f"  {_speed(report)}"]
    if report.concealed_frames:
        lines.append(f"  {report.concealed_frames} damaged frames were concealed")
    look = _look(report.settings)
    if look:
        lines.append(f"  {look}")
    if report.model is not None:
        lines.append(f"  model {report.model.name} (licence {report.model.licence})")
    for name, stage in report.stages.items():
        if stage.backend == "off":
            continue
        device = "" if stage.device == stage.backend else f" on {stage.device}"
        why = f"  ({stage.fallback_reason})" if verbose and stage.fallback_reason else ""
        lines.append(f"  {name:<9} {stage.backend}{device} {stage.ms_per_frame:.2f} ms/frame{why}")
    if report.faces is not None:
        lines.append(f"  {_faces(report.faces)}")
    for audio in report.audio:
        reason = f" ({audio.reason})" if audio.reason else ""
        lines.append(f"  audio {audio.track}: {audio.codec} {audio.action}{reason}")
    return lines


def _speed(report: RenderReport) -> str:
    text = f"{report.frames_encoded} frames in {report.wall_s:.1f} s: {report.fps:.1f} frames/s"
    if report.wall_s > 0 and report.duration_s > 0:
        text += f", {report.duration_s / report.wall_s:.2f} times real time"
    return text


def _faces(faces: Mapping[str, Any]) -> str:
    """How many faces there were, and what the mask had made of them."""
    text = f"faces: {faces['tracks']} followed, in {faces['frames_with_faces']} frames"
    if faces["missed_frames"]:
        text += f"; the mask had missed one in {faces['missed_frames']} of them"
    return text


def _look(settings: Mapping[str, Any]) -> str:
    """The effect and the lengths in force, e.g. ``blur strength 2.5 % = 27 px``."""
    effect, matte = settings.get("effect"), settings.get("matte")
    if not isinstance(effect, Mapping) or not isinstance(matte, Mapping):
        return ""
    kind, strength = EffectKind(effect["kind"]), effect["strength"]
    height = settings.get("height")
    parts = [f"effect {kind}"]
    if kind in LENGTH_EFFECTS:
        parts = [f"{kind} strength {_length(strength, height)}"]
    elif kind in DEFAULT_STRENGTH_PCT:
        parts = [f"{kind} strength {strength:g} %"]
    for name, key in (("expand", "expand_pct"), ("feather", "feather_pct")):
        if matte.get(key):
            parts.append(f"{name} {_length(matte[key], height)}")
    return ", ".join(parts)


def _length(percent: float, height: object) -> str:
    text = f"{percent:g} %"
    if isinstance(height, int):
        pixels = percent * height / 100
        text += f" = {pixels:.0f} px" if abs(pixels) >= 10 else f" = {pixels:.1f} px"
    return text
