"""The test clips, each with the truth about itself.

A clip is synthesised on first use into a folder that the test session shares; it never changes
afterwards. ``CLIPS`` are good files; the damaged ones are built by the tests that need them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from bgsoft.frame import PixelLayout
from bgsoft.media.info import Orientation
from tests.synthetic import Plane, VideoSpec, luma_picture, regular_times, write_video

RATE = Fraction(25)
NTSC = Fraction(30_000, 1001)
VFR_TIMES = [
    Fraction(tick, 90_000)
    for tick in (0, 3000, 6000, 12_000, 13_500, 27_000, 28_500, 45_000, 46_500, 60_000)
]
HDR10_X265 = (
    "log-level=none:hdr10=1:repeat-headers=1:"
    "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):"
    "max-cll=1000,400"
)
_FAST_X264 = {"preset": "veryfast", "crf": "8", "threads": "1"}
_FAST_X265 = {"preset": "ultrafast", "crf": "8"}


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A clip and what a decoder must make of it."""

    name: str
    """File name."""
    spec: VideoSpec
    options: dict[str, str] = field(default_factory=dict)
    """Muxer options."""
    width: int = 96
    height: int = 72
    """Upright, pixels."""
    layout: PixelLayout = PixelLayout.NV12
    first_shown: int = 0
    """Number of the first frame that is shown; earlier ones are cut away by an edit list."""
    full_range: bool = False
    lossless: bool = False
    """Samples come back exactly (where the source is 4:2:0)."""
    interlaced: bool = False
    tolerance: float = 0.5
    """Largest mean error of a plane, in 8-bit steps, where the clip is not lossless."""
    gray: bool = False
    """Chroma is neutral."""
    orientation: Orientation = field(default_factory=Orientation)
    notices: tuple[str, ...] = ()
    """Beginnings of the notices that probing must give, in order."""
    repaired_pts: int = 0
    """Frames without a timestamp in the file."""
    timestamps: str = "exact"
    """``exact``, or ``relative`` where the muxer moves them all by the same amount."""

    @property
    def indices(self) -> list[int]:
        """Numbers of the frames shown, in order."""
        return list(range(self.first_shown, len(self.spec.times)))

    def expected_pts(self, time_base: Fraction) -> list[int]:
        """Timestamps of the frames shown, in a container's time base (nearest unit)."""
        return [_nearest(self.spec.times[i] / time_base) for i in self.indices]

    def build(self, folder: Path) -> Path:
        path = folder / self.name
        if not path.exists():
            write_video(path, self.spec, options=self.options)
        return path


def _nearest(value: Fraction) -> int:
    """Nearest integer, halves away from zero, as FFmpeg rescales."""
    half = Fraction(1, 2)
    return int(value + half) if value >= 0 else -int(-value + half)


def _tags(
    *, primaries: int = 1, transfer: int = 1, matrix: int = 1, full_range: bool = False
) -> Callable[[VideoStream], None]:
    def setup(stream: VideoStream) -> None:
        stream.color_primaries = primaries
        stream.color_trc = transfer
        stream.colorspace = matrix
        stream.color_range = 2 if full_range else 1

    return setup


def _interlaced(stream: VideoStream) -> None:
    stream.codec_context.flags |= av.codec.context.Flags.interlaced_dct
    stream.codec_context.flags |= av.codec.context.Flags.interlaced_me
    stream.codec_context.field_order = 3


def _display(degrees: int, hflip: bool = False) -> Callable[[VideoStream], None]:
    def setup(stream: VideoStream) -> None:
        # PyAV counts counter-clockwise.
        stream.set_display_rotation(degrees, hflip=hflip)

    return setup


def _second_field(frame: VideoFrame, index: int) -> None:
    """Put the next frame's picture into the top field, as if filmed at twice the rate.

    PyAV cannot flag frames as top field first, so the bottom field is the earlier one.
    """
    following = luma_picture(index + 1, frame.width, frame.height)
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, -1)
    rows[::2, : plane.width] = following[::2]


