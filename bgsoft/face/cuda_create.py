"""From settings to the face step, for frames on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable

from bgsoft.config import RenderConfig
from bgsoft.cuda.device import CudaDevice
from bgsoft.face.create import finder_settings, wants_faces
from bgsoft.face.cuda import CudaFaceFinder
from bgsoft.face.cuda_anonymize import CudaAnonymizer
from bgsoft.face.cuda_protect import CudaMatteEditor
from bgsoft.face.data import FaceDataWriter
from bgsoft.face.step import FaceStep
from bgsoft.frame import FrameFormat
from bgsoft.infer.base import Network
from bgsoft.models.catalog import ResolvedModel
from bgsoft.report import Event

__all__ = ["create_device_faces"]


def create_device_faces(
    config: RenderConfig,
    format: FrameFormat,
    device: CudaDevice,
    backend: str,
    batch: int,
    make_network: Callable[[ResolvedModel, int], Network],
    on_event: Callable[[Event], None],
    data: FaceDataWriter | None,
) -> FaceStep | None:
    """The face step for frames on a device, which is current; None where no faces are wanted.

    Args:
        config: What to do.
        format: Format of every frame.
        device: Where the frames are.
        backend: What runs the models.
        batch: Frames, and faces, per run of a model.
        make_network: Loads a model for a batch size, its arrays on the device.
        on_event: Told where people cannot be parted.
        data: Where faces are written; None: nowhere.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A model does not load on the device.
    """
    if not wants_faces(config):
        return None
    settings = finder_settings(config.face, writes_data=data is not None)
    return FaceStep(
        config.face,
        format,
        finder=CudaFaceFinder(format, make_network, batch, settings),
        editor=CudaMatteEditor(format, device),
        anonymizer=CudaAnonymizer(format),
        data=data,
        on_event=on_event,
        backend=backend,
        device="cpu" if backend == "cpu" else device.label,
    )
