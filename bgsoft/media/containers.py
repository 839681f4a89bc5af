"""Output containers as data: codecs, timestamps, muxer options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from bgsoft.errors import UnsupportedFormatError
from bgsoft.records import dataclass
from bgsoft.settings.config import Codec, OutputFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class StillFormat:
    """Capabilities of a kind of picture file."""

    alpha: bool = False
    depths: tuple[int, ...] = (8,)
    """Bits of a sample, 8 or 16."""
    max_side: int = 65_535
    """Largest width and height in pixels."""
    labels: bool = False
    """It has a place for primaries and transfer."""
    profiles: bool = True
    """It has a place for a colour profile."""
    quality: int | None = None
    """Default of ``--quality``, of 1 to 100 (best); None: it is lossless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One kind of output file."""

    name: str
    """For messages, e.g. ``MP4``."""
    muxer: str
    """FFmpeg's muxer name."""
    extensions: tuple[str, ...]
    """Lower case, with the dot; the first is the usual one."""
    codecs: frozenset[Codec]
    """Video codecs it can hold."""
    alpha_codec: Codec | None = None
    """Video codec that carries an alpha channel here; None: it cannot."""
    edit_lists: bool = False
    """Negative timestamps are stored exactly, and hidden by an edit list."""
    free_origin: bool = False
    """The clock's zero means nothing (a broadcast clock), so the muxer may shift all tracks."""
    numbers_frames: bool = False
    """Packets are numbered, not timed: a constant frame rate from zero on, no reordering, and
    sound from zero on without gaps."""
    streams: bool = False
    """It can be written to a pipe: what has been written is not changed any more."""
    header_first: bool = False
    """Its header is of no fixed length, so files, too, get it as it will stay."""
    chapters: bool = True
    text_subtitles: str | None = None
    """Codec that text subtitles are converted to where their own does not fit; None: no text."""
    audio_fallback: tuple[str, ...] = ()
    """Encoders to try, in order, for audio that the container cannot hold."""
    copies: frozenset[str] | None = None
    """The only sound and subtitle codecs it can hold; None: all that the muxer accepts."""
    recode_pcm: bool = False
    """The muxer accepts PCM, but hardly any player does: it is encoded again all the same."""
    options: dict[str, str] = field(default_factory=dict)
    """Muxer options."""
    ticks_per_second: int | None = None
    """Its clock's, to which times are rounded; None: the source's, or one a frame."""
    max_pause_ticks: int | None = None
    """Longest time from one picture to the next; None: any."""
    max_rate: int | None = None
    """Frames per second above which most programs play it slowly; None: any."""
    reads_back: bool = True
    """FFmpeg can read it, too; otherwise it has no tags."""
    still: StillFormat | None = None
    """Format of a picture file; None: it is not one."""

    @property
    def has_sound(self) -> bool:
        """Return whether it can hold sound."""
        return self.still is None and self.copies != frozenset()

    @property
    def is_matroska(self) -> bool:
        """Matroska, or WebM, which is its subset."""
        return self.muxer in ("matroska", "webm")


STILL_NAMES = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WebP",
    "tiff": "TIFF",
    "bmp": "BMP",
    "avif": "AVIF",
    "heif": "HEIC",
}
"""Kinds of pictures that are read, and their names in messages."""
STILL_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp"),
        *(".avif", ".heic", ".heif", ".hif"),
    }
)
"""Extensions of pictures that are read."""
ANIMATED = frozenset({Codec.GIF, Codec.WEBP})
"""Codecs of animated pictures."""
_H26X = frozenset({Codec.H264, Codec.HEVC})
_TS_AUDIO = ("aac", "aac_latm", "ac3", "dts", "eac3", "mp2", "mp3", "opus", "s302m", "truehd")
_MAX_MP4_TICKS = 2_000_000_000
"""Lengths have 31 bits in FFmpeg's muxer of MP4 and MOV: 6.6 hours of a broadcast clock.

Beyond that it writes wrong times. A pause of 12 hours has been closed before."""
_AVI_PCM = ("pcm_alaw", "pcm_mulaw", "pcm_s16le", "pcm_s24le", "pcm_u8")

