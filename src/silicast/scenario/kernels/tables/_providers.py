"""Ops that providers run as chains of kernels, in either direction: which model answers them."""

from __future__ import annotations

from dataclasses import replace

from silicast.core.errors import SilicastError
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.chain_model import BACKWARD, BOTH, RESIDUAL, SUFFIX, ChainedKernel
from silicast.workload.graphs.op import Op
from silicast.workload.libraries.catalog import kernel_rule
from silicast.workload.libraries.library_file import Facts

DIRECTION = "pass"
"""The field of a table that says which."""
FLAGS = {"forward": "", "backward": BACKWARD, "full": BOTH}
PASSES = tuple(FLAGS)
"""What a call runs: the result, the gradients of its operands, or both."""


def as_provided(op: Op, direction: str) -> Op:
    """The op as its library's chain, where a pass is stated that is one; else as it is: the one
    kernel of its family.

    Args:
        op: in the family of its table.
        direction: one of :data:`PASSES`, "" = not stated.

    Raises:
        SilicastError: gradients of a table whose size is not stated; a loss with its gradient
            that is to run in one direction.

    >>> from silicast.workload.graphs.op import Variant
    >>> norm = Op.make("rmsnorm", Variant(library="liger"), tokens=8, hidden=4096, residual=0)
    >>> as_provided(norm, "backward").family
    'rmsnorm_chain'
    """
    plain = implementation_for(op.family, "simt")
    family = op.family if isinstance(plain, ChainedKernel) else op.family + SUFFIX
    known = kernel_rule(family, Facts.from_variant(op.variant)) is not None
    if family != op.family and (not direction or (not known and direction == "forward")):
        return op
    flag = FLAGS[direction or "forward"]
    dims, flags = dict(op.dims), dict(op.variant.flags)
    if flags.pop(BACKWARD, False) and direction != "full":
        hint = "a loss with its gradient is both passes"
        raise SilicastError('is true, but "pass" is not "full"', field="backward", hint=hint)
    if dims.pop("residual", 0):
        flags[RESIDUAL] = True
    if flag:
        flags[flag] = True
    if flag and op.family == "embedding" and "vocab" not in dims:
        hint = "the gradient is as large as the table"
        raise SilicastError("is missing", field="vocab", hint=hint)
    return Op.make(family, replace(op.variant, flags=tuple(sorted(flags.items()))), **dims)


def as_stated(op: Op) -> tuple[Op, str]:
    """A chain's op in the family of its table, and the direction that its table must state ("" =
    none); other ops as they are.
    """
    if not isinstance(implementation_for(op.family, "simt"), ChainedKernel):
        return op, ""
    dims, flags = dict(op.dims), dict(op.variant.flags)
    family = op.family.removesuffix(SUFFIX)
    usual = "forward" if family != op.family else ""
    direction = next(
        (name for name, flag in FLAGS.items() if flag and flags.pop(flag, False)), usual
    )
    if flags.pop(RESIDUAL, False):
        dims["residual"] = 1
    variant = replace(op.variant, flags=tuple(sorted(flags.items())))
    return Op.make(family, variant, **dims), direction
