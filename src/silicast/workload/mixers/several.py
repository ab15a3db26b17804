"""Mixers of two parts in one layer: attention beside or before a state space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import Nodes
from silicast.workload.mixers._mixer import OUTPUT, Mixer, mixer_named, register
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_parts import SharedBlock
from silicast.workload.models.weight_tensor import Weight

if TYPE_CHECKING:
    from silicast.workload.graphs.attention_pairs import StepSequences

_SPACE = "mamba2"
_ATTENTION = "heads"


class _WithStateSpace(Mixer):
    """Attention of heads and Mamba 2 in one layer: both caches, both amounts of work."""

    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        return mixer_named(_ATTENTION).token_bytes(rank, replace(kind, reuses=False))

    def state_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        return mixer_named(_SPACE).state_bytes(rank, kind)

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`: each part beside the other's input."""
        both = (_ATTENTION, _SPACE)
        return [
            rank.model.hidden + n
            for name in both
            for n in mixer_named(name).live_elements(rank, replace(kind, reuses=False))
        ]

    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        space = mixer_named(_SPACE).flops(model, kind, step)
        return space + mixer_named(_ATTENTION).flops(model, kind, step)

    def check(self, model: ModelConfig) -> None:
        mixer_named(_SPACE).check(model)

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:
        return all(mixer_named(n).divides(kind, model, tp) for n in (_ATTENTION, _SPACE))


@register
@final
class ParallelHybrid(_WithStateSpace):
    """Attention and Mamba 2 on the same input, their outputs added (Falcon-H1)."""

    name: ClassVar[str] = "heads_mamba2"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`; ranks sum the output of the state space by itself."""
        yield from _renamed(mixer_named(_SPACE).nodes(make, source, kind), "mamba_", source)
        last = yield from make.summed("mamba_all_reduce", f"mamba_{OUTPUT}")
        yield from _renamed(mixer_named(_ATTENTION).nodes(make, source, kind), "attention_", source)
        hidden = make.model.hidden
        yield make.elementwise(OUTPUT, "add", hidden, 2, last, f"attention_{OUTPUT}")

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        space = mixer_named(_SPACE).weights(model, kind)
        named = [replace(w, name="mamba_o") if w.name == "o" else w for w in space]
        return [*mixer_named(_ATTENTION).weights(model, kind), *named]


@register
@final
class SharedHybrid(_WithStateSpace):
    """A shared block before Mamba 2 (Zamba 2): attention and MLP read the hidden states beside the
    embedding, and a product of the layer's own adds the result to the input of the state space.

    Layers that reuse a block hold its adapters and that product only.
    """

    name: ClassVar[str] = "shared_mamba2"

    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """See :meth:`Mixer.nodes`; the norm at ``source`` stands for the sum with the residual."""
        model, block = make.model, _block_of(make.model)
        hidden, wide, rank = model.hidden, 2 * model.hidden, block.adapter_rank
        inner = model.intermediate // make.shard.tp
        yield make.elementwise("block_concat", "copy", wide, 1, source)
        yield make.row_norm("block_input_norm", 1, wide, "block_concat")
        heads = mixer_named(_ATTENTION).nodes(make, source, replace(kind, reuses=False))
        attention = _renamed(heads, "block_", source, "block_input_norm")
        for node in attention:
            is_input = node.name == "block_qkv"
            if not is_input:
                yield node
                continue
            width = int(str(node.op.dim("n")))
            yield make.projection(node.name, width, wide, "block_input_norm")
            if block.adapted_attention:
                yield make.projection("block_qkv_a", 3 * rank, wide, "block_input_norm")
                yield make.projection("block_qkv_b", width, rank, "block_qkv_a")
        last = yield from make.summed("block_o_all_reduce", f"block_{OUTPUT}")
        yield make.norm("block_post_norm", last, residual=False)
        yield make.gemm("block_up_a", rank, hidden, "block_post_norm")
        yield make.gemm("block_up_b", 2 * inner, rank, "block_up_a")
        yield from make.mlp("block_", inner, "block_post_norm")
        last = yield from make.summed("block_down_all_reduce", "block_down")
        yield make.gemm("block_linear", hidden, hidden, last)
        yield make.norm("mamba_norm", "block_linear", residual=True)
        yield from mixer_named(_SPACE).nodes(make, "mamba_norm", kind)

    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        block, h, f = _block_of(model), model.hidden, model.intermediate
        wide, rank, held = 2 * h, block.adapter_rank, 0 if kind.reuses else 1
        q, kv = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        matrices = [
            Weight("block_q", q, wide, "outputs", "projection", held, 1),
            Weight("block_kv", kv, wide, "kv_heads", "projection", 2 * held, 2, kind.kv_heads),
            Weight("block_o", h, q, "inputs", "projection", held, 1),
            Weight("block_up", f, h, "outputs", "linear", 2 * held, 2),
            Weight("block_down", h, f, "inputs", "linear", held, 1),
            Weight("block_norms", 3 * h, count=held, per_token=1),
            Weight("block_up_a", rank, h, "none", "linear"),
            Weight("block_up_b", 2 * f, rank, "outputs", "linear"),
            Weight("block_linear", h, h, "none", "linear"),
        ]
        if block.adapted_attention:
            matrices.append(Weight("block_qkv_a", rank, wide, "none", "projection", 3))
            matrices.append(Weight("block_q_b", q, rank, "outputs", "projection"))
            matrices.append(
                Weight("block_kv_b", kv, rank, "kv_heads", "projection", 2, heads=kind.kv_heads)
            )
        return [*matrices, *mixer_named(_SPACE).weights(model, kind)]

    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        """See :meth:`Mixer.live_elements`: the embedding stays, and the input is twice as wide."""
        points = super().live_elements(rank, kind)
        inner = rank.model.intermediate // rank.shard.tp
        mlp = rank.model.hidden + 3 * inner
        return [2 * rank.model.hidden + n for n in (*points, mlp)]

    def check(self, model: ModelConfig) -> None:
        super().check(model)
        _block_of(model)

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:
        return super().divides(kind, model, tp) and model.intermediate % tp == 0


def _block_of(model: ModelConfig) -> SharedBlock:
    """The shared block of a model.

    Raises:
        SilicastError: the model states none.
    """
    if model.shared_block is None:
        raise SilicastError("missing", field="shared_block", hint="a layer runs a shared block")
    return model.shared_block


def _renamed(nodes: Iterator[Node], prefix: str, source: str, instead: str = "") -> Iterator[Node]:
    """Nodes of a part under names of their own; what they read of ``source`` stays, or is read of
    ``instead``.
    """
    for node in nodes:
        inputs = [(instead or n) if n == source else f"{prefix}{n}" for n in node.inputs]
        yield replace(node, name=f"{prefix}{node.name}", inputs=tuple(inputs))
