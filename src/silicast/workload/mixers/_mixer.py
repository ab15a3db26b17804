"""The interface of one token mixer: what it runs, holds and keeps of one layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from silicast.core.registry import Registry
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.nodes import Nodes
from silicast.workload.graphs.op import Op
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.weight_tensor import Weight

if TYPE_CHECKING:
    from silicast.workload.graphs.attention_pairs import StepSequences

OUTPUT = "o"
"""Name of the node that ends a mixer: its output, not yet summed over the ranks."""


class Mixer(ABC):
    """The part of a layer, between its norm and its residual, that mixes tokens.

    Class attributes:
        name: as ``LayerKind.mixer`` and ``ModelConfig.mixers`` state it.
    """

    name: ClassVar[str]

    @abstractmethod
    def nodes(self, make: Nodes, source: str, kind: LayerKind) -> Iterator[Node]:
        """From the normed input ``source`` to :data:`OUTPUT` of one rank."""

    @abstractmethod
    def weights(self, model: ModelConfig, kind: LayerKind) -> list[Weight]:
        """Weights of one layer."""

    def cache_bytes(self, rank: Nodes, kind: LayerKind, tokens: int) -> int:
        """Bytes that one layer on one rank caches of a sequence of ``tokens`` tokens, exact; by
        default :meth:`token_bytes` of each and the state.
        """
        state = self.state_bytes(rank, kind) if tokens else 0
        return tokens * self.token_bytes(rank, kind) + state

    def state_bytes(self, rank: Nodes, kind: LayerKind) -> int:  # noqa: ARG002
        """Bytes that one layer on one rank keeps of a sequence of any length."""
        return 0

    @abstractmethod
    def token_bytes(self, rank: Nodes, kind: LayerKind) -> int:
        """Bytes by which the cache of one layer on one rank grows with a token, windows aside."""

    @abstractmethod
    def live_elements(self, rank: Nodes, kind: LayerKind) -> list[int]:
        """Elements a token that live at once, at each of the mixer's worst points on one rank."""

    @abstractmethod
    def flops(self, model: ModelConfig, kind: LayerKind, step: StepSequences) -> int:
        """FLOPs of one layer that are not of its weights and the new tokens: attention, scans."""

    def counted(self) -> Mapping[str, Callable[[Op], int]]:
        """Op family -> exact FLOPs of one concrete op of it, for families of the mixer's own."""
        return {}

    def check(self, model: ModelConfig) -> None:  # noqa: B027
        """Refuses a model that the mixer cannot be part of; the default takes all.

        Raises:
            SilicastError: names the field.
        """

    def divides(self, kind: LayerKind, model: ModelConfig, tp: int) -> bool:  # noqa: ARG002
        """Whether ``tp`` ranks can share it: by default whole heads."""
        return kind.heads % tp == 0 and shared(kind.kv_heads, tp)


def shared(heads: int, ranks: int) -> bool:
    """Whether ranks hold equal numbers of whole heads, or equal numbers of ranks a head."""
    return heads % ranks == 0 or ranks % heads == 0


_KNOWN: Registry[Mixer] = Registry("silicast.workload.mixers", "mixer", "mixers")
register = _KNOWN.register
mixers = _KNOWN.all
"""All mixers by name."""


def mixer_named(name: str) -> Mixer:
    """One mixer.

    Raises:
        SilicastError: there is none of that name.
    """
    if name == "heads":  # most models have no other: spares the import of all
        from silicast.workload.mixers import heads  # noqa: F401
    return _KNOWN.named(name)
