"""Memory of training on each rank of a pipeline: what it holds, and what the worst moment adds.

    weights + gradients + optimizer states         of the rank's layers, cut by tp, ep and ZeRO
    + kept activations x passes in flight          per layer kind and recomputation (memory_kept)
    + the worst moment of a backward pass          a layer's gradients, or logits and their softmax
    + buffers                                      gathered tensors, gathered weights, placeholders

One set of formulas works on arrays: a row is one pipeline rank of one plan, and a search passes
those of all its plans at once; :func:`plan_memory` is the same with the rows of one plan. States
follow Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), activations Korthikanti et al. 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.memory.activation_memory import EXPANDABLE, fragmentation_bytes
from silicast.core.errors import unknown_name
from silicast.core.numerics import F64, I64
from silicast.distributed.memory.memory_kept import (
    SavedTensor,
    Style,
    gradient_points,
    kept_tensors,
)
from silicast.distributed.memory.memory_rows import Bounds, PipelineRanks
from silicast.distributed.memory.memory_weights import (
    Held,
    gradient_tensors,
    held_parameters,
    largest_layer,
)
from silicast.distributed.memory.offload import Offload
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.kernels.movement.optimizer import RULES, optimizer_bytes
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_weights import drafting_kind
from silicast.workload.training.recomputation import recomputed_parts

SOFTMAX_BYTES = 4
"""Losses of training libraries keep the softmax of their logits in fp32."""


@final
@dataclass(frozen=True, slots=True)
class Rules:
    """How a training library uses memory.

    Attributes:
        style: precision and kernels of layers.
        recompute: none, selective, selective:<modules joined by +>, or full.
        optimizer: its update rule.
        gradient_bytes: of an accumulated gradient; moment_bytes: of a moment of the optimizer.
        offload: what the host's memory holds.
        in_place: products add their weight gradients to those of earlier micro-batches
            themselves and hand autograd an unused tensor of the weight's shape, of which one is
            kept for each shape (Megatron-LM's gradient accumulation fusion); else one weight's
            gradient at a time is there beside those that it is added to.
        reshards: sharded weights are whole for a layer at a time; else for all of them once.
        loss_copies: of the logits in 32 bits, that the loss holds at once.
        expandable: the allocator's segments grow in pages.
        in_line: the device's memory has no caching allocator.
        framework_bytes: of context and libraries.
        workspace_bytes: of libraries, which an allocator handed out.
    """

    style: Style = Style()
    recompute: str = "none"
    optimizer: str = "adamw"
    gradient_bytes: int = 4
    moment_bytes: int = 4
    offload: Offload = Offload()
    in_place: bool = True
    reshards: bool = True
    loss_copies: int = 1
    expandable: bool = False
    in_line: bool = False
    framework_bytes: int = 0
    workspace_bytes: int = 0

    def __post_init__(self) -> None:
        if self.recompute != "full":
            recomputed_parts(self.recompute)
        if self.optimizer not in RULES:
            hint = f"one of {', '.join(RULES)}"
            raise unknown_name(f"unknown optimizer {self.optimizer!r}", "optimizer", hint)


@final
@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes on each rank, shape (rows,).

    Attributes:
        parameters: that it holds, not bytes.
        weights, gradients, optimizer: of them.
        activations: kept for backward, of all passes in flight.
        transient: what the worst moment of a backward pass adds, and workspaces of libraries.
        buffers: of communication, and tensors of weights' shapes that a library keeps.
        fragmentation: what the allocator keeps beyond what it handed out.
        framework: context and libraries.
        host: of the host's memory: what is offloaded, and gradients on their way to a CPU.
    """

    parameters: I64
    weights: I64
    gradients: I64
    optimizer: I64
    activations: I64
    transient: I64
    buffers: I64
    fragmentation: I64
    framework: I64
    host: I64

    @property
    def allocated(self) -> I64:
        """What a framework reports as allocated at the worst moment."""
        states = self.weights + self.gradients + self.optimizer
        return states + self.activations + self.transient + self.buffers

    @property
    def total(self) -> I64:
        """What a device must hold."""
        return self.allocated + self.fragmentation + self.framework

    def free(self, usable_bytes: float) -> I64:
        """What is left of ``usable_bytes``; below zero: by how much it does not fit."""
        return _whole(usable_bytes - self.total.astype(np.float64))


def plan_memory(
    model: ModelConfig,
    plan: TrainingPlan,
    seq_len: int,
    micro_batch: int,
    micro_batches: int = 1 << 30,
    rules: Rules = Rules(),
    *,
    chunks: Sequence[Bounds] = (),
    in_flight: Sequence[int] = (),
) -> RankMemory:
    """Memory of each pipeline rank of one plan.

    >>> from silicast.workload.models.lookup import find_model
    >>> plan = TrainingPlan(tp=4, dp=16, zero=1, sequence_parallel=True)
    >>> memory = plan_memory(find_model("Llama-3.1-8B"), plan, 8192, 1)
    >>> f"{memory.total[0] / 1e9:.1f} GB"
    '25.4 GB'
    """
    rows = PipelineRanks.from_model(
        model, plan, seq_len, micro_batch, micro_batches, chunks=chunks, in_flight=in_flight
    )
    return rows_memory(model, rows, rules)


def rows_memory(model: ModelConfig, rows: PipelineRanks, rules: Rules = Rules()) -> RankMemory:
    """Memory of each row; each is computed as if it were alone, bit for bit."""
    held = held_parameters(model, rows.layers, rows.first, rows.last, rows.tp, rows.ep, rows.etp)
    states = _States(model, rows, rules, held)
    passes = _Passes(model, rows, rules)
    one, away = passes.kept(model), rules.offload
    layers, encoder = (each * rows.in_flight / rows.chunks for each in (one, passes.encoder()))
    worst = np.maximum(passes.worst(), states.after_layers() - one / rows.chunks)
    whole = _whole(layers + encoder + passes.head())
    off = _whole(layers * away.activations)
    activations = whole - off
    coming = activations + _whole(np.maximum(worst, 0.0))
    transient = coming - activations + rules.workspace_bytes
    share = fragmentation_bytes(1 << 20) / (1 << 20)
    lost = _whole(coming * (0.0 if rules.in_line else share))
    if rules.expandable:
        lost = np.minimum(lost, EXPANDABLE)
    weights, optimizer = _whole(states.weights()), _whole(states.optimizer())
    gone_weights = _whole(states.held() * away.weights)
    gone_states = _whole(optimizer * away.optimizer)
    gradients = _whole(states.trained() * (float(rules.gradient_bytes) * away.by_host))
    return RankMemory(
        parameters=held.dense + held.experts,
        weights=weights - gone_weights,
        gradients=_whole(states.gradients()),
        optimizer=optimizer - gone_states,
        activations=activations,
        transient=transient,
        buffers=_whole(states.buffers() + passes.buffers()),
        fragmentation=lost,
        framework=np.full(len(rows.tp), rules.framework_bytes, dtype=np.int64),
        host=off + gone_weights + gone_states + gradients,
    )


def checkpoint_bytes(model: ModelConfig, rules: Rules) -> int:
    """Of all ranks together: what is trained, and what the optimizer keeps for it."""
    rows = PipelineRanks.from_model(model, TrainingPlan(), 1, 1)
    held = held_parameters(model, rows.layers, rows.first, rows.last, rows.tp, rows.ep, rows.etp)
    states = _States(model, rows, rules, held)
    return int((states.trained() * float(states.hidden) + states.optimizer())[0])


def layer_bytes(model: ModelConfig, rows: PipelineRanks, rules: Rules) -> tuple[int, ...]:
    """What one layer of each kind of the model keeps of one pass, on the first of the rows."""
    passes = _Passes(model, rows, rules)
    return tuple(int(passes.of_layer(model, kind)[0]) for kind in model.kinds)


def _whole(values: NDArray[np.floating[Any]]) -> I64:
    whole: I64 = np.floor(values).astype(np.int64)
    return whole


@final
class _States:
    """What weights need, of each row."""

    def __init__(self, model: ModelConfig, rows: PipelineRanks, rules: Rules, held: Held) -> None:
        self.model, self.rows, self.rules, self.params = model, rows, rules, held
        self.hidden = rules.style.precision.hidden_bytes
        self.trains_all = rules.style.adapted is None

    def _shared(self, dense: I64, experts: I64, stage: int) -> F64:
        """Parameters of which a rank holds the states that ZeRO shares from ``stage`` on."""
        sharded, rows = self.rows.zero >= stage, self.rows
        value: I64 = -(-dense // np.where(sharded, rows.sharers, 1))
        value = value + -(-experts // np.where(sharded, rows.copies, 1))
        return value.astype(np.float64)

    def _trained(self) -> tuple[I64, I64]:
        if self.trains_all:
            return self.params.dense, self.params.experts
        return self.params.adapters(self.rules.style), np.zeros_like(self.params.experts)

    def held(self) -> F64:
        """Of all parameters in 16 or 32 bits; of frozen products in theirs, and of a frozen model
        beside.
        """
        whole = self._shared(self.params.dense, self.params.experts, 3)
        held: F64 = whole * float(self.hidden)
        style = self.rules.style
        if style.frozen_bits < 8 * self.hidden and not self.trains_all:
            packed = self._shared(self.params.products, np.zeros_like(self.params.products), 3)
            held = held - packed * (self.hidden - style.frozen_bits / 8.0)
        return held + whole * (style.reference_bits / 8.0)

    def trained(self) -> F64:
        """Parameters that a rank updates."""
        return self._shared(*self._trained(), 1)

    def weights(self) -> F64:
        """Of all parameters, and of quantised products both orientations beside them."""
        held = self.held()
        recipe = self.rules.style.precision.linear
        if recipe.weight_bits < 8 * self.hidden:  # gathered weights are quantised as they are used
            copies = self.params.products * (2.0 * recipe.activation_bits / 8.0)
            held = held + np.where(self.rows.zero < 3, copies, 0.0)
        if not self.trains_all:
            held = held + self.params.adapters(self.rules.style) * float(self.hidden)
        return held

    def gradients(self) -> F64:
        """Of what is trained, never narrower than the weights."""
        each = float(max(self.rules.gradient_bytes, self.hidden))
        return self._shared(*self._trained(), 2) * each

    def optimizer(self) -> F64:
        """States of what is trained, wherever they are."""
        rules = self.rules
        each = optimizer_bytes(rules.optimizer, rules.style.precision.hidden)
        rule = RULES[rules.optimizer]
        each -= rule.states * max(rule.state_bytes - rules.moment_bytes, 0)
        return self.trained() * float(each)

    def buffers(self) -> F64:
        """Weights gathered for two layers at a time, gradients of one, and single weights'."""
        rows, rules = self.rows, self.rules
        layer = largest_layer(self.model, rows.layers, rows.tp, rows.ep, rows.etp)
        whole = layer * (2.0 * self.hidden)
        if not rules.reshards:
            whole = (self.params.dense + self.params.experts) * float(self.hidden)
        buffers: F64 = np.where(rows.zero >= 3, whole, whole * rules.offload.weights)
        if not self.trains_all:
            if rules.style.frozen_bits >= 8 * self.hidden:
                return buffers
            layers = np.zeros_like(rows.last)  # the head is not packed
            one = gradient_tensors(
                self.model, rows.layers, layers, rows.tp, rows.etp, every_shape=False
            )
            # the weight that is made wide
            return np.asarray(buffers + one * float(self.hidden), dtype=np.float64)
        buffers = buffers + np.where(rows.zero >= 2, layer * float(rules.gradient_bytes), 0.0)
        tensors = gradient_tensors(
            self.model, rows.layers, rows.last, rows.tp, rows.etp, every_shape=rules.in_place
        )
        return buffers + np.where(rows.zero < 3, tensors * float(self.hidden), 0.0)

    def after_layers(self) -> F64:
        """The embedding's gradient, written whole once its pass has given back the rest."""
        if not self.trains_all or self.model.mel_bins:
            return np.zeros(len(self.rows.tp))
        width = self.model.embedding_width or self.model.hidden
        table = -(-self.model.vocab // self.rows.tp) * width
        return np.where(self.rows.first, table * float(self.hidden), 0.0)


@final
class _Passes:
    """What passes through a rank's layers need, of each row."""

    def __init__(self, model: ModelConfig, rows: PipelineRanks, rules: Rules) -> None:
        self.model, self.rows, self.rules = model, rows, rules
        self.hidden = float(rules.style.precision.hidden_bytes)
        self.tokens = rows.micro_batch * rows.seq_len / rows.cp
        self.between = np.where(rows.sequence_parallel, rows.tp, 1)
        self.full = rules.recompute == "full"
        self.again = frozenset() if self.full else recomputed_parts(rules.recompute)

    def bytes_of(self, kind: LayerKind, tensor: SavedTensor) -> F64:
        rows, width = self.rows, float(tensor.width)
        if tensor.over == "kv":
            heads = np.maximum(tensor.heads // rows.tp, 1)
            local = heads * (width / tensor.heads)
        elif tensor.over == "all":
            local = np.full(len(rows.tp), width)
        elif tensor.over == "sequence":
            local = width / self.between
        elif tensor.over == "routed":
            local = width * rows.etp / rows.tp
        else:
            local = width / rows.tp
        if tensor.per_key:
            seen = rows.seq_len
            if kind.window:
                seen = np.minimum(seen, kind.window)
            local = local * seen
        return self.tokens * local * (tensor.bits / 8.0)

    def _remakes(self, tensor: SavedTensor) -> bool:
        return tensor.part != "input" if self.full else tensor.part in self.again

    def _stacks(self) -> Iterator[tuple[ModelConfig, LayerKind, I64]]:
        """Kinds of layers with the model that they are of, and how many each row has: an encoder
        is on the ranks with the embedding.
        """
        for index, kind in enumerate(self.model.kinds):
            yield self.model, kind, self.rows.layers[:, index]
        if self.model.predicts:
            kind = drafting_kind(self.model)
            yield self.model, kind, self.rows.last * np.int64(self.model.predicts)
        encoder = self.model.encoder
        if encoder is not None:
            for kind, count in encoder.kind_counts(range(encoder.layers)).items():
                yield encoder, kind, self.rows.first * np.int64(count)

    def kept(self, of: ModelConfig) -> F64:
        """Of one micro-batch through a rank's layers of the model, or of its encoder."""
        result = np.zeros(len(self.rows.tp))
        for model, kind, count in self._stacks():
            if model is of:
                result = result + count * self.of_layer(model, kind)
        return result

    def of_layer(self, model: ModelConfig, kind: LayerKind) -> F64:
        layer = np.zeros(len(self.rows.tp))
        for tensor in kept_tensors(model, kind, self.rules.style):
            if not self._remakes(tensor):
                layer = layer + self.bytes_of(kind, tensor)
        return layer

    def encoder(self) -> F64:
        """Of its layers, its last norm's input, and its results, which every rank attends to."""
        encoder = self.model.encoder
        if encoder is None:
            return np.zeros(len(self.rows.tp))
        each = self.tokens * encoder.hidden * self.hidden / self.between
        return self.kept(encoder) + each * (1.0 + self.rows.first)

    def head(self) -> F64:
        """The final norm's input and the head's, of the one micro-batch that is there; the same
        of each further token that is predicted.
        """
        each = self.tokens * self.model.hidden * self.hidden / self.between
        return np.where(self.rows.last, 2.0 * (1 + self.model.predicts) * each, 0.0)

    def worst(self) -> F64:
        """A layer's gradients with what runs again for them, or the loss."""
        rows = self.rows
        worst = np.zeros(len(rows.tp))
        for model, kind, count in self._stacks():
            again = np.zeros(len(rows.tp))
            for tensor in kept_tensors(model, kind, self.rules.style):
                if self._remakes(tensor):
                    again = again + self.bytes_of(kind, tensor)
            for point in gradient_points(model, kind, self.rules.style):
                size = again
                for tensor in point:
                    size = size + self.bytes_of(kind, tensor)
                worst = np.where(count > 0, np.maximum(worst, size), worst)
        logits = self.tokens * -(-self.model.vocab // rows.tp) * (1 + self.model.predicts)
        loss = np.where(
            rows.last, logits * (self.hidden + SOFTMAX_BYTES * self.rules.loss_copies), 0.0
        )
        if self.model.pooler:
            return worst
        return np.maximum(worst, loss)

    def buffers(self) -> F64:
        """Gathered tokens, keys and values of other ranks, and what the next stage sends."""
        rows = self.rows
        stream = self.tokens * self.model.hidden * self.hidden
        gathered = np.where(rows.sequence_parallel & (rows.tp > 1), stream, 0.0)
        received = np.where(rows.pp > 1, stream / self.between, 0.0)
        widest = np.zeros(len(rows.tp))
        for kind in self.model.kinds:
            size = np.zeros(len(rows.tp))
            for tensor in kept_tensors(self.model, kind, self.rules.style):
                if tensor.name in ("keys", "values"):
                    size = size + self.bytes_of(kind, tensor)
            widest = np.maximum(widest, size)
        copies = np.where(rows.gathers_keys, rows.cp, 2)
        value = gathered + received + np.where(rows.cp > 1, widest * copies, 0.0)
        return value + self.on_their_way()

    def on_their_way(self) -> F64:
        """Of what the host holds, what a layer's pass reads, and what comes for the next one."""
        their_way = np.zeros(len(self.rows.tp))
        if not self.rules.offload.activations:
            return their_way
        for index, kind in enumerate(self.model.kinds):
            size = np.where(self.rows.layers[:, index] > 0, self.of_layer(self.model, kind), 0.0)
            their_way = np.maximum(their_way, size)
        return their_way * (2.0 * self.rules.offload.activations)
