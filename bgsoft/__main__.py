"""``python -m bgsoft``."""

from bgsoft.cli.main import run

run()
