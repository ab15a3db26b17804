"""``python -m silicast`` is the command ``silicast``."""

import sys

from silicast.app.cli import main

sys.exit(main())
