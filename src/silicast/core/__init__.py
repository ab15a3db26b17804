"""What every layer shares: errors, names, number formats, fixed-order numerics and predictions."""

from time import time_ns

LOADED_NS = time_ns()
"""When the package was loaded, in ns since 1970: all its other modules are read later."""
