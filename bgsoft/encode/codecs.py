"""Choice of a CPU encoder and its settings.

A value out of range is a :class:`~bgsoft.errors.ConfigError` that states the range.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import cache
from pathlib import Path

from bgsoft.encode.base import PictureKind
from bgsoft.encode.hdr import HDR_CODECS, hdr_notices, hdr_parameters
from bgsoft.encode.specs import SPECS, EncoderSpec
from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.frame import UNSPECIFIED, FrameFormat
from bgsoft.media.containers import ANIMATED, CONTAINERS, Container
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.settings.config import Chroma, Codec, EncodeConfig
from bgsoft.threads import usable_cores

_QP_TO_LAMBDA = 118
"""FFmpeg's FF_QP2LAMBDA: units of ``global_quality`` for one step of ``qscale``."""
_X264_ROWS_A_THREAD, _X264_THREADS = 90, 12
"""1080 rows get twelve threads if there are cores for them, each of 20 MB. With the other stages
on a GPU, 16 cores encode 73 frames/s with four threads and 119 with eight. A frame takes 50 ms, and
each thread encodes one."""

_VP9_LACKS = (4, 10)
"""Matrices of which libvpx writes none: FCC, and BT.2020 with constant luminance."""
_GIF_ASPECTS = Fraction(1, 4), Fraction(271, 64)
"""Least pixel aspect that GIF holds, in steps of 1/64, and the first above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderChoice:
    """An encoder with all its settings."""

    codec: Codec
    encoder: str
    """FFmpeg's name of the encoder."""
    pixel_format: str
    """The library's name of the input format."""
    bit_depth: int
    """Bits per coded sample: 8 or 10."""
    kind: PictureKind = PictureKind.COLOR
    options: dict[str, str] = field(default_factory=dict)
    """Options of the encoder, by the library's names."""
    notices: tuple[str, ...] = ()
    """Notices for the user."""
    limits_range: bool = False
    """Whether full-range frames are coded in limited range, the only one that decoders know."""
    at_once: bool = False
    """Whether a frame's packet must not wait for later frames: the threads share each frame."""

    @property
    def coded_format(self) -> str:
        """FFmpeg's name of the coded format, whatever its layout in memory."""
        semi_planar = {"nv12": "yuv420p", "p010": "yuv420p10le"}
        return semi_planar.get(self.pixel_format.lower(), self.pixel_format)


def choose_codec(
    settings: EncodeConfig, container: Container, picture: FrameFormat, kind: PictureKind
) -> Codec:
    """Return the output's video codec.

    Raises:
        UnsupportedFormatError: The container cannot hold the requested codec, or no codec with
            the requested alpha channel.
        ConfigError: The requested codec has no alpha channel.
    """
    alpha = kind is PictureKind.COLOR_ALPHA
    if alpha and container.alpha_codec is None:
        names = ", ".join(c.extensions[0] for c in CONTAINERS if c.alpha_codec is not None)
        raise UnsupportedFormatError(
            f"cannot write {container.name}: it cannot hold an alpha channel; write one of {names}",
            stage="encode",
        )
    codec = settings.codec
    if codec is Codec.AUTO:
        if alpha and container.alpha_codec is not None:
            return container.alpha_codec
        deep = source_depth(picture, kind) == 10
        if len(container.codecs) == 1:
            return next(iter(container.codecs))
        if Codec.H264 not in container.codecs:
            return Codec.AV1 if deep else Codec.VP9
        return Codec.HEVC if deep and Codec.HEVC in container.codecs else Codec.H264
    if codec not in container.codecs:
        fits = ", ".join(c.extensions[0] for c in CONTAINERS if codec in c.codecs)
        raise UnsupportedFormatError(
            f"cannot write {container.name}: it cannot hold {codec_label(codec)}; write one of "
            f"{fits}, or use --codec auto",
            stage="encode",
        )
    if alpha and not SPECS[codec].alpha:
        raise ConfigError(
            f"cannot use --codec {codec}: it has no alpha channel here; use --codec auto"
        )
    return codec


