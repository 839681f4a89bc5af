from __future__ import annotations

from contextlib import ExitStack

import cv2
import numpy as np

from bgsoft.media.opencv import decode_picture, silent_opencv

log_level = getattr(cv2, "getLogLevel", None) or cv2.utils.logging.getLogLevel


def test_the_level_comes_back_once_all_have_left() -> None:
    before = log_level()
    assert before > 0
    first, second = ExitStack(), ExitStack()
    first.enter_context(silent_opencv())
    second.enter_context(silent_opencv())
    first.close()
    assert log_level() == 0
    second.close()
    assert log_level() == before


def test_damage_is_none_and_the_level_comes_back() -> None:
    before = log_level()
    _, data = cv2.imencode(".png", np.full((64, 64, 3), 7, np.uint8))
    assert decode_picture(data, cv2.IMREAD_COLOR) is not None
    for damaged in (data[:60], data[:0]):
        assert decode_picture(damaged, cv2.IMREAD_COLOR) is None
    assert log_level() == before
