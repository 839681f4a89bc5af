"""Keywords that :mod:`bgsoft.api` passes on; their help is that of ``bgsoft.render``.

``scripts/make_keywords.py`` writes them, from :mod:`bgsoft.settings.config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

from bgsoft.settings import config

FilePath: TypeAlias = str | PathLike[str]
Off: TypeAlias = Literal["off", "none", "auto"]
"""Values that switch a numeric setting off; None is «not given»."""


class PictureSettings(TypedDict, total=False):
    """Settings of one picture."""

    effect: (
        config.EffectKind
        | Literal["blur", "bokeh", "pixelate", "dim", "color", "image", "video", "alpha", "matte"]
        | None
    )
    strength: float | Off | None
    background: FilePath | None
    invert: bool | None
    model: FilePath | None
    matte: config.MatteQuality | Literal["fast", "standard", "best"] | None
    matte_in: FilePath | None
    matte_mode: config.MatteMode | Literal["replace", "max", "min"] | None
    matte_match: config.MatteMatch | Literal["frame", "time"] | None
    face: config.FaceMode | Literal["off", "guard", "main", "anonymize"] | None
    subjects: int | None
    main: str | Sequence[str] | None
    faces: FilePath | None
    small_faces: bool | None
    hide: str | Sequence[str] | None
    anonymize_style: config.HideStyle | Literal["blur", "pixelate", "solid"] | None
    anonymize_shape: config.HideShape | Literal["ellipse", "box"] | None
    anonymize_margin: float | None
    regions: FilePath | None
    keep: str | Sequence[str] | None
    drop: str | Sequence[str] | None
    detector: FilePath | None
    threshold: float | Off | None
    softness: float | None
    min_area: float | None
    smooth: float | None
    expand: float | None
    feather: float | None
    refine: config.Refine | Literal["none", "guided"] | None
    infer: config.InferBackend | Literal["auto", "tensorrt", "cuda", "cpu"] | None
    composite: config.CompositeBackend | Literal["auto", "cuda", "cpu"] | None
    gpu: int | Off | None
    require_gpu: bool | None
    precision: config.Precision | Literal["fp32", "fp16"] | None
    threads: int | None


class FrameSettings(PictureSettings, total=False):
    """Settings of consecutive frames, in addition to those of one picture."""

    mask_every: int | None
    similarity: float | Off | None
    face_every: int | Off | None
    temporal: float | None
    decode: config.DecodeBackend | Literal["auto", "nvdec", "cpu"] | None
    batch: int | Off | None
    stall: float | str | None
    start: float | str | None
    duration: float | str | None


class RenderSettings(FrameSettings, total=False):
    """Settings of written files, in addition to those of frames."""

    codec: (
        config.Codec
        | Literal["auto", "h264", "hevc", "av1", "prores", "vp9", "ffv1", "raw", "gif", "webp"]
        | None
    )
    quality: int | Off | None
    speed: str | None
    chroma: config.Chroma | Literal["auto", "420", "keep"] | None
    encoder_option: str | Sequence[str] | None
    audio: config.Audio | Literal["keep", "none"] | None
    mute: str | Sequence[str] | None
    metadata: config.Metadata | Literal["auto", "keep", "strip"] | None
    encode: config.EncodeBackend | Literal["auto", "nvenc", "cpu"] | None
    fps: float | Off | None
    face_data: FilePath | None
    format: (
        config.OutputFormat
        | Literal["auto", "mp4", "mov", "mkv", "webm", "ts", "avi", "nut", "y4m", "gif", "webp"]
        | None
    )
    matte_out: FilePath | None
    overwrite: bool | None
    skip_existing: bool | None
    report: FilePath | None
    chunks: int | Off | None
    trace: FilePath | None
