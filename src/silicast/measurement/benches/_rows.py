"""Kernels that work on each row of a matrix on its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from silicast.measurement.benches._limits import (
    dtypes,
    launches,
    libraries,
    most_bytes,
    tensor_bytes,
)
from silicast.measurement.benches.bench import Bench
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


class RowBench(Bench):
    """One matrix in, one of its shape out, and vectors as long as a row.

    Attributes:
        rows, cols: what the op calls the matrix's sides; sizes: their values.
        vectors: how many there are.
    """

    rows: ClassVar[str] = "tokens"
    cols: ClassVar[str] = "hidden"
    sizes: ClassVar[tuple[Size, Size]] = (Size(1, 131_072), Size(64, 16_384, multiple=16))
    vectors: ClassVar[int] = 1

    @abstractmethod
    def of_rows(self) -> Callable[..., object]:
        """The operator, of the matrix and the vectors."""

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            names = (self.rows, self.cols)
            found = lessened(kernel, names, most_bytes(machine), self.bytes_needed)
            step = self.sizes[1].multiple
            return {**found, self.cols: max(step, found[self.cols] // step * step)}

        return Ranges(
            self.op,
            {self.rows: self.sizes[0], self.cols: self.sizes[1]},
            {"dtype": dtypes(machine), "cache": ("warm", "cold"), "library": libraries(machine),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        small = {self.rows: 4, self.cols: 64, "dtype": kernel.get("dtype", "bf16")}
        return {"op": self.op, **small}

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`: a row's statistics in fp32 are counted too."""
        rows, cols = kernel[self.rows], kernel[self.cols]
        dtype = kernel.get("dtype", "bf16")
        return tensor_bytes(dtype, 2 * rows + self.vectors, cols) + tensor_bytes("fp32", 2 * rows)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        from silicast.measurement.benches._tensors import normal

        dtype, cols = kernel.get("dtype", "bf16"), kernel[self.cols]
        vectors = [normal((cols,), dtype, machine) for _ in range(self.vectors)]
        return normal((kernel[self.rows], cols), dtype, machine), *vectors

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        return self.of_rows()
