"""An elementwise op by its kind, for tests of streams."""

from silicast.kernels.movement.elementwise import kind_of
from silicast.workload.graphs.op import Op, Variant


def elementwise_op(kind: str, elements: int, inputs: int = 1) -> Op:
    """``inputs`` tensors in, one out.

    Raises:
        SilicastError: the kind is not known.
    """
    variant = Variant("bf16", flags=((kind, True),))
    kind_of(variant)
    return Op.make("elementwise", variant, elements=elements, inputs=inputs)
