"""Choice of a CPU encoder and its settings, as data.

Ranges and defaults are those of the encoders (x264, x265, SVT-AV1, libvpx, FFmpeg's ``prores_ks``
and ``ffv1``). A value out of range is a :class:`~bgsoft.errors.ConfigError` that states the range.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path

from bgsoft.encode.base import PictureKind
from bgsoft.encode.hdr import HDR_CODECS, hdr_parameters
from bgsoft.errors import ConfigError, UnsupportedFormatError
from bgsoft.frame import UNSPECIFIED, FrameFormat
from bgsoft.media.containers import ANIMATED, CONTAINERS, Container
from bgsoft.media.info import VideoInfo
from bgsoft.records import dataclass
from bgsoft.settings.config import Chroma, Codec, EncodeConfig
from bgsoft.workers import usable_cores

_QP_TO_LAMBDA = 118
"""FFmpeg's FF_QP2LAMBDA: units of ``global_quality`` for one step of ``qscale``."""
_X264_ROWS_A_THREAD, _X264_THREADS = 90, 12
"""1080 rows get twelve threads if there are cores for them, each of 20 MB. With the other stages
on a GPU, 16 cores encode 73 frames/s with four threads and 119 with eight: a frame takes 50 ms, and
each thread encodes one."""
_X26X_PRESETS = (
    *("ultrafast", "superfast", "veryfast", "faster", "fast"),
    *("medium", "slow", "slower", "veryslow", "placebo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _EncoderSpec:
    """Settings of one CPU encoder."""

    encoder: str
    label: str
    depths: tuple[int, ...] = (8, 10)
    """Bits per sample that it supports."""
    chroma: str = "420"
    """Subsampling, as in FFmpeg's names of pixel formats."""
    full_chroma: str = "420"
    """Subsampling with an alpha channel, and for odd sizes: H.264 and HEVC cannot crop 4:2:0 to
    an odd
    width or height (ITU-T H.264, 7.4.2.1.1: in units of a chroma sample)."""
    keeps_chroma: tuple[Chroma, ...] = ()
    """Values of ``--chroma`` with which it keeps the source's 4:2:2 or 4:4:4. With AUTO among
    them it
    does so unasked; without, only on request, as phones and browsers do not play it. Empty:
    never."""
    alpha: bool = False
    """Whether it supports an alpha channel."""
    limits_range: bool = False
    """Whether its decoders treat all samples as limited range."""
    rgb: str = ""
    """Format of its R'G'B' samples or palette; empty: it takes Y'CbCr."""
    nv12: bool = False
    """Whether it takes 8-bit frames in their layout in memory."""
    quality_range: tuple[int, int] | None = None
    """None: it has no quality setting."""
    quality_default: int | None = None
    quality_option: str = "crf"
    speeds: tuple[str, ...] = ()
    """Valid values of ``--speed``; empty: it has no speed setting."""
    speed_default: str = ""
    speed_option: str = "preset"
    options: dict[str, str] = field(default_factory=dict)
    parameters: tuple[str, str] = ("", "")
    """(option, fixed part) of the encoder's own ``key=value:…`` parameters."""
    thread_key: str = ""
    """Which of these parameters is the number of threads; empty: FFmpeg's option ``threads``."""
    min_threads: int = 0
    """Fewest threads that give the same pictures as more; 0: any number does."""

    def pixel_format(self, depth: int, *, odd: bool, alpha: bool, kept: str = "") -> str:
        """Return FFmpeg's name of the encoder's input format.

        ``kept`` is the coarsest allowed subsampling, from :func:`kept_chroma`.
        """
        if self.rgb:
            return self.rgb
        chroma = max(self.full_chroma if odd or alpha else self.chroma, kept)
        if self.nv12 and depth == 8 and chroma == "420":
            return "nv12"
        return f"yuv{'a' if alpha else ''}{chroma}p{'10le' if depth == 10 else ''}"


_SPECS: dict[Codec, _EncoderSpec] = {
    Codec.H264: _EncoderSpec(
        encoder="libx264",
        label="H.264",
        full_chroma="444",
        keeps_chroma=(Chroma.KEEP,),
        nv12=True,
        quality_range=(0, 51),
        quality_default=18,
        speeds=_X26X_PRESETS,
        speed_default="veryfast",
        parameters=("x264-params", ""),
    ),
    Codec.HEVC: _EncoderSpec(
        encoder="libx265",
        label="HEVC",
        full_chroma="444",
        keeps_chroma=(Chroma.KEEP,),
        quality_range=(0, 51),
        quality_default=20,
        speeds=_X26X_PRESETS,
        speed_default="veryfast",
        # x265 prints its banner to stderr by default. The settings that it writes into the file
        # depend on its threads, and chunks of a video must agree (:mod:`bgsoft.chunks`). From four
        # threads on it works on several frames at a time, and all numbers give the same pictures.
        parameters=("x265-params", "log-level=none:info=0"),
        thread_key="pools",
        min_threads=4,
    ),
    Codec.AV1: _EncoderSpec(
        encoder="libsvtav1",
        label="AV1",
        quality_range=(0, 63),
        quality_default=28,
        speeds=tuple(str(number) for number in range(14)),
        speed_default="9",
        parameters=("svtav1-params", ""),
        thread_key="lp",
    ),
    Codec.VP9: _EncoderSpec(
        encoder="libvpx-vp9",
        label="VP9",
        depths=(8,),
        alpha=True,
        quality_range=(0, 63),
        quality_default=24,
        speeds=tuple(str(number) for number in range(9)),
        speed_default="5",
        speed_option="cpu-used",
        options={"row-mt": "1", "deadline": "good", "tile-columns": "2"},
    ),
    Codec.PRORES: _EncoderSpec(
        encoder="prores_ks",
        label="ProRes",
        depths=(10,),
        chroma="422",
        full_chroma="444",
        keeps_chroma=(Chroma.AUTO, Chroma.KEEP),
        alpha=True,
        quality_range=(1, 64),
        quality_option="global_quality",
        options={"vendor": "apl0"},
        limits_range=True,
    ),
    Codec.FFV1: _EncoderSpec(
        encoder="ffv1",
        label="FFV1",
        keeps_chroma=(Chroma.AUTO, Chroma.KEEP),
        alpha=True,
        # Version 3 with checksums and independent frames, as archives use it.
        options={"level": "3", "slicecrc": "1", "g": "1"},
    ),
    Codec.RAW: _EncoderSpec(
        encoder="rawvideo",
        label="raw video",
        keeps_chroma=(Chroma.AUTO, Chroma.KEEP),
        full_chroma="420",
        alpha=True,
    ),
    Codec.GIF: _EncoderSpec(encoder="gif", label="GIF", depths=(8,), alpha=True, rgb="pal8"),
    # FFmpeg's encoder of whole animations keeps them in memory; its muxer joins single pictures.
    Codec.WEBP: _EncoderSpec(
        encoder="libwebp",
        label="WebP",
        depths=(8,),
        alpha=True,
        rgb="bgra",
        quality_range=(1, 100),
        quality_default=80,
        quality_option="quality",
    ),
}


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
            f"{container.name} cannot hold an alpha channel; write one of {names}", stage="encode"
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
            f"{container.name} cannot hold {codec_label(codec)}; write one of {fits}, "
            "or leave --codec out",
            stage="encode",
        )
    if alpha and not _SPECS[codec].alpha:
        raise ConfigError(f"--codec {codec} cannot hold an alpha channel here; leave --codec out")
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
    keeps = _SPECS[codec].keeps_chroma
    if settings.chroma is Chroma.KEEP and not keeps:
        able = [each for each, spec in _SPECS.items() if spec.keeps_chroma]
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
    spec = _SPECS[codec]
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
    return _SPECS[codec].label


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
    spec = _SPECS[codec]
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
    elif codec not in HDR_CODECS and (info.mastering_display or info.content_light):
        notices.append(f"{spec.label} cannot hold HDR10's mastering display and content light")
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


def _metadata_notices(container: Container, info: VideoInfo) -> list[str]:
    """Return notices of properties that neither raw video nor its container stores."""
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
    spec = _SPECS[codec]
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
    their number is a multiple of eight: pictures then depended on what the process had done before.
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


def _quality(spec: _EncoderSpec, asked: int | None) -> dict[str, str]:
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


def _speed(spec: _EncoderSpec, asked: str | None) -> dict[str, str]:
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
