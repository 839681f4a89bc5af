#!/usr/bin/env python3
"""How fast is the GPU path, beside plain decoding on the same GPU?

    python scripts/measure_gpu.py CLIP.mp4 [--loops 4] [--rounds 3] [--json FILE]

Rows, measured in turn, round after round:

- ``decode alone``: PyNvVideoCodec's own ThreadedDecoder over the file, nothing done to the frames;
- ``nvdec``: bgsoft's decoder alone, frames into the ring;
- ``all but encoding``: decode, segment, matte and composite on the GPU, frames thrown away;
- ``one CPU core``: the same stages on one core of the host (fewer frames);
- ``x264``: the same with the CPU encoder (libx264 veryfast, CRF 18), sound copied;
- ``ffmpeg``: a plain transcode with hardware decoding where this ffmpeg has it.

CLIP is joined to itself ``--loops`` times first, without encoding it anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bgsoft.backends import probe_all
from bgsoft.decode.base import DecodeSettings
from bgsoft.frame import Frame
from bgsoft.models.catalog import resolve
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.runner import Pipeline
from bgsoft.presets import build_config
from bgsoft.rendering import render_config
from bgsoft.stages import StageBuilder


class NullSink:
    """Throws frames away, once the device is done with them."""

    def encode(self, frame: Frame) -> None:
        if frame.ready is not None:
            frame.ready.synchronize()

    def finish(self) -> None:
        pass


def joined(clip: Path, loops: int, folder: Path) -> Path:
    """The clip several times over, packets copied."""
    import av

    target = folder / f"loop{clip.suffix}"
    with av.open(str(target), "w") as output:
        offset, stream = 0, None
        for _ in range(loops):
            with av.open(str(clip)) as source:
                video = source.streams.video[0]
                stream = stream or output.add_stream_from_template(video, opaque=True)
                end = offset
                for packet in source.demux(video):
                    if packet.dts is None:
                        continue
                    packet.stream = stream
                    packet.pts += offset
                    packet.dts += offset
                    end = max(end, packet.pts + packet.duration)
                    output.mux(packet)
                offset = end
    return target


def run_pipeline(clip: Path, settings: dict, *, duration: float | None = None) -> tuple[int, float]:
    """(frames, seconds) of decode to composite; set-up is not counted."""
    config = build_config(clip, Path("none.mp4"), flags=settings, duration_seconds=duration)
    metrics = Metrics()
    builder = StageBuilder(config.backends, lambda event: print(f"  {event}", file=sys.stderr))
    model = resolve(config.segment.model)
    decoder = builder.open_decoder(clip, DecodeSettings(duration_seconds=duration))
    stages = builder.make_picture_stages(config, decoder.info, model, metrics, lambda _f: None)
    ring = builder.make_ring(decoder.info.format, stages.held)
    pipeline = Pipeline(decoder=decoder, stage=stages, sink=NullSink(), ring=ring, metrics=metrics)
    result = pipeline.run()
    stages.close()
    frames = len(result.decoded_pts)
    print(
        "  ms a frame: "
        + ", ".join(f"{n} {c.ms_per(frames):.3f}" for n, c in metrics.stages.items()),
        file=sys.stderr,
    )
    if builder.used_device is not None:
        used = builder.used_device.used_bytes() / 1e6
        copies = builder.used_device.copies
        print(
            f"  VRAM in use {used:.0f} MB; per frame {copies.h2d_bytes / frames:.0f} bytes to the "
            f"device, {copies.d2h_bytes / frames:.0f} back",
            file=sys.stderr,
        )
    decoder.close()
    builder.close()
    return frames, result.wall_seconds - result.start_seconds


def threaded_decoder(clip: Path) -> tuple[int, float]:
    import PyNvVideoCodec as nvc  # noqa: N813

    decoder = nvc.ThreadedDecoder(str(clip), 12, gpu_id=0, use_device_memory=True)
    started, frames = None, 0
    while batch := decoder.get_batch_frames(8):
        started = started or time.perf_counter()
        frames += len(batch)
    seconds = time.perf_counter() - (started or 0)
    decoder.end()
    return frames, seconds


def decoder_alone(clip: Path) -> tuple[int, float]:
    builder = StageBuilder(build_config(clip, Path("none.mp4")).backends, lambda _e: None)
    decoder = builder.open_decoder(clip, DecodeSettings())
    ring = builder.make_ring(decoder.info.format)
    started, frames = time.perf_counter(), 0
    for frame in decoder.frames(ring):
        if frame.ready is not None:
            frame.ready.synchronize()
        ring.release(frame)
        frames += 1
    seconds = time.perf_counter() - started
    decoder.close()
    builder.close()
    return frames, seconds


def one_core(clip: Path) -> tuple[int, float]:
    """The CPU twins, held to one core in a process of their own."""
    code = (
        "import os, sys; os.sched_setaffinity(0, {0}); sys.path.insert(0, sys.argv[2]);"
        "import cv2; cv2.setNumThreads(1);"
        "from pathlib import Path; import measure_gpu as m;"
        "cpu = {'backends': dict.fromkeys(('decode', 'infer', 'composite', 'encode'), 'cpu')};"
        "print(*m.run_pipeline(Path(sys.argv[1]), cpu, duration=5.0))"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, str(clip), here], capture_output=True, text=True, check=True
    )
    frames, seconds = done.stdout.split()
    return int(frames), float(seconds)


def with_x264(clip: Path, folder: Path) -> tuple[int, float]:
    target = folder / "x264.mp4"
    config = build_config(
        clip, target, flags={"encode": {"codec": "h264", "quality": 18, "speed": "veryfast"}}
    )
    started = time.perf_counter()
    report = render_config(config)
    seconds = time.perf_counter() - started
    target.unlink()
    return report.frames_encoded, seconds


def ffmpeg_transcode(clip: Path, folder: Path, frames: int) -> tuple[int, float]:
    executable = shutil.which("ffmpeg")
    if executable is None:
        import imageio_ffmpeg

        executable = imageio_ffmpeg.get_ffmpeg_exe()
    target = folder / "ffmpeg.mp4"
    command = [executable, "-v", "error", "-y", "-hwaccel", "cuda", "-i", str(clip)]
    command += ["-c:v", "libx264", "-preset", "veryfast", "-crf", "18", str(target)]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    target.unlink()
    return frames, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clip", type=Path)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", action="append", default=[], help="leave a row out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for stage, (best, *_) in probe_all().items():
        if stage in ("decode", "composite") and not best.available:
            sys.exit(f"this measures the GPU path; {stage} cannot run there: {best.explanation}")
    if not options.clip.is_file():
        sys.exit(f"{options.clip} does not exist")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = joined(options.clip, options.loops, folder)
        frames, _ = decoder_alone(clip)  # warms up the driver, and counts
        rows: dict[str, Callable[[], tuple[int, float]]] = {
            "decode alone": lambda: threaded_decoder(clip),
            "nvdec": lambda: decoder_alone(clip),
            "all but encoding": lambda: run_pipeline(clip, {}),
            "one CPU core": lambda: one_core(clip),
            "x264": lambda: with_x264(clip, folder),
            "ffmpeg": lambda: ffmpeg_transcode(clip, folder, frames),
        }
        results: dict[str, list[float]] = {row: [] for row in rows if row not in options.skip}
        for number in range(options.rounds):
            for row in list(results)[:: 1 if number % 2 == 0 else -1]:
                count, seconds = rows[row]()
                results[row].append(count / seconds)
                print(f"round {number + 1} {row}: {count / seconds:.1f} frames/s", file=sys.stderr)
    print(f"{options.clip.name} x {options.loops}: {frames} frames, {os.cpu_count()} cores")
    for row, rates in results.items():
        print(f"{row:20}{statistics.median(rates):10.1f} frames/s")
    if options.json:
        options.json.write_text(json.dumps({"frames": frames, "rates": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
