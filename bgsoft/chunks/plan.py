"""Where a video can be divided so that its chunks, rendered alone, join into the same video.

A chunk begins :data:`~bgsoft.pipeline.refresh.BACKGROUND_REFRESH_OFFSET` frames after a refresh.
It is rendered from that refresh on (or from one before, where that is not enough), and the frames
up to its beginning are dropped: its pre-roll. Everything that is kept from frame to frame:

=====================================  =============================================================
what is kept                           how a chunk has it right
=====================================  =============================================================
pictures that others refer to          decoding begins at a key frame
repaired timestamps, another clock     such a video is not divided; where it shows only in the
or picture size midway                 render of a chunk, the video is rendered whole
deinterlacing (one frame each way)     the pre-roll; the decoder reads one frame on
what changed in the 8 frames before,   the pre-roll begins so much before the refresh
which a scene cut stands out from
which frames are segmented (every      by the refresh, which counts through the whole video
Nth, or those that differ enough)
turns of passes, boxes of people       by the refresh
smoothed mask                          fades by ``--temporal``, which says how long the pre-roll is
mask that is held                      by the refresh
islands just as large as the limit     (not promised)
recurrent models                       a longer pre-roll, in which they come to the same
background held against noise          by the background's refresh, at the chunk's first frame
video behind people                    is told when the whole render's first frame is
faces: where they are, tracks          by the refresh, from detections. Ids are joined by place in
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
from bgsoft.errors import RenderCancelledError
from bgsoft.media.containers import ANIMATED
from bgsoft.media.info import VideoInfo
from bgsoft.media.source import read_packets
from bgsoft.media.splice import FORWARD_SECONDS
from bgsoft.models.catalog import read_spec
from bgsoft.pipeline.refresh import BACKGROUND_REFRESH_OFFSET, REFRESH_INTERVAL
from bgsoft.records import dataclass
from bgsoft.rendering.backends import may_use_gpu
from bgsoft.rendering.chunk import Chunk, NotDivisibleError
from bgsoft.rendering.request import Request
from bgsoft.segment.families import FAMILIES
from bgsoft.settings.config import FaceMode, RenderConfig

_MOST_FRAMES, _MOST_FRAMES_ON_GPU = 24 * REFRESH_INTERVAL, 192 * REFRESH_INTERVAL
"""Of a chunk where their number is left to us: what a kill costs at most. A GPU is ten times as
fast, and starts more slowly."""
_LEAST_FRAMES, _LEAST_FRAMES_ON_GPU = 2 * REFRESH_INTERVAL, 16 * REFRESH_INTERVAL
"""The same: for less, starting a process does not pay."""
_LEAST_FRAMES_BESIDE_GPU, _CORES_OF_X264 = 5 * REFRESH_INTERVAL, 11
"""The same where a GPU does all but encode, and one x264 leaves cores idle. On 16 cores 3,000
frames of 1080p take 16.3 s in one go and 14.4 s in four chunks, 1,200 as long either way."""
_CORES_PER_WORKER = 2
"""On 16 cores 8 processes render 1,800 frames of 1080p in 13.2 s, 14 in 14.8 s, and one in 17 s."""
_THREADS_PER_CORE = 2
"""Of all workers together: those that are left at the end have more cores."""
_WORKERS_PER_GPU = 4
_SETTLED = 1e-3
"""What is left of earlier masks when they have faded: less than a step of 8 bits."""
_MOST_PRE_ROLL = BACKGROUND_REFRESH_OFFSET + 4 * REFRESH_INTERVAL
_RECURRENT_PRE_ROLL = BACKGROUND_REFRESH_OFFSET + REFRESH_INTERVAL
"""rvm-mobilenetv3 begun in the middle of a clip has alphas 45 dB from those it has when begun
before; after 32 frames it is 58 dB, after 160 frames 68 dB."""
_DECODING_COST, _PRE_ROLL_COST = 0.15, 0.5
"""Of a frame that is decoded on the way to a chunk, and of one of its pre-roll, as a share of one
that is rendered."""
_WORKER_BYTES, _WORKER_BYTES_ON_GPU, _WORKER_BYTES_PER_PIXEL = 350e6, 2.5e9, 180
"""Memory that a worker takes: 720 MB at 1080p on many cores. CUDA's libraries want more."""
_BYTES_PER_MODEL_PIXEL = 2000
"""The same for each pixel that a large model looks at: 2.1 GB for an IS-Net of 1024×1024."""
_BYTES_PER_FINE_PIXEL = 100
"""The same where colour finer than 4:2:0 goes along with frames: 200 MB for 1080p in 4:4:4."""
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames that a render has, as their packets tell."""

    first: int | None
    end: int | None
    """What is wanted, as in :class:`bgsoft.decode.base.PtsRange`."""
    pts: array[int]
    """In order."""
    keys: array[int]
    """pts of all key frames that decoding can begin at, in order; some may lie before."""


def workers_for(request: Request, info: VideoInfo) -> int:
    """Return how many chunks of a video to render side by side on this machine."""
    config = request.config
    workers = max(1, config.backends.cores // _CORES_PER_WORKER)
    if _on_gpu(config):
        workers = min(workers, _WORKERS_PER_GPU * max(1, len(gpus_for(config))))
    pixels = info.format.width * info.format.height
    least = _WORKER_BYTES_ON_GPU if _on_gpu(config) else _WORKER_BYTES
    least += _WORKER_BYTES_PER_PIXEL * pixels
    if request.keeps_chroma(info):
        least += _BYTES_PER_FINE_PIXEL * pixels
    spec = read_spec(config.segment.model)
    if spec.large:
        least += _BYTES_PER_MODEL_PIXEL * spec.width * spec.height
    return max(1, int(min(workers, _free_bytes() * _MEMORY_SHARE / least)))


def threads_for(config: RenderConfig, workers: int) -> int:
    """Cores that each of several workers plans for."""
    return max(1, _THREADS_PER_CORE * config.backends.cores // workers)


def gpus_for(config: RenderConfig) -> Sequence[int]:
    """The GPUs that chunks are dealt over: all, where there are several and none is named."""
    count = gpu_count()
    several = count > 1 and config.backends.gpu is None and may_use_gpu(config.backends)
    return range(count) if several else ()


def _on_gpu(config: RenderConfig) -> bool:
    """Whether a GPU will be used, as far as that can be told without using it."""
    gpu = cuda_number(config.backends.gpu or 0)
    return may_use_gpu(config.backends) and driver_problem(gpu) is None


def _free_bytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024.0 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return math.inf


def divide_video(
    request: Request, info: VideoInfo, workers: int, cancel: threading.Event, *, begun: bool
) -> list[Chunk]:
    """Divide a video for so many workers.

    There are two chunks at least where the render has ``begun``: was divided before.

    Raises:
        NotDivisibleError: It cannot be divided.
        RenderCancelledError: ``cancel`` was set.
    """
    config = request.config
    frames = read_frames(config, info, cancel)
    count = max(_chunk_count(config, len(frames.pts), workers), 1 + begun)
    return divide(frames, count, pre_roll_frames(config))


def check_divisible(request: Request, info: VideoInfo) -> None:
    """Check whether a video can be divided, as far as that shows before its packets are read.

    Raises:
        NotDivisibleError: It cannot.
    """
    config = request.config
    if info.container in NOT_SEEKABLE or info.is_untimed:
        raise NotDivisibleError(f"a file of kind {info.container} cannot be read from the middle")
    containers = [output.destination.container for output in request.outputs]
    if any(container.still is not None for container in containers):
        raise NotDivisibleError("pictures are written in one go")
    if any(container.codecs <= ANIMATED for container in containers):
        raise NotDivisibleError("animated pictures are written in one go")
    if info.start_pts is None:
        raise NotDivisibleError("its frames carry no times")
    if config.face.mode in (FaceMode.MAIN, FaceMode.ANONYMIZE):
        text = f"--face {config.face.mode} decides who is who by all frames before"
        raise NotDivisibleError(text)
    if config.segment.matte_in is not None:
        raise NotDivisibleError("--matte-in is read in order")
    if config.detector.file is not None:
        raise NotDivisibleError("--detector still hides what it found in the frames before")
    if any(region.follow for region in config.all_regions):
        raise NotDivisibleError("a region is followed through all frames before")
    pre_roll_frames(config)


def pays(config: RenderConfig, info: VideoInfo, workers: int) -> bool:
    """Whether a video should be divided that may be either way."""
    count = info.estimated_frames or 0
    if config.duration_seconds is not None:
        count = min(count, round(config.duration_seconds * info.frame_rate))
    _, least = _frames_per_chunk(config)
    return workers > 1 and count >= 2 * least


def _frames_per_chunk(config: RenderConfig) -> tuple[int, int]:
    """The most and the least."""
    if not _on_gpu(config):
        return _MOST_FRAMES, _LEAST_FRAMES
    if config.backends.encode == "cpu" and config.backends.cores > _CORES_OF_X264:
        return _MOST_FRAMES_ON_GPU, _LEAST_FRAMES_BESIDE_GPU
    return _MOST_FRAMES_ON_GPU, _LEAST_FRAMES_ON_GPU


def pre_roll_frames(config: RenderConfig) -> int:
    """Return the frames of a chunk's pre-roll; NotDivisibleError where they are too many."""
    if FAMILIES[read_spec(config.segment.model).family].in_order:
        return _RECURRENT_PRE_ROLL
    strength = config.matte.temporal
    too_far = NotDivisibleError(f"--temporal {strength:g} reaches too far back")
    if strength >= 1:
        raise too_far
    masks = math.log(_SETTLED) / math.log(strength) if strength > 0 else 0.0
    needed = masks * config.segment.mask_every - BACKGROUND_REFRESH_OFFSET
    if config.segment.similarity_db is not None:
        needed = max(needed, REFRESH_INTERVAL)  # few frames are segmented
    pre_roll = BACKGROUND_REFRESH_OFFSET + REFRESH_INTERVAL * max(
        0, math.ceil(needed / REFRESH_INTERVAL)
    )
    if pre_roll > _MOST_PRE_ROLL:
        raise too_far
    return pre_roll


