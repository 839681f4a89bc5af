"""The working folder of a render in chunks: finished chunks, and what is known of them.

It lies beside the output, hidden, for as long as the output is not whole, so that the same command
goes on where another was stopped. Whoever uses it holds a lock, which the system frees when the
process ends, however it ends.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from bgsoft.models.catalog import resolve
from bgsoft.outputs import resolved, write_whole, writing
from bgsoft.part_names import MAX_NAME_BYTES
from bgsoft.rendering.chunk import Chunk, ChunkResult
from bgsoft.report import Event, HiddenRun, ModelReport, RenderReport, StageReport, Timeline
from bgsoft.settings.config import RenderConfig
from bgsoft.untrusted import parse_json

_ENDING = ".chunks"
_NOT_IN_PICTURES = (
    *("output", "matte_out", "overwrite", "skip_existing", "report", "preset", "receipt"),
    *("chunks", "trace", "config_file", "copy"),
)
"""Settings that change nothing of a chunk."""
_PASSING = (RenderCancelledError, WorkerDiedError, StallError, OutputError, MemoryError)
"""Failures that another run of the same command may not meet again."""
PATIENCE_SECONDS = 6.0
"""How long to wait for another render's lock: the workers of one that was killed end in half that
time."""
_POLL_SECONDS = 0.1
_WHAT = "working folder"
_OWN_NAME = r"lock|\.nfs.*|\.?(plan\.json|\d{5,}[-.]).*"
"""Of files in a working folder; with a dot before, those that are not whole yet.
NFS keeps what is removed while it is open, as .nfs…."""
_FORMAT = 5
"""Of plans and manifests: what has another is begun anew."""


class WorkFolder:
    """Where the chunks of one output are kept."""

    def __init__(self, output: Path) -> None:
        target = resolved(output)
        room = MAX_NAME_BYTES - len(_ENDING) - 1
        name = os.fsdecode(os.fsencode(target.name)[:room])
        self.path = target.with_name(f".{name}{_ENDING}")
        self._output = output

    def prepare(self, config: RenderConfig, chunks: list[Chunk]) -> list[Chunk]:
        """Make the folder ready, and keep what is finished of the same render.

        Returns:
            The chunks; those of the render that was stopped, where their number is left open.

        Raises:
            OutputError: It cannot be written, another render uses it, or it is not bgsoft's.
        """
        plan, fingerprint = self.path / "plan.json", _fingerprint(config)
        with writing(self.path, _WHAT):
            self.path.mkdir(exist_ok=True)
            if not self._is_ours():
                text = f"{self.path}, which is to hold finished chunks, is not bgsoft's: move it"
                raise OutputError(text, path=self._output)
            with self._lock(fcntl.LOCK_EX):
                before = _read_sealed(plan)
                if before is not None and before["render"] == fingerprint:
                    planned = [_chunk_from(entry) for entry in before["chunks"]]
                    if config.chunks is None or planned == chunks:
                        return planned
                for entry in self.path.iterdir():
                    if entry.name != "lock":
                        entry.unlink()
                known = [dataclasses.asdict(chunk) for chunk in chunks]
                _write_sealed(plan, {"render": fingerprint, "chunks": known})
        return chunks

    def check_sources(self, config: RenderConfig) -> None:
        """Raise VerificationError where the files that are read are not those of the plan: its
        chunks may be of two videos."""
        plan = _read_sealed(self.path / "plan.json")
        if plan is not None and plan["render"] != _fingerprint(config):
            text = f"{config.input.name}, or the background or model, changed while it was rendered"
            raise VerificationError(text, path=config.input)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep others from using it for another render; OutputError: one does, or it is gone."""
        gone = OutputError(f"the {_WHAT} {self.path} is gone", path=self._output)
        with translated(FileNotFoundError, to=lambda _: gone), self._lock(fcntl.LOCK_SH):
            yield

    def _is_ours(self) -> bool:
        """Whether nothing is in this folder but what renders put there."""
        return all(re.fullmatch(_OWN_NAME, entry.name) for entry in self.path.iterdir())

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path / "lock", flags, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                if not take_lock(descriptor, kind, PATIENCE_SECONDS):
                    text = f"another render is writing {self._output}: it uses {self.path}"
                    raise OutputError(text, path=self._output)
            yield
        finally:
            os.close(descriptor)

    def video(self, number: int, target: Path, index: int) -> Path:
        """A chunk's file for one of the videos that are written, by its index."""
        return self.path / f"{number:05}-{index}{target.suffix}"

    def faces(self, number: int) -> Path:
        """The faces of a chunk's frames."""
        return self.path / f"{number:05}-faces.npz"

    def manifest(self, number: int) -> Path:
        """The file that says that a chunk is finished."""
        return self.path / f"{number:05}.json"

    def finish(self, number: int, result: ChunkResult) -> None:
        """Note that a chunk is whole: all its videos are."""
        known = {
            "report": result.report.to_dict(),
            "pre_roll": result.pre_roll.tolist(),
            "kept": result.kept.tolist(),
            "packets": [[pts.tolist(), lengths.tolist()] for pts, lengths in result.packets],
            "corrupt_packets": result.corrupt_packets,
            "irregular": result.irregular,
            "faces": result.faces,
            "bytes": self._bytes(number),
        }
        _write_sealed(self.manifest(number), known)

    def finished(self, number: int) -> ChunkResult | None:
        """What is known of a chunk; None where it is not whole, or its files were cut since."""
        known = _read_sealed(self.manifest(number))
        if known is None or known["bytes"] != self._bytes(number):
            return None
        return ChunkResult(
            report=_report_from(known["report"]),
            pre_roll=array("q", known["pre_roll"]),
            kept=array("q", known["kept"]),
            packets=[(array("q", pts), array("q", n)) for pts, n in known["packets"]],
            corrupt_packets=known["corrupt_packets"],
            irregular=known["irregular"],
            faces=known["faces"],
        )

    def _bytes(self, number: int) -> dict[str, int]:
        """Sizes of a chunk's files."""
        return {path.name: path.stat().st_size for path in self.path.glob(f"{number:05}-*")}

    def keep_or_remove(self, exc: BaseException) -> str | None:
        """After a failure, keep it where another run of the same command may get further.

        Returns:
            What to tell the user, where it is kept.
        """
        done = False
        with suppress(OSError):
            done = any(path.name[0].isdigit() for path in self.path.glob("*.json"))
        if not done or (isinstance(exc, BgsoftError) and not isinstance(exc, _PASSING)):
            self.remove()
            return None
        return f"finished chunks are kept in {self.path}: the same command goes on from there"

    def remove_unused(self) -> None:
        """Remove what a stopped render has left, unless another one works with it now."""
        with suppress(OSError, OutputError):
            if self._is_ours():
                with self._lock(fcntl.LOCK_EX):
                    self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def leftovers(folders: Iterable[WorkFolder]) -> list[str]:
    """What to say of chunks that stopped renders left beside some working folders.

    Not of those in these folders, which are gone on with, nor of renders that still run.
    """
    own = {folder.path for folder in folders}
    found = (
        path for folder in {path.parent for path in own} for path in folder.glob(f".*{_ENDING}")
    )
    return [
        f"chunks of a render that was stopped lie in {path}: the same command goes on from there;"
        f" rm -r {shlex.quote(str(path))} removes them"
        for path in sorted(set(found) - own)
        if _is_abandoned(path)
    ]