_KEPT = {"4:2:2": "422", "4:4:0": "444", "4:4:4": "444"}
"""Source subsampling → the coarsest that keeps all of it, in FFmpeg's names. 4:4:0, which is 4:2:2
turned by a quarter, is rarely supported."""


def kept_chroma(
    settings: EncodeConfig, container: Container, info: VideoInfo, kind: PictureKind
) -> str:
    """Return the subsampling that keeps the source's colour, ``422`` or ``444``.

    It is empty where the output is 4:2:0.

    Raises:
        ConfigError: ``--chroma keep`` is set, and the codec does not support it.
        UnsupportedFormatError: As :func:`choose_codec`.
    """
    if container.still is not None or kind is PictureKind.MATTE:
        return ""
    codec = choose_codec(settings, container, info.format, kind)
    keeps = SPECS[codec].keeps_chroma
    if settings.chroma is Chroma.KEEP and not keeps:
        able = [each for each, spec in SPECS.items() if spec.keeps_chroma]
        fits = ", ".join(each for each in able if each in container.codecs)
        needs = f"a --codec of {fits}"
        if not fits:
            needs = f"another container than {container.name}, and a --codec of {', '.join(able)}"
        raise ConfigError(
            f"cannot use --chroma keep: {codec_label(codec)} is 4:2:0 here; choose {needs}"
        )
    if settings.chroma not in keeps or info.sampling == "4:2:0":
        return ""
    kept = _KEPT.get(info.sampling, "")
    if codec is Codec.PRORES and kept > "422" and _names_prores_422(settings):
        kept = ""
    if settings.chroma is Chroma.KEEP and not kept:
        raise ConfigError(f"cannot use --chroma keep: {info.sampling} does not fit these settings")
    return kept


def codes_odd_size(codec: Codec, picture: FrameFormat, kind: PictureKind) -> bool:
    """Return whether a codec codes 4:2:0 as 4:4:4, because it cannot crop it to an odd size.

    Where the source's colour was finer, the notice of that covers this.
    """
    spec = SPECS[codec]
    coarse = kind is not PictureKind.COLOR_ALPHA and spec.chroma == "420"
    return coarse and spec.full_chroma == "444" and _is_odd(picture)


def reports_lost_chroma(
    settings: EncodeConfig, container: Container, info: VideoInfo, kind: PictureKind
) -> bool:
    """Return whether the notice of an odd size also covers colour finer than 4:2:0."""
    if container.still is not None or kind is not PictureKind.COLOR:
        return False
    return codes_odd_size(choose_codec(settings, container, info.format, kind), info.format, kind)


def _is_odd(picture: FrameFormat) -> bool:
    return picture.width % 2 == 1 or picture.height % 2 == 1


def _names_prores_422(settings: EncodeConfig) -> bool:
    """Return whether the user asked for a ProRes profile without 4:4:4."""
    options = dict(text.split("=", 1) for text in settings.encoder_option)
    return options.get("profile", "auto") in ("proxy", "lt", "standard", "hq")


def source_depth(picture: FrameFormat, kind: PictureKind) -> int:
    """Return the useful bits per sample; a matte has eight, whatever the picture has."""
    return 8 if kind is PictureKind.MATTE else picture.bit_depth


def codec_label(codec: Codec) -> str:
    """Return the usual spelling of a codec's name; not for ``auto``."""
    return SPECS[codec].label


