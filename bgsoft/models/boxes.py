"""The contract of detectors: the table ``[boxes]`` of a sidecar of the family ``boxes``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from bgsoft.errors import ConfigError
from bgsoft.records import dataclass
from bgsoft.suggestions import did_you_mean

BOXES = "boxes"
"""Name of the family, and of its table in a sidecar."""


class BoxLayout(StrEnum):
    """Arrangement of a detector's output, (batch, …).

    A box is its centre's x and y, its width and its height, in pixels of the input.
    """

    YOLOV8 = "yolov8"
    """(4 + classes, N): the box, then a score for each class."""
    YOLOV5 = "yolov5"
    """(N, 5 + classes): the box, a score for any object, and a factor for each class."""

    def values(self, classes: int) -> int:
        """Return how many numbers describe a box."""
        return classes + (4 if self is BoxLayout.YOLOV8 else 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxContract:
    """Meaning of a detector's output, and what of it is hidden."""

    layout: BoxLayout
    classes: tuple[str, ...]
    """Names, in the output's order."""
    hide: tuple[str, ...]
    """Names of those that are hidden."""
    threshold: float = 0.2
    """Score from which a box is hidden, in (0, 1). Low: in doubt a place is hidden."""
    nms: float = 0.5
    """Boxes of one class whose intersection over union is more than this, in (0, 1], count as one.
    """


BOX_KEYS = tuple(BoxContract.__dataclass_fields__)


def read_boxes(table: object, family: str) -> BoxContract | None:
    """Read the table ``[boxes]`` of a model; None for other families, which have none.

    Raises:
        ConfigError: A value is missing or wrong.
    """
    if family != BOXES:
        if table is not None:
            raise ConfigError('[boxes] is for family = "boxes"')
        return None
    if not isinstance(table, Mapping):
        raise ConfigError('family = "boxes" needs [boxes] layout and classes')
    layout = table.get("layout")
    if layout not in [known.value for known in BoxLayout]:
        near = did_you_mean(layout, BoxLayout) if isinstance(layout, str) else ""
        raise ConfigError(f"[boxes] layout must be {' or '.join(BoxLayout)}, not {layout!r}{near}")
    classes = _names(table, "classes")
    hide = _names(table, "hide") if "hide" in table else classes
    for name in hide:
        if name not in classes:
            near = did_you_mean(name, classes)
            raise ConfigError(f"[boxes] hide names {name!r}, which is none of its classes{near}")
    return BoxContract(
        layout=BoxLayout(layout),
        classes=classes,
        hide=hide,
        **{key: _share(table, key) for key in ("threshold", "nms") if key in table},
    )


def _names(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = table.get(key)
    is_list = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if not is_list or not names:
        raise ConfigError(f"[boxes] {key} must be a list of names, not {names!r}")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ConfigError(f"[boxes] {key} names {twice!r} twice")
    return tuple(names)


def _share(table: Mapping[str, Any], key: str) -> float:
    value = table[key]
    may_be_one = key == "nms"
    is_number = type(value) in (int, float)
    if not is_number or not (0 < value < 1 or (may_be_one and value == 1)):
        up_to = "up to" if may_be_one else "and below"
        raise ConfigError(f"[boxes] {key} must be above 0 {up_to} 1, not {value!r}")
    return float(value)
