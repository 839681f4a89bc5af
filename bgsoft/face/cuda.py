"""Finding the faces of batches of frames on a CUDA device.

A batch costs two round trips: the detector on all frames, then the landmark model on all faces.
The models' inputs are made on the device; detections and landmarks come back to the host, where
tracks are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from bgsoft.closing import Closing
from bgsoft.errors import ModelError
from bgsoft.face.base import Face
from bgsoft.face.finder import DETECTOR, LANDMARKER, FinderSettings, Following, Raw
from bgsoft.face.warp import WARP_VIEW, View, choose_source, pack_view
from bgsoft.frame import Array, Frame, FrameFormat, Reduced
from bgsoft.infer.base import Network
from bgsoft.kernels.loader import BLOCK, blocks, kernel
from bgsoft.models.catalog import ModelSpec, ResolvedModel, resolve
from bgsoft.segment.preprocess import yuv_to_rgb_matrix

__all__ = ["CudaFaceFinder", "CudaWarper"]

MakeNetwork = Callable[[ResolvedModel, int], Network]
"""Loads a model for a batch size, with its arrays on the device, on the pipeline's stream."""

_MATRIX_ONE = 1024
"""Colour matrix entries are whole multiples of its reciprocal, as in ``cv2.transform``."""


class CudaWarper:
    """Writes views of frames of one format into a batch tensor; one upload and one launch.

    Args:
        spec: Square input size, channel order and normalisation; NCHW.
        format: Format of the frames.
        batch: Items of the tensor.

    Raises:
        ModelError: The model takes its channels last.
    """

    def __init__(self, spec: ModelSpec, format: FrameFormat, batch: int) -> None:
        if spec.layout != "NCHW":
            raise ModelError(f"model {spec.name} must take NCHW on the GPU, not {spec.layout}")
        self._format = format
        self._size = spec.width
        self.shape = (batch, 3, spec.width, spec.width)
        """Of the tensor."""
        matrix = yuv_to_rgb_matrix(format)
        if spec.color_order == "bgr":
            matrix = matrix[::-1]
        matrix = matrix.copy()
        matrix[:, 3] += 0.5  # makes flooring a rounding
        mean, std = np.array(spec.mean), np.array(spec.std)
        norm = np.concatenate([1.0 / (255.0 * std), -mean / std]).astype(np.float32)
        self._constants = (
            cupy.asarray(np.rint(matrix * _MATRIX_ONE).astype(np.int32)),
            cupy.asarray(norm),
        )
        self._items: NDArray[Any] = _pinned((batch,), WARP_VIEW)
        self._device_items = cupy.empty(batch * WARP_VIEW.itemsize, np.uint8)
        self._kernel = kernel("warp", "warp_views", sample_bits=8 * format.bytes_per_sample)

    def write(self, asked: Sequence[tuple[Frame, Reduced, View]], tensor: Array) -> None:
        """Sample, convert and normalise some views.

        The stream must have passed the last call's upload.

        Args:
            asked: Frames on the device, their grids and what to look at; up to a batch.
            tensor: Of :attr:`shape`, float32, C-contiguous; its first items are overwritten.

        Raises:
            ValueError: There are too many views, or the tensor is another.
        """
        if len(asked) > len(self._items) or tensor.shape != self.shape or tensor.dtype != "float32":
            raise ValueError(
                f"expected up to {len(self._items)} views for {self.shape} float32, "
                f"not {len(asked)} for {tensor.shape} {tensor.dtype}"
            )
        if not asked:
            return
        for index, (frame, grid, view) in enumerate(asked):
            source = choose_source(frame, grid, view)
            addresses = source.luma.data.ptr, source.chroma.data.ptr
            self._items[index] = pack_view(source, view, addresses, self._format)
        stream = cupy.cuda.get_current_stream()
        used = len(asked) * WARP_VIEW.itemsize
        self._device_items.data.copy_from_host_async(self._items.ctypes.data, used, stream)
        args = (self._device_items, *self._constants, tensor, np.int32(self._size))
        self._kernel(blocks(self._size, self._size, len(asked)), BLOCK, args)


