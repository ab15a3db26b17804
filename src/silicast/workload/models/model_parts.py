"""Parts of a decoder that not every model has: experts, latent, sparse and recurrent layers, sizes
of single layers, and what tells one layer from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.core.errors import ErrorKind, SilicastError

STATE_BYTES = 4
"""Of an element of a recurrent state: serving engines keep it in fp32."""
INDEX_FORMAT = "fp8"
INDEX_SCALE_BYTES = 4
"""Index keys are cached in fp8, with one fp32 scale each."""


@final
@dataclass(frozen=True, slots=True)
class MoE:
    """Routed experts in place of the MLP.

    Attributes:
        experts: routed experts of a layer; topk: how many of them a token passes.
        intermediate: width of one expert after its activation.
        shared_intermediate: width of the experts that every token passes, all together; 0 = none.
        shared_gate: their output is weighted by a gate of its own (Qwen2-MoE).
        router_bias: the router has a bias, or a correction, per expert.
        grouped: scores are corrected, and experts chosen within the best groups of them.
        dense_layers: layers that keep the MLP of width ``ModelConfig.intermediate``, ascending.
        capacity: tokens of a sequence that an expert takes at most, 0 = all (Switch).
        latent: width that routed experts work in, between a product down and one up that all
            tokens pass; 0 = they work on the hidden states.
        routing: how popular its experts are, a distribution of
        :mod:`silicast.kernels.experts.routing`:
            "uniform" is what a balancing loss trains a router for; small batches then leave some
            experts unread, and the ranks of a group wait for the one with most.
        copies: of popular experts, in memory beside the experts, so that ranks hold and do as much
            as each other; tokens share out among the copies.

    Raises:
        SilicastError: sizes that contradict each other.

    >>> MoE(experts=8, topk=2, intermediate=14336).topk
    2
    """

    experts: int
    topk: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    dense_layers: tuple[int, ...] = ()
    latent: int = 0
    capacity: int = 0
    routing: str = "uniform"
    copies: int = 0
    grouped: bool = False

    LIMITS: ClassVar[dict[str, tuple[int, int]]] = {
        "experts": (1, 1 << 16),
        "topk": (1, 1 << 16),
        "intermediate": (1, 1 << 22),
        "shared_intermediate": (0, 1 << 22),
        "latent": (0, 1 << 20),
        "copies": (0, 1 << 16),
    }

    def __post_init__(self) -> None:
        check_sizes(self, self.LIMITS, "moe.")
        require(
            self.topk <= self.experts,
            f"a token passes {self.topk} of {self.experts} experts",
            "moe.topk",
            f"at most {self.experts}",
        )
        for layer in self.dense_layers:
            check_int("moe.dense_layers", layer, 0, 1 << 10)
        ascending = list(self.dense_layers) == sorted(set(self.dense_layers))
        require(ascending, "not ascending", "moe.dense_layers", "sort them")

    @property
    def held(self) -> int:
        """Experts in memory, copies included."""
        return self.experts + self.copies

    @property
    def spread(self) -> str:
        """How popular what ranks hold is: copies are of popular experts, and placed so that ranks
        get as many tokens as each other.
        """
        uneven = self.routing.startswith("power_law_") and not self.routing.endswith("_eplb")
        return f"{self.routing}_eplb" if self.copies and uneven else self.routing


@final
@dataclass(frozen=True, slots=True)
class MLA:
    """Latent attention: keys and values of all heads come out of one cached vector per token.

    Attributes:
        kv_lora_rank: width of the cached latent, its rotary part left out.
        qk_nope_head_dim, qk_rope_head_dim: width of a head's queries and keys without and with
            rotary positions; the latter part is shared by all heads and cached too.
        v_head_dim: width of a head's values.
        q_lora_rank: width of the queries' own latent; 0 = queries come from the hidden states.

    Raises:
        SilicastError: a size is out of range.

    >>> MLA(512, 128, 64, 128, 1536).cached
    576
    """

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0

    LIMITS: ClassVar[dict[str, tuple[int, int]]] = {
        "kv_lora_rank": (1, 1 << 16),
        "qk_nope_head_dim": (1, 1 << 16),
        "qk_rope_head_dim": (1, 1 << 16),
        "v_head_dim": (1, 1 << 16),
        "q_lora_rank": (0, 1 << 16),
    }

    def __post_init__(self) -> None:
        check_sizes(self, self.LIMITS, "mla.")

    @property
    def cached(self) -> int:
        """Elements that the cache holds per token and layer, whatever the number of heads."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def qk_head_dim(self) -> int:
        """Width of a head's queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@final
@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one layer where they differ from the model's; 0 = as the model's.

    Attributes:
        heads, kv_heads, head_dim: of its attention; v_head_dim: width of a head's values, 0 = that
            of its queries and keys.
        intermediate: width of its MLP.
        shared_kv: values are the keys before their norm and rotation: one projection for both.
        sinks: its heads have sinks; None = as the model's.
        reuses: it reads keys and values that an earlier layer cached; of a shared block
            (:class:`SharedBlock`): its weights are those of an earlier layer.

    Raises:
        SilicastError: a size is out of range.

    >>> LayerSizes(kv_heads=4, head_dim=512).intermediate
    0
    """

    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    intermediate: int = 0
    shared_kv: bool = False
    sinks: bool | None = None
    reuses: bool = False

    def __post_init__(self) -> None:
        names = ("heads", "kv_heads", "head_dim", "v_head_dim", "intermediate")
        check_sizes(self, dict.fromkeys(names, (0, 1 << 22)), "sizes.")
        check_divisor(self.heads, self.kv_heads or 1, "sizes.kv_heads")


