"""Decoding on the GPU's video engine (NVDEC), through PyNvVideoCodec.

The demuxer, the choice of frames and their timestamps are those of the CPU decoder; NVDEC only
makes the pictures. What it cannot do is told by
:class:`~bgsoft.errors.BackendUnavailableError` before the first frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from bgsoft.closing import Closing
from bgsoft.cuda.device import CudaDevice
from bgsoft.cuda.video_codec import codec_errors, vendor_text
from bgsoft.decode.base import DecodeSettings, DecodeStats
from bgsoft.decode.convert import plane_view
from bgsoft.decode.nv_caps import caps_reason, decoder_caps, nv_codec
from bgsoft.decode.nv_reader import NvReader
from bgsoft.decode.nv_session import NvPicture, NvSession
from bgsoft.decode.nv_surface import SurfaceWriter
from bgsoft.decode.presentation import Presentation
from bgsoft.decode.reader import FrameReader
from bgsoft.errors import BackendUnavailableError, DecodeError
from bgsoft.frame import Frame
from bgsoft.media.info import VideoInfo
from bgsoft.media.probe import probe
from bgsoft.pipeline.ring import FrameRing
from bgsoft.report import Event
from bgsoft.startup import span

__all__ = ["NvdecDecoder"]

_DEVICE_TO_HOST = 2  # cudaMemcpyKind


class NvdecDecoder(Closing):
    """Decodes a file's video stream into ring slots on a CUDA device.

    See :class:`bgsoft.decode.base.Decoder`. The slots come from
    :func:`bgsoft.cuda.device.device_planes`; each frame's ``ready`` event tells when its planes
    are complete, and the event that stands there when a slot comes back is waited for, on the
    device, before the slot is overwritten.

    The first picture is decoded here on both sides and compared: decoding is exact in all codecs
    that come this far, so a difference (an unusual cropping, a pixel format in disguise) means that
    the CPU should do it.

    Args:
        path: A local video file.
        settings: What part of it; threads are not used.
        device: Where to decode.
        info: The file, where it has been probed already.

    Raises:
        BackendUnavailableError: NVDEC cannot decode this stream here; the message is the reason.
        OpenError: The file cannot be opened or has no decodable video.
        UnsupportedFormatError: It is no video, or no decoder exists for it.
    """

    def __init__(
        self,
        path: Path,
        settings: DecodeSettings | None = None,
        *,
        device: CudaDevice,
        info: VideoInfo | None = None,
    ) -> None:
        self.info = info or probe(path)
        self.stats = DecodeStats()
        self.events: list[Event] = []
        self._device = device
        codec = nv_codec(self.info)
        with span("NVDEC caps"):
            caps = decoder_caps(device.number, codec.name, self.info.format.bit_depth)
        reason = caps_reason(caps, self.info)
        if reason is not None:
            raise self._unavailable(reason)
        self.stream = device.new_stream()
        """CuPy stream of all copies into slots."""
        self._last: dict[int, Frame] = {}
        """The frame that was last in each slot; its event may have been replaced since."""
        self._ready: dict[int, Any] = {}
        """An event for each slot."""
        try:
            with span("NVDEC session"):
                self._session = NvSession(codec, device, self.stream)
        except codec_errors() as exc:
            raise self._unavailable(vendor_text(exc)) from exc
        self._reader = NvReader(self.info, self._session)
        self._presentation = Presentation[NvPicture](
            self.info, settings or DecodeSettings(), lambda picture: picture, self.events
        )
        try:
            with span("NVDEC's first picture"):
                self._check_first_picture()
        except BaseException:
            self.close()
            raise

    def _unavailable(self, reason: str) -> BackendUnavailableError:
        return BackendUnavailableError(f"NVDEC: {reason}", stage="decode", path=self.info.path)

    def _check_first_picture(self) -> None:
        """Compare the first picture with the CPU decoder's.

        Raises:
            BackendUnavailableError: There is none, it is damaged, or it differs.
        """
        reference = next(FrameReader(self.info, threads=1).frames(), None)
        if reference is None:
            return  # nothing to compare with; decoding itself will tell
        if reference.is_corrupt:
            raise self._unavailable("a damaged first picture is patched, and counted, on the CPU")
        failures: tuple[type[Exception], ...] = (DecodeError, *codec_errors())
        pictures = self._reader.frames()
        try:
            picture = next(pictures, None)
            if picture is None:
                raise self._unavailable("it shows no picture of this stream")
            if picture.pts is None:
                raise self._unavailable("pictures without a timestamp are left to the CPU")
            if picture.pts != reference.pts:
                raise self._unavailable(
                    f"its first picture is at {picture.pts}, FFmpeg's at {reference.pts}"
                )
            if (picture.width, picture.height) != (reference.width, reference.height):
                raise self._unavailable(
                    f"it crops to {picture.width}x{picture.height}, not "
                    f"{reference.width}x{reference.height}"
                )
            format = self.info.format
            expected = plane_view(reference.planes[0], format.dtype)
            if not np.array_equal(self._luma(picture), expected << format.shift):
                raise self._unavailable("its first picture differs from the CPU decoder's")
        except failures as exc:
            raise self._unavailable(vendor_text(exc)) from exc
        finally:
            pictures.close()

    def _luma(self, picture: NvPicture) -> np.ndarray[Any, Any]:
        """A picture's luma on the host."""
        dtype = np.dtype(self.info.format.dtype)
        host = np.empty((picture.height, picture.pitch // dtype.itemsize), dtype)
        self.stream.synchronize()
        cupy.cuda.runtime.memcpy(host.ctypes.data, picture.pointer, host.nbytes, _DEVICE_TO_HOST)
        return host[:, : picture.width]

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        """See :meth:`bgsoft.decode.base.Decoder.frames`; each call starts anew, and adds to stats.

        Raises:
            DecodeError: No frame lies in the wanted stretch of time, the picture size changes, or
                NVDEC fails for good.
        """
        self._device.make_current()
        writer = SurfaceWriter(self.info, self.stream)
        corrupt_before = self.stats.corrupt_packets
        wanted = self._presentation.wanted(
            self._reader.frames(self._presentation.start_pts), lambda: self._reader.read_error
        )
        for index, shown in enumerate(wanted):
            self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets
            planes = ring.acquire()
            try:
                self._wait_until_free(planes.slot)
                writer.write(shown.item, planes)
            except BaseException:
                ring.release(planes)
                raise
            frame = Frame(
                planes=planes,
                format=self.info.format,
                index=index,
                pts=shown.pts,
                time_base=self.info.time_base,
                duration=shown.item.duration,
                ready=self._record(planes.slot),
            )
            self._last[planes.slot] = frame
            self.stats.frames += 1
            self.stats.repaired_pts += shown.repaired
            yield frame
        self.stats.corrupt_packets = corrupt_before + self._reader.corrupt_packets

    def _wait_until_free(self, slot: int) -> None:
        """Make the stream wait for the work on the slot's last frame."""
        last = self._last.get(slot)
        if last is not None and last.ready is not None:
            self.stream.wait_event(last.ready)

    def _record(self, slot: int) -> Any:
        event = self._ready.get(slot)
        if event is None:
            event = self._ready[slot] = cupy.cuda.Event(disable_timing=True)
        event.record(self.stream)
        return event

    def close(self) -> None:
        self._reader.close()
        self._session.close()
