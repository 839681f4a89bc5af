"""Hostile files that bgsoft reads beside videos: TOML, JSON and SQLite."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from bgsoft.batch.state import STATE_NAME, BatchState, Entry, FileState, describe
from bgsoft.cache import cache_root
from bgsoft.chunks.folder import WorkFolder
from bgsoft.cuda.capability_cache import CapabilityCache
from bgsoft.decode.base import PtsRange
from bgsoft.outputs import note_receipt
from bgsoft.rendering.chunk import Chunk, ChunkResult
from bgsoft.rendering.configure import build_config
from bgsoft.report import Event, ModelReport, RenderReport, StageReport
from bgsoft.settings.presets import as_toml, load_preset
from tests.hostile.case import ABSURD, Case, Stock, call, command, mangled, render

_DEPTH = 100_000
"""Number of nested brackets."""
_TOML_VALUES = (
    *(
        '"x"',
        "true",
        "[]",
        "{}",
        "-1",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "0",
        "1979-05-27",
        '"\\u0000"',
    ),
    *('"/etc/passwd"', '"../../x"', "'''\n'''", '""', "[1, 2, 3]", "[nan, inf, 1]", '["a", 1]'),
    "9" * 4000,
    "9" * 5000,
    "[" * _DEPTH,
    "{a=" * 5000 + "1" + "}" * 5000,
    '"' + "x" * 1_000_000 + '"',
    *map(str, ABSURD),
)
_JSON_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 1e308, "x", "\0", [], {}, [[]], {"a": []}, "../../x", float("nan")),
    *ABSURD,
)


def _toml(rng: random.Random, text: str) -> bytes:
    """A TOML file with one line or byte changed for the worse."""
    lines = text.splitlines()
    keyed = [at for at, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    if not keyed or rng.random() < 0.3:
        return mangled(rng, text.encode())
    for _ in range(rng.randrange(1, 3)):
        at = rng.choice(keyed)
        key = lines[at].partition("=")[0]
        how = rng.random()
        if how < 0.8:
            lines[at] = f"{key}= {rng.choice(_TOML_VALUES)}"
        elif how < 0.9:
            lines[at] = f"{key.strip()}.{key.strip()} = 1"
        else:
            lines.insert(at, lines[at])
    return "\n".join(lines).encode()


def preset(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A preset with a wrong value, or damaged."""
    path = folder / "look.toml"
    name = rng.choice(("soft", "privacy", "cutout", "studio"))
    path.write_bytes(_toml(rng, as_toml(load_preset(name))))
    if rng.random() < 0.5:
        return Case(
            what=f"preset like {name}, shown",
            run=command("presets", "show", str(path)),
            leaves=(),
            speaks=True,
        )
    clip = stock.clip(rng, ".mp4")
    argv = ("render", str(clip), str(folder / "out" / "out.mkv"), "--preset", str(path), "-q")
    run = command(*argv, "--duration", "0.1")
    return Case(what=f"preset like {name}", run=run, leaves=None)


