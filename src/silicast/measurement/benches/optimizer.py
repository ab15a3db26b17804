"""One update of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import launches, libraries, most_bytes, tensor_bytes
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

STATES = {"adamw": 2, "adam": 2, "sgd_momentum": 1}
RATE = 1e-6
"""Small, so that parameters stay what they were however often they are updated."""


@register
@final
class Optimizer(Bench):
    """PyTorch's fused update of one tensor of fp32 parameters, as ``fused=True`` runs it."""

    op: ClassVar[str] = "optimizer"
    traced: ClassVar[bool] = False

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            return lessened(kernel, ("elements",), most_bytes(machine), self.bytes_needed)

        return Ranges(
            self.op,
            {"elements": Size(1024, 1 << 28)},
            {"kind": tuple(STATES), "dtype": ("fp32",), "cache": ("warm", "cold"),
             "library": libraries(machine), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        kind = kernel.get("kind", "adamw")
        return {"op": self.op, "elements": 64, "kind": kind, "dtype": "fp32"}

    def refused(self, kernel: Columns, machine: Machine) -> str:  # noqa: ARG002
        """See :class:`Bench`."""
        kind = kernel.get("kind", "adamw")
        if kind not in STATES:
            return f"kind = {kind!r} is not measured here"
        return "" if kernel.get("dtype", "bf16") == "fp32" else "only fp32 parameters are measured"

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        count = 2 + STATES[kernel.get("kind", "adamw")]
        return tensor_bytes("fp32", count, kernel["elements"]) + tensor_bytes("fp32", 1)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`: weights, gradients, moments; the number of updates."""
        import torch

        from silicast.measurement.benches._tensors import normal

        count = 2 + STATES[kernel.get("kind", "adamw")]
        tensors = [normal((kernel["elements"],), "fp32", machine) for _ in range(count)]
        if count > 3:
            tensors[3].abs_()  # a mean of squares
        return *tensors, torch.ones((), device=machine.torch_device)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        import torch

        kind = kernel.get("kind", "adamw")
        if kind == "sgd_momentum":

            def descend(weights: Any, gradients: Any, moment: Any, _: Any) -> Any:
                return torch._fused_sgd_(
                    [weights], [gradients], [moment], weight_decay=0.01, momentum=0.9, lr=RATE,
                    dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
                )  # fmt: skip

            return descend
        update = torch._fused_adamw_ if kind == "adamw" else torch._fused_adam_

        def run(weights: Any, gradients: Any, first: Any, second: Any, steps: Any) -> Any:
            return update(
                [weights], [gradients], [first], [second], [], [steps], lr=RATE, beta1=0.9,
                beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip

        return run
