"""What a backward pass runs again instead of keeping it, by the modules of a layer.

One table for time and memory: a module is made of parts; a part is nodes of a layer that run again
here, and tensors that are then not kept (:mod:`silicast.distributed.memory.memory_kept`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from silicast.core.errors import SilicastError, unknown_name
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.op import Op, Variant

Recompute = str
"""What backward runs again: "none"; "selective": scores and their softmax; "selective:" and modules
joined by "+", see :data:`MODULES`; "full": layers. Scenarios also have "full:2", every second one
(:func:`every_layer`)."""

Part = Literal["input", "norm", "core", "mla_up", "projection", "mlp", "moe_act", "moe", "shared"]

MODULES: Mapping[str, frozenset[Part]] = {
    "core_attn": frozenset(("core",)),
    "layernorm": frozenset(("norm",)),
    "mla_up_proj": frozenset(("mla_up",)),
    "mlp": frozenset(("mlp",)),
    "moe_act": frozenset(("moe_act",)),
    "moe": frozenset(("moe", "moe_act", "shared")),
    "shared_experts": frozenset(("shared",)),
}
"""Modules of a layer that backward can run again, as training libraries name them, and their parts:
those whose tensors are then not kept."""

_NAMES: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (part, re.compile(names))  # type: ignore[misc]
    for part, names in (
        ("moe_act", r"experts_\d+_(act|mul)"),
        ("shared", r"shared_.*"),
        ("moe", r"(router|experts|latent)(_.*)?"),
        ("core", r".*(scores|attention_values).*"),
        ("mla_up", r"(q_b|kv_b|(q_)?rope)(_.*)?"),
        ("norm", r"(.*_)?norm(_mean|_square|_scale)?"),
        ("mlp", r"(gate_up|up|down)(_.*)?|gate(?!_[ab]$)(_.*)?|(silu|gelu|relu).*"),
    )
)
_LATENT = frozenset(("q_b", "kv_b"))
"""Only a layer with one of these has ways up from a latent."""


EVERY = re.compile(r"full:([1-9]\d{0,3})")


def every_layer(recompute: str) -> int:
    """That of how many layers one runs again in full: ``full:2`` is every second layer; 1 of any
    other policy.

    >>> every_layer("full:2"), every_layer("full"), every_layer("none")
    (2, 1, 1)
    """
    match = EVERY.fullmatch(recompute)
    return int(match[1]) if match else 1


@lru_cache(maxsize=256)
def recomputed_parts(recompute: Recompute) -> frozenset[Part]:
    """Parts of a layer that a policy other than "full" runs again.

    >>> sorted(recomputed_parts("selective")), sorted(recomputed_parts("selective:moe_act+mlp"))
    (['core'], ['mlp', 'moe_act'])

    Raises:
        SilicastError: no such policy or module, or one that is named twice.
    """
    if recompute == "none":
        return frozenset()
    policy, colon, listed = recompute.partition(":")
    names = listed.split("+") if colon else ["core_attn"]
    if policy == "selective" and len(set(names)) < len(names):
        raise SilicastError(
            f"{recompute[:60]!r} names a module twice", field="recompute", hint="name it once"
        )
    if policy != "selective" or any(name not in MODULES for name in names):
        modules = ", ".join(MODULES)
        raise unknown_name(
            f"unknown recomputation {recompute[:60]!r}",
            "recompute",
            f"none, selective, full, or selective: and modules joined by +, of {modules}",
        )
    return frozenset(part for name in names for part in MODULES[name])


def module_policies(*, latent: bool, experts: bool) -> tuple[Recompute, ...]:
    """Policies of single modules that libraries of fused layers offer, those that run least again
    first (recipes of Megatron-Bridge).

    >>> module_policies(latent=False, experts=False)
    ('selective:layernorm', 'selective:mlp', 'selective:layernorm+mlp')

    Args:
        latent: layers have ways up from a latent; experts: some have routed experts.
    """
    if not experts:
        names = [["layernorm"], ["mlp"], ["layernorm", "mlp"]]
    else:
        small = ["mla_up_proj", "moe_act", "layernorm"][not latent :]
        names = [small[: count + 1] for count in range(len(small))]
        names += [["moe"], [*(name for name in small if name != "moe_act"), "moe"]]
    return tuple(f"selective:{'+'.join(modules)}" for modules in names)


def run_again(block: Block, recompute: Recompute) -> Iterator[Node]:
    """Forward nodes of a block that run once more before its gradients, in order.

    A module runs again as a whole, sums over ranks and gathers of what it reads included. Grouped
    experts are one kernel; their activation alone is one pass over what they hold.
    """
    layer = block.count > 1 or bool(block.layers)
    if recompute == "none" or (recompute == "full" and not layer):
        return
    parts = frozenset() if recompute == "full" else recomputed_parts(recompute)
    if not layer:
        parts = parts & {"core"}
    latent = has_latent(block)
    table = {
        node.name: recompute == "full" or part_of(node, latent) in parts for node in block.nodes
    }
    gathers = {node.name for node in block.nodes if node.op.family == "all_gather"}
    for node in reversed(block.nodes):
        if node.name not in gathers and table[node.name]:
            table |= {name: True for name in node.inputs if name in gathers}
    for node in block.nodes:
        if table[node.name]:
            inputs = tuple(f"{name}_again" for name in node.inputs if table.get(name, False))
            yield replace(node, name=f"{node.name}_again", inputs=inputs)
        elif node.op.family == "moe" and "moe_act" in parts:
            yield Node(f"{node.name}_act_again", activation(node.op), (), node.stream)


def has_latent(block: Block) -> bool:
    """Whether a layer has ways up from a latent."""
    return any(node.name in _LATENT for node in block.nodes)


def part_of(node: Node, latent: bool) -> Part | None:
    """The part of a layer that a node belongs to; None = one that no module runs again.

    >>> from silicast.workload.graphs.op import Op
    >>> part_of(Node("down_reduce_scatter", Op.make("reduce_scatter", bytes=8, gpus=2)), False)
    'mlp'
    """
    family = node.op.family
    if family.startswith(("attention_", "mla_")):
        return "core"
    result = next((part for part, names in _NAMES if names.fullmatch(node.name)), None)
    if result == "mla_up" and not latent:
        return None
    return "core" if result is None and family == "softmax" else result


def activation_bytes(op: Op) -> int:
    """What :func:`activation` moves: all of its inputs and results, of 16 bits each."""
    sizes = {name: size for name, size in activation(op).dims if isinstance(size, int)}
    if "elements" in sizes:
        return 4 * sizes["elements"]
    return 3 * sizes["tokens"] * sizes["width"]


def activation(op: Op) -> Op:
    """Of grouped experts: rows of tokens and the experts that they pass, on one rank."""
    size = {name: value for name, value in op.dims if isinstance(value, int)}
    rows = size["tokens"] * size["topk"] // size.get("ep", 1)
    width = size["intermediate"] // size.get("tp", 1)
    written = Variant(dtype="bf16")
    if op.variant.flag("gated"):
        return Op.make("silu_mul", written, tokens=max(rows, 1), width=2 * width)
    flags = Variant(dtype="bf16", flags=(("gelu", True),))
    return Op.make("elementwise", flags, elements=max(rows, 1) * width, inputs=1)