def read_frames(config: RenderConfig, info: VideoInfo, cancel: threading.Event) -> Frames:
    """Read the times of a render's frames.

    Raises:
        NotDivisibleError: They do not allow to divide the video.
        RenderCancelledError: ``cancel`` was set.
    """
    settings = DecodeSettings(
        start_seconds=config.start_seconds, duration_seconds=config.duration_seconds
    )
    first, end = wanted_pts(info, settings)
    start = info.start_pts or 0
    low = start if first is None else max(first, start)
    leap = FORWARD_SECONDS / info.time_base
    pts, keys = array("q"), array("q")
    clock: int | None = None
    for packet in read_packets(info.path, info.stream_index):
        if cancel.is_set():
            raise RenderCancelledError("interrupted")
        if packet.dts is not None:
            if clock is not None and not 0 <= packet.dts - clock < leap:
                raise NotDivisibleError("its clock is restarted midway")
            clock = packet.dts
        if packet.is_discard:
            continue
        if packet.pts is None:
            raise NotDivisibleError("not all of its frames carry times")
        if packet.is_keyframe and packet.pts >= start:
            keys.append(packet.pts)
        if packet.pts >= low and (end is None or packet.pts < end):
            pts.append(packet.pts)
    pts, keys = array("q", sorted(pts)), array("q", sorted(keys))
    if any(map(int.__eq__, pts, pts[1:])):
        raise NotDivisibleError("some of its frames have the same time")
    if len(keys) < 2:
        raise NotDivisibleError("it has one key frame only")
    return Frames(first, end, pts, keys)


