"""Measure how well, how steadily and how fast faces are found on the CPU.

::

    python scripts/measure_faces.py --reference DIR clip.mkv other.mp4 [--small] [--draw DIR]

The reference is another detector, read from what scripts/reference_faces.py wrote to DIR. A
*visible frontal face* is a detection with a score of 0.8, or 0.7 if its box is at least 8 % of the
frame's short side high; and its nose lies between its eyes, along their line. That was chosen by
looking at what it says of 81 photographs, still and moved about, and of seven clips: of such
detections one large one in 150 and one small one in eight is no face, but a hand, a postcard,
leaves or the back of a head. From 0.6 to 0.7 come more hands, lettering and collars, beside faces
in the dark, in backlight or blurred; small heads from the side and from behind have up to 0.8.
Per clip, and last for all together:

* recall: visible frontal faces that the finder has (boxes overlap by a quarter or more);
* tight: the same where boxes overlap by half or more; the rest are followed beside the face;
* large: recall of faces that are at least 8 % of the frame's short side high;
* empty: frames without any face, whatever the reference says: for clips that always show one;
* false life: longest run of frames in which one track follows what the reference, at a score of
  0.5, does not see at all in the frames from three before to three after;
* after: frames in which a face still has landmarks, so that it is guarded and written, when it is
  suddenly gone, without the reset of a cut;
* still: one frame again and again with fresh grain of 1.5 code values: standard deviation of
  landmark positions over time, root mean square over landmarks and axes, % of the face's width;
* residual: the same of landmarks against the mean of their neighbours in time, where the face
  moves less than 0.5 % of its width a frame; divided by the square root of 1.5;
* lag: RMS distance of smoothed landmarks from unsmoothed ones where it moves more, % of the width;
* ms: time of one core a frame, without reduction and decoding.

The figures beside constants of bgsoft/face are of six clips of people who talk with their hands and
of eleven that ffmpeg makes of them: swung about, the same with a bar that passes, rolled by half a
radian, dimmed and blurred, shrunk to a third, and with somebody else who walks past.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from quality.faces import LARGE, TIGHT_MATCH, Comparison, Seen, read_reference

from bgsoft.analysis.reduce import Reducer
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.base import Face
from bgsoft.face.create import finder_settings
from bgsoft.face.finder import FaceFinder
from bgsoft.face.geometry import Roi
from bgsoft.face.networks import FaceNetworks, FramePair, Landmarks
from bgsoft.frame import Frame, FrameFormat
from bgsoft.rendering.host import host_planes
from bgsoft.rendering.preview import frame_to_bgr
from bgsoft.ring import FrameRing
from bgsoft.settings.config import FaceConfig, FaceMode

STILL_FRAMES, STILL_SKIP, GRAIN = 90, 30, 1.5
SLOW_MOTION = 0.005


def frames_of(path: Path) -> Iterator[Frame]:
    """All frames of a clip; each is valid until the next is requested."""
    with CpuDecoder(path) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            yield frame
            ring.release(frame)


def format_of(path: Path) -> FrameFormat:
    with CpuDecoder(path) as decoder:
        return decoder.info.format


@dataclass
class Run:
    """Results of one clip."""

    compared: Comparison
    raw: list[dict[int, NDArray[Any]]] = field(default_factory=list)
    """Unsmoothed landmarks by track."""
    ms: list[float] = field(default_factory=list)


class Recorder(FaceNetworks):
    """Networks on the CPU that keep the last frame's landmarks, unsmoothed."""

    meshes: list[Landmarks | None]

    def landmarks(self, asked: Sequence[tuple[FramePair, Roi]]) -> list[Landmarks | None]:
        self.meshes = super().landmarks(asked)
        return self.meshes


def make_finder(config: FaceConfig, format: FrameFormat) -> tuple[FaceFinder, Recorder]:
    """A finder that makes the landmarks of all faces, and its networks."""
    settings = replace(finder_settings(config, format, writes_data=False), by_landmarks=True)
    networks = Recorder(format, settings.canvases(format))
    return FaceFinder(format, networks, settings), networks


