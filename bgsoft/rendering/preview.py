"""A frame of a render as a picture: source, matte and result side by side."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from fractions import Fraction
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.base import Decoder, DecodeSettings, PtsRange
from bgsoft.encode.rgb import RgbPictures
from bgsoft.errors import ConfigError, DecodeError
from bgsoft.face.base import Face, oval_points
from bgsoft.face.create import make_finder, read_known_faces
from bgsoft.face.faces_file import KnownFaces
from bgsoft.face.finder import FaceFinder
from bgsoft.face.networks import FaceNetworks
from bgsoft.frame import Frame, FrameFormat
from bgsoft.media.info import VideoInfo
from bgsoft.media.listing import NotListedError, list_frames
from bgsoft.models.catalog import resolve
from bgsoft.outputs import check_target, made_folders, write_whole
from bgsoft.pipeline.metrics import Metrics
from bgsoft.records import dataclass
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.host import host_planes
from bgsoft.rendering.people import needs_search
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.rendering.request import Request
from bgsoft.ring import FrameRing
from bgsoft.settings.config import BackendConfig, EffectKind, RenderConfig
from bgsoft.settings.main import MainPlace, parse_main

WARM_UP_FRAMES = 12
"""Frames processed before the shown one, so that temporal smoothing is as in a render."""

_DEFAULT_SECONDS = 1.0
_FRAMES_BEFORE_DECIDE = (
    "the preview chooses the main people by the frames before this one; a render chooses them over"
    " the whole shot"
)
_CHECKER_PX = 16
_COLORS = ((80, 220, 80), (255, 160, 60), (80, 160, 255), (220, 90, 220), (60, 220, 240))
"""Blue, green, red; by id in turn."""
_Picture = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewResult:
    """The picture that was written."""

    time_seconds: float
    """Time of the frame, on the container's clock."""
    width: int
    height: int
    """Size of each of the three pictures, pixels."""
    notices: tuple[str, ...] = ()


def write_preview(
    config: RenderConfig, at_seconds: float | None = None, *, faces: bool = False
) -> PreviewResult:
    """Render one frame and write it as a PNG file.

    Faces are detected in this frame and earlier ones; a render also inspects later ones. Those of
    a file of faces are used instead.

    Args:
        config: Settings of a render; ``output`` is the PNG file.
        at_seconds: The time of the frame after the first one; None: one second, or the middle of a
            shorter video.
        faces: Draw the faces into the source picture, with the ids of a file of faces.

    Raises:
        ConfigError: The time is past the end, or the output is not a ``.png`` file.
        OutputError: The file cannot be written.
        MediaError: The input cannot be read.
        ModelError: The model cannot be used.
    """
    output = config.output
    if output.suffix.lower() != ".png":
        raise ConfigError(f"the preview must be a .png file, not {output.name!r}", path=output)
    request = Request(config)
    check_target(output, "preview", overwrite=config.overwrite, others=request.read_files)
    if at_seconds is not None and not at_seconds >= 0:
        raise ConfigError(f"--at must be 0 or more seconds, not {at_seconds:g}")
    info = request.source.probe(rate=config.fps)
    if at_seconds is None:
        length = info.duration_seconds
        short = length is not None and length <= _DEFAULT_SECONDS
        at_seconds = (length or 0.0) / 2 if short else _DEFAULT_SECONDS
    known = read_known_faces(config.face)
    source, matte, result, frame_seconds = _render_frame(
        config, info, at_seconds, known, draws_faces=faces
    )
    _, data = cv2.imencode(".png", np.hstack([source, matte, result]))
    notices = [*info.notices, *info.lost_chroma]
    if len(info.stills) != 1 and needs_search(config, known):
        notices.append(_FRAMES_BEFORE_DECIDE)
    begin = _begin(at_seconds, info)
    notices += [
        f"--main {name.text}: the preview shows who is there in the frames before this one; a"
        " render shows who is there at its time"
        for name in map(parse_main, config.face.main)
        if isinstance(name, MainPlace) and name.seconds < begin
    ]
    with made_folders([output], notices.append):
        write_whole(output, "preview", data.tobytes())
    if info.format.color.is_hdr:
        notices.append("HDR is shown without tone mapping")
    return PreviewResult(
        time_seconds=frame_seconds,
        width=info.format.width,
        height=info.format.height,
        notices=tuple(notices),
    )


