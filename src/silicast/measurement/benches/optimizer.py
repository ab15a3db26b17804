"""One optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.measured_machine import MeasuredMachine
from silicast.measurement.records import Columns

STATES = {"adamw": 2, "adam": 2, "sgd_momentum": 1}
RATE = 1e-6
"""Small, so that parameters hardly change however often the step is repeated."""


@register
@final
class Optimizer(Bench):
    """PyTorch's fused update of one tensor of fp32 parameters, as ``fused=True`` runs it."""

    op: ClassVar = "optimizer"
    sizes: ClassVar = {"elements": Size(1024, 1 << 28)}
    choices: ClassVar = {"kind": tuple(STATES)}
    formats: ClassVar = ("fp32",)
    tiny_sizes: ClassVar = {"elements": 64}
    traced: ClassVar = False

    def refused(self, kernel: Columns, machine: MeasuredMachine) -> str:  # noqa: ARG002
        """Other kinds and formats."""
        kind = kernel.get("kind", "adamw")
        if kind not in STATES:
            return f"kind = {kind!r} is not measured here"
        return "" if dtype_of(kernel) == "fp32" else "only fp32 parameters are measured"

    def bytes_needed(self, kernel: Columns) -> int:
        """Weights, gradients, moments and the step number."""
        count = 2 + STATES[kernel.get("kind", "adamw")]
        return tensor_bytes("fp32", count, kernel["elements"]) + tensor_bytes("fp32", 1)

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        """Weights, gradients, moments; the step number."""
        import torch

        count = 2 + STATES[kernel.get("kind", "adamw")]
        tensors = [normal((kernel["elements"],), "fp32", machine) for _ in range(count)]
        if count > 3:
            tensors[3].abs_()  # a mean of squares
        return *tensors, torch.ones((), device=machine.torch_device)

    def function(self, kernel: Columns) -> Callable[..., object]:
        """Of the operands."""
        import torch

        kind = kernel.get("kind", "adamw")
        if kind == "sgd_momentum":

            def sgd(weights: Any, gradients: Any, moment: Any, _: Any) -> Any:
                return torch._fused_sgd_(
                    [weights], [gradients], [moment], weight_decay=0.01, momentum=0.9, lr=RATE,
                    dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
                )  # fmt: skip

            return sgd
        update = torch._fused_adamw_ if kind == "adamw" else torch._fused_adam_

        def adam(weights: Any, gradients: Any, first: Any, second: Any, steps: Any) -> Any:
            return update(
                [weights], [gradients], [first], [second], [], [steps], lr=RATE, beta1=0.9,
                beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip

        return adam
