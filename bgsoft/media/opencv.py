"""OpenCV's decoder of pictures, without its messages about damaged ones on stderr."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import cv2
import numpy as np
from numpy.typing import NDArray

from bgsoft.media.planes import Plane

_set_log_level = getattr(cv2, "setLogLevel", None) or cv2.utils.logging.setLogLevel
"""OpenCV 5 has it in another place than OpenCV 4. Returns the level before."""
_SILENT = 0

_lock = threading.Lock()
_inside = 0
"""How many want it silent now, in all threads."""
_level = _SILENT
"""Log level before the first of them."""


@contextmanager
def silent_opencv() -> Iterator[None]:
    """OpenCV logs nothing, in the whole process, as long as anybody is in here."""
    global _inside, _level
    with _lock:
        _inside += 1
        if _inside == 1:
            _level = _set_log_level(_SILENT)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _set_log_level(_level)


def decode_picture(data: NDArray[np.uint8], flags: int) -> Plane | None:
    """Decode the bytes of a picture file; None where that cannot be done.

    Args:
        data: The file.
        flags: ``cv2.IMREAD_…``.

    Returns:
        (H, W) or (H, W, channels), blue first.
    """
    with silent_opencv():
        try:
            return cv2.imdecode(data, flags)
        except cv2.error:
            return None
