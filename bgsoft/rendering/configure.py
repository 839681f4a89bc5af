"""Settings of one render, from defaults, a preset and the user's own settings."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bgsoft.encode.specs import SPECS
from bgsoft.errors import ConfigError, PresetError, UnsupportedFormatError
from bgsoft.media.containers import ANIMATED
from bgsoft.media.endpoints import destination_for
from bgsoft.pipes import input_name, output_name
from bgsoft.rendering.without_effect import check_named
from bgsoft.settings.config import Codec, EffectKind, OutputFormat, RenderConfig
from bgsoft.settings.options import (
    DEFAULT_PRESET,
    OPTIONS,
    SECTIONS,
    TOP,
    check_text,
    settings_from_options,
)
from bgsoft.settings.presets import Layer, Preset, load_preset, merge
from bgsoft.suggestions import did_you_mean

if TYPE_CHECKING:
    from bgsoft.settings.keywords import FilePath


def build_config(
    input: Path,
    output: Path | None,
    *,
    preset: str | Preset | None = DEFAULT_PRESET,
    flags: Layer | None = None,
    unchecked: Collection[str] = (),
    **others: Any,
) -> RenderConfig:
    """Make the settings of a render from a preset and the user's settings.

    Args:
        input: Video to read; ``-``: stdin.
        output: Video to write; ``-``: stdout; None: the name from
            :func:`bgsoft.rendering.default_output.default_output`.
        preset: Name, path, or a loaded preset; None: the defaults only.
        flags: Settings that override the preset's, and fields of RenderConfig itself in section
            :data:`bgsoft.settings.options.TOP`.
        unchecked: As for :func:`bgsoft.rendering.without_effect.check_named`.
        others: Further fields of RenderConfig itself, which override ``flags``.

    Raises:
        PresetError: The preset is unknown, malformed, or has a value out of range.
        ConfigError: A value in ``flags`` or ``others`` is out of range, or one in ``flags`` has
            no effect; or stdin or stdout is a terminal; or the output cannot be named.
        OutputError: The output was not named, and a file of its default name exists.
    """
    check_text(str(input), "the input's name")
    check_text(str(output), "the output's name")
    loaded: Preset | None = None
    if preset is not None:
        loaded = preset if isinstance(preset, Preset) else load_preset(preset)
    named = flags or {}
    flags = dict(named)
    others = {**flags.pop(TOP, {}), **others}
    below = loaded.settings if loaded else {}
    if output is None:
        # Imported only here, so that other renders start faster.
        from bgsoft.rendering.default_output import default_output

        output = default_output(input, loaded, merge(below, flags), others)
    input, output = input_name(input), output_name(output)
    format = others.get("format", OutputFormat.AUTO)
    below, left_out = _fitting(below, merge(below, flags), output, format)
    merged = merge(below, flags)
    sections: dict[str, Any] = {}
    for section, values in merged.items():
        try:
            sections[section] = SECTIONS[section](**values)
        except ConfigError as exc:
            if loaded is None or flags.get(section):
                raise
            raise PresetError(f"preset {loaded.name}: {exc}", path=loaded.path) from exc
    config = RenderConfig(
        input=input,
        output=output,
        preset=loaded.name if loaded else None,
        preset_file=loaded.path if loaded else None,
        config_file=loaded.config_file if loaded else None,
        left_out=left_out,
        **sections,
        **others,
    )
    check_named(config, named, unchecked)
    return config


def config_from_keywords(
    function: str,
    known: Collection[str],
    given: Mapping[str, Any],
    *,
    input: FilePath = os.devnull,
    output: FilePath = os.devnull,
    preset: str | None,
) -> RenderConfig:
    """Make the settings of a function of the Python interface from its keyword arguments.

    Args:
        function: Name of the function.
        known: Settings that the function has.
        given: Keyword → value.
        input: Video to read, if any.
        output: Video to write, if any.
        preset: As for :func:`build_config`.

    Raises:
        TypeError: A keyword is not a setting of the function.
        PresetError, ConfigError: As :func:`build_config`.
    """
    for name in given:
        if name not in known:
            why = did_you_mean(name, sorted(known))
            if name in OPTIONS:
                why = f": it is a setting of bgsoft.render, but not of {function}"
            raise TypeError(f"{function}() takes no keyword {name!r}{why}")
    check_text(os.fspath(input), "the input's name")
    check_text(os.fspath(output), "the output's name")
    flags = settings_from_options(given, from_text=False)
    return build_config(Path(input), Path(output), preset=preset, flags=flags)


def _fitting(
    preset: Layer, settings: Layer, output: Path, format: OutputFormat
) -> tuple[Layer, str]:
    """Return a preset without settings of the encoder that do not fit an output, and a notice.

    They are values for its codec, or for H.264 and HEVC if it sets none.

    Args:
        preset: The preset.
        settings: All settings of the render.
        output: The output.
        format: Its container.
    """
    encode = preset.get("encode", {})
    codec = encode.get("codec", Codec.AUTO)
    alpha = settings.get("effect", {}).get("kind") is EffectKind.ALPHA
    try:
        container = destination_for(output, format).container
    except UnsupportedFormatError:
        return preset, ""  # the render explains the error
    if codec is Codec.AUTO:
        fits = Codec.H264 in container.codecs and not alpha
    else:
        fits = codec in container.codecs and (SPECS[codec].alpha or not alpha)
    if fits:
        return preset, ""
    notice = ""
    names = " and ".join(name for name in ("chroma", "encoder_option") if name in encode)
    if codec is Codec.AUTO and names:
        notice = (
            f"{names} of preset or config.toml left out: without a codec there, the encoder's"
            " settings are for H.264 and HEVC"
        )
    is_used = codec is not Codec.AUTO and settings["encode"].get("codec") is codec
    if is_used and container.codecs - ANIMATED:  # pictures and animations leave no choice
        what = f"{container.name} with alpha" if alpha else container.name
        notice = f"codec {codec} of preset or config.toml left out: {what} cannot hold it"
    return {**preset, "encode": {}}, notice
