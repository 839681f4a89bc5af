"""A hostile case: what is in its folder, and what is done with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bgsoft.cli.main import main
from bgsoft.errors import BgsoftError
from bgsoft.exitcodes import exit_code

ABSURD = (0, 1, 2, 255, 65535, 99_999, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**63, 2**64 - 1)
"""Numbers that readers of headers get wrong."""
NEVER_OPENED = "secret.mp4"
"""A good video beside the cases' folders that nothing may lead to."""


@dataclass(frozen=True, kw_only=True)
class Stock:
    clips: list[Path]
    """Good videos of 64x48, one of each container and codec."""
    ones: Path
    """A model that takes everything for a person: nothing is changed then."""
    secret: Path
    """:data:`NEVER_OPENED`."""
    port: int
    """Port of a listener on this machine that must receive nothing."""

    def clip(self, rng: random.Random, *suffixes: str) -> Path:
        """One of the clips, perhaps of those with certain suffixes only."""
        return rng.choice([clip for clip in self.clips if not suffixes or clip.suffix in suffixes])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command in a folder that contains the input."""

    what: str
    """For people."""
    run: Callable[[], int]
    """Does it; the exit code."""
    source: Path | None = None
    """The video whose frames must be in ``out/out.mkv`` where the code is 0."""
    codes: frozenset[int] | None = None
    """The only exit codes that are right; None: any that is documented."""
    leaves: tuple[str, ...] | None = ("out.mkv", "report.json")
    """Contents of ``out`` if the exit code is 0; None: not checked."""
    speaks: bool = False
    """It prints more than what went wrong."""


OUTPUT = Path("out", "out.mkv")
REPORT = Path("out", "report.json")
_CPU = [
    *("--decode", "cpu", "--infer", "cpu", "--composite", "cpu", "--encode", "cpu"),
    *("--face", "off", "--matte", "fast", "--refine", "none", "--effect", "dim", "-q"),
]


def render(stock: Stock, folder: Path, source: Path, *flags: str) -> Callable[[], int]:
    """Render a video in a case's folder as fast as can be, losslessly, changing nothing."""
    argv = ["render", str(source), str(folder / OUTPUT), "--report", str(folder / REPORT)]
    model = [] if "--model" in flags else ["--model", str(stock.ones)]
    return command(*argv, "--codec", "ffv1", *_CPU, *model, *flags)


def command(*argv: str) -> Callable[[], int]:
    return lambda: main(list(argv))


def call(work: Callable[[], object]) -> Callable[[], int]:
    """Call something inside the package; its errors must be the documented ones."""

    def run() -> int:
        try:
            work()
        except BgsoftError as exc:
            return exit_code(exc)
        return 0

    return run


def flipped(rng: random.Random, data: bytes, count: int) -> bytes:
    """Return data with some bits flipped."""
    changed = bytearray(data)
    for _ in range(count if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Return data damaged as by accident or by an attacker."""
    length = max(1, len(data))
    at, size = rng.randrange(length), min(length, 1 << rng.randrange(10))
    how = rng.randrange(8)
    if how <= 2:
        return flipped(rng, data, 1 << rng.randrange(9))
    if how == 3:
        return data[:at]
    if how == 4:
        return data[:at] + data[at + size :]
    if how == 5:
        return data[:at] + data[at : at + size] * rng.randrange(2, 5) + data[at + size :]
    if how == 6:
        number = rng.choice(ABSURD) & (2**32 - 1)
        return data[:at] + number.to_bytes(4, rng.choice(("big", "little"))) + data[at + 4 :]
    parts = [data[i : i + size] for i in range(0, length, size)]
    first, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[first], parts[other] = parts[other], parts[first]
    return b"".join(parts)
