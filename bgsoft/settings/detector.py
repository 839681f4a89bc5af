"""Settings of a detector of the user."""

from __future__ import annotations

from pathlib import Path

from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.settings.setting import is_model_file, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorConfig:
    """A detector whose finds are hidden."""

    file: str | None = setting(
        None,
        "Hide what a detector finds, like number plates or screens: your own ONNX file with a"
        " FILE.toml in the same folder. See docs/models.md.",
        name="detector",
        metavar="FILE.onnx",
        is_path=True,
        without_effect=("no picture",),
    )

    @property
    def sidecar(self) -> Path | None:
        """The TOML file in the same folder."""
        return None if self.file is None else Path(self.file).with_suffix(".toml")

    def __post_init__(self) -> None:
        if self.file is not None and not is_model_file(self.file):
            raise ConfigError(f"--detector must be a file FILE.onnx, not {self.file!r}")
