"""Settings that change nothing beside others: who names one gets an error, not silence.

Only what a flag or a keyword argument names is looked at. A preset may set more than one of its
uses needs: ``--effect color`` on top of a preset that has a strength of blur is no mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bgsoft.config import (
    DEFAULT_STRENGTH_PCT,
    CompositeBackend,
    DecodeBackend,
    EffectKind,
    EncodeBackend,
    FaceMode,
    InferBackend,
    Looks,
    MatteStyle,
    RenderConfig,
)
from bgsoft.errors import ConfigError

__all__ = ["check_named"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a setting changes nothing, and what to say about it."""

    flag: str
    is_idle: Callable[[RenderConfig], bool]
    beside: Callable[[RenderConfig], str]
    """What it changes nothing beside."""
    instead: str
    """What has to be said for it to have an effect."""


def _effect(config: RenderConfig) -> str:
    return f"--effect {config.effect.kind}"


def _face(config: RenderConfig) -> str:
    return f"--face {config.face.mode}"


def _obs(_config: RenderConfig) -> str:
    return "the binary masks of OBS"


def _obs_without_threshold(_config: RenderConfig) -> str:
    return "--threshold off and the masks of OBS"


def _is_obs(config: RenderConfig) -> bool:
    return config.matte.style is MatteStyle.OBS


def _is_obs_without_threshold(config: RenderConfig) -> bool:
    return _is_obs(config) and config.matte.threshold is None


def _model(config: RenderConfig) -> str:
    return f"--model {config.segment.model}, which makes a matte itself"


def _makes_alpha(config: RenderConfig) -> bool:
    """Whether the model's masks are mattes, which nothing is done to (but in the masks of OBS)."""
    if _is_obs(config):
        return False
    from bgsoft.models.catalog import read_spec
    from bgsoft.segment.families import FAMILIES

    family = FAMILIES.get(read_spec(config.segment.model).family)
    return family is not None and family.makes_alpha


def _mask_rule(flag: str) -> _Rule:
    """Of what is done to masks only."""
    return _Rule(flag, _makes_alpha, _model, "a model that makes masks, like selfie-general")


def _looks_once(config: RenderConfig) -> bool:
    """Whether the model looks once a frame, although more was asked for."""
    from bgsoft.models.catalog import read_spec
    from bgsoft.segment.families import companion

    looks = config.segment.looks
    return looks is not Looks.FAST and companion(read_spec(config.segment.model), looks) is None


def _looks_for_no_face(config: RenderConfig) -> bool:
    return config.face.mode is FaceMode.OFF and config.face_data is None


_HOW_FACES_ARE_FOUND = {("face", "detect_every"), ("face", "small_faces")}


def _is_all_cpu(config: RenderConfig) -> bool:
    chosen = config.backends
    return (chosen.decode, chosen.infer, chosen.composite, chosen.encode) == (
        DecodeBackend.CPU,
        InferBackend.CPU,
        CompositeBackend.CPU,
        EncodeBackend.CPU,
    )


_MEASURED = tuple(str(kind) for kind in DEFAULT_STRENGTH_PCT)
_FILLED = (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO)

_RULES: Mapping[tuple[str, str], tuple[_Rule, ...]] = {
    ("effect", "strength"): (
        _Rule(
            "--strength",
            lambda config: config.effect.kind not in DEFAULT_STRENGTH_PCT,
            _effect,
            f"--effect {', '.join(_MEASURED[:-1])} or {_MEASURED[-1]}",
        ),
    ),
    ("effect", "background"): (
        _Rule(
            "--background",
            lambda config: config.effect.kind not in _FILLED,
            _effect,
            "--effect color, image or video, or no --effect at all",
        ),
    ),
    ("face", "subjects"): (
        _Rule(
            "--subjects",
            lambda config: config.face.mode not in (FaceMode.MAIN, FaceMode.ANONYMIZE),
            _face,
            "--face main or anonymize",
        ),
    ),
    ("face", "detect_every"): (
        _Rule("--face-every", _looks_for_no_face, _face, "--face guard, main or anonymize"),
    ),
    ("face", "small_faces"): (
        _Rule("--small-faces", _looks_for_no_face, _face, "--face guard, main or anonymize"),
    ),
    ("matte", "softness"): (
        _Rule("--softness", _is_obs, _obs, "another preset than obs"),
        _Rule(
            "--softness",
            lambda config: config.matte.threshold is None,
            lambda _config: "--threshold off",
            "a --threshold",
        ),
        _mask_rule("--softness"),
    ),
    ("matte", "refine"): (
        _Rule("--refine", _is_obs, _obs, "another preset than obs"),
        _mask_rule("--refine"),
    ),
    ("matte", "threshold"): (_mask_rule("--threshold"),),
    ("matte", "temporal"): (_mask_rule("--temporal"),),
    **{
        ("matte", field): (
            _Rule(flag, _is_obs_without_threshold, _obs_without_threshold, "a --threshold"),
            *rules,
        )
        for field, flag, rules in (
            ("min_area", "--min-area", (_mask_rule("--min-area"),)),
            ("smooth", "--smooth", (_mask_rule("--smooth"),)),
            ("expand_pct", "--expand", ()),
            ("feather_pct", "--feather", ()),
        )
    },
    ("segment", "looks"): (
        _Rule(
            "--matte",
            _looks_once,
            lambda config: f"--model {config.segment.model}",
            "--model selfie-general",
        ),
    ),
    ("backends", "gpu"): (
        _Rule(
            "--gpu",
            _is_all_cpu,
            lambda _config: "every stage on the CPU",
            "a stage on the GPU or on auto",
        ),
    ),
}
"""Section and field → rules."""


def check_named(
    config: RenderConfig, named: Mapping[str, Mapping[str, Any]], *, draws_faces: bool = False
) -> None:
    """Refuse settings that the user has named and that change nothing.

    Args:
        config: All settings in force.
        named: Section → field → value of what was named. None stands for off or auto, which asks
            for nothing.
        draws_faces: Faces are looked for whatever the settings are.

    Raises:
        ConfigError: One changes nothing; the message says what would give it an effect.
    """
    for section, values in named.items():
        for field, value in values.items():
            if draws_faces and (section, field) in _HOW_FACES_ARE_FOUND:
                continue
            for rule in _RULES.get((section, field), ()):
                if value is not None and rule.is_idle(config):
                    raise ConfigError(
                        f"{rule.flag} has no effect beside {rule.beside(config)}: "
                        f"it needs {rule.instead}"
                    )