@final
@dataclass(frozen=True, slots=True)
class LayerKind:
    """What tells one layer of a model from another.

    Attributes:
        mixer: how tokens see each other, a name of :mod:`silicast.workload.mixers`; "" = not at
            all: the layer is its feed alone.
        feed: "mlp", "experts" or "" = the layer is its mixer alone.
        window: keys that a query sees, 0 = all; rope: queries and keys are rotated.
        heads, kv_heads, head_dim: of its attention; intermediate: width of its MLP.
        v_head_dim: width of a head's values, 0 = ``head_dim``.
        shared_kv: keys and values come out of one projection; sinks: its heads have sinks.
        reuses: as ``LayerSizes.reuses``.
        formats: (weight or node, recipe) of modules whose format is another than that of their
            kind; "" = not quantised.
    """

    mixer: str = "heads"
    feed: str = "mlp"
    window: int = 0
    rope: bool = True
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    intermediate: int = 0
    v_head_dim: int = 0
    shared_kv: bool = False
    sinks: bool = False
    reuses: bool = False
    formats: tuple[tuple[str, str], ...] = ()

    @property
    def value_dim(self) -> int:
        """Width of a head's values."""
        return self.v_head_dim or self.head_dim

    @property
    def moe(self) -> bool:
        """Whether it has experts instead of the MLP."""
        return self.feed == "experts"


@final
@dataclass(frozen=True, slots=True)
class Recurrent:
    """Sizes of layers whose tokens meet in a state: linear attention, state spaces.

    Attributes:
        key_heads, key_dim: heads and channels of queries and keys (Mamba 2: groups and states).
        value_heads, value_dim: heads and channels of values; each has a state of its own.
        taps: width of the causal convolution before it; taps_bias: which has a bias.
        chunk: tokens that a prefill takes at once, where the model says so.
        decay_rank: width of the bottleneck that a decay for every channel comes out of (KDA,
            Mamba 1).
        gate_rank: the same of the output gate; 0 = a whole projection (KDA).
        gated_norm: the norm of what comes out has weights; without them it is the gate alone.

    Raises:
        SilicastError: a size is out of range, or heads do not share keys evenly.

    >>> Recurrent(key_heads=16, key_dim=128, value_heads=64, value_dim=128).state
    1048576
    """

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    taps: int = 4
    taps_bias: bool = False
    chunk: int = 64
    decay_rank: int = 0
    gate_rank: int = 0
    gated_norm: bool = True

    LIMITS: ClassVar[dict[str, tuple[int, int]]] = {
        "key_heads": (1, 1 << 12),
        "key_dim": (1, 1 << 12),
        "value_heads": (1, 1 << 12),
        "value_dim": (1, 1 << 12),
        "taps": (1, 64),
        "chunk": (1, 1 << 12),
        "decay_rank": (0, 1 << 16),
        "gate_rank": (0, 1 << 16),
    }

    def __post_init__(self) -> None:
        check_sizes(self, self.LIMITS, "recurrent.")
        require(
            self.value_heads % self.key_heads == 0,
            f"{self.key_heads} key heads do not divide {self.value_heads} value heads",
            "recurrent.key_heads",
            f"use a divisor of {self.value_heads}",
        )

    @property
    def state(self) -> int:
        """Elements of the states of all heads, of one sequence and layer."""
        return self.value_heads * self.key_dim * self.value_dim


