"""Frames cross between host and device unchanged, and the bytes are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.decode.cpu import CpuDecoder
from bgsoft.encode.base import PictureKind
from bgsoft.frame import Frame, FrameFormat, OriginalChroma, PixelLayout, Planes
from bgsoft.ring import FrameRing
from tests.assets import CLIPS
from tests.fakes import host_planes
from tests.gpu.video_device import device_frame, random_planes, to_host

pytestmark = pytest.mark.gpu

FORMATS = [
    FrameFormat(width=width, height=height, layout=layout)
    for width, height in ((1920, 1080), (96, 72), (97, 71), (2, 1), (1, 1))
    for layout in PixelLayout
]
formats = pytest.mark.parametrize("format", FORMATS, ids=str)


@pytest.fixture
def device(gpu: Any) -> Any:
    gpu.copies.h2d_bytes = gpu.copies.d2h_bytes = 0
    return gpu


def color_bytes(format: FrameFormat) -> int:
    height, width, _ = format.chroma_shape
    samples = format.width * format.height + 2 * width * height
    return samples * format.bytes_per_sample


@formats
def test_slots_are_aligned(device: Any, format: FrameFormat) -> None:
    from bgsoft.cuda.device import PLANE_ALIGNMENT, device_planes, pinned_planes

    planes = device_planes(format, 3)
    assert (planes.luma.shape, planes.chroma.shape) == (format.luma_shape, format.chroma_shape)
    assert planes.luma.flags.c_contiguous
    assert planes.chroma.flags.c_contiguous
    assert planes.chroma.data.ptr % PLANE_ALIGNMENT == planes.luma.data.ptr % PLANE_ALIGNMENT == 0
    pinned = pinned_planes(format, 3)
    assert (pinned.luma.shape, pinned.chroma.shape) == (format.luma_shape, format.chroma_shape)
    assert pinned.luma.dtype == pinned.chroma.dtype == np.dtype(format.dtype)
    assert pinned.luma.flags.writeable


def put(host: Planes, target: Planes) -> None:
    target.luma.set(host.luma)
    target.chroma.set(host.chroma)
    target.alpha.set(host.alpha)


class Recorder:
    def __init__(self) -> None:
        self.name, self.pixel_format = "recorder", ""
        self.frames = 0
        self.seen: list[tuple[int, Planes]] = []
        self.finished = False

    def encode(self, frame: Frame) -> None:
        planes = frame.planes
        copy = Planes(
            slot=planes.slot,
            luma=planes.luma.copy(),
            chroma=planes.chroma.copy(),
            alpha=planes.alpha.copy(),
        )
        assert frame.ready is None
        self.seen.append((frame.pts, copy))
        self.frames += 1

    def finish(self) -> None:
        self.finished = True

    def close(self) -> None:
        """Nothing to free."""


@formats
@pytest.mark.parametrize("kind", list(PictureKind))
def test_downloads(device: Any, format: FrameFormat, kind: PictureKind) -> None:
    import cupy

    from bgsoft.cuda.device import device_planes
    from bgsoft.pipeline.crossing import CrossingEncoder

    recorder = Recorder()
    encoder = CrossingEncoder(recorder, device, format, kind, up=False)
    target, event = device_planes(format, 0), cupy.cuda.Event(disable_timing=True)
    stream = device.new_stream()
    wanted = []
    for index in range(4):
        host = host_planes(format, index)
        random_planes(host, format, index)
        wanted.append(host)
        # The one slot is overwritten as soon as encode has returned.
        with stream:
            put(host, target)
        event.record(stream)
        encoder.encode(device_frame(target, format, index, event))
    encoder.finish()
    assert recorder.finished
    assert encoder.frames == recorder.frames == 4
    assert [pts for pts, _ in recorder.seen] == [0, 3600, 7200, 10_800]
    color, alpha = kind is not PictureKind.MATTE, kind is not PictureKind.COLOR
    for (_, got), want in zip(recorder.seen, wanted, strict=True):
        if color:
            assert np.array_equal(got.luma, want.luma)
            assert np.array_equal(got.chroma, want.chroma)
        if alpha:
            assert np.array_equal(got.alpha, want.alpha)
    size = color * color_bytes(format) + alpha * format.width * format.height
    assert device.copies.d2h_bytes == 4 * size
    assert device.copies.h2d_bytes == 0


def test_the_matte_comes_along_with_what_a_frame_was_made_from(device: Any) -> None:
    """The encoder needs the matte to restore finer colour; the original stays on the host."""
    import cupy

    from bgsoft.cuda.device import device_planes
    from bgsoft.pipeline.crossing import CrossingEncoder

    format = FORMATS[2]
    taken: list[Frame] = []
    recorder = Recorder()
    keep, recorder.encode = recorder.encode, lambda frame: (taken.append(frame), keep(frame))
    encoder = CrossingEncoder(recorder, device, format, PictureKind.COLOR, up=False)
    host, target = host_planes(format), device_planes(format, 0)
    random_planes(host, format, 5)
    put(host, target)
    ready = cupy.cuda.Event(disable_timing=True)
    ready.record()
    frame = device_frame(target, format, 0, ready)
    frame.original = OriginalChroma(chroma=host.chroma, fine=np.zeros((72, 96, 2), np.uint8))
    encoder.encode(frame)
    encoder.finish()
    assert taken[0].original is frame.original
    assert np.array_equal(recorder.seen[0][1].alpha, host.alpha)
    assert np.array_equal(recorder.seen[0][1].chroma, host.chroma)
    assert device.copies.d2h_bytes == color_bytes(format) + format.width * format.height


@pytest.mark.parametrize("slots", [1, 2, 8])
@pytest.mark.parametrize("name", ["bframes.mp4", "hdr10.mp4", "odd.mkv", "422.mkv"])
def test_uploads(device: Any, clip_folder: Path, name: str, slots: int) -> None:
    from bgsoft.cuda.device import device_planes
    from bgsoft.pipeline.crossing import UploadingDecoder

    path = CLIPS[name].build(clip_folder)
    plain = CpuDecoder(path)
    format = plain.info.format
    ring = FrameRing(1, lambda slot: host_planes(format, slot))
    wanted = []
    for frame in plain.frames(ring):
        wanted.append((frame.pts, frame.luma.copy(), frame.chroma.copy()))
        ring.release(frame)
    with UploadingDecoder(CpuDecoder(path), device) as decoder:
        device_ring = FrameRing(slots, lambda slot: device_planes(format, slot))
        got = []
        for frame in decoder.frames(device_ring):
            frame.ready.synchronize()
            got.append((frame.pts, to_host(frame.luma), to_host(frame.chroma)))
            device_ring.release(frame)
        assert device_ring.in_use == 0
        assert decoder.stats.frames == len(wanted)
    assert [frame[0] for frame in got] == [frame[0] for frame in wanted]
    for one, other in zip(got, wanted, strict=True):
        assert np.array_equal(one[1], other[1])
        assert np.array_equal(one[2], other[2])
    assert device.copies.h2d_bytes == len(wanted) * color_bytes(format)
    assert device.copies.d2h_bytes == 0
