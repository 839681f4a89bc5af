"""The working folder of a render in chunks: finished chunks and their manifests.

It is hidden next to the output until the output is complete. The same command continues from a
stopped render's folder. Each user of the folder holds a lock, which the system frees when the
process ends.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from bgsoft import __version__
from bgsoft.decode.base import PtsRange
from bgsoft.errors import (
    BgsoftError,
    OutputError,
    RenderCancelledError,
    StallError,
    VerificationError,
    WorkerDiedError,
    translated,
)
from bgsoft.media.endpoints import source_for
from bgsoft.models.boxes import BOXES
from bgsoft.models.catalog import resolve
from bgsoft.outputs import real_path, resolved, write_whole, writing
from bgsoft.part_names import MAX_NAME_BYTES, name_digest
from bgsoft.rendering.chunk import Chunk, ChunkResult
from bgsoft.report import Event, HiddenRun, ModelReport, RenderReport, StageReport, Timeline
from bgsoft.settings.config import RenderConfig
from bgsoft.untrusted import parse_json

_ENDING = ".chunks"
_NOT_IN_PICTURES = (
    *("output", "matte_out", "overwrite", "skip_existing", "report", "preset", "receipt"),
    *("chunks", "trace", "preset_file", "config_file", "copy", "left_out"),
)
"""Settings that do not change chunks."""
_PASSING = (RenderCancelledError, WorkerDiedError, StallError, OutputError, MemoryError)
"""Failures after which another run of the same command may succeed."""
_POLL_SECONDS = 0.1
_WHAT = "working folder"
_OWN_NAME = r"lock|\.nfs.*|\.?(plan\.json|\d{5,}[-.]).*"
"""Names of files in a working folder; incomplete ones begin with a dot.

