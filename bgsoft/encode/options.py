"""Options that the user passes to an FFmpeg encoder, checked before anything is written.

The encoder is opened with them. An option that it does not know is left over; FFmpeg's message
about a value becomes the reason of the error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import av
from av.video.codeccontext import VideoCodecContext

from bgsoft.encode.codecs import EncoderChoice
from bgsoft.encode.specs import SPECS
from bgsoft.errors import ConfigError
from bgsoft.media.info import VideoInfo
from bgsoft.media.pyav import PYAV_ERRORS
from bgsoft.settings.config import Codec, EncodeConfig
from bgsoft.suggestions import did_you_mean

_QUALITY, _SPEED = "use --quality instead", "use --speed instead"
_THREADS = "use --threads instead, which does not change the pictures"
_INPUT = "it describes the frames, and comes from the input"
_STREAM = "it depends on the container"
_FILES = "its encoders read or write files of their own"
_OURS = {
    **dict.fromkeys(("crf", "global_quality", "qscale", "q"), _QUALITY),
    **dict.fromkeys(("preset", "cpu-used", "speed", "quality"), _SPEED),
    **dict.fromkeys(("threads", "thread_type", "pools", "lp", "frame-threads"), _THREADS),
    **dict.fromkeys(("pixel_format", "pix_fmt", "video_size", "s", "r", "time_base"), _INPUT),
    **dict.fromkeys(("colorspace", "color_range", "color_primaries", "color_trc"), _INPUT),
    **dict.fromkeys(("chroma_sample_location", "aspect", "framerate", "field_order"), _INPUT),
    **dict.fromkeys(("flags", "flags2", "export_side_data"), _STREAM),
    **dict.fromkeys(("stats", "passlogfile", "pass", "csv", "recon", "dump-yuv"), _FILES),
    "drop-threshold": "no frame may be lost",
    **dict.fromkeys(
        ("x264-params", "x264opts", "x265-params", "svtav1-params"),
        "pass the parameters themselves",
    ),
}
"""Options that bgsoft sets itself, and why they are rejected."""

_X264_WORDS = {
    "tune": {
        *("film", "animation", "grain", "stillimage"),
        *("psnr", "ssim", "fastdecode", "zerolatency"),
    },
    "profile": {"baseline", "main", "high", "high10", "high422", "high444"},
}
"""Values that x264 accepts; it prints a line to stderr about others."""
_BASES = ("b", "qp")
"""Bases of rate control other than the quality."""


def with_options(choice: EncoderChoice, config: EncodeConfig, info: VideoInfo) -> EncoderChoice:
    """Return an encoder's settings with the user's options among them.

    Raises:
        ConfigError: An option is unknown, has an invalid value, or is set by bgsoft itself.
    """
    asked = dict(text.split("=", 1) for text in config.encoder_option)
    rest = dict(choice.options)
    based = next((key for key in _BASES if key in asked), None)
    if based is not None:
        if config.quality is not None:
            raise ConfigError(f"cannot combine --quality and --encoder-option {based}: choose one")
        rest.pop("crf", None)
    without = replace(choice, options=rest)
    for key, value in asked.items():
        _check(key, value, without, info)
    together = replace(choice, options=_merged(choice.codec, rest, asked))
    problem, _ = open_briefly(together, info)
    if problem and not open_briefly(without, info)[0]:
        texts = " ".join(config.encoder_option)
        raise ConfigError(f"cannot use --encoder-option {texts}: {choice.encoder}: {problem}")
    return together


def _check(key: str, value: str, choice: EncoderChoice, info: VideoInfo) -> None:
    """Check one option by opening the encoder; raises ConfigError."""
    encoder, label = choice.encoder, f"--encoder-option {key}"
    parameters, common = SPECS[choice.codec].parameter_keys, SPECS[choice.codec].common_options
    if key in _OURS:
        raise ConfigError(f"cannot use {label}: {_OURS[key]}")
    if key == "bf" and choice.options.get("bf") == "0":
        raise ConfigError(f"cannot use {label}: {_STREAM}")
    words = _X264_WORDS.get(key) if encoder == "libx264" else None
    if words and not set(value.replace("+", ",").split(",")) <= words:
        raise ConfigError(f"{label} must consist of {', '.join(sorted(words))}, not {value!r}")
    if key in parameters:
        if ":" in value:
            raise ConfigError(f"cannot use {label}={value}: write a comma for the colon")
    elif common is not None and key not in common and _is_common(key):
        raise ConfigError(f"cannot use {label}: it has no effect on {encoder}")
    merged = replace(choice, options=_merged(choice.codec, choice.options, {key: value}))
    problem, left_over = open_briefly(merged, info)
    if key in left_over:
        near = did_you_mean(key, {*parameters, *(common or ())})
        hint = near if near.startswith(";") else ""
        raise ConfigError(f"cannot use {label}: {encoder} does not know it{hint}")
    if problem and not open_briefly(choice, info)[0]:
        raise ConfigError(f"cannot use {label}={value}: {encoder}: {problem}")


def _merged(codec: Codec, options: dict[str, str], asked: dict[str, str]) -> dict[str, str]:
    """Merge options; an encoder's own parameters go into its option for them."""
    merged = dict(options)
    into = SPECS[codec].parameters[0]
    for key, value in asked.items():
        if key in SPECS[codec].parameter_keys:
            merged[into] = ":".join(filter(None, (merged.get(into), f"{key}={value}")))
        else:
            merged[key] = value
    return merged


def _is_common(key: str) -> bool:
    """Return whether FFmpeg accepts an option for every encoder."""
    context = _context("rawvideo", {key: "1"}, pix_fmt="yuv420p", width=16, height=16)
    try:
        context.open()
    except PYAV_ERRORS:
        return True  # the name is known, the value is not valid
    return key not in (context.options or {})


def open_briefly(choice: EncoderChoice, info: VideoInfo) -> tuple[str, set[str]]:
    """Open an encoder and discard it.

    Returns:
        FFmpeg's reason for a failure (else empty), and the options that the encoder ignored.
    """
    options = choice.options | {"err_detect": "explode"}
    context = _context(
        choice.encoder,
        options,
        pix_fmt=choice.pixel_format,
        width=info.format.width,
        height=info.format.height,
        time_base=info.time_base,
        framerate=info.nominal_rate,
    )
    level, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    problem = ""
    with av.logging.Capture(local=False) as said:  # other threads' lines are captured too
        av.logging.set_level(av.logging.WARNING)
        av.logging.set_skip_repeated(False)  # the reason may just have been logged
        try:
            context.open()
        except PYAV_ERRORS as exc:
            problem = getattr(exc, "strerror", None) or str(exc)
        finally:
            av.logging.set_level(level)
            av.logging.set_skip_repeated(skips)
    lines = [text.strip() for _, name, text in said if name == choice.encoder]
    # x265 continues after FFmpeg's warning about a parameter; the other encoders fail.
    unheeded = [line for line in lines if line.startswith(("Unknown option", "Invalid value"))]
    problem = next(iter(unheeded), problem and next(iter(lines), problem))
    return problem.rstrip("."), set() if problem else set(context.options or {})


def _context(encoder: str, options: dict[str, str], **settings: Any) -> VideoCodecContext:
    context = av.CodecContext.create(encoder, "w")
    assert isinstance(context, VideoCodecContext)
    for name, value in settings.items():
        setattr(context, name, value)
    context.options = dict(options)
    return context
