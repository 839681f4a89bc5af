"""From settings to the face step, for frames on the host."""

from __future__ import annotations

from collections.abc import Callable

from bgsoft.config import FaceConfig, FaceMode, RenderConfig
from bgsoft.face.anonymize import CpuAnonymizer
from bgsoft.face.data import FaceDataWriter
from bgsoft.face.finder import CpuFaceFinder
from bgsoft.face.hidden import LOOK_AHEAD
from bgsoft.face.protect import CpuMatteEditor
from bgsoft.face.search import FinderSettings
from bgsoft.face.step import FaceStep
from bgsoft.frame import FrameFormat
from bgsoft.report import Event

__all__ = ["create_host_faces", "finder_settings", "wants_faces"]


def wants_faces(config: RenderConfig) -> bool:
    """Whether faces have to be found at all."""
    return config.face.mode is not FaceMode.OFF or config.face_data is not None


def finder_settings(config: FaceConfig, *, writes_data: bool) -> FinderSettings:
    """How to look for faces."""
    anonymize = config.mode is FaceMode.ANONYMIZE
    small = {"small_every": LOOK_AHEAD} if anonymize else {}
    # Nobody sees every point of a face that is only kept sharp.
    rests = config.mode is FaceMode.GUARD and not writes_data
    return FinderSettings(
        detect_every=config.effective_detect_every,
        small_faces=config.small_faces or anonymize or config.mode is FaceMode.MAIN,
        rest_every=3 if rests else 1,
        **small,  # so often that a face found late is hidden from its first frame on
    )


def create_host_faces(
    config: RenderConfig,
    format: FrameFormat,
    on_event: Callable[[Event], None],
    data: FaceDataWriter | None,
) -> FaceStep | None:
    """The face step for frames on the host; None where no faces are wanted.

    Raises:
        ModelError: A model's file is damaged.
    """
    if not wants_faces(config):
        return None
    return FaceStep(
        config.face,
        format,
        finder=CpuFaceFinder(format, finder_settings(config.face, writes_data=data is not None)),
        editor=CpuMatteEditor(format),
        anonymizer=CpuAnonymizer(format),
        data=data,
        on_event=on_event,
    )
