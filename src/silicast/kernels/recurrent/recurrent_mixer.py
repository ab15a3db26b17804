"""Recurrent token mixers: a convolution and a recurrence, one kernel each.

Gated delta networks (Qwen3-Next, Qwen3.5), Kimi delta attention and Mamba 2.

Flags of the variant: ``generation`` or ``verify`` (neither = context, a prefill), ``conv`` or
``scan`` (one of the two kernels; neither = both, one after the other). ``Variant.kernel`` names
the source's kernel and stands for the flag.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.recurrent.recurrent_model import (
    Constants,
    Kind,
    MixerTimes,
    Phase,
    estimate,
    is_known,
    kind_of,
    style_of,
)
from silicast.kernels.recurrent.recurrent_work import (
    MixerShape,
    RecurrentWork,
    Sizes,
    conv_work,
    delta_shape,
    recurrence_work,
    ssm_shape,
)
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.library_file import RecurrentStyle

PHYSICS = "linear_attention"
PHASES: tuple[Phase, ...] = ("context", "generation", "verify")


def phase_of(variant: Variant) -> Phase:
    """The phase among a variant's flags.

    >>> phase_of(Variant(flags=(("verify", True),)))
    'verify'
    """
    text: Phase = "context"
    for phase in PHASES:
        if variant.flag(phase):
            text = phase
    return text


def kinds_of(variant: Variant) -> tuple[Kind, ...]:
    """Which of the mixer's kernels a variant asks for."""
    named = kind_of(variant.kernel)
    if named is not None:
        return (named,)
    if variant.flag("conv"):
        return ("conv",)
    return ("scan",) if variant.flag("scan") else ("conv", "scan")


@final
@dataclass(frozen=True, slots=True)
class MixerSetting:
    """One kernel's style and its constants on one device."""

    style: RecurrentStyle
    constants: Constants
    measured: bool


class RecurrentKernel(Implementation):
    """A mixer of a convolution and a recurrence; subclasses state its shape."""

    group: ClassVar[str] = PHYSICS
    takes_numbers: ClassVar[bool] = True
    unmarked_flags: ClassVar[frozenset[str]] = frozenset({"conv", "scan"})  # the style says which
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp16")

    @abstractmethod
    def shape(self, sizes: Sizes, element: int) -> MixerShape:
        """The mixer's shape; arithmetic that serves integers and float64 arrays."""

    @final
    def work(self, shape: MixerShape, style: RecurrentStyle, element: int) -> RecurrentWork:
        """What one kernel does."""
        if style.kind == "conv":
            return conv_work(
                shape, element, keys_only=style.keys_only, every_state=style.states == "every"
            )
        return recurrence_work(shape, element, states=style.states)

    @final
    def flops(self, op: Op) -> int:
        """Exact useful operations of the kernels asked for; an FMA counts 2."""
        return sum(int(work.flops) for work in self._exact(op))

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes that must move once: rows in and out, weights of the taps, states."""
        return sum(int(work.least_bytes) for work in self._exact(op))

    def _exact(self, op: Op) -> list[RecurrentWork]:
        element = element_bytes(op.variant.dtype)
        shape = self.shape(dict(op.dims), element)
        phase, variant = phase_of(op.variant), op.variant
        styles = (style_of(self.family, k, phase, variant, "") for k in kinds_of(variant))
        return [self.work(shape, style, element) for style in styles]

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        settings = [
            setting_of(self.family, kind, batch.variant, device) for kind in kinds_of(batch.variant)
        ]
        return self.analyse_with(batch, device, settings)

    @final
    def analyse_with(
        self, batch: OpBatch, device: Device, settings: list[MixerSetting]
    ) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        element = element_bytes(batch.variant.dtype)
        sizes = {name: xp.float64(values) for name, values in batch.dims.items()}
        shape = self.shape(sizes, element)
        parts = [
            _MixerKernel(
                setting,
                work := self.work(shape, setting.style, element),
                estimate(
                    shape,
                    work,
                    setting.style.chunk or shape.chunk,
                    setting.style.align or shape.chunk,
                    device,
                    setting.constants,
                    batch.variant.cache,
                ),
            )
            for setting in settings
        ]
        return _analysis(parts, batch.variant, device)

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        settings = [setting_of(self.family, kind, variant, device) for kind in kinds_of(variant)]
        c = settings[0].constants
        return {
            f"device:{device.name}": c["device_log_sd"],
            f"family:{self.family}": c["family_log_sd"],
        }

    @final
    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Implementation.style`: of each kernel asked for."""
        kinds = kinds_of(variant)
        return "+".join(setting_of(self.family, k, variant, device).style.name for k in kinds)

    @final
    def is_measured(self, variant: Variant, device: Device) -> bool:
        """Whether these kernels were timed on the device's architecture."""
        settings = [setting_of(self.family, kind, variant, device) for kind in kinds_of(variant)]
        return is_known(self.family, variant.kernel) and all(
            setting.measured for setting in settings
        )


@lru_cache(maxsize=4096)
def setting_of(family: str, kind: Kind, variant: Variant, device: Device) -> MixerSetting:
    """The style of a kernel and its constants on ``device``."""
    physics = load_physics(PHYSICS)
    style = style_of(family, kind, phase_of(variant), variant, device.architecture)
    architecture = physics.architectures.get(device.architecture, {})
    table = physics.constants(device.architecture)
    measured = f"{style.name}.launch_s" in architecture
    return MixerSetting(style, constants_of(table, style.name), measured)