NFS keeps removed files under names like .nfs… while they are open."""
_END_BYTES = 1 << 20
"""Bytes at either end of a file that tell it from another of the same size and time."""
_FORMAT = 8
"""Version of plans and manifests; a folder with another version is rendered again."""


class WorkFolder:
    """The folder of the chunks of one output.

    Args:
        output: The output.
        wait_seconds: Longest wait for another render's lock; workers of a killed render end in half
            the default.
        render: Fingerprint of the render whose chunks are used; :meth:`prepare` sets it.
    """

    def __init__(self, output: Path, *, wait_seconds: float = 6.0, render: str = "") -> None:
        target = resolved(output)
        name, ending = os.fsencode(target.name), _ENDING
        if len(name) > MAX_NAME_BYTES - len(f".{ending}"):
            ending = f".{name_digest(target.name)}{ending}"
            name = name[: MAX_NAME_BYTES - len(f".{ending}")]
        self.path = target.with_name(f".{os.fsdecode(name)}{ending}")
        self._output, self._wait_seconds, self.render = output, wait_seconds, render

    def prepare(self, config: RenderConfig, chunks: list[Chunk]) -> list[Chunk]:
        """Create the folder, or keep the finished chunks of the same render.

        Returns:
            The chunks; if the settings do not fix their number, those of the stopped render.

        Raises:
            OutputError: The folder cannot be written, is in use, or was not made by bgsoft.
        """
        plan, stamps = self.path / "plan.json", _stamps(config)
        self.render = _fingerprint(config, stamps)
        with writing(self.path, _WHAT):
            self.path.mkdir(exist_ok=True)
            if not self._is_ours():
                text = f"cannot use {_WHAT} {self.path}: not made by bgsoft; move it away"
                raise OutputError(text, path=self._output)
            with self._present(), self._lock(fcntl.LOCK_EX):
                before = _read_sealed(plan)
                if before is not None and before["render"] == self.render:
                    planned = [_chunk_from(entry) for entry in before["chunks"]]
                    if config.chunks is None or planned == chunks:
                        return planned
                for entry in self.path.iterdir():
                    if entry.name != "lock":
                        entry.unlink()
                known = [dataclasses.asdict(chunk) for chunk in chunks]
                _write_sealed(plan, {"render": self.render, "stamps": stamps, "chunks": known})
        return chunks

    def check_sources(self, config: RenderConfig) -> None:
        """Raise VerificationError if files that are read have changed since the plan was made."""
        plan, stamps = _read_sealed(self.path / "plan.json"), _stamps(config)
        if plan is not None and plan["render"] != _fingerprint(config, stamps):
            pairs = zip(config.inputs, plan["stamps"], stamps, strict=True)
            changed = [path for path, before, now in pairs if before != now]
            names = " and ".join(path.name for path in changed) or "a model"
            text = f"{names} changed during the render"
            raise VerificationError(text, path=(changed or [config.input])[0])

    @contextmanager
    def used(self) -> Iterator[None]:
        """Lock the folder against other renders; raise OutputError if it is in use or missing."""
        with self._present(), self._lock(fcntl.LOCK_SH):
            yield

    def _present(self) -> AbstractContextManager[None]:
        """Report that the folder is missing."""
        gone = OutputError(
            f"cannot use {_WHAT} {self.path}: it was removed, perhaps by another render that has"
            f" finished {self._output}; run the command again",
            path=self._output,
        )
        return translated(FileNotFoundError, to=lambda _: gone)

    def _is_ours(self) -> bool:
        """Return True if the folder contains only files of renders."""
        return all(re.fullmatch(_OWN_NAME, entry.name) for entry in self.path.iterdir())

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path / "lock", flags, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                if not take_lock(descriptor, kind, self._wait_seconds):
                    text = f"cannot write {self._output}: another render uses {self.path}"
                    raise OutputError(text, path=self._output)
            yield
        finally:
            os.close(descriptor)

    def video(self, number: int, target: Path, index: int) -> Path:
        """Return the path of a chunk of one of the outputs, by the output's index."""
        return self.path / f"{number:05}-{index}{target.suffix}"

    def faces(self, number: int) -> Path:
        """Return the path of the faces of a chunk's frames."""
        return self.path / f"{number:05}-faces.npz"

    def manifest(self, number: int) -> Path:
        """Return the path of the file that marks a chunk as finished."""
        return self.path / f"{number:05}.json"

    def finish(self, number: int, result: ChunkResult) -> None:
        """Mark a chunk as finished, after all its videos are complete."""
        known = {
            "render": self.render,
            "report": result.report.to_dict(),
            "pre_roll": result.pre_roll.tolist(),
            "kept": result.kept.tolist(),
            "packets": [[pts.tolist(), lengths.tolist()] for pts, lengths in result.packets],
            "corrupt_packets": result.corrupt_packets,
            "irregular": result.irregular,
            "faces": result.faces,
            "unused": result.unused,
            "bytes": self._bytes(number),
        }
        _write_sealed(self.manifest(number), known)

    def finished(self, number: int) -> ChunkResult | None:
        """Return the result of a chunk; None if it is not finished, or its files have changed.

        Chunks of another render do not count.
        """
        known = _read_sealed(self.manifest(number))
        if known is None or known["render"] != self.render:
            return None
        if known["bytes"] != self._bytes(number):
            return None
        return ChunkResult(
            report=_report_from(known["report"]),
            pre_roll=array("q", known["pre_roll"]),
            kept=array("q", known["kept"]),
            packets=[(array("q", pts), array("q", n)) for pts, n in known["packets"]],
            corrupt_packets=known["corrupt_packets"],
            irregular=known["irregular"],
            faces=known["faces"],
            unused=known["unused"],
        )

    def _bytes(self, number: int) -> dict[str, int]:
        """Return the sizes of a chunk's files."""
        return {path.name: path.stat().st_size for path in self.path.glob(f"{number:05}-*")}

    def keep_or_remove(self, exc: BaseException) -> str | None:
        """After a failure, keep the folder if another run of the same command may succeed.

        Returns:
            A notice for the user if the folder is kept, else None.
        """
        done = False
        with suppress(OSError):
            done = any(path.name[0].isdigit() for path in self.path.glob("*.json"))
        if not done or (isinstance(exc, BgsoftError) and not isinstance(exc, _PASSING)):
            self.remove()
            return None
        return f"finished chunks are kept in {self.path}; continue with the same command"

    def remove_unused(self) -> None:
        """Remove the folder of a stopped render, unless another render uses it now."""
        with suppress(OSError, OutputError):
            if self._is_ours():
                with self._lock(fcntl.LOCK_EX):
                    self.remove()

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)