CONTAINERS: tuple[Container, ...] = (
    Container(
        name="MP4",
        muxer="mp4",
        extensions=(".mp4", ".m4v"),
        codecs=_H26X | {Codec.AV1, Codec.VP9},
        edit_lists=True,
        max_pause_ticks=_MAX_MP4_TICKS,
        text_subtitles="mov_text",
        audio_fallback=("aac",),
        recode_pcm=True,
        options={"movflags": "+faststart"},
    ),
    Container(
        name="QuickTime",
        muxer="mov",
        extensions=(".mov", ".qt"),
        codecs=_H26X | {Codec.PRORES},
        alpha_codec=Codec.PRORES,
        edit_lists=True,
        max_pause_ticks=_MAX_MP4_TICKS,
        text_subtitles="mov_text",
        audio_fallback=("pcm_s16le", "aac"),
        options={"movflags": "+faststart"},
    ),
    Container(
        name="Matroska",
        muxer="matroska",
        extensions=(".mkv",),
        streams=True,
        codecs=frozenset(Codec) - {Codec.AUTO, Codec.RAW} - ANIMATED,
        alpha_codec=Codec.FFV1,
        text_subtitles="subrip",
        audio_fallback=("flac", "aac"),
    ),
    Container(
        name="WebM",
        muxer="webm",
        extensions=(".webm",),
        streams=True,
        codecs=frozenset({Codec.VP9, Codec.AV1}),
        alpha_codec=Codec.VP9,
        text_subtitles="webvtt",
        audio_fallback=("libopus",),
    ),
    Container(
        name="MPEG-TS",
        muxer="mpegts",
        extensions=(".ts", ".mts", ".m2ts"),
        streams=True,
        codecs=_H26X,
        free_origin=True,
        chapters=False,
        audio_fallback=("aac", "ac3"),
        # The muxer takes anything, as private data that no player knows.
        copies=frozenset({*_TS_AUDIO, "dvb_subtitle", "dvb_teletext"}),
    ),
    Container(
        name="AVI",
        muxer="avi",
        extensions=(".avi",),
        # Pixel aspect and colour have no field here; H.264 says them by itself, FFV1 does not.
        codecs=frozenset({Codec.H264}),
        numbers_frames=True,
        max_pause_ticks=60_001,  # FFmpeg's muxer leaves no more than 60,000 places empty
        chapters=False,
        audio_fallback=("libmp3lame", "ac3", "pcm_s16le"),
        # Codecs of old AVI players; FFmpeg would write AAC, which hardly any of them reads.
        copies=frozenset({"ac3", "mp2", "mp3", *_AVI_PCM}),
        # Otherwise sound from before the picture would push the picture off its numbers.
        options={"avoid_negative_ts": "disabled"},
    ),
    Container(
        name="NUT",
        muxer="nut",
        extensions=(".nut",),
        # Between two programs nothing is gained by coding; and FFmpeg's muxer has no decoding times
        # before zero, where those of reordered pictures are.
        codecs=frozenset({Codec.RAW}),
        streams=True,
        alpha_codec=Codec.RAW,
        audio_fallback=("flac",),
    ),
    Container(
        name="YUV4MPEG",
        muxer="yuv4mpegpipe",
        extensions=(".y4m",),
        codecs=frozenset({Codec.RAW}),
        numbers_frames=True,
        max_pause_ticks=1,
        streams=True,
        header_first=True,
        chapters=False,
        copies=frozenset(),
        options={"strict": "-1"},  # ten bits are FFmpeg's addition, which all know
    ),
    *(
        Container(name=name, muxer="", extensions=extensions, codecs=frozenset(), still=still)
        for name, extensions, still in (
            (
                "PNG",
                (".png",),
                StillFormat(alpha=True, depths=(8, 16), labels=True, max_side=1 << 30),
            ),
            ("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), StillFormat(quality=95)),
            ("WebP", (".webp",), StillFormat(alpha=True, max_side=16_383, quality=90)),
            ("TIFF", (".tif", ".tiff"), StillFormat(alpha=True, depths=(8, 16), max_side=1 << 30)),
            ("BMP", (".bmp",), StillFormat(profiles=False, max_side=1 << 30)),
        )
    ),
    Container(
        name="GIF",
        muxer="gif",
        extensions=(".gif",),
        codecs=frozenset({Codec.GIF}),
        alpha_codec=Codec.GIF,
        chapters=False,
        copies=frozenset(),
        ticks_per_second=100,
        max_pause_ticks=0xFFFF,
        max_rate=50,
    ),
    # After the picture, which a name alone stands for.
    Container(
        name="animated WebP",
        muxer="webp",
        extensions=(".webp",),
        codecs=frozenset({Codec.WEBP}),
        alpha_codec=Codec.WEBP,
        chapters=False,
        copies=frozenset(),
        ticks_per_second=1000,
        max_pause_ticks=0xFFFFFF,
        max_rate=60,
        reads_back=False,
        options={"loop": "0"},
    ),
)


def with_extension(suffix: str, containers: Iterable[Container]) -> Container | None:
    """Return the first of some containers that an extension, such as ``.mkv``, stands for."""
    return next((each for each in containers if suffix in each.extensions), None)


def container_for(path: Path, format: OutputFormat = OutputFormat.AUTO) -> Container:
    """The container of a format, or the one that a file name's extension stands for.

    Raises:
        UnsupportedFormatError: The extension is missing or stands for none we write.
    """
    suffix = path.suffix.lower() if format is OutputFormat.AUTO else f".{format}"
    is_named = format is OutputFormat.AUTO
    found = with_extension(suffix, (c for c in CONTAINERS if is_named or c.still is None))
    if found is not None:
        return found
    if not suffix and path.is_dir():
        text = f"cannot write output {path}: it is a folder; name a file in it"
        raise UnsupportedFormatError(text, stage="encode", path=path)
    known = " ".join(dict.fromkeys(ext for each in CONTAINERS for ext in each.extensions))
    what = (
        f"{suffix!r} is not a container or picture that can be written"
        if suffix
        else "it has no extension"
    )
    text = f"cannot write output {path.name}: {what}; use one of {known}"
    raise UnsupportedFormatError(text, stage="encode", path=path)
