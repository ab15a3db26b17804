"""Timeloop v0.4: a folder with its processed description and energy tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import ClassVar, final

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.layers import EinsumLayer
from silicast.accelerator.design.architecture import Architecture, Elimination, Memory
from silicast.accelerator.foreign.reader import READERS, ForeignReader, Hardware, Workload
from silicast.accelerator.mapper.task import TIMELOOP, described
from silicast.core.errors import unsupported

OPERATIONS = (
    matmul(m=1, n=1, k=1),
    matmul(m=1, n=1, k=1, batch=2, weights_per_batch=True),
    conv2d(c=1, m=1, p=1, q=1, r=1, s=1),
    conv2d(c=1, m=1, p=1, q=1, r=1, s=1, groups=2),
)
"""What an architecture file is mapped with: its levels call tensors as these do."""


@final
@READERS.register
class TimeloopReader(ForeignReader):
    """Its front end's output; templates are refused."""

    name: ClassVar[str] = "timeloop"
    reads: ClassVar[str] = f"a folder with {TIMELOOP}, ERT.yaml and ART.yaml"

    def is_hardware(self, path: Path) -> bool:
        """A folder with the processed description, or the file itself."""
        return path.name == TIMELOOP or (path / TIMELOOP).is_file()

    def hardware(self, path: Path) -> Hardware:
        """See :meth:`ForeignReader.hardware`; tensors are called as those of our operations."""
        result = described(path)
        architecture, einsum = result.architecture, result.einsum
        names = usual_names(einsum)
        if names is None and _named(architecture):
            raise unsupported(
                f"tensors {', '.join(einsum.names)} are neither those of a product nor of a "
                f"convolution, and {_named(architecture)[0]} names some",
                "problem.shape.data_spaces",
                "map its own problem instead: `silicast design map FOLDER`",
                file=result.file,
            )
        return Hardware(
            _renamed(architecture, names or {}),
            result.constraints,
            (*result.notes, *_notes(architecture, einsum, names or {})),
        )

    def is_workload(self, path: Path) -> bool:
        return self.is_hardware(path)

    def workload(self, path: Path) -> Workload:
        einsum = described(path).einsum
        return Workload((EinsumLayer(einsum.name, einsum),))


def usual_names(einsum: Einsum) -> dict[str, str] | None:
    """Tensor -> what it is called in the operation that the einsum is, or is a part of.

    Dimensions, but for those of size 1, must be called as there; None = it is none.

    >>> from silicast.accelerator.counting.einsum import EinsumTensor
    >>> rows, columns = (("M", 1),), (("K", 1),)
    >>> a, b, z = (rows, columns), (columns,), (rows,)
    >>> tensors = (EinsumTensor("A", a), EinsumTensor("B", b), EinsumTensor("Z", z, is_output=True))
    >>> usual_names(Einsum("mv", {"M": 4, "K": 3}, tensors))
    {'A': 'Inputs', 'B': 'Weights', 'Z': 'Outputs'}
    """
    long = {dim for dim, bound in einsum.bounds.items() if bound > 1}
    for dims in (set(einsum.dims), long):
        shapes = [(set(tensor.dims) & dims, tensor.is_output) for tensor in einsum.tensors]
        for operation in OPERATIONS:
            if not dims <= set(operation.dims):
                continue
            fitting = [
                {theirs: tensor.name for theirs, tensor in zip(einsum.names, order, strict=False)}
                for order in permutations(operation.tensors)
                if shapes == [(set(tensor.dims) & dims, tensor.is_output) for tensor in order]
            ]
            if fitting:
                return max(fitting, key=lambda names: sum(a == b for a, b in names.items()))
    return None


def _named(architecture: Architecture) -> list[str]:
    """Memories that name tensors."""
    return [
        memory.name
        for memory in architecture.memories
        if memory.keeps is not None or memory.formats or memory.eliminations
    ]


def _renamed(architecture: Architecture, names: Mapping[str, str]) -> Architecture:
    def called(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(tensor, tensor) for tensor in tensors)

    def renamed(memory: Memory) -> Memory:
        return replace(
            memory,
            keeps=None if memory.keeps is None else called(memory.keeps),
            may_bypass=called(memory.may_bypass),
            formats=tuple(
                replace(each, tensor=names.get(each.tensor, each.tensor), flattened=())
                for each in memory.formats
            ),
            eliminations=tuple(
                Elimination(rule.kind, called((rule.target,))[0], called(rule.conditions))
                for rule in memory.eliminations
            ),
            metadata=memory.metadata if memory.formats else None,
        )

    nodes = tuple(
        renamed(node) if isinstance(node, Memory) else node for node in architecture.nodes
    )
    return replace(architecture, nodes=nodes, scales_blocks=False)


def _notes(architecture: Architecture, einsum: Einsum, names: Mapping[str, str]) -> Iterator[str]:
    other = {theirs: ours for theirs, ours in names.items() if theirs != ours}
    if other:
        yield "tensors: " + ", ".join(f"{theirs} is {ours}" for theirs, ours in other.items())
    if not einsum.is_dense:
        yield "densities of its problem are not part of the chip: give them with --density"
    for memory in architecture.memories:
        for each in memory.formats:
            if each.flattened:
                yield (
                    f"{memory.name}: every rank of the format of {names.get(each.tensor)} takes "
                    "one loop here, the last all that are left"
                )
    if architecture.knows_zeros:
        yield (
            "accesses of tiles without their zeros are counted tile by tile; "
            "`silicast design explain FOLDER` counts them as Timeloop does"
        )
