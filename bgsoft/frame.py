"""Frames, in the one picture layout of all stages: semi-planar 4:2:0.

A frame is either on the host (NumPy arrays) or on one CUDA device (CuPy arrays). Its planes belong
to a slot of a preallocated ring (:mod:`bgsoft.ring`), so they are overwritten once the frame has
been released.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

from bgsoft.records import dataclass

Array = Any
"""A NumPy array, or a CuPy array where the stage runs on a GPU."""


class PixelLayout(StrEnum):
    """Storage of samples."""

    NV12 = "nv12"
    """8-bit samples in uint8."""
    P010 = "p010"
    """10-bit samples in the high bits of uint16: code value ``<< 6``."""


# ITU-T H.273 code points, as FFmpeg uses them.
_MATRIX_KR_KB: dict[int, tuple[float, float]] = {
    1: (0.2126, 0.0722),  # BT.709
    4: (0.30, 0.11),  # FCC
    5: (0.299, 0.114),  # BT.470BG
    6: (0.299, 0.114),  # SMPTE 170M
    7: (0.212, 0.087),  # SMPTE 240M
    9: (0.2627, 0.0593),  # BT.2020 non-constant luminance
    10: (0.2627, 0.0593),  # BT.2020 constant luminance, treated as non-constant
}
KNOWN_MATRICES = frozenset(_MATRIX_KR_KB)
UNSPECIFIED = 2
_NEAR_SRGB = {0, 1, UNSPECIFIED, 5, 6, 7}, {0, 1, UNSPECIFIED, 4, 6, 7, 11, 12, 13, 14, 15}
"""Primaries and transfers that look right as sRGB, or are not declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColorInfo:
    """Colour description of a stream, as ITU-T H.273 code points (2 = unspecified)."""

    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    """16 is PQ, 18 is HLG."""
    matrix: int = UNSPECIFIED
    full_range: bool = False
    """True for 0–255 luma, False for 16–235 (at 8 bit)."""
    range_specified: bool = False
    """False: the source does not say, and limited range is assumed."""
    chroma_location: int = 0
    """FFmpeg's AVChromaLocation (0 = unspecified, 1 = left, 2 = centre, 3 = top left)."""

    def kr_kb(self, height: int) -> tuple[float, float]:
        """Return the luma coefficients (kr, kb) of red and blue, as in ITU-T H.273, table 4.

        Where the source does not declare its matrix, players assume BT.601 below 720 lines and
        BT.709 from there on, and so does bgsoft.
        """
        return _MATRIX_KR_KB[self.with_matrix(height).matrix]

    def with_matrix(self, height: int) -> ColorInfo:
        """Declare the matrix that is assumed at this height, where the source declares none.

        It must be called before a picture is scaled down.
        """
        if self.matrix in _MATRIX_KR_KB:
            return self
        return replace(self, matrix=1 if height >= 720 else 6)

    def luma_range(self, depth: int) -> tuple[int, int]:
        """Return (black, white) as code values of ``depth`` bits (ITU-T H.273, 8.3)."""
        if self.full_range:
            return 0, (1 << depth) - 1
        return 16 << (depth - 8), 235 << (depth - 8)

    @property
    def is_near_srgb(self) -> bool:
        """True if pictures look right as sRGB: no wide gamut, HDR or linear light."""
        primaries, transfers = _NEAR_SRGB
        return self.primaries in primaries and self.transfer in transfers

    def looks_like(self, other: ColorInfo) -> bool:
        """Return whether pictures look right if they are taken for those of another description."""
        if self.is_near_srgb or other.is_near_srgb:
            return self.is_near_srgb and other.is_near_srgb
        return (self.primaries, self.transfer) == (other.primaries, other.transfer)

    @property
    def is_hdr(self) -> bool:
        """True if the transfer is PQ or HLG."""
        return self.transfer in (16, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasteringDisplay:
    """HDR10 mastering display colour volume (SMPTE ST 2086)."""

    red: tuple[Fraction, Fraction]
    green: tuple[Fraction, Fraction]
    blue: tuple[Fraction, Fraction]
    """CIE 1931 xy chromaticities."""
    white: tuple[Fraction, Fraction]
    min_luminance: Fraction
    max_luminance: Fraction
    """cd/m²."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentLight:
    """HDR10 content light level (CTA-861.3), cd/m²."""

    max_content: int
    max_frame_average: int


@dataclass(frozen=True, kw_only=True)
class FrameFormat:
    """Geometry and sample format of every frame of one render; upright, after rotation."""

    width: int
    """Luma width, pixels; may be odd."""
    height: int
    """Luma height, pixels; may be odd."""
    layout: PixelLayout = PixelLayout.NV12
    color: ColorInfo = field(default_factory=ColorInfo)

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"frame size {self.width}x{self.height} is not positive")

    @cached_property
    def bit_depth(self) -> int:
        """Significant bits of a sample: 8 or 10."""
        return 8 if self.layout is PixelLayout.NV12 else 10

    @cached_property
    def bytes_per_sample(self) -> int:
        return 1 if self.layout is PixelLayout.NV12 else 2

    @cached_property
    def dtype(self) -> str:
        """NumPy dtype name of the planes."""
        return f"uint{8 * self.bytes_per_sample}"

    @cached_property
    def shift(self) -> int:
        """Left shift of a code value inside its sample: 0 for NV12, 6 for P010."""
        return 8 * self.bytes_per_sample - self.bit_depth

    @cached_property
    def luma_shape(self) -> tuple[int, int]:
        """(H, W)."""
        return (self.height, self.width)

    @cached_property
    def chroma_shape(self) -> tuple[int, int, int]:
        """(⌈H/2⌉, ⌈W/2⌉, 2): Cb in channel 0, Cr in channel 1."""
        return ((self.height + 1) // 2, (self.width + 1) // 2, 2)

    @property
    def luma_range(self) -> tuple[int, int]:
        """(black, white) as stored sample values, shift included."""
        black, white = self.color.luma_range(self.bit_depth)
        return black << self.shift, white << self.shift

    @property
    def chroma_neutral(self) -> int:
        """Stored sample value of neutral chroma, shift included."""
        return (1 << (self.bit_depth - 1)) << self.shift

    @property
    def chroma_amplitude(self) -> float:
        """Distance in stored samples from neutral to the extreme Cb or Cr (±0.5 in H.273 terms)."""
        depth = self.bit_depth
        half = ((1 << depth) - 1) / 2 if self.color.full_range else 112 << (depth - 8)
        return float(half) * (1 << self.shift)


@dataclass(slots=True, eq=False)
class Planes:
    """The buffers of one ring slot."""

    slot: int
    """Position in the ring."""
    luma: Array
    """(H, W) uint8 (NV12) or uint16 (P010), C-contiguous."""
    chroma: Array
    """(⌈H/2⌉, ⌈W/2⌉, 2) same dtype, C-contiguous, Cb before Cr."""
    alpha: Array
    """(H, W) uint8: the refined matte, 255 = person; written by the matte stage."""


@dataclass(slots=True, eq=False)
class AnalysisFrame:
    """A frame that is averaged over areas, so that the full frame is read only once.

    It is the input of segmentation, matte refinement and background filters.
    """

    factor: int
    """Frame pixels per sample of luma, each way: 1, 2, 4, …"""
    luma: Array
    """(h, w) = (⌈H/factor⌉, ⌈W/factor⌉), the frame's dtype and code values."""
    chroma: Array
    """(h, w, 2) for factor ≥ 2, otherwise the frame's own chroma shape; the frame's dtype."""
    detail: AnalysisFrame | None = None
    """The next larger one, or the frame itself until it is composited; for networks."""
    halved: Array | None = None
    """(⌈H/2⌉, ⌈W/2⌉): the frame's luma averaged over 2×2 samples, from which larger factors are
    made; on the host only."""


@dataclass(slots=True, eq=False)
class Matte:
    """The refined matte of one frame."""

    alpha: Array
    """(H, W) uint8, 255 = person; straight (not premultiplied); the frame slot's alpha plane."""
    reduced: Array
    """(h, w) uint8: the same matte on the analysis frame, before upsampling."""
    held: bool = False
    """Whether the raw mask was reused from an earlier frame (mask-every, similarity)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Original:
    """The decoded picture of a frame, on the host, where it holds more than 4:2:0."""

    chroma: Array
    """The frame's chroma plane before any stage changed it."""
    hidden: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(left, top, right, bottom) of hidden places, where it must not be shown. They may extend
    beyond the frame; their edges lie between chroma samples."""


@dataclass(slots=True, kw_only=True, eq=False)
class OriginalStill(Original):
    """The decoded picture of a still."""

    pixels: Array
    """(H, W, 3) uint8 or uint16, blue first."""
    luma: Array
    """The frame's luma plane before any stage changed it."""
    profile: bytes
    """ICC profile of the colours; empty: none."""


@dataclass(slots=True, kw_only=True, eq=False)
class OriginalChroma(Original):
    """The chroma of a video's picture, finer than 4:2:0."""

    fine: Array
    """(h, w, 2), upright, at the source's resolution, Cb before Cr, in the frame's bit depth; code
    values, without the frame's shift."""


@dataclass(slots=True, eq=False)
class Frame:
    """One picture on its way through the pipeline."""

    planes: Planes
    format: FrameFormat
    index: int
    """0, 1, 2 … in presentation order, without gaps."""
    pts: int
    """Presentation timestamp in ``time_base`` units, from the demuxer."""
    time_base: Fraction
    """Seconds per pts unit."""
    duration: int = 0
    """Display duration in ``time_base`` units; 0 where unknown."""
    shown_until: int | None = None
    """pts of the next frame, or the end of the video; None where it is not known."""
    concealed: bool = False
    """Whether the decoder concealed damaged data."""
    ready: Any = None
    """On a device: CUDA event after which the planes are complete; None on the host."""
    original: Original | None = None
    """The decoded picture, where it holds more than 4:2:0 and the encoder uses it."""
    messages: tuple[tuple[str, bytes], ...] = ()
    """(kind, payload) of the messages in its packet: see :class:`bgsoft.media.messages.Message`."""

    @property
    def luma(self) -> Array:
        return self.planes.luma

    @property
    def chroma(self) -> Array:
        return self.planes.chroma

    @property
    def time_seconds(self) -> float:
        numerator, denominator = self.time_base.as_integer_ratio()
        return self.pts * numerator / denominator

    def __repr__(self) -> str:
        return (
            f"Frame(#{self.index}, pts={self.pts}, {self.format.width}x{self.format.height} "
            f"{self.format.layout}, slot={self.planes.slot})"
        )