def choose_encoder(
    settings: EncodeConfig,
    container: Container,
    info: VideoInfo,
    kind: PictureKind = PictureKind.COLOR,
    threads: int = 0,
) -> EncoderChoice:
    """Return the CPU encoder for a render, with all its settings.

    With ``threads=0``, the encoder chooses their number; x264's depends on the picture's height and
    the machine's cores.

    Raises:
        UnsupportedFormatError: No encoder fits container and alpha together.
        ConfigError: ``--quality`` or ``--speed`` is out of this encoder's range.
    """
    picture = info.format
    codec = choose_codec(settings, container, picture, kind)
    spec = SPECS[codec]
    notices: list[str] = []
    if container.max_rate is not None and info.nominal_rate > container.max_rate:
        most = f"more than {container.max_rate} frames/s"
        notices.append(f"{container.name} with {most} is played slowly by most programs")
    depth = source_depth(picture, kind)
    if depth not in spec.depths:
        if depth == 10:
            notices.append(f"{spec.label} is encoded with 8 bits here; the source has 10")
        depth = spec.depths[0]
    alpha = kind is PictureKind.COLOR_ALPHA
    odd = _is_odd(picture)
    kept = kept_chroma(settings, container, info, kind)
    pixel_format = spec.pixel_format(depth, odd=odd, alpha=alpha, kept=kept)
    if kept and Chroma.AUTO not in spec.keeps_chroma:
        named = f"{pixel_format[3]}:{pixel_format[4]}:{pixel_format[5]}"
        notices.append(f"{spec.label} in {named}, which phones, browsers and most players lack")
    elif codes_odd_size(codec, picture, kind) and not kept:
        odd_size = f"{picture.width}x{picture.height} is odd, so {spec.label} codes"
        lacking = "4:4:4, which many hardware players lack"
        if info.lost_chroma and kind is PictureKind.COLOR:
            notices.append(f"{info.lost_chroma[0]}; {odd_size} it as {lacking}")
        else:
            notices.append(f"{odd_size} {lacking}")
    if codec is Codec.RAW:
        notices += _metadata_notices(container, info)
    elif codec in ANIMATED and not picture.color.is_near_srgb and kind is not PictureKind.MATTE:
        notices.append(f"{spec.label} cannot store the colour description; players assume sRGB")
    if codec not in HDR_CODECS:
        notices += hdr_notices(spec.label, info, kind)
    if codec is Codec.VP9 and picture.color.matrix in _VP9_LACKS and kind is not PictureKind.MATTE:
        notices.append(f"{spec.label} cannot store colour matrix {picture.color.matrix} (H.273)")
    aspect = info.sample_aspect_ratio
    if codec in ANIMATED and not _holds_aspect(codec, aspect):
        text = f"pixel aspect {aspect.numerator}:{aspect.denominator} left out"
        notices.append(f"{text}: {spec.label} cannot store it")
    options = spec.options | _quality(spec, settings.quality) | _speed(spec, settings.speed)
    options |= _own_options(codec, picture, container, pixel_format)
    if spec.min_threads:
        threads = max(spec.min_threads, threads or usable_cores())
    if threads and not spec.thread_key:
        options.setdefault("threads", str(threads))
    if parameters := _parameters(codec, info, kind, threads):
        options[spec.parameters[0]] = parameters
    return EncoderChoice(
        codec=codec,
        encoder=spec.encoder,
        pixel_format=pixel_format,
        bit_depth=depth,
        kind=kind,
        options=options,
        limits_range=spec.limits_range,
        notices=tuple(notices),
    )


def _holds_aspect(codec: Codec, aspect: Fraction) -> bool:
    """Return whether an animation's file holds a pixel aspect; GIF89a has a byte for it."""
    return aspect == 1 or (codec is Codec.GIF and _GIF_ASPECTS[0] <= aspect < _GIF_ASPECTS[1])


def _metadata_notices(container: Container, info: VideoInfo) -> list[str]:
    """Return notices of properties that raw video and its container cannot store."""
    color, aspect = info.format.color, info.sample_aspect_ratio
    told = {color.primaries, color.transfer, color.matrix} != {UNSPECIFIED}
    lost = ["the colour description"] if told else []
    if color.full_range and container.muxer == "nut":
        lost.append("the full range")
    if aspect != 1 and container.muxer == "nut":
        lost.append(f"the pixel aspect {aspect.numerator}:{aspect.denominator}")
    return [f"{container.name} cannot hold {', '.join(lost)} of raw video"] if lost else []


