"""What an architecture file says beside its levels: names of tensors, densities, rules, formats,
and what a system has. With :func:`.check_architecture` it is all that can be known to be wrong
before anything is mapped; every command reads a file through both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from silicast.accelerator.counting.einsum import INPUTS, OUTPUTS, WEIGHTS
from silicast.accelerator.counting.problems import GROUPED, PRODUCTS
from silicast.accelerator.counting.problems import ProblemShape as Work
from silicast.accelerator.design.architecture import FanOut, Memory
from silicast.accelerator.design.check import ArchitectureFault, check_tensors, require_tensor
from silicast.accelerator.zeros.density import check_density
from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.kernels.movement.elementwise import KINDS

if TYPE_CHECKING:
    from silicast.accelerator.design.architecture_file import Design, PolicyTable, RuleTable

TENSORS = WEIGHTS, INPUTS, OUTPUTS
DIMS = tuple(dict.fromkeys((*Work(PRODUCTS).dims, *Work(GROUPED).dims)))
"""Of products and convolutions, batched and grouped."""


def check_content(design: Design) -> Iterator[ArchitectureFault]:
    """Everything that is wrong with a file whose levels are in order."""
    content = design.content
    yield from _room(design)
    yield from _told(partial(check_tensors, design.architecture, TENSORS))
    for tensor, value in content.density.items():
        yield from _told(partial(require_tensor, tensor, TENSORS, "density"))
        yield from _told(partial(check_density, value, f"density.{tensor}"))
    for number, rule in enumerate(content.constraint):
        yield from _rule(design, rule, f"constraint[{number}]")
    named = {f"policies.{name}": policy for name, policy in content.policies.items()}
    for where, policy in {"policy": content.policy, **named}.items():
        yield from _policy(design, policy, where)
    if not 0 <= content.least_utilisation <= 1:
        yield ArchitectureFault(
            "least_utilisation", "a share from 0 to 1", f"{content.least_utilisation:g}"
        )
    yield from _formats(design)
    yield from _system(design)


def _room(design: Design) -> Iterator[ArchitectureFault]:
    """No layer is mapped where the smallest tiles, a word of each tensor, have no room."""
    for memory in design.architecture.memories:
        if memory.word_bits <= 0:  # a fault of its own: check_architecture
            continue
        tensors = [name for name in TENSORS if memory.must_keep(name)]
        need = sum(memory.words_of(name) for name in tensors)
        if need > memory.usable_words:
            beside = f" in each of its {memory.buffers:g} buffers" if memory.buffers > 1 else ""
            yield ArchitectureFault(
                f"{memory.name}.capacity_words",
                f"room for the smallest tiles: {need * memory.buffers:g} words, "
                f"an element of {', '.join(tensors)}{beside}",
                f"{memory.usable_words * memory.buffers:g}",
                "widen it, say which tensors it keeps (keeps), or let one pass it by (may_bypass)",
            )


def _told(check: Callable[[], None]) -> Iterator[ArchitectureFault]:
    """The problem that a check raises, in its own words."""
    try:
        check()
    except SilicastError as error:
        value = f"{error.file}: {error.message}" if error.file else error.message
        yield ArchitectureFault(error.field, "", value, error.hint, told=True)


def _rule(design: Design, rule: RuleTable, where: str) -> Iterator[ArchitectureFault]:
    nodes = {node.name: node for node in design.architecture.nodes}
    node = nodes.get(rule.level)
    if node is None:
        yield ArchitectureFault(f"{where}.level", f"one of {', '.join(nodes)}", rule.level)
        return
    axes = len(node.mesh) if isinstance(node, FanOut) else 0
    if rule.axis is not None and not 0 <= rule.axis < axes:
        value = f"axis {rule.axis} of {axes}" if axes else f"an axis of the memory {rule.level}"
        yield ArchitectureFault(f"{where}.axis", "an axis of a fan-out, from 0", value)
    for field, dims in (("fixed", rule.fixed), ("most", rule.most), ("innermost", rule.innermost)):
        for dim in dims:
            if dim not in DIMS:
                yield ArchitectureFault(
                    f"{where}.{field}", f"dimensions among {', '.join(DIMS)}", dim
                )
    if isinstance(node, FanOut) and rule.axis is not None and 0 <= rule.axis < axes:
        side_by_side = math.prod(rule.fixed.values())
        if side_by_side > node.mesh[rule.axis]:
            yield ArchitectureFault(
                f"{where}.fixed",
                f"at most {node.mesh[rule.axis]} side by side, as mesh[{rule.axis}] has",
                " x ".join(f"{dim} = {bound}" for dim, bound in rule.fixed.items() if bound > 1),
            )
    for tensor in rule.indexing:
        yield from _told(partial(require_tensor, tensor, TENSORS, f"{where}.indexing"))


def _policy(design: Design, policy: PolicyTable, where: str) -> Iterator[ArchitectureFault]:
    memories = [memory.name for memory in design.architecture.memories]
    for dim, numbers in policy.round_up.items():
        if min(numbers, default=1) < 1:
            yield ArchitectureFault(
                f"{where}.round_up.{dim}", "numbers of at least 1", f"{min(numbers)}"
            )
    if policy.first and policy.first not in memories:
        yield ArchitectureFault(f"{where}.first", f"one of {', '.join(memories)}", policy.first)
    for number, rule in enumerate(policy.constraint):
        yield from _rule(design, rule, f"{where}.constraint[{number}]")
    if policy.fill is None:
        return
    below = design.architecture.nodes[1]
    if not isinstance(below, Memory) or below.name != policy.fill.level:
        yield ArchitectureFault(
            f"{where}.fill.level",
            "the memory right below the outermost"
            + (f", {below.name}" if isinstance(below, Memory) else ""),
            policy.fill.level,
        )
    yield from _told(partial(require_tensor, policy.fill.tensor, TENSORS, f"{where}.fill.tensor"))
    for dim in policy.fill.cut:
        if dim not in DIMS:
            yield ArchitectureFault(f"{where}.fill.cut", f"dimensions among {', '.join(DIMS)}", dim)


def _formats(design: Design) -> Iterator[ArchitectureFault]:
    for name, table in design.content.compute.formats.items():
        where = f"compute.formats.{name}"
        if name not in BITS:
            yield ArchitectureFault(
                where,
                "a number format",
                f"unknown number format {name!r}",
                f"one of {', '.join(BITS)}",
                told=True,
            )
        yield from _in_range(f"{where}.per_cycle", table.per_cycle)
        yield from _in_range(f"{where}.energy_pj", table.energy_pj, zero=True)


def _system(design: Design) -> Iterator[ArchitectureFault]:
    vector, system = design.content.vector, design.content.system
    for name in ("per_cycle", "special_per_cycle"):
        yield from _in_range(f"vector.{name}", getattr(vector, name, None))
    for name in ("energy_pj", "special_energy_pj"):
        yield from _in_range(f"vector.{name}", getattr(vector, name, None), zero=True)
    for name, value in (vector.operations if vector else {}).items():
        where = f"vector.operations.{name}"
        yield from _in_range(where, value)
        if name not in KINDS:
            yield ArchitectureFault(where, f"a kind among {', '.join(KINDS)}", name)
    for name in ("memory_gb", "memory_gb_per_s", "power_w", "devices_per_node", "time_log_sd"):
        yield from _in_range(f"system.{name}", getattr(system, name))
    for name in ("launch_us", "idle_w"):
        yield from _in_range(f"system.{name}", getattr(system, name), zero=True)
    within = [memory.name for memory in design.architecture.memories[1:]]
    if system.results_stay_in and system.results_stay_in not in within:
        yield ArchitectureFault(
            "system.results_stay_in",
            f"a memory on the chip: {', '.join(within) or 'the file has none'}",
            system.results_stay_in,
        )
    for name, link in system.links.items():
        yield from _in_range(f"system.links.{name}.bandwidth_gb_per_s", link.bandwidth_gb_per_s)


def _in_range(
    field: str, value: float | None, *, zero: bool = False
) -> Iterator[ArchitectureFault]:
    if value is None or 0 < value < math.inf or (zero and value == 0):
        return
    yield ArchitectureFault(field, "0 or more" if zero else "more than 0", f"{value:g}")
