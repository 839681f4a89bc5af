"""From settings to the face step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bgsoft.face.anonymize import LOOK_AHEAD
from bgsoft.face.base import FaceTaker
from bgsoft.face.editor import MatteEditor
from bgsoft.face.finder import FaceFinder, FinderSettings
from bgsoft.face.networks import FaceNetworks
from bgsoft.face.step import FaceStep
from bgsoft.frame import FrameFormat
from bgsoft.hide.hider import Hider
from bgsoft.hide.plan import HidePlan
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ResolvedModel
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
    return replace(settings, small_every=LOOK_AHEAD) if anonymize else settings


def create_host_faces(
    config: RenderConfig,
    format: FrameFormat,
    on_event: Callable[[Event], None],
    data: FaceTaker | None,
) -> FaceStep | None:
    """The face step for frames on the host; None where no faces are wanted.

    Raises:
        ModelError: A model's file is damaged.
    """
    if config.face.mode is FaceMode.OFF and config.face_data is None:
        return None
    settings = finder_settings(config.face, writes_data=data is not None)
    return FaceStep(
        config.face,
        format,
        finder=FaceFinder(format, FaceNetworks(format), settings),
        editor=MatteEditor(format),
        hider=Hider(HidePlan.of(config, format)),
        data=data,
        on_event=on_event,
    )


def create_device_faces(
    config: RenderConfig,
    format: FrameFormat,
    device: CudaDevice,
    backend: str,
    batch: int,
    make_network: Callable[[ResolvedModel, int, bool], Network],
    stream: Any,
    on_event: Callable[[Event], None],
    data: FaceTaker | None,
) -> FaceStep | None:
    """The face step for frames on a device, which is current; None where no faces are wanted.

    The models run by ``backend`` on ``batch`` frames or faces at a time, loaded by ``make_network``
    (:data:`bgsoft.face.networks.MakeNetwork`); they, and what looks at mattes, on ``stream``.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A model does not load on the device.
    """
    if config.face.mode is FaceMode.OFF and config.face_data is None:
        return None

    on_cpu = backend == "cpu"
    settings = finder_settings(config.face, writes_data=data is not None)
    with stream:
        networks = FaceNetworks(
            format,
            make_network,
            1 if on_cpu else batch,  # there a run takes as long as its looks one after another
            sides.device(),
            # To build an engine takes a minute: better before the first frame.
            needs_landmarks=settings.by_landmarks or backend == "tensorrt",
        )
    return FaceStep(
        config.face,
        format,
        finder=FaceFinder(format, networks, settings),
        editor=MatteEditor(format, sides.device(), device),
        hider=Hider(HidePlan.of(config, format), sides.device()),
        data=data,
        on_event=on_event,
        backend=backend,
        device="cpu" if on_cpu else device.label,
    )