def _render_frame(
    config: RenderConfig,
    info: VideoInfo,
    at_seconds: float,
    known: KnownFaces | None,
    *,
    draws_faces: bool,
) -> tuple[_Picture, _Picture, _Picture, float]:
    """Return source, matte and result as (H, W, 3) BGR, and the frame's time in seconds."""
    ring = FrameRing(2, lambda slot: host_planes(info.format, slot))
    builder = StageBuilder(BackendConfig(batch=1).on_cpu(), lambda _event: None)
    model = resolve(config.segment.model)
    options = PictureOptions(known=known, began=info.start_seconds)
    stages = builder.make_picture_stages(config, info, model, Metrics(), options)
    finder: FaceFinder | None = None
    if draws_faces:
        make_networks = partial(FaceNetworks, info.format)
        finder = make_finder(config, info, make_networks, known, writes_data=True)
    reducer = Reducer(info.format)
    faces: list[Face] = []
    last: Frame | None = None
    try:
        make_decoder = partial(builder.make_decoder, "cpu", config.input, info=info)
        with closing(_frames_until(at_seconds, info, make_decoder, ring)) as frames:
            for frame in frames:
                if last is not None:
                    ring.release(last)
                last = frame
                luma, chroma = frame.luma.copy(), frame.chroma.copy()
                if finder is not None:
                    (faces,) = finder.find([frame], reducer.reduce([frame]))
                stages.process_batch([frame])
                stages.flush()
            if last is None:
                raise DecodeError(f"cannot find a frame at {at_seconds:g} s", path=config.input)
            source = frame_to_bgr(luma, chroma, info.format)
            draw_faces(source, faces)
            gray: _Picture = np.repeat(last.planes.alpha[..., None], 3, axis=-1)
            result = show_result(config.effect.kind, last)
            return source, gray, result, last.time_seconds
    except (ConfigError, DecodeError) as exc:
        end = info.duration_seconds
        if last is None and end is not None and at_seconds >= end:
            raise ConfigError(
                f"--at must be before the end of {config.input.name} ({end:.2f} s), not"
                f" {at_seconds:g} s"
            ) from exc
        raise
    finally:
        stages.close()
        if finder is not None:
            finder.close()


def _begin(at_seconds: float, info: VideoInfo) -> float:
    """Return the time from which frames are decoded for the one at a time."""
    rate = float(info.frame_rate) or 25.0
    return max(0.0, at_seconds - WARM_UP_FRAMES / rate)


def _frames_until(
    at_seconds: float, info: VideoInfo, make_decoder: Callable[..., Decoder], ring: FrameRing
) -> Generator[Frame, None, None]:
    """Decode the frame that is shown at a time, after those that warm the stages up."""
    begin = _begin(at_seconds, info)
    # A frame at exactly at_seconds still counts; the end of the range is exclusive.
    length = at_seconds - begin + float(info.time_base) / 2
    is_empty, end = True, info.duration_seconds
    try:
        part = DecodeSettings(start_seconds=begin, duration_seconds=length)
        with make_decoder(settings=part) as decoder:
            for frame in decoder.frames(ring):
                is_empty = False
                yield frame
    except ConfigError:
        if not is_empty or end is None or at_seconds >= end:
            raise
    if is_empty and info.pipe is None and not info.stills:
        # A frame that began earlier is still shown.
        with suppress(NotListedError):
            pts = list_frames(info).pts
            shown = max(0, bisect_right(pts, info.pts_at(Fraction(str(at_seconds)))) - 1)
            span = PtsRange(pts[max(0, shown - WARM_UP_FRAMES)], pts[shown] + 1, 0)
            with make_decoder(settings=DecodeSettings(range=span)) as decoder:
                yield from decoder.frames(ring)