@final
@dataclass(frozen=True, slots=True)
class SharedBlock:
    """A block of attention and MLP that several layers run with the same weights (Zamba 2).

    Attributes:
        adapter_rank: of the products that each layer adds to the up projection for itself.
        adapted_attention: also to queries, keys and values.

    Raises:
        SilicastError: a size is out of range.
    """

    adapter_rank: int
    adapted_attention: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, {"adapter_rank": (1, 1 << 16)}, "shared_block.")


@final
@dataclass(frozen=True, slots=True)
class Sparse:
    """What layers with sparse attention have beyond their heads.

    Attributes:
        index_heads, index_dim: of the indexer's queries; its one key has ``index_dim`` elements.
        selected: tokens, compressed entries or blocks that a query attends to.
        block: tokens of a selected block (MiniMax-M3); 1 = single tokens.
        window: last tokens that are seen uncompressed beside what is selected; 0 = none.
        q_rank, out_groups, out_rank: of DeepSeek-V4's queries and of its grouped way out.
        csa_ratio, hca_ratio: tokens that share an entry in lightly and heavily compressed layers.
        rope_dim: width of a head that is rotated.
        streams: residual streams that hyper-connections mix around every block; 0 = one, added to.

    Raises:
        SilicastError: a size is out of range.

    >>> Sparse(index_heads=64, index_dim=128, selected=2048).index_token_bytes
    132
    """

    index_heads: int
    index_dim: int
    selected: int
    block: int = 1
    window: int = 0
    q_rank: int = 0
    out_groups: int = 0
    out_rank: int = 0
    rope_dim: int = 64
    csa_ratio: int = 4
    hca_ratio: int = 128
    streams: int = 0

    AT_LEAST_1: ClassVar[frozenset[str]] = frozenset(
        ("index_heads", "index_dim", "selected", "block", "csa_ratio", "hca_ratio")
    )

    def __post_init__(self) -> None:
        limits = {name: (int(name in self.AT_LEAST_1), 1 << 20) for name in self.__slots__}
        check_sizes(self, limits, "sparse.")

    @property
    def index_token_bytes(self) -> int:
        """Bytes that the index cache holds of one key."""
        return self.index_dim * int(BITS[INDEX_FORMAT]) // 8 + INDEX_SCALE_BYTES


def require(
    condition: bool, message: str, field: str, hint: str = "", *, kind: ErrorKind = "invalid_input"
) -> None:
    """Raises SilicastError for ``field`` unless ``condition`` holds."""
    if not condition:
        raise SilicastError(message, kind=kind, field=field, hint=hint)


def check_divisor(heads: int, kv_heads: int, field: str, hint: str = "") -> None:
    """Refuses key-value heads that do not divide the heads.

    Raises:
        SilicastError: names the field.
    """
    text = f"{kv_heads} key-value heads do not divide {heads} heads"
    require(heads % kv_heads == 0, text, field, hint or f"use a divisor of {heads}")


def check_sizes(part: object, limits: Mapping[str, tuple[int, int]], prefix: str = "") -> None:
    """Refuses sizes that are no whole numbers within their limits.

    Args:
        prefix: put before the names of fields in errors.

    Raises:
        SilicastError: names the field.
    """
    for name, (low, high) in limits.items():
        check_int(prefix + name, getattr(part, name), low, high)


def check_int(field: str, value: object, low: int, high: int) -> None:
    """Refuses what is not a whole number from ``low`` to ``high``.

    Raises:
        SilicastError: names the field.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        huge = isinstance(value, int) and abs(value) >= 1 << 128
        shown = "a far larger one" if huge else repr(value)[:40]
        raise SilicastError(
            f"expected a whole number from {low} to {high}, found {shown}", field=field
        )
