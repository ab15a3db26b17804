"""What ``silicast measure`` can time, one op a file.

>>> "gemm" in BENCHES
True
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from silicast.measurement.benches.bench import Bench, registered
from silicast.measurement.benches.ranges import Ranges, Size

__all__ = ["BENCHES", "Bench", "Ranges", "Size"]

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

BENCHES: Mapping[str, Bench] = MappingProxyType(dict(sorted(registered().items())))
"""Op -> its bench."""
