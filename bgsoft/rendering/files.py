"""The files of a render with their hashes, so that it can be checked and repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from bgsoft.errors import OpenError, os_errors_as
from bgsoft.media.endpoints import Destination, EndpointKind, Source, source_for
from bgsoft.models.catalog import resolve
from bgsoft.rendering.request import Request
from bgsoft.report import FileReport, RenderReport
from bgsoft.settings.config import FaceMode, MatteQuality, Precision, RenderConfig

_BLOCK_BYTES = 1 << 20


def hash_files(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the joined bytes of files, in hexadecimal.

    Raises:
        OpenError: A file cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        with os_errors_as(OpenError, f"cannot hash {path}", path=path), path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def file_reports(
    request: Request, report: RenderReport, changed: Sequence[Path] = ()
) -> list[FileReport]:
    """Hash the files of a finished render, networks included.

    Args:
        request: The render.
        report: Its report, which names the networks that ran.
        changed: Files that changed during the render. They have no hash: nobody can check what was
            read.

    Raises:
        OpenError: A file can no longer be read.
    """
    config = request.config
    names = {
        "background": config.effect.background,
        "regions": config.regions.file,
        "matte in": config.segment.matte_in,
        "faces": config.face.file,
        "detector": config.detector.file,
        "detector sidecar": config.detector.sidecar,
    }
    roles = {Path(name): role for role, name in names.items() if name is not None}
    read = [("input", config.input), *((roles[path], path) for path in config.inputs[1:])]
    files = [
        _file(role, path, hashes=path not in changed and not _is_pipe(source_for(path)))
        for role, path in read
    ]
    files += (
        FileReport(role="model", name=name, sha256=sha256)
        for name, sha256 in dict(_models(config, report)).items()
    )
    for output in request.outputs:
        role = "output" if output.is_main else "matte"
        hashes = not _is_pipe(output.destination)
        files.append(_file(role, output.destination.path, hashes=hashes))
    if config.face_data is not None and config.face_data.exists():
        files.append(_file("face data", config.face_data))
    return files


def _is_pipe(end: Source | Destination) -> bool:
    return end.kind is EndpointKind.PIPE


def _file(role: str, path: Path, *, hashes: bool = True) -> FileReport:
    digest = None
    if hashes:
        digest = hash_files(source_for(path).pictures or (path,))
    return FileReport(role=role, name=str(path), sha256=digest)


def _models(config: RenderConfig, report: RenderReport) -> Iterator[tuple[str, str]]:
    """Yield the names of the networks of the render, with the hashes of their files."""
    from bgsoft.face.networks import CHECKER, LANDMARKER, resolve_detector
    from bgsoft.segment.families import companion_models

    searches = report.faces is not None and config.face.file is None
    used = [resolve_detector()] if searches else []
    if report.model is not None and not config.segment.replaces_matte:
        yield report.model.name, report.model.sha256
        backend, precision = report.stages["segment"].backend, config.backends.precision
        companions = companion_models(resolve(config.segment.model), config.segment.matte)
        for model in companions:
            chosen = Precision.FP32 if model.spec.fp16 is None else precision
            loaded = model.for_provider(backend, chosen, replays=False)
            yield model.spec.name, loaded.sha256
        if companions and config.segment.matte is MatteQuality.BEST and not used:
            used.append(resolve_detector())  # it places closer views
    if report.faces is not None:
        used.append(resolve(*LANDMARKER))
    if searches and config.face.mode is FaceMode.ANONYMIZE:
        used += resolve_detector(smoothed=True), resolve(*CHECKER)
    yield from ((model.spec.name, model.sha256) for model in used)
