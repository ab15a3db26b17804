"""Benchmarks of kernels that ``silicast measure`` times, one family a file.

>>> "gemm" in BENCHES
True
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from silicast.measurement.benches.bench import Bench, registered

__all__ = ["BENCHES"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

BENCHES: Mapping[str, Bench] = MappingProxyType(dict(sorted(registered().items())))
"""Op -> its bench."""
