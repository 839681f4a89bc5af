"""The timeline of a video: from a report, or found in the background by the stages of a render."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from bgsoft.closing import Closing
from bgsoft.errors import BgsoftError
from bgsoft.models.catalog import resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.rendering.picture_options import PictureOptions
from bgsoft.review.doubts import MAX_SHOWN, find_doubts
from bgsoft.review.evidence import Evidence
from bgsoft.review.timeline import TimelineMark, draw_timeline
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.config import (
    BackendConfig,
    EffectConfig,
    EffectKind,
    HideConfig,
    RegionConfig,
    RenderConfig,
)

R = TypeVar("R")

_STEP = 4
"""Every fourth sample of a matte, each way, tells its area to a thousandth."""


class Scan(Closing):
    """Matte area, faces and cuts of a video, found in a thread of its own.

    Args:
        config: Settings of a render. Its regions do not count.
        video: The video.
        report: The evidence in a report; None: the video is scanned.
    """

    def __init__(
        self, config: RenderConfig, video: ReviewVideo, report: Evidence | None = None
    ) -> None:
        self._video = video
        self._evidence = report or Evidence(
            area_name="Matte area", area=[], person_shrinks=True, cuts=[], faces=None, lists={}
        )
        self.failure: str | None = None
        """Why the scan has ended early."""
        self._may_go = threading.Event()
        self._may_go.set()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if report is None:
            # Nothing is composited but the matte.
            self._config = replace(
                config,
                effect=EffectConfig(kind=EffectKind.MATTE, invert=config.effect.invert),
                hide=HideConfig(),
                regions=RegionConfig(),
            )
            self._thread = threading.Thread(target=self._run, name="timeline", daemon=True)
            self._thread.start()

    @property
    def frames(self) -> int:
        """Frames that the timeline shows so far."""
        return len(self._evidence.area)

    def draw(self) -> str:
        """Return the timeline as SVG. Dots link to ``#FRAME``, where a report has doubts."""
        count = self.frames
        faces = self._evidence.faces
        # The scan goes on meanwhile.
        evidence = replace(
            self._evidence,
            area=self._evidence.area[:count],
            faces=None if faces is None else faces[:count],
            cuts=self._evidence.cuts[:],
        )
        marks = []
        if self._thread is None:
            doubts = find_doubts(evidence, self._video)[:MAX_SHOWN]
            marks = [TimelineMark(each.frame, f"#{each.frame}", each.kind) for each in doubts]
        return draw_timeline(evidence, len(self._video.pts), marks)

    def give_way(self, work: Callable[[], R]) -> R:
        """Do work while the scan pauses."""
        self._may_go.clear()
        try:
            return work()
        finally:
            self._may_go.set()

    def close(self) -> None:
        """End the scan."""
        self._is_closed = True
        self._may_go.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._scan()
        except BgsoftError as exc:
            self.failure = str(exc)

    def _scan(self) -> None:
        evidence, video = self._evidence, self._video
        builder = StageBuilder(BackendConfig(batch=1).on_cpu(), lambda _event: None)
        stages = builder.make_picture_stages(
            self._config,
            video.info,
            resolve(self._config.segment.model),
            Metrics(),
            PictureOptions(on_cut=lambda frame: evidence.cuts.append(frame.index)),
        )
        try:
            if stages.faces is not None:
                evidence.faces = []
            for frame in video.frames():
                self._may_go.wait()
                if self._is_closed:
                    return
                stages.process_batch([frame])
                stages.flush()
                area = round(float(frame.planes.alpha[::_STEP, ::_STEP].mean()) / 2.55, 2)
                # Frames that do not decode count as the next one.
                missing = frame.index + 1 - len(evidence.area)
                if stages.faces is not None and evidence.faces is not None:
                    evidence.faces += [stages.faces.counts[-1]] * missing
                evidence.area += [area] * missing
        finally:
            stages.close()