def _parameters(codec: Codec, info: VideoInfo, kind: PictureKind, threads: int) -> str:
    """Return the encoder's own ``key=value:…`` parameters; may be empty."""
    spec = SPECS[codec]
    parts = [spec.parameters[1]]
    if kind is not PictureKind.MATTE:
        parts.append(hdr_parameters(codec, info))
    if codec is Codec.H264:
        parts.append(_x264_assembly(info.format.width))
    if threads and spec.thread_key:
        parts.append(f"{spec.thread_key}={threads}")
    return ":".join(filter(None, parts))


def _own_options(
    codec: Codec, picture: FrameFormat, container: Container, pixel_format: str
) -> dict[str, str]:
    """Return options of one codec that depend on the picture and the container."""
    own: dict[str, str] = {}
    if codec is Codec.H264:
        # Three for two cores, as x264 itself would; with eight a render takes 4 % longer there. The
        # pictures depend on the number, so it must not depend on --threads and --jobs.
        most = min(_X264_THREADS, usable_cores() * 3 // 2)
        own["threads"] = str(max(2, min(most, round(picture.height / _X264_ROWS_A_THREAD))))
        if container.numbers_frames:
            own["bf"] = "0"  # pictures are shown in the order they are stored in
    elif codec is Codec.PRORES:
        own["profile"] = "4444" if "444" in pixel_format else "hq"
        if pixel_format.startswith("yuva"):
            own["alpha_bits"] = "16"
    elif codec is Codec.FFV1:
        # FFmpeg's encoder rejects numbers of slices that would cut an odd picture through a chroma
        # sample; it finds a valid one if none is given. For small pictures its choice would be
        # empty slices, and pictures above CIF need at least two.
        width, height = picture.width, picture.height
        if width % 2 == height % 2 == 0 and min(width, height) >= 8:
            own["slices"] = "16"
        elif width <= 352 and height <= 288:
            own["slices"] = "1"
    return own


def _x264_assembly(width: int) -> str:
    """Return x264 parameters for reproducible pictures; may be empty.

    x264's AVX-512 code for the macroblock tree reads memory behind a row of macroblocks, unless
    their number is a multiple of eight. Pictures then depend on earlier work of the process.
    AVX2 takes up to a tenth more time, so AVX-512 is kept for such widths (1280, 1920).
    """
    macroblocks = -(-width // 16)
    return "asm=AVX2" if macroblocks % 8 and _has_avx512() else ""


@cache
def _has_avx512() -> bool:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return "avx512f" in line.split()
    return False


def checked_quality(asked: int, encoder: str, best: int, worst: int) -> int:
    """Return the requested quality.

    Raises:
        ConfigError: It is out of the encoder's range.
    """
    if not best <= asked <= worst:
        raise ConfigError(
            f"--quality of {encoder} must be between {best} (best) and {worst}, not {asked}"
        )
    return asked


def _quality(spec: EncoderSpec, asked: int | None) -> dict[str, str]:
    """Return the option for the quality, checked; the default's where none is requested."""
    quality = spec.quality_default
    if asked is not None:
        if spec.quality_range is None:
            raise ConfigError(f"cannot use --quality with {spec.label}: it is lossless")
        quality = checked_quality(asked, f"{spec.label} ({spec.encoder})", *spec.quality_range)
    if quality is None:
        return {}
    if spec.quality_option == "global_quality":
        return {"flags": "+qscale", "global_quality": str(quality * _QP_TO_LAMBDA)}
    return {spec.quality_option: str(quality)}


def _speed(spec: EncoderSpec, asked: str | None) -> dict[str, str]:
    """Return the option for the speed, checked; the default's where none is requested."""
    if asked is not None and not spec.speeds:
        raise ConfigError(
            f"cannot use --speed with {spec.label}: {spec.encoder} has no such setting"
        )
    if asked is not None and asked not in spec.speeds:
        numbers = spec.speeds[0].isdigit()
        valid = f"{spec.speeds[0]} to {spec.speeds[-1]}" if numbers else ", ".join(spec.speeds)
        raise ConfigError(
            f"--speed of {spec.label} ({spec.encoder}) must be one of {valid}, not {asked!r}"
        )
    speed = asked or spec.speed_default
    return {spec.speed_option: speed} if speed else {}
