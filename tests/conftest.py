"""Random cases: the same ones in every `make test`, fresh ones in `make test-full`.

A run that lands or blocks a change must not depend on luck, nor on how busy the machine is;
`make test-full` sets ``SILICAST_FRESH_CASES`` and looks for new counterexamples.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, print_blob=True, deadline=None)
settings.register_profile("fresh", print_blob=True, deadline=None)
settings.load_profile("fresh" if os.environ.get("SILICAST_FRESH_CASES") else "repeatable")
