"""A measured kernel by its names, diagnosed.

>>> kernel = {"op": "moe", "tokens": 64, "experts": 128, "topk": 8, "hidden": 2048,
...           "intermediate": 768, "part": "w13"}
>>> diagnosis = diagnose(kernel, "H20", [420.0, 421.0, 423.0])
>>> abs(sum(diagnosis.causes_us.values()) - diagnosis.measured_us) < 1e-6
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from silicast.kernels.configuration import of_pairs, read_configuration
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.scenario.resolve import find_any_device
from silicast.tuning.diagnosis import Diagnosis, Measured, diagnose_measured


def measured_kernel(
    kernel: Mapping[str, Any],
    device: str | dict[str, Any],
    measured_us: Sequence[float],
    configuration: Mapping[str, Any] | None = None,
    folder: Path = Path(),
) -> Measured:
    """What was measured, with its names resolved; see :func:`diagnose`."""
    op, board = kernel_case(kernel).op, find_any_device(device, folder)
    stated = op.variant.config
    op = replace(op, variant=replace(op.variant, config=()))
    one = read_configuration(configuration) if configuration else None
    if one is None and stated:
        one = of_pairs(stated)
    return Measured(op, one, board, tuple(measured_us))


def diagnose(
    kernel: Mapping[str, Any],
    device: str,
    measured_us: Sequence[float],
    *,
    configuration: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Diagnoses one measured kernel.

    Args:
        kernel: as a scenario's ``kernel`` table: moe (w13 or w2) or gemm.
        device: catalog name, or path to a device file.
        measured_us: repeats.
        configuration: that ran; None = what the kernel's table states, else the likeliest.

    Raises:
        SilicastError: no such kernel or device, no measurement, one that is faster than its bound,
            or a configuration that the device cannot run.
    """
    return diagnose_measured(measured_kernel(kernel, device, measured_us, configuration))
