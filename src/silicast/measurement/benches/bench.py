"""One op that can be measured: what to ask for, what it needs, and the call to time.

A bench is one file that subclasses :class:`Bench` and registers itself; :mod:`.check` holds the
battery that each must pass. Benches import PyTorch where they run, not where they are declared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, TypeVar

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.measurement.benches.operand_tree import stored_bytes
from silicast.measurement.benches.ranges import Ranges
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns
from silicast.scenario.kernel_case import kernel_case
from silicast.workload.op_identity import identity

OPEN = frozenset(("op", "launch", "cache"))
"""Columns that say how a kernel is timed, not which."""

_benches: dict[str, Bench] = {}
_tried: dict[tuple[str, str], str] = {}
_Own = TypeVar("_Own", bound="type[Bench]")


class Bench(ABC):
    """Kernels of one op on one machine.

    Attributes:
        op: what ``kernel`` tables call it.
        traced: front ends give this op for what is timed. Other benches stand for kernels of
            engines, or for several operators in one row.
    """

    op: ClassVar[str]
    traced: ClassVar[bool] = True

    @abstractmethod
    def ranges(self, machine: Machine) -> Ranges:
        """What a sweep of the machine draws from."""

    @abstractmethod
    def tiny(self, kernel: Columns) -> Columns:
        """The same kernel in a size that runs in no time, to see whether it runs."""

    @abstractmethod
    def bytes_needed(self, kernel: Columns) -> int:
        """Of operands, results and what lies between them; never less than PyTorch allocates."""

    @abstractmethod
    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """Fresh tensors on the device, normally distributed where they are numbers."""

    @abstractmethod
    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:
        """What is timed, of the operands; it leaves them fit for the next call."""

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """Why these sizes cannot be measured, "" = they can. PyTorch is not asked."""
        return ""

    def context(self, kernel: Columns, machine: Machine) -> AbstractContextManager[object]:  # noqa: ARG002
        """Settings of PyTorch that the kernel asks for while it is prepared and run."""
        return nullcontext()

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:  # noqa: ARG002
        """Of one set of operands those that a call reads or writes; benches whose calls leave parts
        of a tensor alone say less than its size.
        """
        return stored_bytes(operands)

    def prepare(self, kernel: Columns, machine: Machine) -> partial[object]:
        """Allocates operands and returns the call to time, of them."""
        return partial(self.function(kernel, machine), *self.operands(kernel, machine))

    def supported(self, kernel: Columns, machine: Machine) -> str:
        """Why the machine cannot run a kernel, "" = it can: a tiny one of its kind was tried."""
        try:
            kernel_case(kernel)
        except SilicastError as error:
            return str(error)
        return self._unknown(kernel, machine) or self.refused(kernel, machine) or self._try(
            self.tiny(kernel), machine
        )  # fmt: skip

    def _unknown(self, kernel: Columns, machine: Machine) -> str:
        """A column that the bench does not act on."""
        ranges = self.ranges(machine)
        known = {column for drawn in self._samples(ranges) for column in drawn}
        for name, value in kernel.items():
            if name in OPEN or name in ranges.sizes:
                continue
            if name not in known and name not in ranges.choices and _tells(kernel, name):
                return f"{name} = {value!r} is not measured here"
            offers = ranges.choices.get(name, ())
            if name in ("dtype", "library", "variant", "kind") and offers and value not in offers:
                offered = ", ".join(str(each) for each in offers if each)
                return f"{name} = {value!r} is not measured on this machine (only {offered})"
        if kernel.get("launch") == "graph" and machine.kind == "cpu":
            return "a CPU has no graph launch"
        return ""

    @staticmethod
    def _samples(ranges: Ranges) -> list[Columns]:
        """Kernels of the smallest sizes, with each value of each choice once."""
        smallest = {name: size.low for name, size in ranges.sizes.items()}
        first = {name: values[0] for name, values in ranges.choices.items()}
        return [
            ranges.kernel({**smallest, **first, name: value})
            for name, values in ranges.choices.items()
            for value in values
        ]

    def _try(self, kernel: Columns, machine: Machine) -> str:
        key = machine.torch_device, content_hash(sorted((k, str(v)) for k, v in kernel.items()))
        if key in _tried:
            return _tried[key]

        from silicast.measurement.runtime import reason_of, runtime_of

        reason, said = "", ""
        try:
            runtime = runtime_of(machine)
            with runtime.ready(), self.context(kernel, machine):
                self.prepare(kernel, machine)()
                runtime.synchronize()
        except Exception as error:
            reason, said = reason_of(error)
        if reason != "out_of_memory":  # which passes
            _tried[key] = said
        return said


def _tells(kernel: Columns, name: str) -> bool:
    """Whether a kernel is another one without a column."""
    try:
        without = kernel_case({key: value for key, value in kernel.items() if key != name})
    except SilicastError:
        return True
    return identity(without.op) != identity(kernel_case(kernel).op)


def register(bench: _Own) -> _Own:
    """Class decorator: adds a bench.

    Raises:
        ValueError: there is one of that op.
    """
    if bench.op in _benches:
        raise ValueError(f"two benches of {bench.op!r}")
    _benches[bench.op] = bench()
    return bench


def registered() -> dict[str, Bench]:
    """Op -> its bench, of all modules imported so far."""
    return _benches
