"""Encoding of frames as picture files: JPEG, PNG, WebP, TIFF.

The pipeline's frames are 4:2:0, as video is, but a photograph has a colour in every pixel. So where
a still becomes a still, people's pixels are copied from the source file. At their edge, colour that
4:2:0 lacks is added back in proportion to alpha. All other pixels come from the frame.
"""

from __future__ import annotations

from dataclasses import field, replace
from fractions import Fraction

import cv2
import numpy as np
from av.video.reformatter import Interpolation

from bgsoft.encode.base import PictureKind
from bgsoft.encode.original import give_back, opacity, samples
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import ConfigError, EncodeError, UnsupportedFormatError, errors_as
from bgsoft.frame import Frame, FrameFormat, OriginalStill
from bgsoft.media.containers import CONTAINERS, Container
from bgsoft.media.planes import Plane
from bgsoft.media.stillfiles import StillFiles
from bgsoft.media.stills import with_alpha, with_color, with_profile
from bgsoft.records import dataclass
from bgsoft.settings.config import Chroma, Codec, EncodeConfig

_INTERPOLATION = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT


@dataclass(frozen=True, slots=True, kw_only=True)
class StillChoice:
    """A kind of picture file with its settings."""

    container: Container
    depth: int
    """Bits of a sample: 8 or 16."""
    kind: PictureKind
    is_labelled: bool = False
    """Whether primaries and transfer are written, because readers would assume others."""
    options: list[int] = field(default_factory=list)
    """OpenCV's options, in pairs."""
    notices: tuple[str, ...] = ()


def choose_still(
    settings: EncodeConfig,
    container: Container,
    format: FrameFormat,
    kind: PictureKind,
    pixel_aspect: Fraction = Fraction(1),
) -> StillChoice:
    """Return the settings with which frames are written as picture files.

    Args:
        settings: The user's settings.
        container: Kind of the files.
        format: Layout of the frames.
        kind: Planes to write.
        pixel_aspect: Width over height of the frames' pixels.

    Raises:
        UnsupportedFormatError: The file cannot hold an alpha channel, the codec, or a picture of
            that size.
        ConfigError: ``--quality`` is out of range, or a setting applies to videos only.
    """
    still, name = container.still, container.name
    assert still is not None
    if kind is PictureKind.COLOR_ALPHA and not still.alpha:
        able = [each for each in CONTAINERS if each.still is not None and each.still.alpha]
        names = ", ".join(each.extensions[0] for each in able)
        text = f"cannot write {name}: it cannot hold an alpha channel; write one of {names}"
        raise UnsupportedFormatError(text, stage="encode")
    if max(format.width, format.height) > still.max_side:
        text = f"its limit is {still.max_side} pixels each way, not {format.width}x{format.height}"
        raise UnsupportedFormatError(f"cannot write {name}: {text}", stage="encode")
    if settings.codec is not Codec.AUTO:
        raise ConfigError(f"cannot use --codec with {name}: it is a picture")
    if settings.speed is not None:
        raise ConfigError(f"cannot use --speed with {name}: it is a picture")
    if settings.chroma is not Chroma.AUTO:
        raise ConfigError(f"cannot use --chroma with {name}: it is a picture")
    if settings.encoder_option:
        raise ConfigError(f"cannot use --encoder-option with {name}: it is a picture")
    deep = format.bit_depth > 8 and kind is not PictureKind.MATTE
    notices = []
    if deep and 16 not in still.depths:
        notices.append(f"{name} has 8 bits; the source has more")
    if format.color.is_hdr and kind is not PictureKind.MATTE:
        notices.append("HDR is written without tone mapping")
    labelled = kind is not PictureKind.MATTE and not format.color.is_near_srgb
    if labelled and not still.labels:
        notices.append(
            f"{name} cannot store the colour description, so readers assume sRGB; .png can"
        )
    if pixel_aspect != 1:
        ratio = f"{pixel_aspect.numerator}:{pixel_aspect.denominator}"
        notices.append(f"pixel aspect {ratio} left out: pictures have square pixels")
    return StillChoice(
        container=container,
        depth=16 if deep and 16 in still.depths else 8,
        kind=kind,
        is_labelled=labelled and still.labels,
        options=_options(container, settings.quality),
        notices=tuple(notices),
    )


