"""Settings of the machine: where each stage runs."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.settings.setting import check_ranges, setting


class DecodeBackend(StrEnum):
    AUTO = "auto"
    NVDEC = "nvdec"
    CPU = "cpu"


class InferBackend(StrEnum):
    AUTO = "auto"
    TENSORRT = "tensorrt"
    CUDA = "cuda"
    CPU = "cpu"


class CompositeBackend(StrEnum):
    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class EncodeBackend(StrEnum):
    AUTO = "auto"
    NVENC = "nvenc"
    CPU = "cpu"


class Precision(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """Backends of the stages, and the machine's resources."""

    decode: DecodeBackend = setting(DecodeBackend.AUTO, "Backend for decoding.")
    infer: InferBackend = setting(InferBackend.AUTO, "Backend for the models.")
    composite: CompositeBackend = setting(CompositeBackend.AUTO, "Backend for matte and effect.")
    encode: EncodeBackend = setting(EncodeBackend.AUTO, "Backend for encoding.")
    gpu: int | None = setting(
        None,
        "Number of the GPU, from 0.",
        range=(0, 63),
        shown_default="the first",
        without_effect=("all on the CPU",),
    )
    require_gpu: bool = setting(False, "Fail instead of running any stage on the CPU.")
    batch: int | None = setting(
        None, "Frames processed at a time, {range}, or auto.", range=(1, 64), shown_default="auto"
    )
    precision: Precision = setting(Precision.FP32, "Number format of the models.")
    ring_slots: int | None = setting(None, range=(4, 256))
    """Frame slots, a power of two from 4 to 256; None: chosen by the device."""
    threads: int = setting(
        0, "Number of cores to use, 1 to 256; 0: all. x264 ignores it.", range=(0, 256)
    )
    stall_seconds: float | None = setting(
        300.0,
        "Fail if no frame passes any stage for this time; off: wait for ever.",
        name="stall",
        metavar="TIME|off",
        range=(1, math.inf),
        unit=" seconds",
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.ring_slots is not None and self.ring_slots & (self.ring_slots - 1):
            raise ConfigError(f"ring_slots must be a power of two, not {self.ring_slots}")

    @property
    def cores(self) -> int:
        """Cores to plan for: :attr:`threads`, or all that there are."""
        from bgsoft.threads import usable_cores  # settings alone are read without its threads

        return self.threads or usable_cores()

    def on_cpu(self) -> BackendConfig:
        """Return these settings with every stage on the CPU."""
        return replace(
            self,
            decode=DecodeBackend.CPU,
            infer=InferBackend.CPU,
            composite=CompositeBackend.CPU,
            encode=EncodeBackend.CPU,
        )
