"""``python -m bgsoft``."""

import sys

from bgsoft.cli.main import main

sys.exit(main())
