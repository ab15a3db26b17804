"""Whether PyTorch may multiply fp32 in TF32 on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@contextmanager
def tf32_for(kernel: Columns, machine: Machine) -> Iterator[None]:
    """Products and convolutions in TF32 where the kernel's dtype is tf32, and never else: cuDNN
    takes it for fp32 unless it is told. What was set before is set again; a CPU has none.
    """
    if machine.kind == "cpu":
        yield
        return

    import torch

    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = kernel.get("dtype") == "tf32"
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.allow_tf32 = was