def _up_to(turns: int, mirror: bool = False) -> Callable[[Plane], Plane]:
    """How an upright picture is stored, so that ``turns`` quarter turns clockwise restore it.

    With ``mirror``, it is mirrored left to right after those turns.
    """

    def turn(plane: Plane) -> Plane:
        return np.rot90(np.fliplr(plane) if mirror else plane, turns)

    return turn


def _regular(count: int = 12, **kwargs: Any) -> VideoSpec:
    return VideoSpec(times=regular_times(count), **kwargs)


def _x264(count: int = 12, times: list[Fraction] | None = None, **kwargs: Any) -> VideoSpec:
    options = _FAST_X264 | kwargs.pop("options", {})
    return VideoSpec(times=times or regular_times(count), options=options, **kwargs)


def _ffv1(pixel_format: str, **kwargs: Any) -> VideoSpec:
    return VideoSpec(codec="ffv1", pixel_format=pixel_format, times=regular_times(6), **kwargs)


def _turned(name: str, turns: int, mirror: bool = False) -> Clip:
    return Clip(
        name=f"{name}.mp4",
        spec=_x264(6, turn=_up_to(turns, mirror), setup=_display(-90 * turns % 360, hflip=mirror)),
        # Turning right and then mirroring is the same as mirroring and then turning left.
        orientation=Orientation(mirror=mirror, rotation=(-90 if mirror else 90) * turns % 360),
    )


