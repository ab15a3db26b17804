"""AccelForge, by its own interface (accelforge 1.0), on one of our architecture files."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.cost import Objective, objective_value
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.foreign.reader import Hardware
from silicast.accelerator.peers.peer import PEERS, Peer, PeerAnswer, called
from silicast.core.errors import unsupported

OBJECTIVES: dict[Objective, tuple[str, ...]] = {
    "energy": ("ENERGY",),
    "latency": ("LATENCY",),
    "edp": ("ENERGY", "LATENCY"),
}
LETTERS = {"Weights": "weight", "Inputs": "input", "Outputs": "output"}
PICO = 1e-12


@final
@PEERS.register
class AccelForge(Peer):
    """AccelForge, with its mapper "Fast and Fusiest"."""

    name: ClassVar[str] = "accelforge"
    install: ClassVar[str] = "pip install accelforge (Python 3.12; its mapper needs graphviz)"

    def is_installed(self) -> bool:
        return importlib.util.find_spec("accelforge") is not None

    def hardware(self, chip: Path) -> Hardware:
        """One of our own architecture files, which is written in the tool's form for it.

        Raises:
            SilicastError: it cannot be read, or says what the tool's form cannot.
        """
        design = find_design(str(chip))
        if design.constraints.rules or design.architecture.knows_zeros:
            feature = (
                "rules for mappings" if design.constraints.rules else "zeros that are left out"
            )
            raise unsupported(feature, "chip", "compare a design without them", file=str(chip))
        architecture_text(design.architecture)
        return Hardware(design.architecture, design.constraints)

    def answer(self, chip: Path, einsum: Einsum, objective: Objective) -> PeerAnswer:
        """See :meth:`Peer.answer`; of several mappings the one with the least objective."""
        from importlib.metadata import version

        import accelforge
        from accelforge.frontend.mapper.metrics import Metrics

        arch = self.hardware(chip).architecture
        bits = arch.memories[0].word_bits
        with tempfile.TemporaryDirectory() as folder, called(self.name, chip):
            file = Path(folder) / "spec.yaml"
            file.write_text(architecture_text(arch) + workload_text(einsum, bits), encoding="utf-8")
            spec = accelforge.Spec.from_yaml(str(file))
            first, *others = (getattr(Metrics, name) for name in OBJECTIVES[objective])
            for other in others:
                first = first | other
            spec.mapper.metrics = first
            map_workload = spec.map_workload_to_arch(print_progress=False)
            pairs = list(
                zip(
                    map_workload.energy(list_if_one_mapping=True),
                    map_workload.latency(list_if_one_mapping=True),
                    strict=True,
                )
            )
        costs = [(float(joules) / PICO, float(s) * arch.clock_hz) for joules, s in pairs]
        energy, cycles = min(costs, key=lambda each: objective_value(objective, *each))
        return PeerAnswer(f"accelforge {version('accelforge')}", energy, cycles)


def architecture_text(arch: Architecture) -> str:
    """A design as the tool's files write it: bits, joules, actions a second.

    Raises:
        SilicastError: it has what the tool's form cannot say.
    """
    lines = ["arch:", "  nodes:"]
    for number, node in enumerate(arch.nodes):
        if isinstance(node, FanOut):
            axes = ", ".join(
                f"{{name: {node.name}{axis}, fanout: {size}}}"
                for axis, size in enumerate(node.mesh)
            )
            lines += ["  - !Container", f"    name: {node.name}", f"    spatial: [{axes}]"]
        else:
            lines += _memory(node, arch.clock_hz, outermost=number == 0)
    unit = arch.compute
    energy, rate = _joules(unit.energy_pj, unit.name), unit.per_cycle * arch.clock_hz
    lines += [
        "  - !Compute",
        f"    name: {unit.name}",
        "    area: 0",
        f"    leak_power: {_watts(unit.leak_pj_per_cycle, arch.clock_hz)}",
        f"    actions: [{{name: compute, energy: {energy}, throughput: {rate!r}}}]",
    ]
    return "\n".join(lines) + "\n"


def _memory(memory: Memory, hz: float, *, outermost: bool) -> list[str]:
    if memory.cluster != 1 or memory.bank_words is not None or memory.exposes_fills:
        raise unsupported(
            f"clusters, banks and exposed fills ({memory.name})",
            "chip",
            "compare a design without them",
        )
    rate = "inf"
    if memory.ports:
        port = memory.ports[0]
        if len(memory.ports) > 1 or len(port.actions) < 3 or port.tensors or port.exposed:
            raise unsupported(
                f"ports of some actions or tensors only ({memory.name})",
                "chip",
                "give it one port for all",
            )
        rate = repr(port.words_per_cycle / memory.block_words * hz)
    size = "inf" if memory.capacity_words is None else repr(memory.usable_words * memory.word_bits)
    writes = {_joules(memory.update_pj, memory.name)} if memory.may_keep("Outputs") else set()
    if not outermost:
        writes.add(_joules(memory.fill_pj, memory.name))
    if len(writes) > 1:
        raise unsupported(
            f"a fill and an update of different energies ({memory.name})",
            "chip",
            "give both the same",
        )
    names = ["Weights", "Inputs", "Outputs"]
    must = [LETTERS[n] for n in names if outermost or memory.must_keep(n)]
    may = [LETTERS[n] for n in names if memory.may_keep(n)]
    tensors = f"keep: {' | '.join(must) or 'Nothing'}, may_keep: {' | '.join(may) or 'Nothing'}"
    bits = memory.block_words * memory.word_bits
    actions = [
        f"    - {{name: {name}, energy: {energy}, throughput: {rate}, bits_per_action: {bits}}}"
        for name, energy in (
            ("read", _joules(memory.read_pj, memory.name)),
            ("write", next(iter(writes))),
        )
    ]
    return [
        "  - !Memory",
        f"    name: {memory.name}",
        f"    size: {size}",
        "    area: 0",
        f"    leak_power: {_watts(memory.leak_pj_per_cycle, hz)}",
        f"    tensors: {{{tensors}}}",
        "    actions:",
        *actions,
    ]


def _joules(energy_pj: float | None, name: str) -> str:
    if energy_pj is None:
        raise unsupported(f"an action without energy ({name})", "chip", "give energy_pj")
    return repr(energy_pj * PICO)


def _watts(leak_pj: float | None, hz: float) -> str:
    return repr((leak_pj or 0.0) * PICO * hz)


def workload_text(einsum: Einsum, bits: int) -> str:
    """An einsum as the tool's files write it.

    >>> from silicast.accelerator.counting.einsum import conv2d
    >>> text = workload_text(conv2d(c=2, m=3, p=4, q=4, r=3, s=3, stride=2), 8)
    >>> "Inputs[n, c, X2: r + 2*p, X3: s + 2*q]" in text
    True
    """
    terms = {tensor.name: _term(tensor) for tensor in einsum.tensors}
    lines = ["workload:", f"  bits_per_value: {{All: {bits}}}", "  einsums:"]
    lines.append(f'  - einsum: "{terms["Outputs"]} = {terms["Inputs"]} * {terms["Weights"]}"')
    lines.append("    iteration_space_shape:")
    lines += [f"    - 0 <= {dim.lower()} < {size}" for dim, size in einsum.bounds.items()]
    lines.append("    renames: {output: Outputs, input: Inputs, weight: Weights}")
    return "\n".join(lines) + "\n"


def _term(tensor: EinsumTensor) -> str:
    indices = []
    for number, rank in enumerate(tensor.ranks):
        index = " + ".join(
            dim.lower() if step == 1 else f"{step}*{dim.lower()}" for dim, step in rank
        )
        indices.append(index if len(rank) == 1 and rank[0][1] == 1 else f"X{number}: {index}")
    return f"{tensor.name}[{', '.join(indices)}]"
