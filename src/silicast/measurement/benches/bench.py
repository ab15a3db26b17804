"""The contract of a bench: which kernels of an op to measure, what they need, the call to time.

A bench is a class that subclasses :class:`Bench` and registers itself; :mod:`.check` holds the
battery of tests that each must pass. PyTorch is imported when a bench runs, not when it is defined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.measurement.benches.operands import stored_bytes
from silicast.measurement.benches.ranges import (
    STREAMED,
    Ranges,
    Size,
    dtypes,
    installed,
    launches,
    most_bytes,
    most_operations,
    reduced,
)
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import identity

OPEN = frozenset(("op", "launch", "cache"))
"""Columns that describe how a kernel is timed, not which kernel it is."""

_benches: dict[str, Bench] = {}
_tried: dict[tuple[str, str], str] = {}
_Own = TypeVar("_Own", bound="type[Bench]")


class Bench(ABC):
    """Kernels of one op.

    Attributes:
        op: as ``kernel`` tables name it.
        sizes: column -> values that a sweep draws; tiny_sizes: of a kernel that runs in no time.
        choices: other columns of the op -> values; a name with an underscore is not written to the
            table, but turned into columns by :meth:`complete`.
        formats: values of ``dtype``, as far as a machine computes in them; caches: of ``cache``.
        library: that tables must state: "torch", or "triton" too on a GPU; "" = none.
        traced: a front end translates the timed call to this op. Other benches stand for kernels of
            engines, or for several operators in one row.
    """

    op: ClassVar[str]
    sizes: ClassVar[Mapping[str, Size]]
    tiny_sizes: ClassVar[Columns]
    choices: ClassVar[Mapping[str, Sequence[object]]] = {}
    formats: ClassVar[Sequence[str]] = STREAMED
    caches: ClassVar[Sequence[str]] = ("warm", "cold")
    library: ClassVar[Literal["", "torch", "triton"]] = ""
    traced: ClassVar[bool] = True

    @abstractmethod
    def bytes_needed(self, kernel: Columns) -> int:
        """Bytes of operands, results and intermediate tensors; at least what PyTorch allocates."""

    @abstractmethod
    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """New tensors on the device; floating-point numbers are normally distributed."""

    @abstractmethod
    def function(self, kernel: Columns) -> Callable[..., object]:
        """The call of the operands that is timed; it can be repeated on the same operands."""

    def operations(self, kernel: Columns) -> float:  # noqa: ARG002
        """Floating-point operations, where they limit the sizes of a sweep."""
        return 0.0

    def libraries(self, machine: MeasuredMachine) -> Sequence[str | None]:
        """Values of ``library``. PyTorch is named on a CPU, where its operators allocate their
        results in each call; on a GPU the column is absent by default, as in traced programs.
        """
        if machine.kind == "cpu" or self.library == "torch":
            return ("torch",)
        has_triton = self.library == "triton" and installed("triton")
        return ("triton", "torch") if has_triton else ("torch",) if self.library else (None,)

    def columns(self, machine: MeasuredMachine) -> dict[str, Sequence[object]]:
        """Columns but sizes -> their values; the order determines which kernels a seed draws."""
        return {
            **self.choices,
            "dtype": dtypes(machine, self.formats),
            "cache": self.caches,
            "library": self.libraries(machine),
            "launch": launches(machine),
        }

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """Adds the columns that follow from drawn ones."""
        return dict(kernel)

    def tie(self, kernel: Columns) -> Columns:
        """Makes columns consistent after a size has changed."""
        return kernel

    def aligned(self, kernel: Columns) -> Sequence[str]:  # noqa: ARG002
        """Sizes that stay multiples of their step after they were reduced."""
        return [name for name, size in self.sizes.items() if size.multiple > 1]

    def ranges(self, machine: MeasuredMachine) -> Ranges:
        """Kernels that a sweep of the machine draws from."""
        return Ranges(
            self.op, self.sizes, self.columns(machine), lambda kernel: self.settle(kernel, machine)
        )

    def settle(self, kernel: Columns, machine: MeasuredMachine) -> Columns:
        """The kernel with consistent columns and within the machine's limits."""
        complete = self.complete(kernel, machine)
        for most, cost in (
            (most_operations(machine), self.operations),
            (most_bytes(machine), self.bytes_needed),
        ):

            def tied(each: Columns, cost: Callable[[Columns], float] = cost) -> float:
                return cost(self.tie(each))

            complete = self.tie(reduced(complete, tuple(self.sizes), most, tied))
        for name in self.aligned(complete):
            step = self.sizes[name].multiple
            complete = {**complete, name: max(step, complete[name] // step * step)}
        return {name: value for name, value in complete.items() if not name.startswith("_")}

    def tiny(self, kernel: Columns) -> Columns:
        """The same kind of kernel in a size that runs in no time."""
        table = {k: v for k, v in kernel.items() if k not in OPEN and k not in self.sizes}
        return {"op": self.op, **table, **self.tiny_sizes}

    def why_not_measured(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """Why a kernel is not measured, by its table alone; "" = it is."""
        if self.library and "library" not in kernel:
            return f"name the library: {' or '.join(map(str, self.libraries(machine)))}"
        return ""

    def context(self, kernel: Columns, machine: MeasuredMachine) -> AbstractContextManager[object]:  # noqa: ARG002
        """Settings of PyTorch that apply while the kernel is prepared and run."""
        return nullcontext()

    def bytes_touched(self, kernel: Columns, operands: Sequence[object]) -> int:  # noqa: ARG002
        """Bytes of a set of operands that a call reads or writes."""
        return stored_bytes(operands)

    def prepare(self, kernel: Columns, machine: MeasuredMachine) -> partial[object]:
        """Allocates operands and returns the call to time."""
        return partial(self.function(kernel), *self.operands(kernel, machine))

    def why_unsupported(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """Why the machine cannot run a kernel, "" = it can: a tiny one of its kind was tried."""
        try:
            kernel_case(kernel)
        except SilicastError as error:
            return str(error)
        reason = self._unknown(kernel, machine) or self.why_not_measured(kernel, machine)
        return reason or self._try(self.tiny(kernel), machine)

    def _unknown(self, kernel: Columns, machine: MeasuredMachine) -> str:
        """A column that the bench does not act on."""
        ranges = self.ranges(machine)
        smallest: Columns = {name: size.low for name, size in ranges.sizes.items()}
        smallest |= {name: values[0] for name, values in ranges.choices.items()}
        columns = {
            column
            for name, values in ranges.choices.items()
            for value in values
            for column in ranges.kernel({**smallest, name: value})
        }
        for name, value in kernel.items():
            if name in OPEN or name in ranges.sizes:
                continue
            if name not in columns and name not in ranges.choices and _changes(kernel, name):
                return f"{name} = {value!r} is not measured here"
            offers = ranges.choices.get(name, ())
            if name in ("dtype", "library", "variant", "kind") and offers and value not in offers:
                offered = ", ".join(str(each) for each in offers if each)
                return f"{name} = {value!r} is not measured on this machine (only {offered})"
        if kernel.get("launch") == "graph" and machine.kind == "cpu":
            return "a CPU has no graph launch"
        return ""

    def _try(self, kernel: Columns, machine: MeasuredMachine) -> str:
        key = machine.torch_device, content_hash(sorted((k, str(v)) for k, v in kernel.items()))
        if key in _tried:
            return _tried[key]

        from silicast.measurement.sweeps.runtime import runtime_of
        from silicast.measurement.sweeps.session import reason_of

        reason, message = "", ""
        try:
            runtime = runtime_of(machine)
            with runtime.ready(), self.context(kernel, machine):
                self.prepare(kernel, machine)()
                runtime.synchronize()
        except Exception as error:
            reason, message = reason_of(error)
        if reason != "out_of_memory":  # which may pass
            _tried[key] = message
        return message


def _changes(kernel: Columns, name: str) -> bool:
    """Whether a kernel is a different one without a column."""
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