_CLIPS = (
    Clip(name="cfr.mp4", spec=_x264(options={"bf": "0"})),
    Clip(
        name="bframes.mp4",
        spec=_x264(30, rate=NTSC, times=regular_times(30, NTSC), options={"bf": "3", "g": "10"}),
    ),
    Clip(name="bframes.mkv", spec=_x264(30, options={"bf": "3", "g": "10"})),
    Clip(name="ntsc.mkv", spec=_x264(times=regular_times(24, NTSC), rate=NTSC)),
    Clip(name="vfr.mp4", spec=_x264(times=VFR_TIMES, options={"bf": "2"})),
    Clip(name="vfr.mkv", spec=_x264(times=VFR_TIMES, options={"bf": "2"})),
    Clip(name="late.mp4", spec=_x264(times=regular_times(12, start=3))),
    Clip(
        # Matroska knows no time before 0: what lies there arrives without a timestamp.
        name="negative.mkv",
        spec=_x264(times=regular_times(12, start=Fraction(-1, 5)), options={"bf": "0"}),
        options={"avoid_negative_ts": "disabled"},
        repaired_pts=5,
    ),
    Clip(
        name="editlist.mp4",
        spec=_x264(24, times=regular_times(24, start=Fraction(-4, 25)), options={"bf": "2"}),
        options={"movflags": "+faststart"},
        first_shown=4,
    ),
    Clip(
        # The edit list hides the key frame of what is shown first.
        name="trimmed.mov",
        spec=_x264(
            24, times=regular_times(24, start=Fraction(-4, 25)), options={"bf": "2", "g": "12"}
        ),
        first_shown=4,
    ),
    Clip(
        name="opengop.mkv",
        spec=_x264(40, options={"bf": "3", "g": "8", "x264-params": "open-gop=1"}),
    ),
    Clip(name="bluray.ts", spec=_x264(24, options={"bf": "2", "g": "8"}), timestamps="relative"),
    Clip(
        name="wrap.ts",
        # The 33-bit clock of MPEG-TS turns over after 12 frames.
        spec=_x264(
            24,
            times=regular_times(24, start=Fraction(2**33, 90_000) - Fraction(12, 25)),
            options={"bf": "2"},
        ),
        options={"mpegts_copyts": "1"},
        timestamps="relative",
    ),
    Clip(
        name="mpeg4.avi",
        spec=VideoSpec(
            codec="mpeg4",
            times=regular_times(12),
            time_base=1 / RATE,
            options={"bf": "2", "qscale": "2", "flags": "+qscale", "global_quality": "236"},
        ),
    ),
    Clip(
        name="mjpeg.avi",
        spec=_regular(
            6,
            codec="mjpeg",
            pixel_format="yuvj420p",
            time_base=1 / RATE,
            options={"qmin": "1", "qmax": "2"},
        ),
        full_range=True,
    ),
    Clip(
        name="vp9-odd.webm",
        spec=_regular(
            6,
            codec="libvpx-vp9",
            width=95,
            height=71,
            options={"crf": "10", "b": "0", "cpu-used": "8", "deadline": "realtime"},
        ),
        width=95,
        height=71,
    ),
    Clip(
        name="av1.mp4",
        spec=_regular(
            8, codec="libsvtav1", options={"preset": "8", "crf": "10", "svtav1-params": "lp=1"}
        ),
    ),
    Clip(
        name="hdr10.mp4",
        spec=_regular(
            6,
            codec="libx265",
            pixel_format="yuv420p10le",
            options=_FAST_X265 | {"x265-params": HDR10_X265},
            setup=_tags(primaries=9, transfer=16, matrix=9),
        ),
        layout=PixelLayout.P010,
    ),
    Clip(
        name="hlg.mkv",
        spec=_regular(
            6,
            codec="libx265",
            pixel_format="yuv420p10le",
            options=_FAST_X265 | {"x265-params": "log-level=none"},
            setup=_tags(primaries=9, transfer=18, matrix=9),
        ),
        layout=PixelLayout.P010,
    ),
    Clip(name="full.mp4", spec=_x264(6, setup=_tags(full_range=True)), full_range=True),
    Clip(
        name="prores.mov",
        spec=_regular(6, codec="prores_ks", pixel_format="yuv422p10le", options={"profile": "hq"}),
        layout=PixelLayout.P010,
        notices=("4:2:2",),
    ),
    Clip(
        name="interlaced.mp4",
        spec=_x264(8, options={"x264-params": "bff=1"}, setup=_interlaced, touch=_second_field),
        interlaced=True,
        tolerance=2,
        notices=("interlaced",),
    ),
    _turned("upright-90", 1),
    _turned("upright-180", 2),
    _turned("upright-270", 3),
    _turned("mirrored", 0, mirror=True),
    _turned("mirrored-90", 1, mirror=True),
    _turned("mirrored-180", 2, mirror=True),
    _turned("mirrored-270", 3, mirror=True),
    Clip(
        name="odd.mkv",
        spec=_ffv1("yuv420p", width=97, height=71),
        width=97,
        height=71,
        lossless=True,
    ),
    Clip(
        name="tiny.mkv",
        spec=_ffv1("yuv420p", width=13, height=11),
        width=13,
        height=11,
        lossless=True,
    ),
    Clip(name="ten.mkv", spec=_ffv1("yuv420p10le"), lossless=True, layout=PixelLayout.P010),
    Clip(
        name="twelve.mkv", spec=_ffv1("yuv420p12le"), layout=PixelLayout.P010, notices=("12-bit",)
    ),
    Clip(name="422.mkv", spec=_ffv1("yuv422p"), notices=("4:2:2",)),
    Clip(name="444.mkv", spec=_ffv1("yuv444p"), notices=("4:4:4",)),
    Clip(name="444-10.mkv", spec=_ffv1("yuv444p10le"), layout=PixelLayout.P010, notices=("4:4:4",)),
    Clip(name="411.mkv", spec=_ffv1("yuv411p"), notices=("4:1:1",), tolerance=1),
    Clip(name="alpha.mkv", spec=_ffv1("yuva420p"), lossless=True, notices=("alpha",)),
    Clip(name="gray.mkv", spec=_ffv1("gray"), full_range=True, gray=True, notices=("grey",)),
    Clip(
        name="gray10.mkv",
        spec=_ffv1("gray10le"),
        full_range=True,
        layout=PixelLayout.P010,
        gray=True,
        notices=("grey",),
    ),
    Clip(
        name="rgb.mkv",
        spec=_ffv1("gbrp10le"),
        layout=PixelLayout.P010,
        tolerance=3,
        notices=("RGB", "4:4:4"),
    ),
    Clip(name="bgr0.mkv", spec=_ffv1("bgr0"), tolerance=3, notices=("RGB", "4:4:4")),
)
CLIPS = {clip.name: clip for clip in _CLIPS}
