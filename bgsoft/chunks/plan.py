"""Division of a video into chunks that, rendered alone, join into the same video.

A chunk begins :data:`~bgsoft.pipeline.refresh.BACKGROUND_REFRESH_OFFSET` frames after a refresh.
It is rendered from that refresh, or from an earlier one if that is not enough. The frames before
its beginning are dropped; they are its pre-roll. State that is kept from frame to frame:

=====================================  =============================================================
state                                  how a chunk gets it right
=====================================  =============================================================
reference frames                       decoding begins at a key frame
repaired timestamps, another clock     such a video is not divided; if only the render of a chunk
or picture size midway                 shows it, the video is rendered whole
deinterlacing (one frame each way)     the pre-roll; the decoder reads one more frame
changes in the 8 frames before, which  the pre-roll begins 8 frames before the refresh
scene cuts are compared with
choice of segmented frames (every      by the refresh, which counts through the whole video
Nth, or those that differ enough)
turns of passes, boxes of people       by the refresh
smoothed mask                          fades by ``--temporal``, which sets the pre-roll's length
mask that is held                      by the refresh
islands just as large as the limit     (not guaranteed)
recurrent models                       a longer pre-roll, in which their results converge
boxes of a detector, held where it     by the refresh, from finds of half a second
misses them
given mattes                           each belongs to one frame
followed regions                       followed through the video before it is divided
background held against noise          by the background's refresh, at the chunk's first frame
video behind people                    gets the time of the whole render's first frame
faces: places, tracks                  by the refresh, from detections. Ids are joined by place in
                                       the frame before the chunk
faces: main people, hidden ones        such a video is not divided
encoder                                each chunk begins with a key frame
scene cuts                             reset all of the above but the background's
=====================================  =============================================================
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

from bgsoft.analysis.base import REACH
from bgsoft.cuda.driver import cuda_number, driver_problem, gpu_count
from bgsoft.decode.base import DecodeSettings, PtsRange
from bgsoft.decode.stream import NOT_SEEKABLE, wanted_pts
from bgsoft.media.containers import ANIMATED
from bgsoft.media.info import VideoInfo
from bgsoft.media.listing import NotListedError, list_frames
from bgsoft.models.catalog import read_spec
from bgsoft.pipeline.refresh import BACKGROUND_REFRESH_OFFSET, REFRESH_INTERVAL
from bgsoft.records import dataclass
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.rendering.chunk import Chunk, NotDivisibleError
from bgsoft.rendering.request import Request
from bgsoft.settings.config import FaceMode, RenderConfig

_MAX_FRAMES, _MAX_FRAMES_ON_GPU = 24 * REFRESH_INTERVAL, 192 * REFRESH_INTERVAL
"""Maximum length of a chunk if ``--chunks`` is not given: the most that a kill loses.

A GPU is ten times as fast, and starts more slowly."""
_MIN_FRAMES, _MIN_FRAMES_ON_GPU = 2 * REFRESH_INTERVAL, 16 * REFRESH_INTERVAL
"""Minimum length: starting a process for fewer frames does not pay."""
_MIN_FRAMES_BESIDE_GPU, _CORES_OF_X264 = 5 * REFRESH_INTERVAL, 11
"""Minimum length if a GPU does all but encode; one x264 leaves further cores idle.

On 16 cores, 3,000 frames of 1080p take 16.3 s whole and 14.4 s in four chunks. 1,200 frames take
the same time either way."""
_CORES_PER_WORKER = 2
"""On 16 cores 8 processes render 1,800 frames of 1080p in 13.2 s, 14 in 14.8 s, and one in 17 s."""
_THREADS_PER_CORE = 2
"""Threads of all workers together; the last running workers can use idle cores."""
_WORKERS_PER_GPU = 4
_FADED = 1e-3
"""Weight of earlier masks that counts as faded: less than a step of 8 bits."""
_MAX_PRE_ROLL = BACKGROUND_REFRESH_OFFSET + 4 * REFRESH_INTERVAL
_RECURRENT_PRE_ROLL = BACKGROUND_REFRESH_OFFSET + REFRESH_INTERVAL
"""Pre-roll of recurrent models.

Started in the middle of a clip, rvm-mobilenetv3 has alphas 45 dB from those of a whole render.
After 32 frames they are 58 dB, after 160 frames 68 dB."""
_DECODING_COST, _PRE_ROLL_COST = 0.15, 0.5
"""Cost of a frame decoded before a chunk, and of a pre-roll frame; a rendered frame costs 1."""
_WORKER_BYTES, _WORKER_BYTES_ON_GPU, _WORKER_BYTES_PER_PIXEL = 350e6, 2.5e9, 180
"""Memory of a worker: 720 MB at 1080p on many cores, more with CUDA's libraries."""
_BYTES_PER_MODEL_PIXEL = 2000
"""Further memory per input pixel of a large model: 2.1 GB for an IS-Net of 1024×1024."""
_BYTES_PER_FINE_PIXEL = 100
"""Further memory per pixel if colour finer than 4:2:0 is kept: 200 MB for 1080p in 4:4:4."""
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """The frames of a render, as listed by the packets of the input."""

    first: int | None
    end: int | None
    """Wanted range, as in :class:`bgsoft.decode.base.PtsRange`."""
    pts: array[int]
    """pts of all frames, in order."""
    keys: array[int]
    """pts of all key frames at which decoding can begin, in order; some may be before ``first``."""


