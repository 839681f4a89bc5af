"""The program's process: whether it ends with its command, and how it ends from a signal."""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

ends_after_command = False
"""Whether the process ends with its command; otherwise somebody has called ``main``."""


def exit_at_once(code: int, why: str) -> NoReturn:
    """End because of a signal, with one line on stderr if that takes it.

    In a signal's handler, the interrupted thread may hold the console's lock. A pipe may be full,
    with nobody reading it.
    """
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"bgsoft: error: {why}\n".encode())
    finally:
        os._exit(code)
