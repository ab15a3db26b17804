"""Which kernels sweeps timed under all their configurations: of these the best time is known."""

from __future__ import annotations

from silicast.hardware.device import Device
from silicast.learning.configuration_ranking import shipped_ranker
from silicast.workload.graphs.op import Op

SWEPT_FORMATS = ("bf16", "fp16")


def is_swept(op: Op, device: Device) -> bool:
    """Whether such kernels were swept on the device: fused experts in 16 bits."""
    formats = op.family == "moe" and op.variant.dtype in SWEPT_FORMATS
    return formats and device.name in shipped_ranker().card.devices
