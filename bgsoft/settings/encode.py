"""Settings of the output's codec; :mod:`bgsoft.settings.config` explains their declaration."""

from __future__ import annotations

from enum import StrEnum

from bgsoft.records import dataclass
from bgsoft.settings.setting import check_pairs, setting


class Codec(StrEnum):
    AUTO = "auto"
    """H.264, except where the container, the bit depth or the alpha channel asks for another."""
    H264 = "h264"
    HEVC = "hevc"
    AV1 = "av1"
    PRORES = "prores"
    VP9 = "vp9"
    FFV1 = "ffv1"
    RAW = "raw"
    GIF = "gif"
    WEBP = "webp"


class Chroma(StrEnum):
    """Resolution of the output's colour planes."""

    AUTO = "auto"
    """Chroma of the source for prores, ffv1 and raw; else 4:2:0."""
    C420 = "420"
    KEEP = "keep"
    """Chroma of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeConfig:
    """The output's codec and its settings."""

    codec: Codec = setting(
        Codec.AUTO,
        "Video codec of the output; auto: h264 if the container, bit depth and effect allow it.",
        brief="{choices}",
    )
    quality: int | None = setting(
        None,
        "The encoder's own quality number. For videos (CRF, CQ or qscale) lower is better and"
        " larger. For JPEG and WebP pictures higher is better, 1 to 100.",
        brief="CRF of videos: lower is better, and larger.",
        shown_default="by codec; h264: 18, JPEG: 95, WebP: 90",
        belongs_to="codec",
    )
    speed: str | None = setting(
        None,
        "The encoder's own preset: x264/x265 ultrafast to veryslow, AV1 and VP9 a number,"
        " NVENC P1 to P7.",
        metavar="PRESET",
        shown_default="by codec; h264: veryfast",
        belongs_to="codec",
    )
    chroma: Chroma = setting(
        Chroma.AUTO,
        "Chroma resolution. keep: that of the source, including 4:2:2 and 4:4:4. 420: that of most"
        " videos. auto: keep with prores, ffv1 and raw, otherwise 420.",
        belongs_to="codec",
        without_effect=("no picture",),
    )
    encoder_option: tuple[str, ...] = setting(
        (),
        "Pass an option to the encoder, e.g. tune=film; repeatable.",
        metavar="KEY=VALUE",
        belongs_to="codec",
    )

    def __post_init__(self) -> None:
        check_pairs("--encoder-option", self.encoder_option)