def _options(container: Container, asked: int | None) -> list[int]:
    """Return OpenCV's options for the quality, which is checked."""
    best = container.still.quality if container.still is not None else None
    if best is None:
        if asked is not None:
            raise ConfigError(f"cannot use --quality with {container.name}: it is lossless")
        return []
    quality = best if asked is None else asked
    if not 1 <= quality <= 100:
        text = f"--quality of {container.name} must be between 1 and 100 (best), not {quality}"
        raise ConfigError(text)
    if container.name == "WebP":
        return [cv2.IMWRITE_WEBP_QUALITY, quality]
    full_chroma = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    return [cv2.IMWRITE_JPEG_QUALITY, quality, *full_chroma]


class StillEncoder:
    """Writes each frame as a picture file; see :class:`bgsoft.encode.base.Encoder`.

    Args:
        files: Receives the pictures.
        choice: Kind and settings of the files.
        format: Layout of the frames.
    """

    def __init__(self, files: StillFiles, choice: StillChoice, format: FrameFormat) -> None:
        self.name, self.pixel_format = choice.container.name, ""
        self.frames = 0
        self._files, self._choice = files, choice
        self._pictures = RgbPictures(
            format, interpolation=_INTERPOLATION, blue_first=True, depth=choice.depth
        )

    def encode(self, frame: Frame) -> None:
        failed = f"cannot encode frame {frame.index} with {self.name}"
        theirs = (cv2.error, ValueError)
        with errors_as(theirs, EncodeError, failed, stage="encode", pts=frame.pts):
            suffix = self._choice.container.extensions[0]
            _, encoded = cv2.imencode(suffix, self._pixels(frame), self._choice.options)
        data, kind = encoded.tobytes(), self._choice.kind
        if kind is PictureKind.COLOR_ALPHA:
            data = with_alpha(data)
        if self._choice.is_labelled:
            color = frame.format.color
            data = with_color(data, color.primaries, color.transfer)
        original = frame.original
        if isinstance(original, OriginalStill) and kind is not PictureKind.MATTE:
            still = self._choice.container.still
            if original.profile and still is not None and still.profiles:
                data = with_profile(data, original.profile)
        self._files.write(data, frame.pts, frame.duration)
        self.frames += 1

    def _pixels(self, frame: Frame) -> Plane:
        """Return the samples to write, blue first, with straight alpha.

        The shape is (H, W) for grey, else (H, W, 3) or (H, W, 4).
        """
        alpha, kind = frame.planes.alpha, self._choice.kind
        if kind is PictureKind.MATTE:
            return np.asarray(alpha)
        color = self._color(frame)
        if kind is PictureKind.COLOR:
            return color
        color[alpha == 0] = 0
        if self._choice.depth == 16:
            alpha = alpha.astype(np.uint16) * 257
        whole: Plane = cv2.merge((*cv2.split(color), alpha))
        return whole

    def _color(self, frame: Frame) -> Plane:
        color: Plane = self._pictures.picture(frame)
        original = frame.original
        if not isinstance(original, OriginalStill):
            return color
        pixels = original.pixels
        if pixels.dtype != color.dtype:  # 16 bits into an 8-bit file
            pixels = cv2.convertScaleAbs(pixels, alpha=1 / 257)
        planes = replace(frame.planes, luma=original.luma, chroma=original.chroma)
        before = replace(frame, planes=planes)
        alpha = opacity(frame, original)
        give_back(color, pixels, lambda at: samples(self._pictures.picture(before))[at], alpha)
        return color

    def finish(self) -> None:
        """Do nothing: every picture is written when it comes."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""