def constants_of(table: Mapping[str, float], style: str) -> dict[str, float]:
    """The constants of one style under their plain names; its own win over those of all.

    >>> constants_of({"a": 1.0, "conv.a": 2.0, "scan.a": 3.0}, "conv")
    {'a': 2.0}
    """
    constants = {name: value for name, value in table.items() if "." not in name}
    prefix = f"{style}."
    for name, value in table.items():
        if name.startswith(prefix):
            constants[name.removeprefix(prefix)] = value
    return constants


@final
@dataclass(frozen=True, slots=True)
class _MixerKernel:
    """One of the mixer's kernels, predicted."""

    setting: MixerSetting
    work: RecurrentWork
    times: MixerTimes


def _analysis(parts: list[_MixerKernel], variant: Variant, device: Device) -> Analysis:
    """One kernel after another: times, bounds and demands add up."""
    time = _sum([part.times.time for part in parts])
    styles = " + ".join(part.setting.style.name for part in parts)
    # one kernel's error is not another's only in part: the sum is taken as if they were shared
    spread = _sum(
        [part.times.time * part.setting.constants["independent_log_sd"] for part in parts]
    )
    recipe = RECIPES.get(variant.dtype)
    compute = recipe.compute if recipe else variant.dtype
    pipe = device.matrix_pipe(compute)
    flops = _sum([part.work.flops + 0.0 * time for part in parts])
    least = [part.work.least_bytes for part in parts]
    cold = variant.cache == "cold"
    forced = [part.work.least_bytes if cold else _forced(part.work, device) for part in parts]
    floor = 1.0 / device.clocks.max_hz
    port = parts[0].setting.constants["port_bytes_per_clock"] * device.clocks.max_hz * device.cores
    resource_s = {
        pipe: xp.maximum(flops / device.bound_per_s(pipe, compute), floor),
        "dram": _sum(forced) / device.dram.bandwidth_bytes_per_s,
        # reads and writes pass the cores' ports at once
        "l2": _sum(least) * (0.5 / port),
    }
    bound = xp.maximum(xp.maximum(resource_s[pipe], resource_s["dram"]), resource_s["l2"])
    launch = sum(part.setting.constants["launch_s"] for part in parts)
    last = parts[-1].times
    dram = _sum([part.times.dram_bytes for part in parts])
    moved = _sum([part.times.moved_bytes for part in parts])
    return Analysis(
        time_s=time,
        bound_s=bound,
        resource_s={**resource_s, "launch": xp.full_like(time, launch)},
        demand=Demand(
            tasks=last.blocks,
            waves=last.blocks / device.cores,
            occupancy=xp.minimum(last.blocks / device.cores, 1.0),
            pipe_work={pipe: flops},
            level_bytes={"dram": dram, "l2": moved},
        ),
        features={
            "memory_share": _sum([part.times.memory for part in parts]) / time,
            "core_share": _sum([part.times.core for part in parts]) / time,
            "chain_share": _sum([part.times.chain for part in parts]) / time,
            "rounds": last.rounds,
            "from_dram": dram / moved,
        },
        independent_log_sd=spread / time,
        choice=lambda: [styles] * len(xp.tolist(time)),
    )


def _forced(work: RecurrentWork, device: Device) -> F64:
    """Bytes that no L2 saves: a byte kept there saves two transfers where it is read and written,
    and every different byte beyond its capacity moves at least once.
    """
    l2_bytes = device.l2.capacity_bytes
    beyond: F64 = xp.maximum(work.unique_bytes - l2_bytes, work.least_bytes - 2.0 * l2_bytes)
    forced: F64 = xp.maximum(beyond, 0.0)
    return forced


def _sum(terms: list[F64]) -> F64:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


DELTA_DIMS: Mapping[str, tuple[int, int]] = {
    "batch_size": (1, 1 << 20),
    "seq_len": (1, 1 << 24),
    "num_k_heads": (1, 1 << 12),
    "num_v_heads": (1, 1 << 12),
    "head_k_dim": (1, 1 << 12),
    "head_v_dim": (1, 1 << 12),
    "d_conv": (1, 64),
}
"""``seq_len``: new tokens of the longest sequence; a dimension ``num_tokens`` counts those of all
sequences where they differ."""


@register
@final
class Gdn(RecurrentKernel):
    """Key heads are shared by groups of value heads; one gate and one rate a value head."""

    family: ClassVar[str] = "gdn"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DELTA_DIMS

    def shape(self, sizes: Sizes, element: int) -> MixerShape:
        return delta_shape(sizes, element, gate_per_channel=False)


@register
@final
class Kda(RecurrentKernel):
    """Queries, keys and values are convolved apart: three kernels, timed as one."""

    family: ClassVar[str] = "kda"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = DELTA_DIMS

    def shape(self, sizes: Sizes, element: int) -> MixerShape:
        return delta_shape(sizes, element, gate_per_channel=True)


@register
@final
class Mamba2(RecurrentKernel):
    """``seq_len``: new tokens of the longest sequence; ``num_tokens``, optional: of all of them."""

    family: ClassVar[str] = "mamba2"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch_size": (1, 1 << 20),
        "seq_len": (1, 1 << 24),
        "nheads": (1, 1 << 12),
        "head_dim": (1, 1 << 12),
        "d_state": (1, 1 << 12),
        "n_groups": (1, 1 << 10),
        "chunk_size": (1, 1 << 12),
        "d_conv": (1, 64),
    }

    def shape(self, sizes: Sizes, element: int) -> MixerShape:
        return ssm_shape(sizes, element)
