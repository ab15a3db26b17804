"""Families that are no products stream through the vector units and memories of a design."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from silicast.accelerator.design.chip import GROUP, chip_of
from silicast.accelerator.design.device import main_bytes_per_s
from silicast.accelerator.kernels.mapped import PICO, byte_j
from silicast.core.errors import SilicastError
from silicast.hardware.device import Device
from silicast.kernels.execution_models.fallback_kernels import adapter
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import Energies, most_w, waiting_w
from silicast.kernels.physics.roofline import Rates
from silicast.kernels.registry import register_adapter


@lru_cache(maxsize=1024)
def nest_rates(device: Device, dtype: str) -> Rates:
    """Rates of a design for products in ``dtype``, where it multiplies in that; else in what it
    has.
    """
    c = load_physics(GROUP).constants(device.architecture)
    chip = chip_of(device)
    try:
        device.matrix_pipe(dtype)
    except SilicastError:
        dtype = next(iter(device.core.pipes["tensor"].rate))
    rates = Rates.from_device(device, dtype, c, 1.0)
    arch = chip.design.architecture
    rates = replace(
        rates,
        dram_per_s=min(rates.dram_per_s, main_bytes_per_s(arch)),
        matrix_per_s=rates.matrix_per_s / arch.overhead,
    )
    own_us = chip.content.system.launch_us
    if own_us is not None:
        rates = replace(rates, launch_s=own_us * 1e-6)
    vector = chip.content.vector
    return replace(
        rates,
        energies=_energies(device, dtype, chip.energy_log_sd),
        operations=tuple(vector.operations.items()) if vector else (),
    )


def _energies(device: Device, dtype: str, log_sd: float) -> Energies | None:
    """Joules of what streams do; None where the file does not say what an access takes."""
    chip = chip_of(device)
    if chip.missing_energy:
        return None
    arch = chip.design.architecture
    first, inner = arch.memories[0], arch.memories[1:]
    largest = max(inner, key=lambda memory: memory.usable_words, default=first)
    vector, unit = chip.content.vector, arch.compute.energy_pj or 0.0
    simple = unit if vector is None else vector.energy_pj or 0.0
    special = simple if vector is None else vector.special_energy_pj or simple
    chip_format = chip.content.compute.formats.get(dtype)
    product = (
        unit if chip_format is None or chip_format.energy_pj is None else chip_format.energy_pj
    )
    return Energies(
        operation_j=0.5 * product * PICO,
        simple_j=simple * PICO,
        special_j=special * PICO,
        main_byte_j=byte_j(first),
        chip_byte_j=byte_j(largest),
        static_w=waiting_w(device),
        limit_w=most_w(device),
        log_sd=log_sd,
    )


register_adapter("loop_nest", adapter("loop_nest", GROUP, nest_rates))
