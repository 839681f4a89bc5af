"""The flat names of settings, as command-line flags and :func:`bgsoft.render` spell them.

Values are read by :func:`bgsoft.presets.coerce`, by the same rules and with the same did-you-mean
as a preset file's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.config import EffectKind
from bgsoft.presets import coerce

__all__ = ["OPTIONS", "settings_from_options"]

OPTIONS: Mapping[str, tuple[str, str]] = {
    "effect": ("effect", "kind"),
    "strength": ("effect", "strength"),
    "background": ("effect", "background"),
    "model": ("segment", "model"),
    "matte": ("segment", "looks"),
    "mask_every": ("segment", "mask_every"),
    "similarity": ("segment", "similarity_db"),
    "threshold": ("matte", "threshold"),
    "softness": ("matte", "softness"),
    "min_area": ("matte", "min_area"),
    "smooth": ("matte", "smooth"),
    "expand": ("matte", "expand_pct"),
    "feather": ("matte", "feather_pct"),
    "temporal": ("matte", "temporal"),
    "refine": ("matte", "refine"),
    "face": ("face", "mode"),
    "subjects": ("face", "subjects"),
    "face_every": ("face", "detect_every"),
    "small_faces": ("face", "small_faces"),
    "decode": ("backends", "decode"),
    "infer": ("backends", "infer"),
    "composite": ("backends", "composite"),
    "encode": ("backends", "encode"),
    "gpu": ("backends", "gpu"),
    "require_gpu": ("backends", "require_gpu"),
    "batch": ("backends", "batch"),
    "precision": ("backends", "precision"),
    "codec": ("encode", "codec"),
    "quality": ("encode", "quality"),
    "speed": ("encode", "speed"),
    "threads": ("backends", "threads"),
}
"""Option → (section, field) of the setting. The flag is ``--option``, with dashes."""

_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]+")
_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".avif"})


def settings_from_options(
    given: Mapping[str, Any], *, from_text: bool
) -> dict[str, dict[str, Any]]:
    """The settings that flat options ask for.

    Args:
        given: Option → value; None and False stand for nothing, unknown options are left alone.
        from_text: Values are text from the command line, and errors name flags.

    Returns:
        Section → field → value, for :func:`bgsoft.presets.build_config`.

    Raises:
        ConfigError: A value is malformed or no known choice.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name, (section, field) in OPTIONS.items():
        value = given.get(name)
        if value is None or value is False:
            continue
        label = "--" + name.replace("_", "-") if from_text else name
        value = coerce(section, field, value, label, from_text=from_text)
        settings.setdefault(section, {})[field] = value
    effect = settings.get("effect", {})
    if "background" in effect and "kind" not in effect:
        effect["kind"] = _effect_for(effect["background"])
    return settings


def _effect_for(background: str) -> EffectKind:
    """The effect that a bare ``--background`` asks for."""
    if not Path(background).exists() and _COLOR.fullmatch(background):
        return EffectKind.COLOR
    if Path(background).suffix.lower() in _IMAGE_SUFFIXES:
        return EffectKind.IMAGE
    return EffectKind.VIDEO
