"""One update of parameters: a sweep over weights, gradients and states, and Muon's products.

The kind of optimizer is the one flag of the variant that names one (``flags=(("adamw", True),)``;
AdamW if none does). ``dtype`` is that of weights and gradients. Further flags:

- ``master`` (default true): 16-bit weights have an fp32 copy, which is what is updated;
- ``fp32_states`` (default true): moments are kept in fp32, else in the format of the weights;
- ``fp32_grads`` (default false): gradients arrive in fp32.

Fused multi-tensor kernels (apex, ``torch._fused``) give each block one chunk of 64 Ki parameters.
Muon orthogonalises the momentum of each matrix by five Newton-Schulz steps of three products
(Jordan et al. 2024), so that its work depends on the shape of the matrices: ``rows`` and ``cols``.
Where they are not given it counts as if all were square, 4096 wide, and says so by the flag
``assumed_shape``. Adafactor keeps row and column sums only (1804.04235) and runs unfused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unknown_name
from silicast.hardware.device import Device
from silicast.kernels.movement.streaming import (
    Sizes,
    Stream,
    StreamingKernel,
    element_bytes,
    fullest_share,
)
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

CHUNK = 65_536
MASTER_BYTES = 4
ASSUMED_SIDE = 4096
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ_BYTES = NEWTON_SCHULZ_STEPS * 3 * 2
"""A step reads the 16-bit matrix twice and writes it once."""


@final
@dataclass(frozen=True, slots=True)
class UpdateRule:
    """What an update rule does to one parameter.

    Attributes:
        states: moments that are read and written.
        flops, fma, xu: useful operations, instructions of the FMA pipe and of the XU.
        between: bytes that an unfused rule writes and reads again.
        kernels: kernels of one update.
        state_bytes: of a moment that is kept in fp32 unless the variant says otherwise; in fewer,
            scales of blocks included (Dettmers et al. 2022, 2110.02861), always so.
    """

    states: int
    flops: int
    fma: int
    xu: int
    between: int = 0
    kernels: float = 1.0
    state_bytes: int = MASTER_BYTES


RULES: Mapping[str, UpdateRule] = {
    "adam": UpdateRule(2, 12, 14, 2),
    "adamw": UpdateRule(2, 14, 16, 2),
    # moments of 8 bits: their tables' values scaled, the largest of each block of 256 taken
    "adamw_8bit": UpdateRule(2, 14, 32, 2, state_bytes=1),
    # Composer's: nine operators of PyTorch sweep 22 tensors in 32 bits, a fused kernel 7
    "decoupled_adamw": UpdateRule(2, 14, 16, 2, 15 * 4, 9.0),
    "sgd": UpdateRule(0, 2, 2, 0),
    "sgd_momentum": UpdateRule(1, 4, 4, 0),
    "lion": UpdateRule(1, 7, 8, 0),
    "muon": UpdateRule(1, 6, 6, 0, NEWTON_SCHULZ_BYTES, 3.0 * NEWTON_SCHULZ_STEPS + 2.0),
    # squares summed by row and column; the scaled update written, its norm taken, then applied
    "adafactor": UpdateRule(0, 12, 14, 2, 3 * 4, 4.0),
}


@lru_cache(maxsize=512)
def rule_name(variant: Variant) -> str:
    """The update rule that a variant's flags name; "adamw" if none does.

    Raises:
        SilicastError: two rules are named.
    """
    named = [name for name, value in variant.flags if value and name in RULES]
    if len(named) > 1:
        raise SilicastError(
            f"two update rules: {' and '.join(named)}", field="kind", hint="keep one of them"
        )
    return named[0] if named else "adamw"


def optimizer_flags(
    kind: str,
    *,
    master: bool = True,
    fp32_states: bool = True,
    fp32_grads: bool = False,
    assumed_shape: bool = False,
) -> tuple[tuple[str, bool], ...]:
    """The flags of an update, sorted; those at their default are left out.

    >>> optimizer_flags("lion", master=False)
    (('lion', True), ('master', False))
    """
    if kind not in RULES:
        raise unknown_name(f"unknown optimizer {kind!r}", "kind", f"one of {', '.join(RULES)}")
    table = {kind: True}
    table |= {} if master else {"master": False}
    table |= {} if fp32_states else {"fp32_states": False}
    table |= {"fp32_grads": True} if fp32_grads else {}
    table |= {"assumed_shape": True} if assumed_shape and kind == "muon" else {}
    return tuple(sorted(table.items()))


def optimizer_bytes(name: str, dtype: str) -> int:
    """Bytes that an optimizer keeps a parameter: its states in fp32, and the fp32 copy of 16-bit
    weights.

    >>> optimizer_bytes("adamw", "bf16"), optimizer_bytes("sgd_momentum", "fp32")
    (12, 4)
    """
    master = MASTER_BYTES if element_bytes(dtype) < MASTER_BYTES else 0
    return RULES[name].states * RULES[name].state_bytes + master


@register
@final
class Optimizer(StreamingKernel):
    """Dimensions: elements (parameters); for Muon rows and cols of their matrices."""

    family: ClassVar[str] = "optimizer"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"elements": (1, 1 << 44)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Gradient, states and weights in; states and weights out."""
        name, size = rule_name(variant), element_bytes(variant.dtype)
        rule, elements = RULES[name], sizes["elements"]
        copied = size < MASTER_BYTES and variant.flag("master", default=True)
        weight = MASTER_BYTES if copied else size
        state = rule.state_bytes if variant.flag("fp32_states", default=True) else size
        state = min(state, rule.state_bytes)
        gradient = MASTER_BYTES if variant.flag("fp32_grads") else size
        products = _products(sizes) if name == "muon" else None
        return Stream(
            read_bytes=elements * (gradient + weight + rule.states * state),
            write_bytes=elements * (weight + (size if copied else 0) + rule.states * state),
            flops=elements * rule.flops + (0 if products is None else products),
            fma=elements * rule.fma,
            xu=elements * rule.xu,
            tasks=-(-elements // CHUNK),
            block_share=fullest_share(elements, CHUNK) if rule.kernels == 1.0 else None,
            kernels=rule.kernels,
            between_bytes=elements * rule.between if rule.between else None,
            matrix=products,
        )

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Wider where the shape of Muon's matrices is a guess."""
        shared_log_sd = dict(super().shared_log_sd(variant, device))
        if variant.flag("assumed_shape"):
            shared_log_sd["shape:muon"] = ASSUMED_SHAPE_LOG_SD
        return shared_log_sd

    def remarks(self, variant: Variant) -> tuple[str, ...]:
        """Says so where matrices were assumed."""
        if not variant.flag("assumed_shape"):
            return ()
        side = ASSUMED_SIDE
        return (f"muon: rows and cols of the matrices are not given, {side} x {side} is assumed",)


def _products(sizes: Sizes) -> Any:
    """Operations of the Newton-Schulz products: X X', its square, and its product with X.

    Per step and matrix with the shorter side s and the longer l: 2 s s l, 2 s s s, 2 s s l.
    """
    rows, cols = sizes.get("rows", ASSUMED_SIDE), sizes.get("cols", ASSUMED_SIDE)
    shorter = (rows + cols - abs(rows - cols)) // 2
    longer = rows + cols - shorter
    a_step = 4 * shorter + 2 * shorter * shorter // longer
    return sizes["elements"] * (NEWTON_SCHULZ_STEPS * a_step)


ASSUMED_SHAPE_LOG_SD = 0.7
"""Matrices of language models are 2048 to 8192 on the shorter side: a factor of two either way."""
