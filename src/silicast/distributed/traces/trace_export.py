"""A predicted pass as a Chakra trace of all its ranks, for simulators that read such traces.

Every rank runs the same; a collective of part of the ranks runs in a group of its own: gradients
are summed over ranks that hold the same weights, everything else over neighbours. Operations state
their arithmetic operations, their compulsory bytes and the predicted time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.passes.program import ProgramPass
from silicast.composition.step.executions import Execution
from silicast.core.errors import over_limit, unmodelled
from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import COLL, COMP, Attribute, ChakraNode, RankTrace
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op

TYPES = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}
"""Collective -> ``comm_type``."""
GRADIENTS = "gradient_sum"
"""Start of the names of sums over ranks that hold the same weights."""
MOST_RANKS = 4096


def chakra_of(program_pass: ProgramPass, name: str = "") -> ChakraTrace:
    """The trace of a pass.

    Args:
        name: prefix of its files; the program's where it is left out.

    Raises:
        SilicastError: kind "not_yet": pipeline stages; the pass has more ranks than are written.
    """
    plan = program_pass.model.graph.plan
    if plan.pp > 1:
        raise unmodelled("traces of pipeline stages", "parallel.pp", "parallel.pp = 1")
    world = max([plan.gpus * plan.dp, *map(_gpus, (n.op for n in program_pass.model.graph.nodes))])
    if world > MOST_RANKS:
        raise over_limit(f"{world} ranks, and at most {MOST_RANKS} are written", "parallel")
    writing = _Writing(program_pass, world)
    ranks: dict[int, RankTrace] = {}
    made: dict[tuple[tuple[tuple[int, bool], str], ...], RankTrace] = {}
    for rank in range(world):
        groups = writing.groups_of(rank)
        key = tuple(sorted(groups.items()))
        if key not in made:
            made[key] = RankTrace(writing.nodes(groups))
        ranks[rank] = made[key]
    title = (name or program_pass.model.graph.name).replace("/", "_")
    return ChakraTrace(title, ranks, writing.groups)


def _gpus(op: Op) -> int:
    size = dict(op.dims).get("gpus", 1) if op.family in COLLECTIVES else 1
    return size if isinstance(size, int) else 1


@final
class _Writing:
    def __init__(self, program_pass: ProgramPass, world: int) -> None:
        self.program, self.world = program_pass, world
        graph, machine = program_pass.model.graph, program_pass.model.machine
        self.runs = graph.executions
        line = program_pass.timeline
        self.seconds = (line.end_s - line.start_s).tolist()
        symbols = program_pass.model.timer.symbols(program_pass.states)
        known = {key: int(value[0]) for key, value in symbols.items() if value.shape == (1,)}
        self.work: list[tuple[Attribute, ...]] = []
        for node in graph.nodes:
            op = _bound(node.op, known)
            self.work.append(
                () if node.op.family in COLLECTIVES else _work(op, machine.device.execution_model)
            )
        self.sizes = [_bound(node.op, known) for node in graph.nodes]
        kinds = {self._kind(each) for each in self.runs.sequence if _gpus(each.node.op) > 1}
        self.kinds = sorted(kind for kind in kinds if kind[0] < world)
        self.groups: dict[str, tuple[int, ...]] = {}
        for rank in range(world):
            for name in self.groups_of(rank).values():
                self.groups[name] = (*self.groups.get(name, ()), rank)

    @staticmethod
    def _kind(each: Execution) -> tuple[int, bool]:
        """Ranks of a collective, and whether they are no neighbours."""
        return _gpus(each.node.op), each.node.name.startswith(GRADIENTS)

    def groups_of(self, rank: int) -> dict[tuple[int, bool], str]:
        """Names of the groups of a rank, by :meth:`_kind`."""
        groups = {}
        for size, strided in self.kinds:
            apart = self.world // size if strided else 1
            number = rank % apart if strided else rank // size
            groups[size, strided] = f"{'gradients' if strided else 'neighbours'}_{size}_{number}"
        return groups

    def nodes(self, groups: Mapping[tuple[int, bool], str]) -> tuple[ChakraNode, ...]:
        """What a rank of these groups runs."""
        chakra_nodes: list[ChakraNode] = []
        before: dict[int, int] = {}
        for index, (each, kernel) in enumerate(
            zip(self.runs.sequence, self.runs.order.tolist(), strict=True)
        ):
            stream = each.node.stream
            order = (before[stream],) if stream in before else ()
            before[stream] = index
            collective = each.node.op.family in COLLECTIVES
            attributes = (Attribute("is_cpu_op", "bool", False), *self.work[kernel])
            if collective:
                attributes += self._call(each, kernel, groups)
            chakra_nodes.append(
                ChakraNode(
                    index,
                    f"{each.block.name}.{each.repeat}.{each.node.name}",
                    COLL if collective else COMP,
                    order,
                    tuple(self.runs.waits[index]),
                    duration_us=round(self.seconds[index] * 1e6),
                    attributes=attributes,
                )
            )
        return tuple(chakra_nodes)

    def _call(
        self, each: Execution, kernel: int, groups: Mapping[tuple[int, bool], str]
    ) -> tuple[Attribute, ...]:
        """``comm_size`` is what each rank gives."""
        op = self.sizes[kernel]
        size, gpus = op.dim("bytes"), _gpus(op)
        assert isinstance(size, int)
        if op.family not in TYPES:
            raise unmodelled(f"{op.family} in a trace", "parallel")
        own_bytes = -(-size // gpus) if op.family == "all_gather" else size
        attributes = (
            Attribute("comm_type", "int64", TYPES[op.family]),
            Attribute("comm_size", "int64", own_bytes),
        )
        group = groups.get(self._kind(each))
        return attributes if group is None else (*attributes, Attribute("pg_name", "string", group))


def _bound(op: Op, known: Mapping[str, int]) -> Op:
    try:
        return op.bind(known)
    except (KeyError, ValueError):
        return op


def _work(op: Op, execution_model: str) -> tuple[Attribute, ...]:
    """Operations and bytes, where they do not depend on lengths that only the batch knows."""
    model = implementation_for(op.family, execution_model)
    if model is None:
        return ()
    try:
        counts = (model.flops(op), model.compulsory_bytes(op))
    except (KeyError, TypeError, ValueError):
        return ()
    names = ("num_ops", "tensor_size")
    return tuple(
        Attribute(name, "int64", int(count)) for name, count in zip(names, counts, strict=True)
    )
