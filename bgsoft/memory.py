"""How much memory this process has used."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["peak_rss_bytes"]


def peak_rss_bytes() -> int:
    """The largest resident set of this process so far, bytes.

    Read from Linux' ``VmHWM``: ``getrusage`` also counts the process that started this one, up to
    the moment it was replaced.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