def _chunk_count(config: RenderConfig, total: int, workers: int) -> int:
    """Into how many chunks to divide so many frames for so many workers."""
    if config.chunks is not None:
        return config.chunks
    most, least = _frames_per_chunk(config)
    rounds = -(-total // (workers * most))
    return max(1, min(workers * rounds, total // least))


def divide(frames: Frames, count: int, pre_roll: int) -> list[Chunk]:
    """Divide frames into ``count`` chunks at most.

    ``pre_roll`` is how many frames before a chunk are rendered and dropped.

    Raises:
        NotDivisibleError: There are not two.
    """
    total = len(frames.pts)
    begins = [0, *_beginnings(frames, count, pre_roll)]
    if len(begins) < 2:
        raise NotDivisibleError("it is too short")
    chunks = []
    for begin, end in zip(begins, [*begins[1:], total], strict=True):
        # Scene cuts are seen as in one go where the pre-roll begins.
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


def _beginnings(frames: Frames, count: int, pre_roll: int) -> list[int]:
    """Indices at which chunks but the first begin, so that the dearest chunk is as cheap as can be.

    There may be fewer than asked for, where more would not help.
    """
    total = len(frames.pts)
    possible = range(pre_roll, total - REFRESH_INTERVAL, REFRESH_INTERVAL)
    before = {0: 0.0} | {at: _cost_before(frames, at, pre_roll) for at in possible}

    def within(limit: float) -> list[int] | None:
        """The fewest chunks that cost up to this each; None: there are none."""
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


def _cost_before(frames: Frames, begin: int, pre_roll: int) -> float:
    """What it costs to come to where a chunk begins, in rendered frames."""
    key = bisect_right(frames.keys, frames.pts[begin - pre_roll]) - 1
    first = bisect_left(frames.pts, frames.keys[key]) if key >= 0 else 0
    return _PRE_ROLL_COST * pre_roll + _DECODING_COST * (begin - pre_roll - first)
