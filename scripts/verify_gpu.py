#!/usr/bin/env python3
"""Does every stage of bgsoft work on this machine's NVIDIA GPU? One command, one table.

    python scripts/verify_gpu.py [--gpu 0] [--require-gpu] [--json FILE] [--only GROUP ...]

Groups, in order: environment, memory, decode, inference, parity, mattes, encode, combinations,
exit. Each row passes, fails or is skipped, with figures or the reason. Whatever has a reference on
the CPU is compared with it. Skipped is what is not installed or what this GPU's own answer leaves
out; what should run and does not has failed. Without a GPU the CPU rows still run.

``--only mattes --model rvm-mobilenetv3 --clip CLIP.mp4`` compares the mattes that a model makes of
a clip; unless told, those of all models that are here, on the sample.

The exit code is 0 where nothing failed, 4 where the GPU that was named is not there; with
``--require-gpu`` a skipped row counts as failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

from bgsoft import backends
from bgsoft.config import Codec, Precision
from bgsoft.doctor import examine
from bgsoft.errors import BackendUnavailableError, BgsoftError, VerificationError
from bgsoft.frame import PixelLayout
from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog, resolve, spec_path
from bgsoft.selftest import parity
from bgsoft.selftest.checks import LEAST_MATTE_DB, Checks, Finding, SkippedError
from bgsoft.selftest.clips import CLIPS

SAMPLE = Path(__file__).parents[1] / "samples" / "person.mp4"

Rows = Iterator[tuple[str, Callable[[], Finding]]]
"""(name, check) of each row of a group."""


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    status: str
    detail: str
    seconds: float


def environment(checks: Checks, gpu: int) -> Rows:
    report = examine(gpu, self_test=False)

    def render_needs() -> Finding:
        if report.problems:
            raise VerificationError(report.problems[0])
        return Finding(", ".join(f"{n} {v}" for n, v in report.versions.items() if v))

    def describe() -> Finding:
        checks.device  # noqa: B018 - starts it
        found = report.gpu
        if found is None:
            raise VerificationError("the GPU cannot be described")
        return Finding(
            f"{found.name}, {found.memory_bytes / 2**30:.0f} GiB, compute capability "
            f"{found.compute_capability}, driver {found.driver}, CUDA runtime {found.runtime}"
        )

    yield "a render on the CPU", render_needs
    yield "GPU", describe


def decode(checks: Checks) -> Rows:
    for backend, spec in product(("cpu", "nvdec"), CLIPS):
        yield f"{backend} {spec.name}", partial(checks.decode, backend, spec)


def inference(checks: Checks) -> Rows:
    models = [m.name for m in catalog().values() if m.embedded and m.family == "single-shot"]
    choices = [("cpu", Precision.FP32), *product(("cuda", "tensorrt"), Precision)]
    for model, (backend, precision) in product(models, choices):
        yield (
            f"{model} {backend} {precision}",
            partial(checks.infer, backend, model, precision),
        )


def pictures(checks: Checks) -> Rows:
    def raised(error: Exception) -> Finding:
        raise error

    def judge(found: parity.Parity) -> Finding:
        figures = (
            f"max {found.max_difference:.3g}, mean {found.mean_difference:.2g}, "
            f"allowed: {found.tolerance}"
        )
        if not found.ok:
            raise VerificationError(figures)
        return Finding(figures)

    try:
        checks.need("composite", "cuda")
        side = parity.CudaSide(checks.device)
        for result in parity.measure_parity(side, resolve("selfie-general").spec):
            yield result.name, partial(judge, result)
    except Exception as exc:  # the rows that are left cannot be run
        yield "reduce, preprocess, matte, composite", partial(raised, exc)


def mattes(checks: Checks, model: str | None, clip: Path) -> Rows:
    models = [
        spec.name
        for spec in catalog().values()
        if spec.family in SEGMENTATION_FAMILIES and spec_path(spec).is_file()
    ]
    choices = product([model] if model else models, LEAST_MATTE_DB, ("cuda", "cpu"))
    for name, infer, composite in choices:
        yield (
            f"{Path(name).stem} {infer} {composite}",
            partial(checks.mattes, clip, name, infer, composite),
        )


def encode(checks: Checks) -> Rows:
    kinds = (
        ("h264", Codec.H264, PixelLayout.NV12),
        ("hevc", Codec.HEVC, PixelLayout.NV12),
        ("hevc10", Codec.HEVC, PixelLayout.P010),
        ("av1", Codec.AV1, PixelLayout.NV12),
    )
    for backend, (name, codec, layout) in product(("cpu", "nvenc"), kinds):
        yield f"{backend} {name}", partial(checks.encode, backend, codec, layout)


def combinations(checks: Checks) -> Rows:
    names = [[c.name for c in checks.stages[stage]][::-1] for stage in backends.STAGES]
    for chosen in product(*names):
        by_stage = dict(zip(backends.STAGES, chosen, strict=True))
        yield " ".join(chosen), partial(checks.combination, by_stage)


def groups(checks: Checks, options: argparse.Namespace, gpu: int) -> dict[str, Rows]:
    return {
        "environment": environment(checks, gpu),
        # Memory comes early: what other rows leave in the process would blur it.
        "memory": iter([("flat over a long render", checks.memory)]),
        "decode": decode(checks),
        "inference": inference(checks),
        "parity": pictures(checks),
        "mattes": mattes(checks, options.model, options.clip),
        "encode": encode(checks),
        "combinations": combinations(checks),
        "exit": iter([("a process ends without a CUDA error", checks.exit)]),
    }


def run_row(group: str, name: str, check: Callable[[], Finding], verbose: bool) -> Row:
    started = time.perf_counter()
    try:
        found = check()
        ms = found.ms_per_frame
        status, detail = "pass", found.detail if ms is None else f"{ms:.2f} ms, {found.detail}"
    except SkippedError as exc:
        status, detail = "skip", exc.message
    except Exception as exc:  # whatever it is, it is this row's result
        if verbose:
            traceback.print_exc()
        what = "" if isinstance(exc, BgsoftError) else f"{type(exc).__name__}: "
        status, detail = "FAIL", what + " ".join(str(exc).split())
    return Row(group, name, status, detail, time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, metavar="N")
    parser.add_argument("--require-gpu", action="store_true", help="skipped rows count as failed")
    parser.add_argument("--only", nargs="+", metavar="GROUP")
    parser.add_argument("--model", metavar="NAME", help="of the group mattes; also FILE.onnx")
    parser.add_argument("--clip", type=Path, default=SAMPLE, metavar="FILE", help="of the same")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of failures")
    options = parser.parse_args()
    try:
        gpu = backends.chosen_gpu(options.gpu)
    except BackendUnavailableError as exc:
        parser.exit(4, f"{exc}\n")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        found = groups(Checks(Path(name), gpu), options, gpu)
        unknown = set(options.only or ()) - set(found)
        if unknown:
            parser.error(f"--only: {', '.join(sorted(unknown))}: choose from {', '.join(found)}")
        for group in options.only or found:
            print(group)
            for title, check in found[group]:
                row = run_row(group, title, check, options.verbose)
                rows.append(row)
                print(f"  {row.status}  {row.name:<40} {row.detail}", flush=True)
    counts = {s: sum(row.status == s for row in rows) for s in ("pass", "FAIL", "skip")}
    print(f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    if options.json:
        result = {"counts": counts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return int(counts["FAIL"] > 0 or (options.require_gpu and counts["skip"] > 0))


if __name__ == "__main__":
    sys.exit(main())
