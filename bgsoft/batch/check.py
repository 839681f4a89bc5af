"""Settings that all files of a batch share, checked before any file is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bgsoft.batch.job import BatchJob
from bgsoft.cuda.driver import driver_problem
from bgsoft.errors import BackendUnavailableError, BgsoftError, ConfigError
from bgsoft.face.data import FACE_DATA_SUFFIXES
from bgsoft.frame import FrameFormat
from bgsoft.jobs.task import CORES_A_TASK, TASKS_A_GPU
from bgsoft.media.endpoints import EndpointKind, source_for
from bgsoft.models.boxes import BOXES
from bgsoft.models.catalog import read_spec, resolve
from bgsoft.rendering import backends
from bgsoft.rendering.backends import STAGES, may_use_gpu
from bgsoft.rendering.request import Request
from bgsoft.settings.config import BackendConfig, Codec, EffectKind, FaceMode, RenderConfig
from bgsoft.settings.regions_file import read_regions
from bgsoft.settings.setting import is_model_file
from bgsoft.threads import usable_cores

_FORMAT = FrameFormat(width=64, height=64)
"""Format of an example frame for the checks."""
_MIN_BY_CORES = 2
"""Files at a time on two cores: while one begins or ends, the other keeps the cores busy."""


def read_gpus(text: str | None) -> list[int]:
    """Return the GPU numbers of ``--gpu 0,1``, or an empty list without the flag.

    Raises:
        ConfigError: The text is not a list of numbers, or repeats one.
        BackendUnavailableError: A GPU cannot be used.
    """
    if text is None:
        return []
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise ConfigError(f"--gpu must be numbers like 0 or 0,1, not {text!r}")
    gpus = [int(number) for number in numbers]
    if len(set(gpus)) < len(gpus):
        raise ConfigError(f"--gpu must name each GPU once, not {text!r}")
    for gpu in gpus:
        problem = driver_problem(gpu)
        if problem is not None:
            raise BackendUnavailableError(f"cannot use --gpu {gpu}: {problem}")
    return gpus


def default_workers(config: BackendConfig, gpus: Sequence[int]) -> int:
    """Return the number of files to render at a time without ``--jobs``."""
    cores = usable_cores()
    by_cores = min(cores, max(_MIN_BY_CORES, cores // CORES_A_TASK))
    if not may_use_gpu(config) or driver_problem(0) is not None:
        return by_cores
    return min(by_cores, TASKS_A_GPU * max(1, len(gpus)))


def check_settings(config: RenderConfig, *, here: bool) -> None:
    """Check the settings that all files have in common.

    Models and GPUs of this machine are checked only if files are rendered ``here``.

    Raises:
        ConfigError: A setting is wrong, or the background, the regions or the faces cannot be read.
        ModelError: The model has not been pulled, or is damaged.
        BackendUnavailableError: A requested backend cannot run here.
    """
    data = config.face_data
    if data is not None and data.suffix.lower() not in FACE_DATA_SUFFIXES:
        raise ConfigError(
            f"--face-data must be a .jsonl or .npz file, not {data.name!r}", path=data
        )
    _check_files(config)
    _check_background(config)
    read_spec(config.segment.model)
    if here:
        _check_model(config, _check_backends(config))


def check_encoding(jobs: Sequence[BatchJob]) -> None:
    """Check codec, quality and speed against each kind of output.

    Raises:
        ConfigError, UnsupportedFormatError: An output cannot have these settings.
    """
    by_container: dict[str, Request] = {}
    for job in jobs:
        request = Request(job.config)
        by_container.setdefault(request.outputs[0].destination.container.name, request)
    for request in by_container.values():
        destination, kind, settings, _ = request.outputs[0]
        container = destination.container
        try:
            if container.still is not None:
                from bgsoft.encode.stills import choose_still

                choose_still(settings, container, _FORMAT, kind)
            elif backends.first_available("encode", request.config.backends.encode) == "cpu":
                from bgsoft.diagnose.clips import stream_info
                from bgsoft.encode.codecs import choose_encoder

                choose_encoder(settings, container, stream_info(_FORMAT), kind)
        except BgsoftError as exc:
            exc.path = request.config.input  # the first of its kind; other kinds may work
            raise


def _check_files(config: RenderConfig) -> None:
    """Read the regions and the faces."""
    for path in config.inputs[1:]:
        if source_for(path).kind is EndpointKind.PIPE:
            raise ConfigError(f"cannot read {path}: a batch cannot read pipes; name a file")
    if config.regions.file is not None:
        read_regions(Path(config.regions.file))
    searches = config.face.mode is not FaceMode.OFF or config.face_data is not None
    if config.face.file is not None and searches:
        from bgsoft.face.create import read_known_faces

        read_known_faces(config.face)


def _check_background(config: RenderConfig) -> None:
    if config.effect.kind in (EffectKind.COLOR, EffectKind.IMAGE, EffectKind.VIDEO):
        from bgsoft.composite.effects import create_compositor

        create_compositor(config.effect, _FORMAT).close()


def _check_backends(config: RenderConfig) -> str:
    """Check the backend of each stage, and return that of inference."""
    wanted = config.backends
    gpu = backends.chosen_gpu(wanted.gpu)
    chosen = ""

    def check(name: str) -> None:
        if name == "nvenc" and (wanted.require_gpu or wanted.encode == "nvenc"):
            _ask_nvenc(gpu, config.encode.codec)

    for stage in STAGES:
        choice, _ = backends.create(stage, wanted, check, gpu)
        chosen = choice.backend if stage == "infer" else chosen
    return chosen


def _ask_nvenc(gpu: int, codec: Codec) -> None:
    """Raise BackendUnavailableError if the GPU has no NVENC; only opening it shows that."""
    from bgsoft.cuda.video_codec import encoder_caps

    if codec in (Codec.AUTO, Codec.H264, Codec.HEVC, Codec.AV1):
        encoder_caps(gpu, (Codec.H264 if codec is Codec.AUTO else codec).value)


def _check_model(config: RenderConfig, backend: str) -> None:
    model = resolve(config.segment.model)
    model.for_provider(backend, config.backends.precision)
    if backend == "cpu" and is_model_file(
        config.segment.model
    ):  # models of the catalogue are known to load
        from bgsoft.infer.loading import NetworkLoader
        from bgsoft.segment.factory import HostSegmenterFactory
        from bgsoft.threads import LanePool

        loader = NetworkLoader(model, config.backends.precision)
        width, height = model.spec.frame_size
        format = FrameFormat(width=width or _FORMAT.width, height=height or _FORMAT.height)
        HostSegmenterFactory(backend, format, LanePool()).create(
            loader, config.segment.matte
        ).close()
    if config.detector.file is not None:
        _check_detector(config.detector.file)


def _check_detector(file: str) -> None:
    """Load a detector on the CPU, which may always have to take over."""
    from bgsoft.detect.detector import Detector
    from bgsoft.infer.loading import NetworkLoader
    from bgsoft.segment.factory import HostSegmenterFactory
    from bgsoft.threads import LanePool

    model = resolve(file, (BOXES,))
    driver = HostSegmenterFactory("cpu", _FORMAT, LanePool()).driver(NetworkLoader(model))
    Detector(model.spec, driver, _FORMAT).close()
