"""Standard streams that the caller has closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from bgsoft.cli.main import main
code = main(["presets", "list"])
new = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(2, b"printed by a library")
sys.exit(code if new > 2 else 99)
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_files_never_take_the_place_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    media = tmp_path / "media.bin"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", PROGRAM, str(media)]
    result = subprocess.run(command, timeout=60, capture_output=True, check=False)
    assert result.returncode == 0
    assert media.read_bytes() == b""
