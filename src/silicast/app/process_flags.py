"""The node and the voltage at which a design is mapped, as flags of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from cyclopts import Parameter

from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.accelerator.design.technology import NodeScaling
    from silicast.accelerator.mapper.task import Task


VOLTAGES = 0.5, 1.5
"""Factors of the usual voltage between which energy goes by its square: circuits that are made for
one voltage do not switch reliably far below it, and wear out far above."""
SAME_NM = 45.0
"""Any node: from it to itself nothing changes."""

FLAGS = {"node": "--node", "to_nm": "--node", "from_nm": "--from-node", "voltage": "--voltage"}
"""Fields that errors about nodes and voltages name -> flags that state them."""


@contextmanager
def named_by_flags(**others: str) -> Iterator[None]:
    """Errors inside name the flag at fault.

    Args:
        others: field -> its flag, where a command has another one.
    """
    try:
        yield
    except SilicastError as error:
        raise error.located({**FLAGS, **others}.get(error.field, "")) from None


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """A design at another node or voltage.

    Attributes:
        node: nm, at which energies, leakage and areas are taken; left out, as the design states
            them. Needs `from-node`.
        from_node: nm, of the numbers of the design.
        voltage: of that of the design's numbers, as a factor.
    """

    node: float | None = None
    from_node: float | None = None
    voltage: float | None = None

    @property
    def process(self) -> NodeScaling | None:
        """What was asked for; None = the design as it is.

        Raises:
            SilicastError: one of the nodes is missing.
        """
        from silicast.accelerator.design.technology import NodeScaling

        if (self.node is None) != (self.from_node is None):
            missing, present = ("--from-node", "--node")
            if self.node is None:
                missing, present = present, missing
            raise SilicastError(
                f"is missing beside {present}",
                field=missing,
                hint="--from-node is the node of the design's numbers, --node the wanted one",
            )
        if self.node is None and self.voltage is None:
            return None
        volts = 1.0 if self.voltage is None else self.voltage
        if not VOLTAGES[0] <= volts <= VOLTAGES[1]:
            raise SilicastError(
                f"expected {VOLTAGES[0]:g} to {VOLTAGES[1]:g} of the voltage of the design's "
                f"numbers, found {volts:g}",
                field="--voltage",
                hint="state energies at that voltage in the architecture file",
            )
        if self.node is None or self.from_node is None:
            return NodeScaling(SAME_NM, SAME_NM, 1.0, volts)
        return NodeScaling(self.from_node, self.node, 1.0, volts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a voltage does not change, a line each."""
        if self.voltage is None:
            return ()
        return ("--voltage changes energies and leakage; the clock stays as the design has it",)

    def applied(self, task: Task) -> Task:
        """The task on the design at the node and voltage.

        Raises:
            SilicastError: they make no sense.
        """
        process = self.process
        if process is None:
            return task
        with named_by_flags():
            return replace(task, architecture=process.applied(task.architecture))
