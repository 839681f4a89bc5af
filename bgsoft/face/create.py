"""From settings to the face step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bgsoft.face.anonymize import LOOK_AHEAD
from bgsoft.face.base import FaceTaker
from bgsoft.face.canvas import Canvas
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


_DETAILED, _COARSE = 960, 320
"""Input pixels of the frame's long side: where small faces count, and where only those matter that
the mask may have missed."""
_OFTEN_SECONDS, _SELDOM_SECONDS = 1 / 15, 0.13


def finder_settings(
    config: FaceConfig, format: FrameFormat, *, writes_data: bool
) -> FinderSettings:
    """How to look for faces."""
    hides = config.mode is FaceMode.ANONYMIZE
    is_detailed = hides or config.small_faces or config.mode is FaceMode.MAIN
    is_large = max(format.width, format.height) > _DETAILED
    # Every other frame of 30 a second, and of larger frames, which take long, one of four.
    seconds = _OFTEN_SECONDS if hides and not is_large else _SELDOM_SECONDS
    return FinderSettings(
        long_side=_DETAILED if is_detailed else _COARSE,
        every=1 if writes_data and config.detect_every is None else config.detect_every,
        seconds=seconds,
        # So often that a face that is found late is hidden from its first frame on.
        most_frames=LOOK_AHEAD,
        hides=hides,
        by_landmarks=writes_data,
    )


def create_faces(
    config: RenderConfig,
    format: FrameFormat,
    make_networks: Callable[[Sequence[Canvas]], FaceNetworks],
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
        make_networks: Makes the networks where the frames are, for some canvases.
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
    settings = finder_settings(config.face, format, writes_data=data is not None)
    return FaceStep(
        config.face,
        format,
        finder=FaceFinder(format, make_networks(settings.canvases(format)), settings),
        editor=MatteEditor(format, side, device),
        hider=Hider(HidePlan.of(config, format), side),
        data=data,
        on_event=on_event,
        backend=backend,
        device="cpu" if device is None or backend == "cpu" else device.label,
    )