def _is_abandoned(path: Path) -> bool:
    try:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # somebody else's, or not a working folder
        return False
    try:
        return (path / "plan.json").is_file() and take_lock(descriptor, fcntl.LOCK_EX, 0.0)
    except OSError:  # a file system without locks: nobody knows
        return False
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, kind: int, seconds: float) -> bool:
    """Take a lock, unless another process keeps it for so long; OSError where there are none."""
    until = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)


def _write_sealed(path: Path, known: dict[str, Any]) -> None:
    """Write what :func:`_read_sealed` reads: JSON with its own hash, so that damage shows."""
    text = json.dumps(known, default=str)
    write_whole(path, _WHAT, json.dumps({"sha256": _hash(text), "text": text}))


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """What was written; None where there is none, or it is damaged."""
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


def _fingerprint(config: RenderConfig) -> str:
    """What all chunks of one render have in common; changes with the files that are read."""
    settings = dataclasses.asdict(config)
    for name in _NOT_IN_PICTURES:
        del settings[name]
    for name in ("threads", "gpu"):
        del settings["backends"][name]
    read = [config.input]
    if config.effect.background:
        read.append(Path(config.effect.background))
    if config.regions.file is not None:
        read.append(Path(config.regions.file))
    stamps = [_stamp(path) for path in read]
    outputs = [path.suffix for path in config.videos]
    model = resolve(config.segment.model)
    read_so = [model.sha256, dataclasses.asdict(model.spec)]  # its sidecar may have changed
    text = json.dumps([_FORMAT, __version__, settings, stamps, outputs, read_so], default=str)
    return _hash(text)


def _stamp(path: Path) -> Sequence[object]:
    try:
        stat = path.stat()
    except OSError:  # a colour
        return [str(path)]
    return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
