"""Clips with faces in them, made from the sample that ships with bgsoft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import cv2
import numpy as np
from av.container import InputContainer, OutputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from tests.outside import ffmpeg
from tests.synthetic import made_once

SAMPLE = Path(__file__).parents[1] / "samples" / "person.mp4"


FACE = np.s_[190:430, 560:720]
"""Area inside the face of the sample's person, in every frame."""
HALF_FACE = np.s_[95:215, 280:360]
"""The same, in clips of half the sample's size."""


@made_once
def write_small(path: Path, frames: int) -> Path:
    """The sample's first frames, 320×180, at 30 frames a second."""
    encode = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "12")
    ffmpeg("-i", SAMPLE, "-an", "-vf", "scale=320:180", "-frames:v", str(frames), *encode, path)
    return path


@made_once
def write_late_face(path: Path, frames: int, first: int) -> Path:
    """The sample's person, whose face is stripes before one frame: to be seen, but no face.

    Args:
        path: The clip, 640×360 at 30 frames a second.
        frames: How many of the sample's frames.
        first: The first one with a face.
    """

    def disturb(picture: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
        if number < first:
            picture[150:470, 520:760] = np.arange(240)[:, None] // 4 % 2 * np.uint8(160) + 40
        return picture

    return _write(path, frames, disturb, size=(640, 360))


@made_once
def write_cut(path: Path, frames: int, cut: int, right: int, down: int) -> Path:
    """The sample's person, who from one frame on is somewhere else; and so is the room.

    Args:
        path: The clip, 1280×720 at 30 frames a second.
        frames: How many of the sample's frames.
        cut: The first of the frames that are moved.
        right: By so many pixels.
        down: And so many down; the edges are drawn out.
    """
    way = np.array([[1.0, 0.0, right], [0.0, 1.0, down]])

    def move(picture: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
        if number < cut:
            return picture
        size = picture.shape[1::-1]
        moved = cv2.warpAffine(picture, way, size, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(moved, np.uint8)

    return _write(path, frames, move)


@made_once
def write_two_people(
    path: Path, frames: int, *, apart: bool = True, cut: int | None = None
) -> Path:
    """The sample's person twice: large at the left, mirrored and smaller at the right.

    Args:
        path: The clip, 1280×720 at 30 frames a second.
        frames: How many of the sample's frames.
        apart: Leave the room between them; otherwise their shoulders touch.
        cut: From this frame on the picture is mirrored.
    """

    def change(picture: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
        canvas = _side_by_side(picture, apart)
        return canvas if cut is None or number < cut else np.ascontiguousarray(canvas[:, ::-1])

    return _write(path, frames, change)


GUEST_FACE = np.s_[465:545, 228:280]
"""Area inside the face of the guest of :func:`write_guest_first`, in every frame."""


@made_once
def write_guest_first(path: Path, frames: int, first: int) -> Path:
    """The sample's person with a guest; the person's face is stripes before one frame.

    Args:
        path: The clip, 1280×720 at 30 frames a second.
        frames: How many of the sample's frames.
        first: The first one with both faces.
    """

    def change(picture: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
        guest = cv2.resize(picture[:, ::-1], (426, 240), interpolation=cv2.INTER_AREA)
        if number < first:
            picture[150:470, 520:760] = np.arange(240)[:, None] // 4 % 2 * np.uint8(160) + 40
        picture[400:640, 40:466] = guest
        return picture

    return _write(path, frames, change)


def _write(
    path: Path,
    frames: int,
    change: Callable[[NDArray[np.uint8], int], NDArray[np.uint8]],
    size: tuple[int, int] = (1280, 720),
) -> Path:
    """The sample's first frames, each changed by a function of its picture and number."""
    with av.open(str(SAMPLE), "r") as source, av.open(str(path), "w") as target:
        assert isinstance(source, InputContainer)
        assert isinstance(target, OutputContainer)
        stream = target.add_stream("libx264", rate=30)
        assert isinstance(stream, VideoStream)
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        stream.options = {"crf": "14", "preset": "ultrafast"}
        for number, frame in enumerate(source.decode(video=0)):
            if number == frames:
                break
            picture: NDArray[np.uint8] = frame.to_ndarray(format="bgr24")
            changed = change(picture, number)
            if size != changed.shape[1::-1]:
                changed = np.asarray(cv2.resize(changed, size, interpolation=cv2.INTER_AREA))
            target.mux(stream.encode(av.VideoFrame.from_ndarray(changed, format="bgr24")))
        target.mux(stream.encode(None))
    return path


def _side_by_side(picture: NDArray[np.uint8], apart: bool) -> NDArray[np.uint8]:
    large_from, small_from = (280, 168) if apart else (205, 260)
    large = picture[:, large_from : large_from + 720]
    small = cv2.resize(picture[:, ::-1], (896, 504), interpolation=cv2.INTER_AREA)
    small = small[:, small_from : small_from + 560]
    canvas = np.empty((720, 1280, 3), np.uint8)
    canvas[:, :720] = large
    canvas[216:, 720:] = small
    canvas[:216, 720:] = small[:1]
    return canvas