def measure_clip(path: Path, config: FaceConfig, reference: Path, draw: Path | None) -> Run:
    format = format_of(path)
    seen = read_reference(reference / f"{path.stem}.json", format)
    run = Run(compared := Comparison(format))
    reduce = Reducer(format)
    finder, networks = make_finder(config, format)
    for frame in frames_of(path):
        if frame.index == len(seen):
            raise SystemExit(f"{path}: the reference has {len(seen)} frames only")
        grid = reduce.reduce([frame])[0]
        started = time.thread_time()
        (faces,) = finder.find([frame], [grid])
        run.ms.append((time.thread_time() - started) * 1000)
        pairs = zip(faces, networks.meshes, strict=True)
        run.raw.append(
            {
                face.id: points.T
                for face, points in pairs
                if face.has_landmarks and points is not None
            }
        )
        compared.add(faces, seen[frame.index])
        if draw is not None and (frame.index % 15 == 0 or compared.missed(frame.index)):
            picture = drawn(frame, faces, compared.seen[-1], compared.visible[-1])
            cv2.imwrite(str(draw / f"{path.stem}-{frame.index:04d}.jpg"), picture)
    finder.close()
    if len(seen) > len(run.ms):
        raise SystemExit(f"{path}: the reference has {len(seen)} frames, the clip {len(run.ms)}")
    return run


def drawn(frame: Frame, faces: list[Face], seen: Seen, visible: NDArray[np.bool_]) -> NDArray[Any]:
    """The frame with meshes green, boxes blue, visible faces red and other detections orange."""
    picture = np.ascontiguousarray(frame_to_bgr(frame.luma, frame.chroma, frame.format))
    for face in faces:
        corners = np.rint(face.box_xyxy).astype(int)
        cv2.rectangle(picture, tuple(corners[:2]), tuple(corners[2:]), (255, 0, 0), 1)
        for x, y in np.rint(face.landmarks[:, :2] * 8 - 4).astype(int):
            cv2.circle(picture, (int(x), int(y)), 8, (0, 255, 0), -1, cv2.LINE_AA, 3)
        label = f"{face.id} {face.score:.2f} {'D' if face.detected else ''}"
        cv2.putText(picture, label, tuple(corners[:2]), 0, 0.6, (255, 255, 255), 1, cv2.LINE_AA)
    for box, points, sure in zip(seen.boxes, seen.keypoints, visible, strict=True):
        color = (0, 0, 255) if sure else (0, 160, 255)
        corners = np.rint(box).astype(int)
        cv2.rectangle(picture, tuple(corners[:2]), tuple(corners[2:]), color, 1)
        for x, y in np.rint(points).astype(int):
            cv2.circle(picture, (int(x), int(y)), 2, color, -1)
    return picture


def moving(run: Run) -> tuple[list[float], list[float]]:
    """Squared residuals of slow frames and squared lags of fast ones, in face widths."""
    tracks = [
        {face.id: face for face in faces if face.has_landmarks} for faces in run.compared.faces
    ]
    residuals, lags = [], []
    for index in range(1, len(tracks) - 1):
        for name, face in tracks[index].items():
            if name not in tracks[index - 1] or name not in tracks[index + 1]:
                continue
            last, after = (tracks[i][name].landmarks for i in (index - 1, index + 1))
            width = face.box_xyxy[2] - face.box_xyxy[0]
            speed = np.linalg.norm((after - last)[:, :2].mean(axis=0)) / 2 / width
            if speed < SLOW_MOTION:
                rest = (face.landmarks - (last + after) / 2)[:, :2] / width
                residuals.append(float(np.mean(rest**2)) / 1.5)
            elif name in run.raw[index]:
                late = (face.landmarks - run.raw[index][name])[:, :2] / width
                lags.append(float(np.mean(np.sum(late**2, axis=1))))
    return residuals, lags


def still(path: Path, config: FaceConfig) -> float:
    """Jitter of the clip's first frame with fresh grain, % of the face's width."""
    rng = np.random.default_rng(0)
    frame = next(frames_of(path))
    clean = frame.luma.astype(np.float32)
    finder, _ = make_finder(config, frame.format)
    reduce = Reducer(frame.format)
    points, widths = [], []
    scale = 1 << (frame.format.bit_depth - 8 + frame.format.shift)
    for index in range(STILL_FRAMES):
        grain = rng.standard_normal(clean.shape, np.float32) * (GRAIN * scale)
        top = np.iinfo(frame.luma.dtype).max
        np.copyto(frame.luma, np.clip(np.rint(clean + grain), 0, top), casting="unsafe")
        frame.pts = int(index / 30 / frame.time_base)
        (faces,) = finder.find([frame], reduce.reduce([frame]))
        if faces and faces[0].has_landmarks and index >= STILL_SKIP:
            widths.append(faces[0].box_xyxy[2] - faces[0].box_xyxy[0])
            points.append(faces[0].landmarks[:, :2])
    finder.close()
    if not points:
        return np.nan
    return 100 * float(np.sqrt(np.var(np.array(points), axis=0).mean()) / np.mean(widths))


