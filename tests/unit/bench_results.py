"""Results of a benchmark as ``bgsoft bench --json`` writes them, small."""

from __future__ import annotations

from typing import Any

from bgsoft.bench import baseline

STAGES = {"decode": 1.0, "encode": 3.0}


def stage(group: str, name: str, backend: str, median: float | None, **more: Any) -> dict[str, Any]:
    return {
        "group": group,
        "name": name,
        "backend": backend,
        "details": {},
        "available": median is not None,
        "reason": None if median is not None else "no GPU here",
        "median_ms": median,
        "p95_ms": median,
        "fps": None if median is None else 1000 / median,
        "samples_ms": [] if median is None else [median] * 10,
        **more,
    }


def results(fps: float = 100.0, stage_ms: float = 2.0) -> dict[str, Any]:
    rates = [fps * share for share in (0.99, 1.0, 1.01)]
    missing = (
        *("fps", "run_fps", "startup_s", "speedup", "cpu_load", "psnr_db", "ssim"),
        *("h2d_bytes", "d2h_bytes", "peak_rss_bytes", "peak_vram_bytes"),
    )
    return {
        "schema": baseline.SCHEMA,
        "created": "2026-01-01T00:00:00+00:00",
        "bgsoft_version": "0",
        "settings": {
            "quick": False, "rounds": 3, "preset": "soft", "render": {},
            "command": ["bgsoft", "bench"],
        },
        "hardware": {
            "cpu": "x", "cores": 2, "usable_cores": 2, "memory_bytes": 8 << 30, "os": "Linux",
            "gpu": None, "gpu_reason": "no GPU here",
        },
        "versions": {"numpy": "2"},
        "clip": {
            "name": "<b>a.mp4", "width": 64, "height": 48, "bit_depth": 8, "frames": 60,
            "codec": "h264",
        },
        "phases": [
            {
                "id": 0, "name": "all CPU", "available": True, "reason": None,
                "fps": fps, "fps_samples": rates, "run_fps": fps * 0.9, "run_fps_samples": rates,
                "startup_s": 0.4, "speedup": 1.0, "stage_ms": STAGES, "cpu_load": 0.5,
                "load": {"decode": 0.1, "encode": 0.3},
                "psnr_db": None, "ssim": None, "identical": False,
                "h2d_bytes": 0.0, "d2h_bytes": 0.0,
                "peak_rss_bytes": 300_000_000, "peak_vram_bytes": None,
            },
            {
                "id": 1, "name": "+ GPU inference", "available": False,
                "reason": "infer: no GPU here", "identical": False,
                "fps_samples": [], "run_fps_samples": [], "stage_ms": {}, "load": {},
                **dict.fromkeys(missing),
            },
        ],
        "transcodes": [
            {
                "name": "ffmpeg 9", "available": True, "reason": None, "fps": None,
                "fps_samples": [], "run_fps": 90.0, "run_fps_samples": [89.0, 90.0],
                "ratio": 0.87, "ratio_phase": 0,
            }
        ],
        "bottleneck": {"phase": 0, "stage": "encode", "load": 0.9, "text": "encode-bound: words"},
        "stages": [
            stage("matte", "soft", "cpu", stage_ms),
            stage("matte", "soft", "cuda", None),
            stage(
                "encode", "libx264 veryfast", "cpu", 12.0,
                bitrate_kbps=900.0, vmaf=None, vmaf_reason="no ffmpeg",
            ),
        ],
        "timeline": {
            "phase": 0,
            "t_s": [0.0, 0.5, 1.0, 1.5],
            "counters": {"decoded": [0, 2, 4, 4], "finished": [0, 0, 0, 0]},
            "capacity": {"decoded": 4, "finished": 4},
            "gpu": {"t_s": [0.0, 1.0], "counters": {"sm_pct": [5.0, 40.0]}},
        },
        "tune": {
            "baseline_fps": 40.0, "chosen": {"batch": 4}, "preset": "[backends]\nbatch = 4\n",
            "trials": [
                {"setting": "batch", "value": 1, "fps": 40.0, "samples": [39.0, 41.0]},
                {"setting": "batch", "value": 4, "fps": 44.0, "samples": [43.0, 45.0]},
            ],
        },
        "baseline": None,
    }  # fmt: skip
