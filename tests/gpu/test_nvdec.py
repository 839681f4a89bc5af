"""NVDEC must give the frames, samples and timestamps of the CPU decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.errors import BackendUnavailableError, ConfigError
from bgsoft.frame import FrameFormat, PixelLayout
from bgsoft.media.info import Orientation
from bgsoft.ring import FrameRing
from tests.assets import CLIPS
from tests.fakes import host_frames, host_planes
from tests.gpu.video_device import random_planes, to_host
from tests.nvdec_stand_in import NVDEC_CLIPS
from tests.rendering import video_info
from tests.synthetic import VideoSpec, damage, regular_times, write_video

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device(gpu: Any) -> Any:
    return gpu


def by_nvdec(device: Any, path: Path, settings: DecodeSettings | None = None) -> list[Any]:
    """(pts, luma, chroma) of each frame, through a ring of two slots."""
    from bgsoft.cuda.device import device_planes
    from bgsoft.decode.nvdec import NvdecDecoder

    seen = []
    with NvdecDecoder(path, settings, device=device) as decoder:
        ring = FrameRing(2, lambda slot: device_planes(decoder.info.format, slot))
        for frame in decoder.frames(ring):
            frame.ready.synchronize()
            seen.append((frame.pts, to_host(frame.luma), to_host(frame.chroma)))
            ring.release(frame)
        assert ring.in_use == 0
        assert decoder.stats.frames == len(seen)
    return seen


def by_cpu(path: Path, settings: DecodeSettings | None = None) -> list[Any]:
    with CpuDecoder(path, settings) as decoder:
        frames = host_frames(decoder)
        return [(frame.pts, frame.luma.copy(), frame.chroma.copy()) for frame in frames]


def bigger(name: str, folder: Path) -> Path:
    """The clip at a size that every NVDEC takes (the smallest for HEVC is 144x144)."""
    from dataclasses import replace

    clip = CLIPS[name]
    path = folder / f"bigger-{name}"
    if not path.exists():
        spec = replace(clip.spec, width=256, height=192)
        write_video(path, spec, options=clip.options)
    return path


@pytest.mark.parametrize("name", NVDEC_CLIPS)
def test_frames_are_those_of_the_cpu(device: Any, clip_folder: Path, name: str) -> None:
    path = bigger(name, clip_folder)
    try:
        got = by_nvdec(device, path)
    except BackendUnavailableError as exc:
        if "av1" in name:
            pytest.skip(str(exc))
        raise
    want = by_cpu(path)
    assert [frame[0] for frame in got] == [frame[0] for frame in want]
    for one, other in zip(got, want, strict=True):
        assert np.array_equal(one[1], other[1])
        assert np.array_equal(one[2], other[2])


@pytest.mark.parametrize("name", ["bframes.mp4", "vfr.mkv", "opengop.mkv", "bluray.ts"])
@pytest.mark.parametrize(("start", "duration"), [(0.3, None), (0.0, 0.5), (0.4, 0.2), (0.41, 0.01)])
def test_parts(
    device: Any, clip_folder: Path, name: str, start: float, duration: float | None
) -> None:
    path = bigger(name, clip_folder)
    settings = DecodeSettings(start_seconds=start, duration_seconds=duration)
    try:
        want = by_cpu(path, settings)
    except ConfigError:
        with pytest.raises(ConfigError):
            by_nvdec(device, path, settings)
        return
    got = by_nvdec(device, path, settings)
    assert [frame[0] for frame in got] == [frame[0] for frame in want]
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(got, want, strict=True))


def test_damaged_packets_do_not_end_the_video(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "damaged.mkv"
    options = {"preset": "veryfast", "threads": "1", "bf": "2", "g": "12"}
    spec = VideoSpec(times=regular_times(48), width=256, height=192, options=options)
    write_video(path, spec)
    damage(path, [17, 18], whole=True)
    frames = by_nvdec(device, path)
    pts = [frame[0] for frame in frames]
    assert pts == sorted(set(pts))
    assert len(pts) >= 36


@pytest.mark.parametrize("name", ["interlaced.mp4", "prores.mov", "vp9-odd.webm", "422.mkv"])
def test_the_rest_is_left_to_the_cpu(device: Any, clip_folder: Path, name: str) -> None:
    with pytest.raises(BackendUnavailableError, match="NVDEC"):
        by_nvdec(device, CLIPS[name].build(clip_folder))


SIZES = [(256, 192), (64, 33), (7, 5), (2, 1), (1, 1)]


@pytest.mark.parametrize("layout", list(PixelLayout))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("padding", [0, 12])
def test_surfaces_are_turned_as_on_the_cpu(
    device: Any,
    layout: PixelLayout,
    size: tuple[int, int],
    rotation: int,
    mirror: bool,
    padding: int,
) -> None:
    import cupy

    from bgsoft.cuda.device import device_planes
    from bgsoft.decode.convert import turn_plane
    from bgsoft.decode.nv_stream import NvPicture
    from bgsoft.decode.nvdec import SurfaceWriter

    width, height = size
    stored = FrameFormat(width=width, height=height, layout=layout)
    orientation = Orientation(mirror=mirror, rotation=rotation)
    sides = size[::-1] if orientation.swaps_axes else size
    format = FrameFormat(width=sides[0], height=sides[1], layout=layout)
    info = video_info(format, coded_width=width, coded_height=height, orientation=orientation)
    planes = host_planes(stored, 0)
    random_planes(planes, stored, seed=width * height + rotation)
    rows, columns, _ = stored.chroma_shape
    pitch = 2 * columns + padding // stored.bytes_per_sample
    surface = np.zeros((height + rows, pitch), stored.dtype)
    surface[:height, :width] = planes.luma
    surface[height:, : 2 * columns] = planes.chroma.reshape(rows, -1)
    on_device = cupy.asarray(surface)
    stream = device.new_stream()
    target = device_planes(format, 0)
    cupy.cuda.Device().synchronize()
    picture = NvPicture(
        pointer=on_device.data.ptr,
        pitch=pitch * stored.bytes_per_sample,
        width=width,
        height=height,
        pts=0,
        dts=0,
        duration=0,
        key_frame=True,
    )
    SurfaceWriter(info, stream).write(picture, target)
    luma, chroma = planes.luma, planes.chroma
    if not orientation.is_identity:
        luma = np.empty(format.luma_shape, format.dtype)
        turn_plane(planes.luma, luma, orientation)
        chroma = np.empty(format.chroma_shape, format.dtype)
        for channel in (0, 1):
            turned = np.empty(format.chroma_shape[:2], format.dtype)
            source = np.ascontiguousarray(planes.chroma[..., channel])
            turn_plane(source, turned, orientation)
            chroma[..., channel] = turned
    assert np.array_equal(to_host(target.luma), luma)
    assert np.array_equal(to_host(target.chroma), chroma)
