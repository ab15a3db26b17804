"""What of a training step the host's memory holds, and how it comes and goes.

    activations   down beside the forward pass that makes them, up before the backward pass
    weights       up before each layer, forward and backward; what the device updates goes down
    optimizer     updated by the CPU: gradients down, weights up (ZeRO-Offload, arXiv 2101.06840);
                  or by the device: states up and down (ZeRO-Infinity, arXiv 2104.07857)

Each byte that leaves the device crosses the link, and each that a pass needs comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

from silicast.composition.engines.host_copies import HOST_COPY, HOST_UPDATE
from silicast.core.errors import SilicastError
from silicast.distributed.ranks.plan import ELEMENT
from silicast.kernels.movement.optimizer import optimizer_bytes
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import Op, Variant

DOWN, UP, CPU = 5, 6, 7
"""Streams of copies to the host, of copies from it, and of its own work."""
FP32 = 4
PIECES = 8
"""In which an update's copies and its work follow each other."""
SHARES = ("optimizer", "activations", "weights")

Update = Literal["host", "device"]


@final
@dataclass(frozen=True, slots=True)
class Offload:
    """Shares from 0 to 1 that the host's memory holds.

    Attributes:
        activations: of what a pass keeps for its gradients.
        optimizer: of the optimizer's states.
        weights: of the weights.
        update: who updates the weights whose states the host holds.

    >>> Offload(optimizer=1.0).any, Offload().any
    (True, False)
    """

    activations: float = 0.0
    optimizer: float = 0.0
    weights: float = 0.0
    update: Update = "host"

    def __post_init__(self) -> None:
        for name in SHARES:
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                raise SilicastError(
                    f"{name} = {share}", field=f"offload.{name}", hint="a share from 0 to 1"
                )

    @property
    def any(self) -> bool:
        """Whether the host holds anything."""
        return any(getattr(self, name) > 0.0 for name in SHARES)

    @property
    def by_host(self) -> float:
        """Share of the weights that the CPU updates."""
        return self.optimizer if self.update == "host" else 0.0


def part(size: float, share: float) -> int:
    """Whole bytes of a share."""
    return int(size * share)


def copy(name: str, size: int, stream: int, inputs: tuple[str, ...] = ()) -> Node:
    """A copy that runs beside the device's work: it neither waits for its block nor ends it."""
    return Node(name, Op.make(HOST_COPY, Variant(), bytes=size), inputs, stream, of_weights=True)


def host_updates(
    update: Node, elements: int, optimizer: str, dtype: str, offload: Offload, gradient_bytes: int
) -> list[Node]:
    """One update of a rank's parameters, as far as the host takes part.

    The first parameters are those of which the host holds states, or weights.

    Args:
        update: of all of them, on the device.
        gradient_bytes: of a parameter's gradient that is still to go down; 0 = they are there.
    """
    held, home = part(elements, offload.optimizer), part(elements, offload.weights)
    states = optimizer_bytes(optimizer, dtype)
    by_host = held if offload.update == "host" else 0
    streamed = held - by_host
    nodes: list[Node] = []
    pieces = PIECES if streamed else 1
    for number in range(pieces):
        piece = _piece(elements - by_host, number, pieces)
        waits, name = update.inputs, update.name if pieces == 1 else f"{update.name}_{number}"
        size = _piece(streamed * states, number, pieces)
        if size:
            nodes.append(copy(f"states_up_{number}", size, UP))
            waits = (*waits, nodes[-1].name)
        if piece:
            nodes.append(replace(update, name=name, op=_sized(update.op, piece), inputs=waits))
        if size:
            nodes.append(copy(f"states_down_{number}", size, DOWN, (nodes[-1].name,)))
    if home > by_host:  # weights that the host holds and the device has updated
        size = (home - by_host) * ELEMENT
        nodes.append(copy("weights_down", size, DOWN, (nodes[-1].name,)))
    # gradients and states are read, states and 16-bit weights written
    touched = by_host * (FP32 + 2 * states + ELEMENT)
    for number in range(PIECES if by_host else 0):
        waits = ()
        if gradient_bytes:
            size = _piece(by_host * gradient_bytes, number)
            nodes.append(copy(f"gradients_down_{number}", size, DOWN, update.inputs))
            waits = (nodes[-1].name,)
        op = Op.make(HOST_UPDATE, Variant(), bytes=_piece(touched, number))
        nodes.append(Node(f"host_update_{number}", op, waits, CPU, of_weights=True))
        if by_host > home:  # of weights that the device holds
            size = _piece((by_host - home) * ELEMENT, number)
            nodes.append(copy(f"weights_up_{number}", size, UP, (nodes[-1].name,)))
    return nodes


def _sized(op: Op, elements: int) -> Op:
    return replace(op, dims=tuple((n, elements if n == "elements" else v) for n, v in op.dims))


def _piece(size: int, number: int, pieces: int = PIECES) -> int:
    """Of a size, one of whole pieces that add up to it."""
    return size * (number + 1) // pieces - size * number // pieces


@final
@dataclass(frozen=True, slots=True)
class HostMoves:
    """Copies between a rank and its host beside the passes of its layers.

    Attributes:
        offload: what the host holds.
        kept: bytes that one layer of each kind keeps of a pass; () = none is offloaded.
        sharers, copies: ranks that share the dense weights of a rank and its experts; states: and
            their optimizer's states.
    """

    offload: Offload
    kept: tuple[int, ...] = ()
    sharers: tuple[int, int] = (1, 1)
    states: tuple[int, int] = (1, 1)

    def weights_up(self, parameters: tuple[int, int], name: str) -> list[Node]:
        """A layer's weights before it runs; ``parameters``: dense ones and those of experts."""
        held = sum(
            -(-each // shards) for each, shards in zip(parameters, self.sharers, strict=True)
        )
        size = part(held * ELEMENT, self.offload.weights)
        return [copy(name, size, UP)] if size else []

    def gradients_down(self, parameters: tuple[int, int], bits: int, last: str) -> list[Node]:
        """A layer's gradients behind the one that is ready last."""
        held = sum(-(-each // shards) for each, shards in zip(parameters, self.states, strict=True))
        size = part(held * bits // 8, self.offload.by_host)
        return [copy("gradients_down", size, DOWN, (last,))] if size else []

    def activations_down(self, kind: int, last: str) -> list[Node]:
        """What a layer keeps behind its forward pass."""
        size = part(self.kept[kind], self.offload.activations) if self.kept else 0
        return [copy("activations_down", size, DOWN, (last,))] if size else []

    def activations_up(self, kind: int) -> list[Node]:
        size = part(self.kept[kind], self.offload.activations) if self.kept else 0
        return [copy("activations_up", size, UP)] if size else []
