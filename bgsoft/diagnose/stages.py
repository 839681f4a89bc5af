"""Runs one stage on one backend with known pictures, using the library's own classes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bgsoft.analysis.reduce import Reducer
from bgsoft.compare.measure import mean_squared_error, psnr
from bgsoft.decode.base import DecodeSettings
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.diagnose.clips import stream_info
from bgsoft.errors import VerificationError
from bgsoft.frame import Array, Frame
from bgsoft.infer.loading import NetworkLoader
from bgsoft.media.containers import container_for
from bgsoft.media.mux import Muxer
from bgsoft.media.writer import COPY_NOTHING
from bgsoft.models.catalog import ResolvedModel
from bgsoft.records import dataclass
from bgsoft.rendering.build import StageBuilder
from bgsoft.segment.factory import HostSegmenterFactory
from bgsoft.settings.config import BackendConfig, Codec, CompositeBackend, EncodeConfig, Precision
from bgsoft.threads import LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


_RING_SLOTS = 4


def to_host(array: Array) -> NDArray[Any]:
    """Copy an array to host memory; waits for the device."""
    if isinstance(array, np.ndarray):
        return array.copy()
    import cupy

    cupy.cuda.Device().synchronize()
    host: NDArray[Any] = array.get()
    return host


def to_device(frame: Frame) -> Frame:
    """Copy a host frame to a slot of its own on the current device."""
    import cupy

    from bgsoft.cuda.device import device_planes

    planes = device_planes(frame.format, frame.planes.slot)
    for name in ("luma", "chroma", "alpha"):
        getattr(planes, name).set(getattr(frame.planes, name))
    cupy.cuda.Device().synchronize()
    return replace(frame, planes=planes)


@dataclass(slots=True, eq=False)
class DecodedFrame:
    """A decoded frame, copied to the host."""

    pts: int
    luma: NDArray[Any]
    chroma: NDArray[Any]


def decode_clip(
    path: Path, backend: str = "cpu", device: CudaDevice | None = None
) -> tuple[list[DecodedFrame], float]:
    """Decode a whole file, on the CPU or by ``nvdec`` on a device.

    Returns:
        The frames, and the seconds of decoding, without opening and copies to the host.
    """
    builder = _builder(None if backend == "cpu" else device)
    decoder = builder.make_decoder(backend, path, DecodeSettings())
    ring = builder.make_ring(decoder.info.format)
    shown: list[DecodedFrame] = []
    seconds = 0.0
    with decoder:
        started = time.perf_counter()
        for frame in decoder.frames(ring):
            if frame.ready is not None:
                frame.ready.synchronize()
            seconds += time.perf_counter() - started
            shown.append(DecodedFrame(frame.pts, to_host(frame.luma), to_host(frame.chroma)))
            ring.release(frame)
            started = time.perf_counter()
    return shown, seconds


def difference(ours: Sequence[DecodedFrame], reference: Sequence[DecodedFrame]) -> str | None:
    """Return the first difference of two decodings; None if frames and timestamps are equal."""
    if len(ours) != len(reference):
        return f"{len(ours)} frames, not {len(reference)}"
    for index, (one, other) in enumerate(zip(ours, reference, strict=True)):
        if one.pts != other.pts:
            return f"frame {index} is at {one.pts}, not {other.pts}"
        for name in ("luma", "chroma"):
            a, b = getattr(one, name), getattr(other, name)
            if a.shape != b.shape or not np.array_equal(a, b):
                return f"{name} of frame {index} differs"
    return None


def lowest_psnr_db(ours: Sequence[DecodedFrame], reference: Sequence[DecodedFrame]) -> float:
    """Return the lowest luma PSNR of all frames, dB; infinite if all are equal."""
    bits = 8 * reference[0].luma.itemsize  # 10-bit samples use the upper bits of 16
    pairs = zip(ours, reference, strict=True)
    return psnr(max(mean_squared_error(a.luma, b.luma) or 0.0 for a, b in pairs), bits)


def run_model(
    model: ResolvedModel,
    frame: Frame,
    backend: str = "cpu",
    device: CudaDevice | None = None,
    *,
    precision: Precision = Precision.FP32,
    runs: int = 10,
) -> tuple[NDArray[np.float32], str, float]:
    """Segment a host frame ``runs`` times, on the CPU or by a provider on a device.

    Returns:
        The mask, (h, w) in [0, 1]; the session's provider, with notices about it; and milliseconds
        a frame, one at a time, from host memory to host memory.
    """
    told: list[str] = []
    loader = NetworkLoader(model, precision, told.append)
    pool = LanePool()
    factory = HostSegmenterFactory(backend, frame.format, pool, device)
    segmenter = factory.segmenter(loader)
    try:
        reduced = Reducer(frame.format).reduce([frame])
        segmenter.start()
        started = time.perf_counter()
        for _ in range(runs):
            (mask,) = segmenter.masks([frame], reduced)
        seconds = time.perf_counter() - started
        detail = "; ".join((segmenter.driver.network.provider, *told))
        return mask.copy(), detail, 1000 * seconds / runs
    finally:
        segmenter.close()


def _builder(device: CudaDevice | None) -> StageBuilder:
    """Return a builder of single stages; frames are on the device if there is one."""
    composite = CompositeBackend.CPU if device is None else CompositeBackend.CUDA
    config = BackendConfig(composite=composite, ring_slots=_RING_SLOTS, batch=1)
    return StageBuilder(config, lambda _event: None, device=device, alone=True)


def encode_frames(
    path: Path,
    frames: Sequence[Frame],
    codec: Codec = Codec.H264,
    backend: str = "cpu",
    device: CudaDevice | None = None,
) -> tuple[str, float, float]:
    """Encode host frames to a file, on the CPU or by ``nvenc``, decode it and compare.

    Returns:
        The encoder, the least PSNR of luma in dB, and milliseconds a frame.

    Raises:
        VerificationError: Frames or timestamps have changed.
    """
    info, settings = stream_info(frames[0].format), EncodeConfig(codec=codec)
    builder = _builder(None if backend == "cpu" else device)
    fed = [to_device(frame) for frame in frames] if builder.on_device else frames
    with Muxer(path, container_for(path), info, COPY_NOTHING) as muxer:
        encoder = builder.make_encoder(backend, muxer, settings, info)
        try:
            started = time.perf_counter()
            for frame in fed:
                encoder.encode(frame)
            encoder.finish()
            seconds = time.perf_counter() - started
            muxer.finish()
        finally:
            encoder.close()
    with CpuDecoder(path) as decoder:
        time_base = decoder.info.time_base
    seen, _ = decode_clip(path)
    expected = [frame.pts * frame.time_base for frame in frames]
    if [shown.pts * time_base for shown in seen] != expected:
        raise VerificationError(f"{encoder.name}: {len(seen)} frames came back at other times")
    sent = [DecodedFrame(frame.pts, frame.luma, frame.chroma) for frame in frames]
    return encoder.name, lowest_psnr_db(seen, sent), 1000 * seconds / len(frames)
