"""Stand-ins for stages, so that the pipeline can be tested without media or models."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from bgsoft.decode.base import Decoder, DecodeStats
from bgsoft.frame import Frame, FrameFormat, Planes
from bgsoft.pipeline.runner import FrameStage
from bgsoft.ring import FrameRing

FORMAT = FrameFormat(width=8, height=6)


def host_planes(format: FrameFormat, slot: int = 0) -> Planes:
    return Planes(
        slot=slot,
        luma=np.zeros(format.luma_shape, format.dtype),
        chroma=np.zeros(format.chroma_shape, format.dtype),
        alpha=np.zeros(format.luma_shape, np.uint8),
    )


def small_ring(slots: int = 4) -> FrameRing:
    return FrameRing(slots, lambda slot: host_planes(FORMAT, slot))


def host_frames(decoder: Decoder) -> Iterator[Frame]:
    """A decoder's frames, on the host; each is good until the next."""
    ring = FrameRing(1, lambda slot: host_planes(decoder.info.format, slot))
    for frame in decoder.frames(ring):
        yield frame
        ring.release(frame)


class FakeDecoder:
    """Yields frames with the given pts, once ``action`` was called on each."""

    def __init__(
        self, pts: list[int], action: Callable[[Frame], None] = lambda _frame: None
    ) -> None:
        self._pts, self._action = pts, action
        self.stats = DecodeStats()
        self.closed = False

    def frames(self, ring: FrameRing) -> Iterator[Frame]:
        try:
            for index, pts in enumerate(self._pts):
                planes = ring.acquire()
                planes.luma[:] = index % 256
                frame = Frame(planes, FORMAT, index, pts, Fraction(1, 1000), duration=40)
                self._action(frame)
                yield frame
        finally:
            self.closed = True


class FakeStage(FrameStage):
    """Calls ``action`` on every frame once it lets it go, and keeps some back until then.

    With ``ahead``, it calls ``first`` on every frame before.
    """

    batch = held = ahead = 0

    def __init__(
        self,
        action: Callable[[Frame], None] | None = None,
        batch: int = 1,
        held: int = 0,
        *,
        ahead: int = 0,
        first: Callable[[Frame], None] | None = None,
    ) -> None:
        self._action, self._first = action, first
        self._kept: deque[Frame] = deque()
        self.batch = batch
        self.held = held + 2 * ahead * batch
        self.ahead = ahead
        self._keeps = held
        self.sizes: list[int] = []
        self.started = False
        self.flushed = False

    def start(self) -> None:
        self.started = True

    def prepare(self, frames: Sequence[Frame]) -> tuple[Frame, ...]:
        for frame in frames:
            if self._first is not None:
                self._first(frame)
        return tuple(frames)

    def process(self, prepared: tuple[Frame, ...]) -> list[Frame]:
        assert isinstance(prepared, tuple)
        return self.process_batch(prepared)

    def process_batch(self, frames: Sequence[Frame]) -> list[Frame]:
        assert isinstance(frames, tuple) == (self.ahead > 0)
        self.sizes.append(len(frames))
        self._kept.extend(frames)
        return self._finish(len(self._kept) - self._keeps)

    def flush(self) -> list[Frame]:
        self.flushed = True
        return self._finish(len(self._kept))

    def _finish(self, count: int) -> list[Frame]:
        finished = [self._kept.popleft() for _ in range(count)]
        for frame in finished:
            if self._action is not None:
                self._action(frame)
        return finished


class FakeSink:
    """Keeps (index, pts, first luma sample) of every frame."""

    def __init__(self, action: Callable[[Frame], None] | None = None) -> None:
        self._action = action
        self.seen: list[tuple[int, int, int]] = []
        self.finished = False
        self.thread: threading.Thread | None = None

    def encode(self, frame: Frame) -> None:
        self.thread = threading.current_thread()
        if self._action is not None:
            self._action(frame)
        self.seen.append((frame.index, frame.pts, int(frame.luma[0, 0])))

    def finish(self) -> None:
        self.finished = True
