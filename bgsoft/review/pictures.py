"""The pictures of doubts: a part of a frame, from the source and from the result."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import EncodeError
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import Box
from bgsoft.frame import Frame, FrameFormat
from bgsoft.records import NamedTuple
from bgsoft.review.doubts import Doubt
from bgsoft.review.evidence import changed_samples, faces_in, make_finder
from bgsoft.review.videos import ReviewVideo, frame_pairs

WIDTH_PX = 640
_CONTEXT = 3.0
"""Sides of a picture over those of the place it shows, at least."""
_QUALITIES = (85, 70, 50, 30, 15)
_MARGIN = 0.25
"""Part of a face's size by which the place that would mend it is larger, each way."""
_MIN_REGION = 0.0005
"""Part of the frame from which on what has changed is a place."""

Picture = NDArray[np.uint8]


class ShownDoubt(NamedTuple):
    """A doubt with its pictures."""

    doubt: Doubt
    box: Box | None
    """Place in frame pixels; None: none was found."""
    view: tuple[int, int, int, int]
    """Part of the frame that the pictures show: left, top, right, bottom."""
    source: bytes
    """WebP."""
    result: bytes


def picture_doubts(
    doubts: Sequence[Doubt], source: ReviewVideo, result: ReviewVideo, max_bytes: int
) -> list[ShownDoubt]:
    """Make the pictures of doubts, in order; those that do not decode are left out.

    Args:
        doubts: Doubts to show.
        source: The source.
        result: The result.
        max_bytes: Of all pictures together.

    Raises:
        MediaError: A video cannot be decoded.
        InferenceError, ModelError: The face detector failed.
    """
    befores = {doubt.frame - 1 for doubt in doubts if doubt.by_change}
    wanted = sorted({doubt.frame for doubt in doubts} | befores)
    by_frame: dict[int, list[int]] = {}
    for number, doubt in enumerate(doubts):
        by_frame.setdefault(doubt.frame, []).append(number)
    maker = _PictureMaker(source, result, max_bytes // max(1, 2 * len(doubts)))
    shown: dict[int, ShownDoubt] = {}
    try:
        for frames in frame_pairs(source, result, wanted):
            maker.see(*frames)
            for number in by_frame.get(frames[0].index, ()):
                shown[number] = maker.show(doubts[number])
    finally:
        maker.close()
    return [shown[number] for number in sorted(shown)]


class _PictureMaker:
    """Makes pictures of pairs of frames.

    Args:
        source: The source.
        result: The result.
        max_bytes: Of a picture.
    """

    def __init__(self, source: ReviewVideo, result: ReviewVideo, max_bytes: int) -> None:
        self._formats = source.info.format, result.info.format
        self._converters = [RgbPictures(each, blue_first=True) for each in self._formats]
        self._reducer = Reducer(self._formats[0])
        self._finder: FaceFinder | None = None
        self._max_bytes = max_bytes
        self._first_quality = 0
        """Index of the quality to try first: one above that of the last picture."""
        self._frames: tuple[Frame, ...] = ()
        self._changed: NDArray[np.bool_] | None = None
        self._last: tuple[int, NDArray[np.bool_]] | None = None

    def see(self, source: Frame, result: Frame) -> None:
        """Take the next pair of frames."""
        if self._changed is not None:
            self._last = self._frames[0].index, self._changed
        self._frames = source, result
        self._changed = changed_samples(
            source.luma, self._formats[0], result.luma, self._formats[1]
        )

    def show(self, doubt: Doubt) -> ShownDoubt:
        """Make the pictures of a doubt of the frames that were seen last."""
        box = self._changed_place() if doubt.by_change else doubt.box
        if box is None and not doubt.by_change:
            box = self._face_place()
        elif box is not None and not doubt.by_change:
            box = _grown(box)
        view = _view(box, self._formats[0])
        pictures = [
            self._encode(converter.picture(frame), view)
            for converter, frame in zip(self._converters, self._frames, strict=True)
        ]
        return ShownDoubt(doubt, box, view, *pictures)

    def close(self) -> None:
        """Free the face detector."""
        if self._finder is not None:
            self._finder.close()

    def _changed_place(self) -> Box | None:
        """Return the largest place that became different, or equal, since the frame before."""
        now, last = self._changed, self._last
        if now is None or last is None or last[0] != self._frames[0].index - 1:
            return None
        differs = (now != last[1]).astype(np.uint8)
        # Single samples are noise of the encoders.
        solid = cv2.morphologyEx(differs, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
        joined = cv2.dilate(solid, np.ones((15, 15), np.uint8))
        _, _, stats, _ = cv2.connectedComponentsWithStats(joined)
        if len(stats) < 2:
            return None
        left, top, width, height, samples = max(stats[1:].tolist(), key=lambda each: each[4])
        if samples < _MIN_REGION * now.size:
            return None
        return float(left), float(top), float(left + width), float(top + height)

    def _face_place(self) -> Box | None:
        """The largest face of the source; None: there is none."""
        if self._finder is None:
            self._finder = make_finder(self._formats[0])
            self._finder.start()
        faces = faces_in(self._frames[0], self._finder, self._reducer)
        return _grown(faces[0]) if faces else None

    def _encode(self, picture: Picture, view: tuple[int, int, int, int]) -> bytes:
        left, top, right, bottom = view
        part = picture[top:bottom, left:right]
        scale = min(1.0, WIDTH_PX / (right - left))
        while True:
            size = max(1, round(scale * (right - left))), max(1, round(scale * (bottom - top)))
            small = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
            for at in range(self._first_quality, len(_QUALITIES)):
                quality = _QUALITIES[at]
                made, data = cv2.imencode(".webp", small, [cv2.IMWRITE_WEBP_QUALITY, quality])
                if not made:
                    raise EncodeError("cannot encode a picture as WebP: OpenCV lacks it")
                if len(data) <= self._max_bytes or min(size) == 1:
                    self._first_quality = max(0, at - 1)
                    return data.tobytes()
            scale /= 2


def _grown(box: Box) -> Box:
    left, top, right, bottom = box
    x, y = _MARGIN * (right - left), _MARGIN * (bottom - top)
    return left - x, top - y, right + x, bottom + y


def _view(box: Box | None, format: FrameFormat) -> tuple[int, int, int, int]:
    """The part of the frame to show: of its shape, the place in the middle, at most all."""
    width, height = format.width, format.height
    if box is None:
        return 0, 0, width, height
    left, top, right, bottom = box
    share = _CONTEXT * max((right - left) / width, (bottom - top) / height)
    share = min(1.0, max(share, WIDTH_PX / width))
    across, down = round(share * width), round(share * height)
    x = min(max(round((left + right - across) / 2), 0), width - across)
    y = min(max(round((top + bottom - down) / 2), 0), height - down)
    return x, y, x + across, y + down
