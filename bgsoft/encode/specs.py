"""The CPU encoders and their settings, as data.

Ranges and defaults are those of the encoders (x264, x265, SVT-AV1, libvpx, FFmpeg's ``prores_ks``
and ``ffv1``).
"""

from __future__ import annotations

from dataclasses import field

from bgsoft.records import dataclass
from bgsoft.settings.config import Chroma, Codec

_X26X_PRESETS = (
    *("ultrafast", "superfast", "veryfast", "faster", "fast"),
    *("medium", "slow", "slower", "veryslow", "placebo"),
)
_RATE = ("b", "maxrate", "bufsize", "g", "qmin", "qmax")
_X26X = (
    *(*_RATE, "keyint_min", "bf", "refs"),
    *("qdiff", "qcompress", "qblur", "i_qfactor", "b_qfactor"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Settings of one CPU encoder."""

    encoder: str
    label: str
    depths: tuple[int, ...] = (8, 10)
    """Bits per sample that it supports."""
    chroma: str = "420"
    """Subsampling, as in FFmpeg's names of pixel formats."""
    full_chroma: str = "420"
    """Subsampling with an alpha channel, and for odd sizes. H.264 and HEVC cannot crop 4:2:0 to
    an odd width or height: they crop in units of a chroma sample (ITU-T H.264, 7.4.2.1.1)."""
    keeps_chroma: tuple[Chroma, ...] = ()
    """Values of ``--chroma`` with which it keeps the source's 4:2:2 or 4:4:4. With AUTO among
    them it does so unasked; without, only on request, as phones and browsers do not play it. Empty:
    never."""
    alpha: bool = False
    """Whether it supports an alpha channel."""
    limits_range: bool = False
    """Whether its decoders treat all samples as limited range."""
    rgb: str = ""
    """Format of its R'G'B' samples or palette; empty: it takes Y'CbCr."""
    nv12: bool = False
    """Whether it encodes 8-bit frames in their own layout, NV12."""
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
    parameter_keys: tuple[str, ...] = ()
    """Parameters that ``--encoder-option`` passes on: they decide only how pictures are coded, and
    FFmpeg mostly does not know them."""
    common_options: tuple[str, ...] | None = None
    """Options that FFmpeg accepts for every encoder and that have an effect on this one; others
    are rejected. None: all are passed on."""
    thread_key: str = ""
    """The parameter that is the number of threads; empty: FFmpeg's option ``threads``."""
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


SPECS: dict[Codec, EncoderSpec] = {
    Codec.H264: EncoderSpec(
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
        common_options=(
            *(*_X26X, "profile", "level", "trellis"),
            *("me_range", "subq", "sc_threshold", "slices"),
        ),
    ),
    Codec.HEVC: EncoderSpec(
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
        parameter_keys=(
            *("aq-mode", "aq-strength", "aq-motion", "psy-rd", "psy-rdoq", "rd", "ctu"),
            *("deblock", "sao", "limit-sao", "rc-lookahead", "b-adapt", "cutree", "me", "subme"),
            "rdoq-level",
            *("merange", "strong-intra-smoothing", "weightp", "weightb", "scenecut", "open-gop"),
            *("limit-refs", "max-merge", "rskip", "tskip", "rect", "amp", "early-skip", "b-intra"),
            *("tu-intra-depth", "tu-inter-depth", "nr-intra", "nr-inter", "qg-size", "level-idc"),
        ),
        common_options=(*_X26X, "profile"),
    ),
    Codec.AV1: EncoderSpec(
        encoder="libsvtav1",
        label="AV1",
        quality_range=(0, 63),
        quality_default=28,
        speeds=tuple(str(number) for number in range(14)),
        speed_default="9",
        parameters=("svtav1-params", ""),
        thread_key="lp",
        parameter_keys=(
            *("tune", "film-grain", "film-grain-denoise", "enable-overlays", "scd", "lookahead"),
            *("irefresh-type", "tile-rows", "tile-columns", "enable-variance-boost", "sharpness"),
            *("variance-boost-strength", "variance-octile", "enable-qm", "qm-min", "qm-max", "scm"),
            *("enable-tf", "fast-decode", "enable-cdef", "enable-dlf", "enable-restoration"),
        ),
        common_options=_RATE,
    ),
    Codec.VP9: EncoderSpec(
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
        common_options=(*_RATE, "minrate", "keyint_min"),
    ),
    Codec.PRORES: EncoderSpec(
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
        common_options=("profile",),
    ),
    Codec.FFV1: EncoderSpec(
        encoder="ffv1",
        label="FFV1",
        keeps_chroma=(Chroma.AUTO, Chroma.KEEP),
        alpha=True,
        # Version 3 with checksums and independent frames, as archives use it.
        options={"level": "3", "slicecrc": "1", "g": "1"},
        common_options=("level", "slices", "g"),
    ),
    Codec.RAW: EncoderSpec(
        encoder="rawvideo",
        label="raw video",
        keeps_chroma=(Chroma.AUTO, Chroma.KEEP),
        full_chroma="420",
        alpha=True,
        common_options=(),
    ),
    Codec.GIF: EncoderSpec(
        encoder="gif", label="GIF", depths=(8,), alpha=True, rgb="pal8", common_options=()
    ),
    # FFmpeg's encoder of whole animations keeps them in memory; its muxer joins single pictures.
    Codec.WEBP: EncoderSpec(
        encoder="libwebp",
        label="WebP",
        depths=(8,),
        alpha=True,
        rgb="bgra",
        quality_range=(1, 100),
        quality_default=80,
        quality_option="quality",
        common_options=(),
    ),
}