class _GpuModel:
    """One network that is shown a batch of views at a time."""

    def __init__(
        self,
        model: ResolvedModel,
        make_network: MakeNetwork,
        format: FrameFormat,
        batch: int,
        outputs: tuple[str, str],
    ) -> None:
        self._batch = batch
        self._network = make_network(model, batch)
        self._tensor = self._network.inputs[model.spec.input]
        self._warper = CudaWarper(model.spec, format, batch)
        self._outputs = [self._network.outputs[name] for name in outputs]
        self._answers = [_pinned(output.shape, output.dtype) for output in self._outputs]

    def start(self) -> None:
        self._network.run()

    def run(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        answers: list[Raw] = []
        stream = cupy.cuda.get_current_stream()
        for start in range(0, len(asked), self._batch):
            part = asked[start : start + self._batch]
            self._warper.write(part, self._tensor)
            self._network.run()
            for output, answer in zip(self._outputs, self._answers, strict=True):
                used = len(part) * (output.nbytes // self._batch)
                output.data.copy_to_host_async(answer.ctypes.data, used, stream)
            stream.synchronize()
            first, second = self._answers
            answers += [(first[i].copy(), second[i].copy()) for i in range(len(part))]
        return answers

    def close(self) -> None:
        self._network.close()


class _GpuModels:
    """Implements :class:`bgsoft.face.finder.FaceModels`."""

    def __init__(self, detector: _GpuModel, landmarker: _GpuModel) -> None:
        self._detector = detector
        self._landmarker = landmarker

    def detect(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        return self._detector.run(asked)

    def landmarks(self, asked: Sequence[tuple[Frame, Reduced, View]]) -> list[Raw]:
        return self._landmarker.run(asked)

    def close(self) -> None:
        self._detector.close()
        self._landmarker.close()


class CudaFaceFinder(Closing):
    """Finds faces in frames on the device; also a :class:`bgsoft.face.base.FaceFinder`.

    Everything runs on the current stream, which the host waits for twice a batch.

    Args:
        format: Format of the frames.
        make_network: Loads a model for a batch size.
        batch: Frames, and faces, per run of a network.
        settings: How to look; the defaults where left out.

    Raises:
        ModelError: A model's file is damaged.
        BackendUnavailableError: A network does not load on the device.
    """

    def __init__(
        self,
        format: FrameFormat,
        make_network: MakeNetwork,
        batch: int = 8,
        settings: FinderSettings | None = None,
    ) -> None:
        detector = resolve(DETECTOR, ("face-detector",))
        landmarker = resolve(LANDMARKER, ("face-landmarks",))
        self._detector = _GpuModel(detector, make_network, format, batch, ("boxes", "scores"))
        self._landmarker = _GpuModel(
            landmarker, make_network, format, batch, ("landmarks", "presence")
        )
        self._following = Following(
            format,
            _GpuModels(self._detector, self._landmarker),
            settings or FinderSettings(),
            detector.spec.width,
            landmarker.spec.width,
        )

    def start(self) -> None:
        """Run both networks once, in the thread that will call :meth:`find_batch`.

        Raises:
            InferenceError: One of them failed.
        """
        self._detector.start()
        self._landmarker.start()

    def find_batch(self, frames: Sequence[Frame], grids: Sequence[Reduced]) -> list[list[Face]]:
        """The faces of consecutive frames of one scene, a list a frame, most prominent first.

        Args:
            frames: On the device, any number.
            grids: The same on the analysis grid, on the device.

        Raises:
            InferenceError: A model failed; carries the first frame's pts.
        """
        return self._following.find(frames, grids)

    def find(self, frame: Frame, reduced: Reduced) -> list[Face]:
        return self._following.find([frame], [reduced])[0]

    def reset(self) -> None:
        self._following.reset()

    def close(self) -> None:
        self._following.close()


def _pinned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A host array that the device can copy from and to by itself."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)
    return np.frombuffer(memory, dtype, count).reshape(shape)
