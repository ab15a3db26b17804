"""One call of an operator: sizes and formats of its tensors, no framework's types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.workload.graphs.op import Op
from silicast.workload.graphs.tensor import TensorValue

__all__ = ["LaunchedKernel", "OperatorCall", "TensorValue"]


@final
@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """One kernel that an operator launches.

    Attributes:
        role: what it does where an operator launches several ("weights"); "" = the operator.
        results: indices of the operator's results that this kernel allocates and writes; None =
            all that no other kernel claims.
    """

    op: Op
    role: str = ""
    results: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator with the values it is called on.

    Attributes:
        name: as the program writes it ("aten.addmm.default", "onnx.Conv").
        args: in the operator's order, with a :class:`TensorValue` in the place of each tensor.
        kwargs: the rest by name.
        inputs: all tensors among them, in order.
        outputs: its results that are tensors.
        tags: the framework's labels of the operator ("pointwise", "reduction").
        product: format of matrix arithmetic on fp32 tensors ("fp32" or "tf32").
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[TensorValue, ...]
    outputs: tuple[TensorValue, ...]
    tags: frozenset[str] = frozenset()
    product: str = "fp32"

    @property
    def out(self) -> TensorValue:
        return self.outputs[0]

    @property
    def read_bytes(self) -> int:
        """Bytes of all tensors that go in."""
        return sum(value.nbytes for value in self.inputs)

    @property
    def written_bytes(self) -> int:
        """Bytes of all results."""
        return sum(value.nbytes for value in self.outputs)

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by place or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)
