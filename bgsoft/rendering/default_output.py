"""The default output of a render: a new file next to the input.

``in.mp4`` becomes ``in.soft.mp4`` with the preset soft. With cutout it becomes ``in.cutout.mov``,
as MP4 cannot contain an alpha channel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.errors import ConfigError, OutputError
from bgsoft.media.containers import CONTAINERS, Container, container_for
from bgsoft.media.endpoints import EndpointKind, destination_for, source_for, suffix_like
from bgsoft.media.patterns import is_pattern
from bgsoft.outputs import DASH
from bgsoft.settings.config import Codec, EffectKind, OutputFormat
from bgsoft.settings.presets import Layer, Preset, load_preset
from bgsoft.suggestions import network_address


def default_output(
    input: Path, preset: Preset | None, settings: Layer, top: Mapping[str, Any]
) -> Path:
    """Return the name of a new file next to the input.

    Args:
        input: Video or picture as the user named it.
        preset: The middle of the name; without one, or with another effect, the effect.
        settings: All settings of the render.
        top: Given fields of RenderConfig itself.

    Raises:
        ConfigError: The input is not one file, but a pipe, a folder or an address.
        OutputError: The file exists already, or the folder is not writable.
    """
    obstacle = _obstacle(input)
    if obstacle is not None:
        shown = network_address(input) or input
        raise ConfigError(f"cannot name an output for {shown}: {obstacle}")
    effect = settings.get("effect", {}).get("kind", EffectKind.BLUR)
    label = str(effect)
    if preset is not None:
        own = load_preset(str(preset.path)).settings
        if own.get("effect", {}).get("kind", EffectKind.BLUR) is effect:
            label = preset.name
    codec = settings.get("encode", {}).get("codec", Codec.AUTO)
    format = top.get("format", OutputFormat.AUTO)
    if format is OutputFormat.AUTO:
        suffix = _suffix(input, codec, alpha=effect is EffectKind.ALPHA)
    else:
        suffix = f".{format}"
    output = input.with_name(f"{input.stem}.{label}{suffix}")
    if destination_for(output).exists() and not (top.get("overwrite") or top.get("skip_existing")):
        text = "it exists; use --overwrite to replace it, or name another file as OUT"
        raise OutputError(f"cannot write {output}: {text}", path=output)
    if os.path.exists(input) and not os.access(output.parent, os.W_OK | os.X_OK):  # noqa: PTH110
        text = f"the folder {output.parent} is not writable; name a file elsewhere as OUT"
        raise OutputError(f"cannot write {output.name}: {text}", path=output)
    return output


def _obstacle(input: Path) -> str | None:
    """Return the reason why no output can be named after an input, with a remedy."""
    if network_address(input) is not None:
        return "it is an address, and only local files are read; download it first"
    kind = source_for(input).kind
    if input == DASH or kind is EndpointKind.PIPE:
        return "it is a pipe; name a file as OUT, or - for stdout"
    if os.path.isdir(input):  # noqa: PTH112 - also for a name that is too long
        return "it is a folder; name a video as OUT, or use bgsoft batch for all videos in it"
    if kind is EndpointKind.SEQUENCE or is_pattern(input):
        return "it stands for several pictures; name a video as OUT, or pictures: out/%05d.png"
    if os.path.exists(input) and not os.path.isfile(input):  # noqa: PTH110, PTH113
        return "it is not a regular file; name a file as OUT, or use bgsoft live for a camera"
    return None


def _suffix(input: Path, codec: Codec, *, alpha: bool) -> str:
    """Return the input's suffix if such files can be written, else a suitable one."""
    own = container_for(Path(f"any{suffix_like(input)}"))
    fitting = [
        each
        for codec in (codec, Codec.AUTO)  # the codec may be a preset's, which is left out then
        for each in (own, *CONTAINERS)
        if _fits(each, own, codec, alpha=alpha)
    ]
    chosen = fitting[0] if fitting else own  # the render reports the conflict
    suffix = input.suffix
    return suffix if suffix.lower() in chosen.extensions else chosen.extensions[0]


def _fits(container: Container, own: Container, codec: Codec, *, alpha: bool) -> bool:
    """Return True if a container can replace the input's own for the output."""
    if (container.still is None) != (own.still is None):
        return False
    if container.still is not None:
        return container.still.alpha or not alpha
    if alpha:
        return container.alpha_codec is not None and codec in (Codec.AUTO, container.alpha_codec)
    return codec is Codec.AUTO or codec in container.codecs