def life_after(path: Path, config: FaceConfig) -> int:
    """Frames in which a face outlives the picture that showed it, the worse of two ways to go."""
    format = format_of(path)
    longest = 0
    for leave in (_grey, _walled):
        finder, _ = make_finder(config, format)
        reduce = Reducer(format)
        for frame in frames_of(path):
            (faces,) = finder.find([frame], reduce.reduce([frame]))
            if frame.index >= 20 and faces:
                leave(frame, faces[0])
                for index in range(60):
                    frame.pts += int(1 / 30 / frame.time_base)
                    (left,) = finder.find([frame], reduce.reduce([frame]))
                    if any(face.has_landmarks for face in left):
                        longest = max(longest, index + 1)
                break
        finder.close()
    return longest


def _grey(frame: Frame, _face: Face) -> None:
    """Nothing but grain."""
    low, high = frame.format.luma_range
    grain = np.random.default_rng(0).normal((low + high) / 2, (high - low) / 60, frame.luma.shape)
    frame.luma[:] = np.clip(grain, low, high)
    frame.chroma[:] = frame.format.chroma_neutral


def _walled(frame: Frame, face: Face) -> None:
    """The picture left and right of the head, drawn together over it."""
    left, top, right, bottom = face.box_xyxy
    side = (right - left) * 0.6
    rows = slice(max(0, int(top - side)), int(bottom + side / 2))
    x0, x1 = max(0, int(left - side)), min(frame.format.width - 1, int(right + side))
    blend = np.linspace(0, 1, x1 - x0)
    frame.luma[rows, x0:x1] = (
        frame.luma[rows, x0, None] * (1 - blend) + frame.luma[rows, x1, None] * blend
    )
    half = slice(rows.start // 2, rows.stop // 2)
    frame.chroma[half, x0 // 2 : x1 // 2] = frame.chroma[half, x0 // 2, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--face", choices=[*FaceMode], default="guard", help="as for a render")
    parser.add_argument("--detect-every", type=int, help="frames; default: as in a render")
    parser.add_argument("--small", action="store_true", help="look for small faces, too")
    parser.add_argument(
        "--reference", type=Path, required=True, help="folder of scripts/reference_faces.py"
    )
    parser.add_argument("--misses", action="store_true", help="list the faces not found")
    parser.add_argument("--draw", type=Path, help="folder for every 15th frame and misses, drawn")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.draw:
        options.draw.mkdir(parents=True, exist_ok=True)
    config = FaceConfig(
        mode=FaceMode(options.face), detect_every=options.detect_every, small_faces=options.small
    )
    print(
        f"{'clip':18} frames recall  tight    (of)  large    (of)  empty tracks false after"
        "  still% residual%  lag%    ms (median, mean)"
    )
    totals = np.zeros(8, np.int64)
    for path in options.clips:
        run = measure_clip(path, config, options.reference, options.draw)
        compared = run.compared
        empty = sum(not faces for faces in compared.faces)
        ids = len({face.id for faces in compared.faces for face in faces})
        tight, _ = compared.recall(match=TIGHT_MATCH)
        counts = [len(run.ms), tight, *compared.recall(), *compared.recall(LARGE), empty, ids]
        totals += counts
        residuals, lags = (100 * np.sqrt(np.mean(v)) if v else np.nan for v in moving(run))
        print(
            f"{columns(path.name, counts)} {compared.false_life():5} "
            f"{life_after(path, config):5} "
            f"{still(path, config):7.3f} {residuals:9.3f} {lags:5.2f} "
            f"{np.median(run.ms):8.2f} {np.mean(run.ms):8.2f}"
        )
        if options.misses:
            for miss in compared.misses():
                print(f"  {miss}")
    if len(options.clips) > 1:
        print(columns("all", totals))


def columns(name: str, counts: Sequence[int] | NDArray[np.int64]) -> str:
    """The first columns, of values that can be added up."""
    frames, tight, found, visible, large_found, large, empty, ids = counts
    parts = [
        part / total if total else np.nan
        for part, total in ((found, visible), (tight, visible), (large_found, large))
    ]
    return (
        f"{name:18} {frames:6} {parts[0]:6.3f} {parts[1]:6.3f} {visible:7} "
        f"{parts[2]:6.3f} {large:7} {empty:6} {ids:6}"
    )


if __name__ == "__main__":
    main()