def draw_faces(picture: NDArray[np.uint8], faces: Sequence[Face]) -> None:
    """Draw each face's box, id and score, and where there are landmarks, them and the outline.

    Args:
        picture: (H, W, 3) uint8, blue first; drawn into.
        faces: In the picture's pixels.
    """
    height, width, _ = picture.shape
    thick = max(1, round(height / 540))
    for face in faces:
        color = _COLORS[face.id % len(_COLORS)]
        if face.has_landmarks and np.isfinite(face.landmarks).all():
            x, y = np.floor(face.landmarks[:, :2].T).astype(int)
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            picture[y[inside], x[inside]] = color
            outline = np.rint(oval_points(face).T).astype(np.int32)
            cv2.polylines(picture, [outline], True, color, thick, cv2.LINE_AA)
        left, top, right, bottom = (round(value) for value in face.box_xyxy)
        cv2.rectangle(picture, (left, top), (right, bottom), color, thick)
        label = f"{face.id}: {face.score:.2f}{'' if face.detected else ' followed'}"
        # Inside the box where the frame ends above it.
        at = (max(0, left), top - 4 * thick if top > 16 * thick else bottom + 14 * thick)
        cv2.putText(
            picture, label, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5 * thick, color, thick, cv2.LINE_AA
        )


def show_result(kind: EffectKind, frame: Frame, converter: RgbPictures | None = None) -> _Picture:
    """Return the encoder's input as (H, W, 3) BGR, on a checkerboard if transparent.

    Args:
        kind: The effect.
        frame: The composited frame.
        converter: Converts it to BGR faster than :func:`frame_to_bgr`, which is more exact.
    """
    gray: _Picture = np.repeat(frame.planes.alpha[..., None], 3, axis=-1)
    if kind is EffectKind.MATTE:
        return gray
    if converter is not None:
        picture = converter.picture(frame)
    else:
        picture = frame_to_bgr(frame.luma, frame.chroma, frame.format)
    if kind is not EffectKind.ALPHA:
        return picture
    opacity = gray.astype(np.float32) / 255
    rows, columns = np.ogrid[: gray.shape[0], : gray.shape[1]]
    odd = (rows // _CHECKER_PX + columns // _CHECKER_PX) % 2
    checkerboard = np.where(odd == 1, np.float32(153), np.float32(204))[..., None]
    blended: _Picture = np.rint(picture * opacity + checkerboard * (1 - opacity)).astype(np.uint8)
    return blended


def frame_to_bgr(luma: NDArray[Any], chroma: NDArray[Any], format: FrameFormat) -> _Picture:
    """Convert a frame to R'G'B', in the matrix and range of its stream (ITU-T H.273, 8.3).

    Args:
        luma: (H, W) samples.
        chroma: (⌈H/2⌉, ⌈W/2⌉, 2) samples, Cb before Cr.
        format: Format of the frame.

    Returns:
        (H, W, 3) uint8, blue first; no transfer function is applied.
    """
    kr, kb = format.color.kr_kb(format.height)
    black, white = format.luma_range
    y = (luma.astype(np.float32) - black) / (white - black)
    neutral, amplitude = format.chroma_neutral, 2 * format.chroma_amplitude
    small = (chroma.astype(np.float32) - neutral) / amplitude
    # Doubled and cropped, not stretched: at odd sizes the last sample is half outside.
    full = cv2.resize(small, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR)
    full = full[: format.height, : format.width]
    cb, cr = full[..., 0], full[..., 1]
    red = y + 2 * (1 - kr) * cr
    blue = y + 2 * (1 - kb) * cb
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    bgr = np.stack([blue, green, red], axis=-1)
    picture: _Picture = np.rint(np.clip(bgr, 0, 1) * 255).astype(np.uint8)
    return picture
