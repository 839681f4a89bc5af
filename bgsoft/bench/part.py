"""Part of a render, as a program: ``python -m bgsoft.bench.part PART IN SETTINGS.toml [SECONDS]``.

PART is a part of the pipeline of a render with these settings: all but the encoder (``picture``),
the same in N parallel chunks (``chunks=N``), or the decoder alone (``decode``). One line
of JSON on stdout has ``frames``, ``wall_s`` and ``first_frame_s``, as in a render's report; that of
chunks has only ``frames``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bgsoft.bench.floor import decode_alone, render_picture
from bgsoft.bench.side_by_side import render_chunks
from bgsoft.exitcodes import exit_code, one_line
from bgsoft.rendering.configure import build_config
from bgsoft.threads import use_batch_scheduling


def main(argv: list[str]) -> int:
    """Run as a program; exit codes as ``bgsoft``'s."""
    part, source, settings, *seconds = argv
    use_batch_scheduling()
    try:
        config = build_config(
            Path(source),
            Path("none.mp4"),
            preset=settings,
            duration_seconds=float(seconds[0]) if seconds else None,
        )
        kind, _, count = part.partition("=")
        if kind == "chunks":
            made = render_chunks(config, int(count))
        else:
            made = render_picture(config) if kind == "picture" else decode_alone(config)
    except Exception as exc:
        print(f"bgsoft: error: {one_line(exc)}", file=sys.stderr)
        return exit_code(exc)
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