def leftovers(folders: Iterable[WorkFolder]) -> list[str]:
    """Return notices about chunks of stopped renders next to some working folders.

    The given folders themselves, and those of running renders, are left out.
    """
    own = {folder.path for folder in folders}
    found = (
        path for folder in {path.parent for path in own} for path in folder.glob(f".*{_ENDING}")
    )
    return [
        f"chunks of a stopped render are in {path}; continue with the same command, or remove them"
        f" with rm -r {shlex.quote(str(path))}"
        for path in sorted(set(found) - own)
        if _is_abandoned(path)
    ]


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another user's, or not a working folder
        return False
    try:
        return (path / "plan.json").is_file() and take_lock(descriptor, fcntl.LOCK_EX, 0.0)
    except OSError:  # a file system without locks: cannot be decided
        return False
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, kind: int, seconds: float) -> bool:
    """Take a lock; return False if another process keeps it longer than ``seconds``.

    Raises:
        OSError: The file system has no locks.
    """
    until = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)


def _write_sealed(path: Path, known: dict[str, Any]) -> None:
    """Write JSON with a hash of itself, which :func:`_read_sealed` checks."""
    text = json.dumps(known, default=str)
    write_whole(path, _WHAT, json.dumps({"sha256": _hash(text), "text": text}))


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """Return the contents of a sealed file; None if it is missing or damaged."""
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        file = parse_json(path.read_bytes())
        text = file["text"]
        if file["sha256"] == _hash(text):
            known: dict[str, Any] = json.loads(text)
            return known
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _chunk_from(known: dict[str, Any]) -> Chunk:
    return Chunk(**{**known, "frames": PtsRange(**known["frames"])})


def _report_from(known: dict[str, Any]) -> RenderReport:
    stages = {name: StageReport(**stage) for name, stage in known["stages"].items()}
    events = [Event(**event) for event in known["events"]]
    model = ModelReport(**known["model"])
    hidden = [HiddenRun(**run) for run in known["hidden"]]
    timeline = Timeline(**known["timeline"])
    made: dict[str, Any] = {"stages": stages, "events": events, "model": model}
    return RenderReport(**{**known, **made, "hidden": hidden, "timeline": timeline})


def _stamps(config: RenderConfig) -> list[list[str]]:
    """Return the present path, sizes, times and :func:`_ends` of each file that is read."""
    return [[str(real_path(p)), source_for(p).stamp(), _ends(p)] for p in config.inputs]


def _ends(path: Path) -> str:
    """Return a hash of a file's first and last MiB; empty for anything else."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_END_BYTES))
        file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
        digest.update(file.read())
    return digest.hexdigest()


def _fingerprint(config: RenderConfig, stamps: list[list[str]]) -> str:
    """Return a hash of the settings and the files that all chunks of one render share."""
    settings = dataclasses.asdict(config)
    for name in _NOT_IN_PICTURES:
        del settings[name]
    for name in ("threads", "gpu"):
        del settings["backends"][name]
    outputs = [path.suffix for path in config.videos]
    models = [resolve(config.segment.model)]
    if config.detector.file is not None:
        models.append(resolve(config.detector.file, (BOXES,)))
    # Sidecars and files of weights may have changed.
    read_so = [(model.sha256, dataclasses.asdict(model.spec)) for model in models]
    text = json.dumps([_FORMAT, __version__, settings, stamps, outputs, read_so], default=str)
    return _hash(text)