def preset_chain(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """Presets that extend each other too often, extend themselves, or extend another file."""
    count = rng.choice((1, 2, 50, 400))
    last = rng.choice(("0.toml", "soft", "", "../0.toml", "/dev/zero.toml"))
    for number in range(count):
        parent = f"./{number + 1}.toml" if number + 1 < count else last
        (folder / f"{number}.toml").write_text(f"extends = {json.dumps(parent)}\n")
    run = command("presets", "show", str(folder / "0.toml"))
    return Case(what=f"{count} presets that end in {last!r}", run=run, leaves=(), speaks=True)


def sidecar(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """A model whose sidecar is wrong, or damaged."""
    model = folder / "own.onnx"
    shutil.copy(stock.ones, model)
    model.with_suffix(".toml").write_bytes(_toml(rng, SIDECAR))
    clip = stock.clip(rng, ".mp4")
    return Case(what="sidecar", run=render(stock, folder, clip, "--model", str(model)))


SIDECAR = """family = "single-shot"
licence = "MIT"
description = "ones"
[input]
name = "x"
layout = "NCHW"
color = "RGB"
width = 16
height = 16
divide_by = "255"
mean = [0.0, 0.0, 0.0]
std = [1.0, 1.0, 1.0]
[[outputs]]
name = "y"
channel = 0
activation = "none"
stretch = "none"
"""


def _changed(rng: random.Random, known: Any) -> Any:
    """Return JSON with one value changed or removed."""
    if isinstance(known, dict) and known and rng.random() < 0.9:
        key = rng.choice(list(known))
        if rng.random() < 0.2:
            return {name: value for name, value in known.items() if name != key}
        return {**known, key: _changed(rng, known[key])}
    if isinstance(known, list) and known and rng.random() < 0.9:
        at = rng.randrange(len(known))
        return [*known[:at], _changed(rng, known[at]), *known[at + 1 :]]
    return rng.choice(_JSON_VALUES)


def _json(rng: random.Random, data: bytes) -> bytes:
    """A JSON file that is damaged, or holds something else."""
    how = rng.random()
    if how < 0.3:
        return mangled(rng, data)
    if how < 0.35:
        return b"[" * _DEPTH
    return json.dumps(_changed(rng, json.loads(data))).encode()


def batch_state(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """The state of a batch, in SQLite, with other values or other bytes; or its receipts."""
    out, clip = folder / "out", folder / "clip.mp4"
    shutil.copy(stock.clip(rng, ".mp4"), clip)
    (out / "clip.mp4").write_bytes(b"made before")
    with BatchState(out) as state:
        state.begin([])
        entry = Entry(output=Path("clip.mp4"), input=clip, number=1, state=FileState.DONE)
        entry.files["clip.mp4"] = describe(out / "clip.mp4")
        entry.made_from = {"input": "1:2"}
        entry.state = rng.choice(list(FileState))
        state.put(entry)
        note_receipt(state.receipt(entry), out / "clip.mp4", out / "clip.mp4")
        receipt = state.receipt(entry)
    path = out / STATE_NAME
    how = rng.choice(("value", "value", "bytes", "receipt"))
    if how == "receipt":
        receipt.write_bytes(_json(rng, receipt.read_bytes()) + b"\n")
    elif how == "bytes":
        path.write_bytes(mangled(rng, path.read_bytes()))
    else:
        with closing(sqlite3.connect(path)) as database, database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(files)")]
            column = rng.choice(columns)
            (before,) = database.execute(f"SELECT {column} FROM files").fetchone()
            value: Any = rng.choice((None, -1, 1.5, b"\0\xff", "x", "\0", "../../up", 2**62))
            if isinstance(before, str) and before[:1] == "{" and rng.random() < 0.8:
                value = _json(rng, before.encode()).decode("latin-1")
            with suppress(sqlite3.Error):
                database.execute(f"UPDATE files SET {column} = ?", (value,))
            how += f" of {column}: {str(value)[:60]!r}"
    flags = rng.choice((["--resume"], ["--overwrite"], ["--skip-existing"], []))
    run = command("batch", str(clip), str(out), *flags, "--dry-run", "-q")
    if rng.random() < 0.5:

        def begin() -> None:
            with BatchState(out, replace_unusable="--overwrite" in flags) as state:
                for each in state.entries.values():
                    state.recover(each)
                state.begin(state.entries.values())

        run = call(begin)
    return Case(what=f"batch state: {how} {flags}", run=run, leaves=None, speaks=True)


def chunk_notes(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """The plan or the manifest of finished chunks, damaged or with something else in it."""
    clip = stock.clip(rng, ".mp4")
    flags = {"segment": {"model": str(stock.ones)}, "": {"chunks": rng.choice((None, 2))}}
    config = build_config(clip, folder / "out" / "out.mkv", preset=None, flags=flags)
    work = WorkFolder(config.output)
    chunks = [
        Chunk(frames=PtsRange(first=first, end=None, index=first), trim_start=0, length=3, began=0)
        for first in (0, 3)
    ]
    work.prepare(config, chunks)
    manifest = work.manifest(0)
    report = RenderReport(
        bgsoft_version="0",
        input="in",
        output="out",
        settings={},
        peak_rss_bytes=1,
        model=ModelReport(name="m", sha256="0", licence="MIT"),
        stages={"decode": StageReport(backend="cpu", device="cpu", ms_per_frame=1.0)},
        events=[Event(kind="notice", message="text")],
    )
    times = array("q", [0, 1, 2])
    result = ChunkResult(
        report=report,
        pre_roll=array("q"),
        kept=times,
        packets=[(times, times)],
        corrupt_packets=0,
        irregular=None,
        faces=None,
        unused={},
    )
    work.finish(0, result)
    path = rng.choice((manifest, work.path / "plan.json"))
    path.write_bytes(_json(rng, path.read_bytes()))
    what = f"{path.name}: {path.read_bytes()[:60]!r}"

    def read() -> None:
        work.prepare(config, chunks)
        for number in range(len(chunks)):
            work.finished(number)

    return Case(what=what, run=call(read), leaves=None)


def capabilities(rng: random.Random, folder: Path, stock: Stock) -> Case:
    """The cache of what hardware can do, damaged or with something else in it."""
    path = cache_root() / "facts.json"
    path.unlink(missing_ok=True)
    CapabilityCache("engines", {"driver": "1"}).put("nvdec H264 8", {"nMaxWidth": 4096})
    path.write_bytes(_json(rng, path.read_bytes()))

    def use() -> None:
        cache = CapabilityCache("engines", {"driver": "1"})
        cache.get("nvdec H264 8")
        cache.put("nvenc", "none")
        assert CapabilityCache("engines", {"driver": "1"}).get("nvenc") == "none"

    return Case(what="capabilities", run=call(use), codes=frozenset({0}), leaves=())


MAKERS: dict[Callable[[random.Random, Path, Stock], Case], int] = {
    preset: 16,
    preset_chain: 2,
    sidecar: 10,
    batch_state: 12,
    chunk_notes: 10,
    capabilities: 5,
}
