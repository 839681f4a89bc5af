"""Pictures of animations: GIF and WebP, as R'G'B' samples or with a palette of 256 colours."""

from __future__ import annotations

from fractions import Fraction

import cv2
import numpy as np
from av.filter import Graph
from av.video.format import VideoFormat
from av.video.frame import VideoFrame

from bgsoft.encode.base import PictureKind
from bgsoft.encode.codecs import EncoderChoice
from bgsoft.encode.rgb import EXACT, RgbPictures
from bgsoft.errors import EncodeError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.planes import Plane
from bgsoft.media.pyav import pyav_errors_as

_PALETTE = "stats_mode=single:reserve_transparent={alpha}"
_DITHER = "new=1:dither=bayer:bayer_scale=3:alpha_threshold=128"
"""Each frame has its own palette. An ordered dither does not flicker in still areas."""
_ANY_TICK = Fraction(1, 1000)


class AnimatedPictures:
    """Makes the pictures for encoders of animations.

    Args:
        choice: The pixel format, ``bgra`` or ``pal8``, and the planes to show.
        format: Layout of the frames.
    """

    def __init__(self, choice: EncoderChoice, format: FrameFormat) -> None:
        self._kind = choice.kind
        self._rgb = RgbPictures(format, choice.kind, EXACT, blue_first=True, depth=8)
        self._opaque = np.full(format.luma_shape, 255, np.uint8)
        self._graph = _palette_graph(choice, format) if choice.pixel_format == "pal8" else None

    def picture(self, frame: Frame) -> VideoFrame:
        """Return a frame's picture; a palette holds the nearest colours.

        Raises:
            EncodeError: FFmpeg's filters fail.
        """
        color, alpha = self._rgb.picture(frame), self._opaque
        if self._kind is PictureKind.COLOR_ALPHA:
            alpha = frame.planes.alpha
            color[alpha == 0] = 0
        pixels: Plane = cv2.merge((*cv2.split(color), alpha))
        picture = VideoFrame.from_ndarray(pixels, format="bgra")
        if self._graph is None:
            return picture
        picture.pts, picture.time_base = frame.index, _ANY_TICK
        with pyav_errors_as(EncodeError, "cannot make a palette", stage="encode", pts=frame.pts):
            self._graph.vpush(picture)
            made = self._graph.vpull()
        made.time_base = frame.time_base  # the time base of its pts
        return made


def _palette_graph(choice: EncoderChoice, format: FrameFormat) -> Graph:
    graph = Graph()
    source = graph.add_buffer(
        width=format.width, height=format.height, format=VideoFormat("bgra"), time_base=_ANY_TICK
    )
    alpha = int(choice.kind is PictureKind.COLOR_ALPHA)
    split = graph.add("split")
    palette = graph.add("palettegen", _PALETTE.format(alpha=alpha))
    use = graph.add("paletteuse", _DITHER)
    source.link_to(split)
    split.link_to(use, 0, 0)
    split.link_to(palette, 1, 0)
    palette.link_to(use, 0, 1)
    use.link_to(graph.add("buffersink"))
    graph.configure()
    return graph
