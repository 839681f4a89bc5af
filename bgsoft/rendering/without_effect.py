"""Errors for settings that have no effect together with others.

A setting's declaration lists the reasons by key. Only flags and keyword arguments are checked. A
preset may have unused settings: ``--effect color`` with a preset that sets the strength of a blur
is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.media.containers import STILL_SUFFIXES
from bgsoft.media.endpoints import EndpointKind, destination_for, source_for
from bgsoft.records import NamedTuple
from bgsoft.settings.config import (
    DEFAULT_STRENGTH_PCT,
    Audio,
    EffectKind,
    FaceMode,
    MatteQuality,
    MatteStyle,
    RenderConfig,
)
from bgsoft.settings.options import OPTIONS


class Reason(NamedTuple):
    """A reason why a setting may have no effect."""

    holds: Callable[[RenderConfig], bool]
    setting: str
    """The other setting in the message; ``{…}`` are fields of the settings."""
    instead: str
    """The flags with which it has an effect."""


def _is_obs(config: RenderConfig) -> bool:
    return config.matte.style is MatteStyle.OBS


def _makes_alpha(config: RenderConfig) -> bool:
    """Return True if the model's masks are mattes, used unchanged; False for the masks of OBS."""
    if _is_obs(config):
        return False
    from bgsoft.models.catalog import read_spec

    return read_spec(config.segment.model).of_family.makes_alpha


def _has_single_pass(config: RenderConfig) -> bool:
    """Return True if the model has one pass per frame, although more are requested."""
    from bgsoft.models.catalog import read_spec
    from bgsoft.segment.families import companion

    spec, quality = read_spec(config.segment.model), config.segment.matte
    return quality is not MatteQuality.FAST and companion(spec, quality) is None


def _has_sound(config: RenderConfig) -> bool:
    """Return True if the input may have sound and the output can have it."""
    source = source_for(config.input)
    if source.kind is EndpointKind.SEQUENCE or source.path.suffix.lower() in STILL_SUFFIXES:
        return False
    try:
        return destination_for(config.output, config.format).container.has_sound
    except UnsupportedFormatError:
        return True  # the render reports the error


_MEASURED = [str(kind) for kind in DEFAULT_STRENGTH_PCT]

REASONS: Mapping[str, Reason] = {
    "no strength": Reason(
        lambda config: config.effect.kind not in DEFAULT_STRENGTH_PCT,
        "--effect {effect.kind}",
        f"--effect {', '.join(_MEASURED[:-1])} or {_MEASURED[-1]}",
    ),
    "no background": Reason(
        lambda config: (
            config.effect.kind not in (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO)
        ),
        "--effect {effect.kind}",
        "--effect color, image or video, or no --effect at all",
    ),
    "single pass": Reason(
        _has_single_pass,
        "--model {segment.model}",
        "--model selfie-general, or for best a model that makes a matte itself",
    ),
    "nobody is main": Reason(
        lambda config: config.face.mode not in (FaceMode.MAIN, FaceMode.ANONYMIZE),
        "--face {face.mode}",
        "--face main or anonymize",
    ),
    "nobody anonymized": Reason(
        lambda config: config.face.mode is not FaceMode.ANONYMIZE,
        "--face {face.mode}",
        "--face anonymize",
    ),
    "nothing found is hidden": Reason(
        lambda config: config.face.mode is not FaceMode.ANONYMIZE and config.detector.file is None,
        "--face {face.mode}",
        "--face anonymize or a --detector",
    ),
    "nothing hidden": Reason(
        lambda config: not config.hides,
        "--face {face.mode}",
        "--face anonymize, a --hide or a --detector",
    ),
    "no picture": Reason(
        lambda config: config.effect.kind is EffectKind.MATTE,
        "--effect {effect.kind}, which shows no picture",
        "another --effect",
    ),
    "nobody seen": Reason(
        lambda config: (
            config.effect.kind is EffectKind.MATTE
            and config.face.mode is FaceMode.ANONYMIZE
            and config.face_data is None
        ),
        "--effect {effect.kind}, which shows no picture",
        "another --effect, or --face-data",
    ),
    "no faces": Reason(
        lambda config: config.face.mode is FaceMode.OFF and config.face_data is None,
        "--face {face.mode}",
        "--face guard, main or anonymize",
    ),
    "obs": Reason(_is_obs, "the binary masks of OBS", "another preset than obs"),
    "no threshold": Reason(
        lambda config: config.matte.threshold is None, "--threshold off", "a --threshold"
    ),
    "obs without threshold": Reason(
        lambda config: _is_obs(config) and config.matte.threshold is None,
        "--threshold off and the masks of OBS",
        "a --threshold",
    ),
    "own matte": Reason(
        _makes_alpha,
        "--model {segment.model}, which makes a matte itself",
        "a model that makes masks, like selfie-general",
    ),
    "no matte in": Reason(
        lambda config: config.segment.matte_in is None, "a matte of our own", "--matte-in FILE"
    ),
    "matte given": Reason(
        lambda config: config.segment.replaces_matte,
        "--matte-in, which replaces our own matte",
        "--matte-mode max or min",
    ),
    "no sequence": Reason(
        lambda config: source_for(config.input).kind is not EndpointKind.SEQUENCE,
        "an input that is not a sequence",
        "a folder of pictures or a pattern like frames/%05d.png",
    ),
    "no sound": Reason(
        lambda config: not _has_sound(config),
        "pictures, or an output that holds no sound",
        "a video as IN, and .mp4, .mov, .mkv, .webm, .ts or .avi as OUT",
    ),
    "sound left out": Reason(
        lambda config: config.copy.audio is Audio.NONE, "--audio none", "--audio keep"
    ),
    "all on the CPU": Reason(
        lambda config: config.backends == config.backends.on_cpu(),
        "every stage on the CPU",
        "a stage on the GPU or on auto",
    ),
}


def check_named(
    config: RenderConfig, named: Mapping[str, Mapping[str, Any]], unchecked: Collection[str] = ()
) -> None:
    """Check that all settings named by the user have an effect.

    Args:
        config: All settings of the render.
        named: Section → field → value of named settings. None (off or auto) and False are not
            checked.
        unchecked: Keys of :data:`REASONS` that do not count.

    Raises:
        ConfigError: A setting has no effect; the message states what gives it one.
    """
    for option in OPTIONS.values():
        value = named.get(option.section, {}).get(option.field.name)
        if value is None or value is False or (isinstance(value, tuple) and not value):
            continue
        for key in option.setting.without_effect:
            reason = REASONS[key]
            if key not in unchecked and reason.holds(config):
                setting = reason.setting.format(
                    effect=config.effect, face=config.face, segment=config.segment
                )
                raise ConfigError(
                    f"cannot use {option.flag} with {setting}: it has no effect; it needs"
                    f" {reason.instead}"
                )