def workers_for(request: Request, info: VideoInfo) -> int:
    """Return the number of chunks of a video to render in parallel on this machine."""
    config = request.config
    workers = max(1, config.backends.cores // _CORES_PER_WORKER)
    if _on_gpu(config):
        workers = min(workers, _WORKERS_PER_GPU * max(1, len(gpus_for(config))))
    pixels = info.format.width * info.format.height
    needed = _WORKER_BYTES_ON_GPU if _on_gpu(config) else _WORKER_BYTES
    needed += _WORKER_BYTES_PER_PIXEL * pixels
    if request.keeps_chroma(info):
        needed += _BYTES_PER_FINE_PIXEL * pixels
    spec = read_spec(config.segment.model)
    if spec.large:
        needed += _BYTES_PER_MODEL_PIXEL * spec.width * spec.height
    return max(1, int(min(workers, _free_bytes() * _MEMORY_SHARE / needed)))


def threads_for(config: RenderConfig, workers: int) -> int:
    """Return the number of cores that each of several workers plans for."""
    return max(1, _THREADS_PER_CORE * config.backends.cores // workers)


def gpus_for(config: RenderConfig) -> Sequence[int]:
    """Return the GPUs for chunks: all if there are several and none is named, else none."""
    count = gpu_count()
    several = count > 1 and config.backends.gpu is None and may_use_gpu(config.backends)
    return range(count) if several else ()


def _on_gpu(config: RenderConfig) -> bool:
    """Return True if a GPU is expected to be used; none is opened to find out."""
    gpu = cuda_number(config.backends.gpu or 0)
    return may_use_gpu(config.backends) and driver_problem(gpu) is None


def _free_bytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024.0 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return math.inf


def divide_video(
    request: Request, info: VideoInfo, frames: FrameIndex, workers: int, *, begun: bool
) -> list[Chunk]:
    """Divide a video for a number of workers.

    If an earlier render of it has ``begun`` in chunks, there are at least two.

    Raises:
        NotDivisibleError: The video cannot be divided.
    """
    config = request.config
    count = max(_chunk_count(config, len(frames.pts), workers), 1 + begun)
    held = 0
    if config.detector.file is not None:
        from bgsoft.detect.step import HOLD_SECONDS

        held = _max_frames_in(math.floor(HOLD_SECONDS / info.time_base), frames.pts)
    return divide(frames, count, pre_roll_frames(config, held))


def check_divisible(request: Request, info: VideoInfo) -> None:
    """Check that a video can be divided, before its packets are read.

    Raises:
        NotDivisibleError: The video cannot be divided.
    """
    config = request.config
    if info.container in NOT_SEEKABLE or info.is_untimed:
        raise NotDivisibleError(f"{info.container} files cannot be read from the middle")
    containers = [output.destination.container for output in request.outputs]
    if any(container.still is not None for container in containers):
        raise NotDivisibleError("pictures cannot be written in chunks")
    if any(container.codecs <= ANIMATED for container in containers):
        raise NotDivisibleError("animated pictures cannot be written in chunks")
    if info.start_pts is None:
        raise NotDivisibleError("its frames have no timestamps")
    if config.face.mode in (FaceMode.MAIN, FaceMode.ANONYMIZE):
        raise NotDivisibleError("faces to keep or hide are followed through the whole video")
    pre_roll_frames(config)


def pays(config: RenderConfig, info: VideoInfo, workers: int) -> bool:
    """Return True if dividing a video is expected to save time."""
    if any(region.follow for region in config.all_regions):
        return False  # following them first takes as long as chunks save
    count = info.estimated_frames or 0
    if config.duration_seconds is not None:
        count = min(count, round(config.duration_seconds * info.frame_rate))
    _, min_frames = _frames_per_chunk(config)
    return workers > 1 and count >= 2 * min_frames


def _frames_per_chunk(config: RenderConfig) -> tuple[int, int]:
    """Return the maximum and the minimum length of a chunk."""
    if not _on_gpu(config):
        return _MAX_FRAMES, _MIN_FRAMES
    if config.backends.encode == "cpu" and config.backends.cores > _CORES_OF_X264:
        return _MAX_FRAMES_ON_GPU, _MIN_FRAMES_BESIDE_GPU
    return _MAX_FRAMES_ON_GPU, _MIN_FRAMES_ON_GPU


def _max_frames_in(ticks: int, pts: Sequence[int]) -> int:
    """Return the largest number of frames from one to the first that is more than this later."""
    return max(bisect_right(pts, time + ticks) - at for at, time in enumerate(pts))


def pre_roll_frames(config: RenderConfig, held: int = 0) -> int:
    """Return the length of a pre-roll; raise NotDivisibleError if it is too long.

    ``held`` is the number of frames in which a box of a detector stays hidden at most.
    """
    boxes = _pre_roll_for(held, "--detector")
    replaces = config.segment.replaces_matte
    if read_spec(config.segment.model).of_family.in_order and not replaces:
        return max(_RECURRENT_PRE_ROLL, boxes)
    strength = 0.0 if replaces else config.matte.temporal
    masks = math.inf if strength >= 1 else 0.0
    if 0 < strength < 1:
        masks = math.log(_FADED) / math.log(strength)
    needed = masks * config.segment.mask_every
    if config.segment.similarity_db is not None:  # few frames are segmented
        needed = max(needed, BACKGROUND_REFRESH_OFFSET + REFRESH_INTERVAL)
    return max(_pre_roll_for(needed, f"--temporal {strength:g}"), boxes)


def _pre_roll_for(needed: float, setting: str) -> int:
    """Return the distance to the last refresh that is ``needed`` frames or more before a chunk."""
    if needed > _MAX_PRE_ROLL:
        raise NotDivisibleError(f"{setting} needs too many earlier frames")
    intervals = math.ceil((needed - BACKGROUND_REFRESH_OFFSET) / REFRESH_INTERVAL)
    return BACKGROUND_REFRESH_OFFSET + REFRESH_INTERVAL * max(0, intervals)


def index_frames(config: RenderConfig, info: VideoInfo, cancel: threading.Event) -> FrameIndex:
    """Read the times of a render's frames.

    Raises:
        NotDivisibleError: The video cannot be divided at these times.
        RenderCancelledError: ``cancel`` was set.
    """
    settings = DecodeSettings(
        start_seconds=config.start_seconds, duration_seconds=config.duration_seconds
    )
    first, end = wanted_pts(info, settings)
    try:
        pts, keys = list_frames(info, cancel)
    except NotListedError as exc:
        raise NotDivisibleError(str(exc)) from exc
    begin = 0 if first is None else bisect_left(pts, first)
    pts = pts[begin : None if end is None else bisect_left(pts, end)]
    if len(keys) < 2:
        raise NotDivisibleError("it has fewer than two key frames")
    return FrameIndex(first, end, pts, keys)


def _chunk_count(config: RenderConfig, total: int, workers: int) -> int:
    """Return the number of chunks for ``total`` frames and a number of workers."""
    if config.chunks is not None:
        return config.chunks
    max_frames, min_frames = _frames_per_chunk(config)
    rounds = -(-total // (workers * max_frames))
    return max(1, min(workers * rounds, total // min_frames))


def divide(frames: FrameIndex, count: int, pre_roll: int) -> list[Chunk]:
    """Divide frames into at most ``count`` chunks.

    ``pre_roll`` is the number of frames before a chunk that are rendered and dropped.

    Raises:
        NotDivisibleError: There would be only one chunk.
    """
    total = len(frames.pts)
    begins = [0, *_beginnings(frames, count, pre_roll)]
    if len(begins) < 2:
        raise NotDivisibleError("it is too short")
    chunks = []
    for begin, end in zip(begins, [*begins[1:], total], strict=True):
        # REACH more frames, so that the same scene cuts are detected as in a whole render.
        index = max(0, begin - pre_roll - REACH)
        chunks.append(
            Chunk(
                frames=PtsRange(
                    frames.pts[index] if begin else frames.first,
                    frames.pts[end] if end < total else frames.end,
                    index,
                ),
                trim_start=frames.pts[begin],
                length=end - begin,
                began=frames.pts[0],
            )
        )
    return chunks


def _beginnings(frames: FrameIndex, count: int, pre_roll: int) -> list[int]:
    """Return the indices at which all chunks but the first begin.

    The cost of the most expensive chunk is minimised. There may be fewer chunks than ``count`` if
    more would not help.
    """
    total = len(frames.pts)
    possible = range(pre_roll, total - REFRESH_INTERVAL, REFRESH_INTERVAL)
    before = {0: 0.0} | {at: _cost_before(frames, at, pre_roll) for at in possible}

    def within(limit: float) -> list[int] | None:
        """Return the fewest chunks that each cost at most ``limit``; None if impossible."""
        begins = [0]
        while (last := begins[-1]) + limit < total + before[last]:
            reach = int(last + limit - before[last])
            after = possible[: bisect_right(possible, reach)]
            if not after or after[-1] <= last:
                return None
            begins.append(after[-1])
        return begins[1:]

    low, high = 0, total
    chosen: list[int] = []
    while high - low > 1:
        limit = (low + high) // 2
        found = within(limit)
        if found is not None and len(found) < count:
            high, chosen = limit, found
        else:
            low = limit
    return chosen


def _cost_before(frames: FrameIndex, begin: int, pre_roll: int) -> float:
    """Return the cost of decoding and pre-roll before a chunk, in rendered frames."""
    key = bisect_right(frames.keys, frames.pts[begin - pre_roll]) - 1
    first = bisect_left(frames.pts, frames.keys[key]) if key >= 0 else 0
    return _PRE_ROLL_COST * pre_roll + _DECODING_COST * (begin - pre_roll - first)
