"""The pass that a kernel table states, as flags of the op; the library says how it is run."""

from __future__ import annotations

from dataclasses import replace

from silicast.core.errors import SilicastError
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.chain_model import BACKWARD, BOTH, ChainedKernel
from silicast.workload.graphs.op import Op

DIRECTION = "pass"
"""The field of a table that says which."""
FORWARD, FULL = "forward", "full"
FLAGS = {FORWARD: "", "backward": BACKWARD, FULL: BOTH}
PASSES = tuple(FLAGS)
"""What a call runs: the result, the gradients of its operands, or both."""


def with_pass(op: Op, direction: str) -> Op:
    """The op in a direction.

    Args:
        op: in the family of its table.
        direction: one of :data:`PASSES`, "" = forward, or both of a loss with its gradient.

    Raises:
        SilicastError: gradients of a table whose size is not stated; a loss with its gradient
            that is to run in one direction.

    >>> with_pass(Op.make("rmsnorm", tokens=8, hidden=4096), "backward").variant.flags
    (('backward', True),)
    """
    if not isinstance(implementation_for(op.family, "simt"), ChainedKernel):
        return op
    flags = dict(op.variant.flags)
    if flags.pop(BACKWARD, False):
        direction = direction or FULL
        if direction != FULL:
            hint = "a loss with its gradient is both passes"
            raise SilicastError('is true, but "pass" is not "full"', field="backward", hint=hint)
    flag = FLAGS[direction or FORWARD]
    if flag:
        flags[flag] = True
    if flag and op.family == "embedding" and "vocab" not in dict(op.dims):
        hint = "the gradient is as large as the table"
        raise SilicastError("is missing", field="vocab", hint=hint)
    return replace(op, variant=replace(op.variant, flags=tuple(sorted(flags.items()))))


def without_pass(op: Op) -> tuple[Op, str]:
    """The op as its table states it, and the direction that the table must state ("" = none)."""
    flags = dict(op.variant.flags)
    if not isinstance(implementation_for(op.family, "simt"), ChainedKernel):
        return op, ""
    direction = next((name for name, flag in FLAGS.items() if flag and flags.pop(flag, False)), "")
    return replace(op, variant=replace(op.variant, flags=tuple(sorted(flags.items())))), direction
