"""All kernel ops of the contract, and the fields that every one takes.

Sizes are rank-local unless the op says otherwise. A dimension in ``lists`` may be a list with one
size a sequence. Ranges are what a scenario may hold; a kernel model may narrow them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

import silicast.scenario.kernel_tables as package
from silicast.scenario.kernel_tables._spec import OpSpec

COMMON = ("op", "dtype", "library", "library_version", "variant", "launch", "cache")
LIBRARIES = (
    "cublas", "cutlass", "deepgemm", "flashinfer", "fa2", "fa3", "fa4", "flashmla", "trtllm",
    "vllm", "sglang", "triton", "torch", "cudnn", "marlin", "deepep", "nccl", "rocblas",
    "hipblaslt", "aiter", "xla", "oneccl", "onednn",
)  # fmt: skip
LAUNCHES = ("graph", "stream")
CACHES = ("cold", "warm")


def _all_ops() -> dict[str, OpSpec]:
    """Every entry of ``OPS`` of every file of the package."""
    found: dict[str, OpSpec] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):
            continue
        own = importlib.import_module(f"{package.__name__}.{module.name}").OPS
        if twice := found.keys() & own.keys():
            raise ValueError(f"two files take {', '.join(sorted(twice))}")
        found |= own
    return found


OPS: Mapping[str, OpSpec] = _all_ops()
