"""Kill a batch at random moments, resume it each time, and check every file by ffmpeg.

    python scripts/kill_batch.py [--kills 50] [--files 12] [--seed 1] [FLAGS OF bgsoft batch...]

Files and folders are made in a temporary folder, and removed at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.batch.kill import kill_and_resume

FRAMES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds before a kill, at most")
    options, flags = parser.parse_known_args()
    kills = 0
    seed = options.seed
    while kills < options.kills:
        # A batch that is done before it has been killed often enough is followed by another.
        with tempfile.TemporaryDirectory() as scratch:
            source, target = Path(scratch, "in"), Path(scratch, "out")
            for number in range(options.files):
                path = source / f"folder{number % 3}" / f"clip{number}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=640x360:r=30"]
                make += ["-frames:v", str(FRAMES), "-pix_fmt", "yuv420p", str(path)]
                subprocess.run(make, check=True)
            kills += kill_and_resume(
                source,
                target,
                FRAMES,
                kills=options.kills - kills,
                longest_seconds=options.longest,
                flags=flags,
                seed=seed,
                tell=print,
            )
        print(f"batch {seed}: complete and whole; {kills} kills", flush=True)
        seed += 1
    print(f"{kills} kills, no file that is not whole")


if __name__ == "__main__":
    main()
