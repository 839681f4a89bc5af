"""From settings to the face step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bgsoft.face.anonymize import LOOK_AHEAD
from bgsoft.face.base import FaceTaker
from bgsoft.face.editor import MatteEditor
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.step import FaceStep
from bgsoft.frame import FrameFormat
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan
from bgsoft.ops import sides
from bgsoft.report import Event
from bgsoft.settings.config import FaceConfig, FaceMode, RenderConfig

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice


def finder_settings(config: FaceConfig, *, writes_data: bool) -> FinderSettings:
    """How to look for faces."""
    anonymize = config.mode is FaceMode.ANONYMIZE
    settings = FinderSettings(
        detect_every=config.effective_detect_every,
        small_faces=config.small_faces or anonymize or config.mode is FaceMode.MAIN,
        by_landmarks=writes_data or config.mode is not FaceMode.GUARD,
    )
    # So often that a face found late is hidden from its first frame on.
    # A face in the dark, or out of focus, that the landmark model is not sure of is hidden, too.
    return (
        replace(settings, small_every=LOOK_AHEAD, trusts_detector=True) if anonymize else settings
    )


def create_faces(
    config: RenderConfig,
    format: FrameFormat,
    make_networks: Callable[[], FaceNetworks],
    on_event: Callable[[Event], None],
    data: FaceTaker | None,
    *,
    backend: str = "cpu",
    device: CudaDevice | None = None,
) -> FaceStep | None:
    """The face step; None where no faces are wanted.

    Args:
        config: Of the render.
        format: Of its frames.
        make_networks: Makes the networks where the frames are.
        on_event: See :class:`FaceStep`.
        data: Whoever wants the faces of every frame.
        backend: What runs the networks.
        device: Where the frames are, which is current; None: on the host.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A model does not load on the device.
    """
    if config.face.mode is FaceMode.OFF and config.face_data is None:
        return None
    side = sides.HOST if device is None else sides.device()
    settings = finder_settings(config.face, writes_data=data is not None)
    return FaceStep(
        config.face,
        format,
        finder=FaceFinder(format, make_networks(), settings),
        editor=MatteEditor(format, side, device),
        hider=Hider(HidePlan.of(config, format), side),
        data=data,
        on_event=on_event,
        backend=backend,
        device="cpu" if device is None or backend == "cpu" else device.label,
    )
