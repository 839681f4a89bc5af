"""The picture stages of a stream, for the size of its pictures and the newest settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from bgsoft.errors import BgsoftError, ConfigError, InferenceError
from bgsoft.live.policy import LADDER, Ladder, Quality
from bgsoft.live.stages import LiveStages
from bgsoft.media.info import VideoInfo
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.settings.config import EffectKind, FaceMode, RenderConfig

STARTING = "the start of the picture stages"
_START_TRIES = 3
"""Number of tries to start stages: a device may be short of memory for a moment."""


def _ladder(config: RenderConfig) -> tuple[Quality, ...]:
    """Return what can be given up with some settings: of hidden faces nothing."""
    mode = config.face.mode
    if mode in (FaceMode.OFF, FaceMode.ANONYMIZE):
        return (LADDER[0], *(replace(q, faces_every=1) for q in LADDER if q.masks_every > 1))
    return LADDER


class StageSwitch:
    """Builds stages, and others where the size or the settings change.

    Args:
        builder: Makes the stages, of models that other streams share.
        config: The settings to begin with.
        metrics: Holds the clocks of the stages.
        wants_source: Whether the picture as it arrives is wanted, too.
        begin: Called with what is done next, for the watchdog.
        report: Called with each notice about the source, once.
    """

    def __init__(
        self,
        builder: StageBuilder,
        config: RenderConfig,
        metrics: Metrics,
        wants_source: Callable[[], bool],
        begin: Callable[[str], None],
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.builder, self.config = builder, config
        self.info: VideoInfo | None = None
        """The source, once a frame has come."""
        self.takes_faces = False
        """A sink wants faces, with landmarks, if they are detected."""
        self._metrics, self._wants_source, self._begin = metrics, wants_source, begin
        self._report = report
        self._reported = set[str]()
        self._drawn_in: tuple[int, int] | None = None
        """Size of the first pictures: pixels of regions count in these."""
        self._given = config
        self._stages: LiveStages | None = None
        self._coming: LiveStages | None = None
        """Built for other settings, to take over before the next frame."""
        self._discarded: list[LiveStages] = []
        self._left: LiveStages | None = None
        """The last ones, if they hang."""
        self._building = threading.Lock()
        self.ladder = Ladder(time.monotonic(), _ladder(config))

    def stages_for(self, info: VideoInfo) -> LiveStages:
        """Return the stages for pictures like these, by the newest settings.

        Raises:
            BgsoftError: They cannot be built.
        """
        with self._building:
            stages, coming = self._stages, self._coming
            self._coming = None
            while self._discarded:
                self._discarded.pop().close()
            if coming is not None and coming.fits(info):
                self._take_over(coming)
            elif coming is not None or stages is None or not stages.fits(info):
                self._begin(STARTING)
                config = self.config
                if coming is not None:  # the source has changed its size since they were built
                    config = coming.config
                    coming.close()
                self._take_over(self._build(config, info))
            assert self._stages is not None
            return self._stages

    def _build(self, config: RenderConfig, info: VideoInfo) -> LiveStages:
        self._drawn_in = self._drawn_in or info.format.luma_shape[::-1]
        return LiveStages(
            self.builder,
            config,
            info,
            self._metrics,
            keeps_source=self._wants_source(),
            takes_faces=self.takes_faces,
            drawn_in=self._drawn_in,
        )

    def _take_over(self, stages: LiveStages) -> None:
        self._begin(STARTING)
        try:
            stages.start()
        except BaseException:
            stages.close()  # the next picture has others made
            raise
        self._begin("")
        old, self._stages = self._stages, stages
        if (before := old or self._left) is not None:
            stages.follow(before, is_left=old is None)
        self._left = None
        self._report_notices(stages.info)
        self.info, self.config = stages.info, stages.config
        self.ladder = Ladder(time.monotonic(), _ladder(self.config))
        if old is not None:
            old.close()

    def _report_notices(self, info: VideoInfo) -> None:
        """Report the conversions of a source, and a change of its size, each once."""
        last, now = (each.format for each in (self.info or info, info))
        notices = [*info.notices]
        if last.luma_shape != now.luma_shape:
            notices.append(
                f"the picture size changed from {last.width}x{last.height}"
                f" to {now.width}x{now.height}"
            )
        for notice in notices:
            if notice not in self._reported:
                self._reported.add(notice)
                self._report(f"notice: {notice}")

    def apply(self, config: RenderConfig) -> None:
        """Put other settings in force from the next frame on; from another thread.

        Raises:
            BgsoftError: They cannot run here; what runs goes on.
        """
        was, will = self.config.effect.kind, config.effect.kind
        if EffectKind.ALPHA in (was, will) and was is not will:
            raise ConfigError("cannot add or remove an alpha channel while a stream runs")
        with self._building:
            info = self.info
            if info is None:
                self.config = config
                return
        stages = self._build(config, info)
        with self._building:
            before, self._coming = self._coming, stages
            if before is not None:
                self._discarded.append(before)

    def adapt(self, now: float, frames_in: int, dropped: int, busy_seconds: float) -> str:
        """Give up quality where frames are dropped, and take it back.

        Returns:
            What to report; empty: nothing has changed.
        """
        ladder, before = self.ladder, self.ladder.level
        if not ladder.check(now, frames_in, dropped, busy_seconds) or self._stages is None:
            return ""
        self._stages.set_quality(ladder.quality)
        way = "less" if ladder.level > before else "more"
        return f"{way} quality from now on: {ladder.quality}"

    def never_starts(self, exc: BgsoftError, failed: int) -> bool:
        """Return whether the first settings can never run."""
        if self.info is not None or self.config is not self._given:
            return False
        return not isinstance(exc, InferenceError) or failed >= _START_TRIES

    def restart(self, builder: StageBuilder) -> None:
        """Leave stages that hang to themselves, and build others with another builder."""
        self.builder.leave()
        if self._coming is not None:
            self.config = self._coming.config
        self._left = self._stages or self._left
        self.builder, self._stages, self._coming = builder, None, None
        self._building = threading.Lock()

    def close(self) -> None:
        """Free the stages; safe to call twice."""
        for stages in (self._stages, self._coming, *self._discarded):
            if stages is not None:
                stages.close()
        self._stages = self._coming = None
        self._discarded = []
