"""What drafting tokens and verifying them costs: prices of steps, and memory.

A step verifies all drafts of a sequence at once. Products see every token of them; attention reads
each cached token once for all queries of its sequence, unless their arithmetic takes longer than
that. Then the drafter runs: once over the tokens that the model has just seen, and once for each
further token that it drafts. Nothing is decided between its passes, unless each is a batch of the
engine's own (llama.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice, StepPrices, step_prices
from silicast.composition.prices.stepper import StepPricing
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates, segment_sums
from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.kernels.physics.formats import with_format
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.launch import serving_table, start_of
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.simulation.start import pooled
from silicast.serving.statistics.step_mix import Mix
from silicast.workload.models.counting import (
    attention_flops,
    kv_bytes_per_token,
    kv_cache_bytes,
    weight_bytes,
)
from silicast.workload.models.model import ModelConfig

LONG = 4096
"""Tokens of a context in which attention's arithmetic is set against what it reads."""
REMEMBERED = 4096
"""Host work of so many kinds of steps is remembered."""


@final
@dataclass(frozen=True)
class Drafting:
    """How tokens are drafted.

    Attributes:
        acceptance: chances that they are kept, one for each drafted token in a row.
        drafter: what drafts them, beside the model; None = the host, from tokens that it has.
        shares_head: the drafter's embedding and head are the model's own.
        verified: tokens of a sequence that a step looks at; more than drafted ones and one = a tree
            of drafts, of which the best branch is kept.
    """

    acceptance: Acceptance
    drafter: Deployment | None
    shares_head: bool
    verified: int

    @property
    def drafts(self) -> int:
        """Drafted tokens in a row."""
        return len(self.acceptance.rates)


def layers_of(model: ModelConfig, count: int = 1, *, dense: bool = False) -> ModelConfig:
    """A model of so many layers like the last one of ``model``, with its embedding and its head.

    Args:
        dense: an MLP stands in place of experts.

    >>> from silicast.workload.models.lookup import find_model
    >>> one = layers_of(find_model("DeepSeek-V3"))
    >>> one.layers, one.kind(0) == find_model("DeepSeek-V3").kind(60)
    (1, True)
    """
    last = model.layers - 1
    moe = None if dense or model.moe is None else replace(model.moe, dense_layers=())
    feed = model.feed(last)
    if feed == "experts" and moe is None:
        feed = "mlp"
    return replace(
        model,
        name=f"{count} of {model.name}",
        layers=count,
        windows=(model.window(last),) * count if model.windows else (),
        mixers=(model.mixer(last),) * count,
        feeds=(feed,) * count,
        sizes=model.sizes[last:] * count,
        no_rope_every=0,
        moe=moe if feed == "experts" else None,
        mtp_layers=0,
        encoder=None,
        published_parameters=0,
        encoder_parameters=0,
        encoder_heads=0,
    )


def drafted(spec: ReplicaSpec, deployment: Deployment, drafting: Drafting) -> ReplicaSpec:
    """A replica that drafts: its drafter's weights and cache take room beside the model's. A number
    of blocks that somebody stated is what the engine printed beside both.

    Raises:
        SilicastError: they leave no room for requests.
    """
    sequences, blocks, size = spec.limits.sequences, spec.limits.blocks, spec.layout.block_bytes
    if not serving_table(deployment).blocks:
        start, caching = start_of(deployment, spec.limits), spec.limits.prefix_caching
        if start.state_bytes:
            sequences, blocks = pooled(start, drafting.verified - 1, caching=caching)
    drafter = drafting.drafter
    prices = None
    if drafter is not None:
        prices = step_prices(drafter)
        server, whole = deployment.engine.serving, blocks * size
        token = kv_bytes_per_token(
            drafter.model, drafter.plan, drafter.precision, policy=drafter.policy
        )
        size += token * spec.layout.block_tokens
        if server is None or not server.blocks:
            blocks = (whole - drafter_weights(drafter, shares_head=drafting.shares_head)) // size
    if blocks < 1:
        raise SilicastError(
            f"{deployment.model.name} and what drafts for it leave no room for a KV cache on "
            f"{deployment.plan.gpus} x {deployment.device.name}",
            field="speculative",
            hint="a smaller draft, or more or larger devices",
        )
    assert isinstance(spec.prices, StepPrices)
    return replace(
        spec,
        prices=SpeculativePrices(
            spec.prices,
            prices,
            drafting.drafts,
            drafting.verified,
            seen_share(deployment, drafting.verified),
            host_decides=deployment.engine.parallel.one_batch,
        ),
        limits=replace(
            spec.limits, sequences=sequences, blocks=blocks, drafted=drafting.verified - 1
        ),
        layout=replace(spec.layout, block_bytes=size),
        accepted=drafting.acceptance,
    )


def drafter_weights(drafter: Deployment, *, shares_head: bool) -> int:
    """Bytes of a drafter's weights on a device, beside those that are the model's."""
    plan, precision, policy = drafter.plan, drafter.precision, drafter.policy
    weights = weight_bytes(drafter.model, plan, precision, policy=policy)
    if not shares_head:
        return weights
    double = layers_of(drafter.model, 2 * drafter.model.layers)
    return weight_bytes(double, plan, precision, policy=policy) - weights


def seen_share(deployment: Deployment, tokens: int) -> float:
    """Cached tokens for which attention of ``tokens`` queries of a sequence is charged, over
    queries times cached tokens: 1 / tokens where reading the cache once is all that takes time, 1
    where arithmetic is.

    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.hardware.catalog import find_device
    >>> from silicast.workload.models.lookup import find_model
    >>> model, engine = find_model("Llama-3.1-8B"), find_engine("vllm")
    >>> seen_share(Deployment.from_model(model, find_device("H100"), engine), 4)
    0.25
    """
    model, plan, device = deployment.model, deployment.plan, deployment.device
    whole = replace(plan, pp=1)
    read = kv_cache_bytes(model, whole, deployment.precision, [LONG], policy=deployment.policy)
    read_s = read / device.dram.bandwidth_bytes_per_s
    dtype = deployment.precision.hidden
    able, _ = with_format(device, dtype)
    peak = able.peak_per_s(able.matrix_pipe(dtype), dtype)
    compute_s = attention_flops(model, (), [LONG]) / plan.tp / peak
    once = max(read_s, compute_s)
    return max(read_s, tokens * compute_s) / once / tokens if once else 1.0


@final
class SpeculativePrices:
    """Prices of steps that verify drafts and draft the next ones.

    Args:
        target: of the model's steps; drafter: of the drafter's, None = the host drafts.
        drafts: passes of the drafter; verified: tokens of each decoding sequence.
        share: see :func:`seen_share`.
        host_decides: the host samples each draft before the next pass; else the device does.
    """

    def __init__(
        self,
        target: StepPricing,
        drafter: StepPricing | None,
        drafts: int,
        verified: int,
        share: float,
        *,
        host_decides: bool = False,
    ) -> None:
        self.host_decides = host_decides
        self.target, self.drafter, self.drafts = target, drafter, drafts
        self.verified, self.share = verified, share
        self._works: dict[tuple[int, int, int], float] = {}

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step."""
        return self.target.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before: not where its
        drafts are made from that one's tokens.
        """
        return self.target.asynchronous and self.drafter is not None

    @property
    def gap_s(self) -> float:
        return self.target.gap_s

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """One step: verification of all drafts, and the drafter's passes after it.

        Args:
            elsewhere: new tokens of the other groups of attention_dp, drafts included.
        """
        price = self.target.price(prefill, self.rows(decode_kv), elsewhere)
        *before, last = price.stages_s
        last += self.drafting_s(prefill, decode_kv, elsewhere)
        work_s = self._work_s(prefill, len(decode_kv))
        return price._replace(stages_s=(*before, last), work_s=work_s)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """Steps one after another in which no draft is kept."""
        prices = [self.price((), decode_kv + step, elsewhere) for step in range(steps)]
        stages_s = [list(each) for each in zip(*(price.stages_s for price in prices), strict=True)]
        waits_s, clock_hz = [each.waits_s for each in prices], [each.clock_hz for each in prices]
        return RunPrice(stages_s, waits_s, prices[0].work_s, clock_hz)

    def verifying(self, mix: Mix) -> Mix:
        """The same steps with all drafts of the sequences in decode."""
        states = mix.states
        wider = replace(
            states,
            decode_kv=self.rows(states.decode_kv),
            decode_offsets=states.decode_offsets * self.verified,
        )
        return Mix(wider, mix.weights)

    def drafting(self, mix: Mix) -> Mix:
        """The drafter's later passes of the same steps; the first is alike to verification."""
        states = mix.states
        counts = states.decode_sequences + states.prefill_sequences
        offsets = np.concatenate(([0], np.cumsum(counts)))
        seen = segment_sums(states.decode_kv, states.decode_offsets) + states.prefill_kv_tokens
        none = np.zeros(0, dtype=np.int64)
        later = BatchStates(
            none, none, np.zeros_like(offsets), np.repeat(seen // counts, counts), offsets
        )
        return Mix(later, mix.weights * (self.drafts - 1))

    def rows(self, decode_kv: Lengths) -> I64:
        """Queries of a verification: the cached tokens for which each is charged, shape
        (sequences x verified,).
        """
        seen = np.ceil(np.asarray(decode_kv) * self.share).astype(np.int64)
        return np.repeat(seen, self.verified)

    def drafting_s(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> float:
        """All passes of the drafter in a step; its sequences are taken as alike."""
        drafter = self.drafter
        if drafter is None:
            return 0.0
        sequences = len(decode_kv)
        mean = int(decode_kv.sum()) // max(sequences, 1)
        first = drafter.price(
            prefill, np.full(sequences * self.verified, mean // self.verified), elsewhere
        )
        drafting_s: float = first.pass_s + drafter.gap_s + self._decides_s(first)
        if self.drafts > 1:
            ends = sum(total for _, total in prefill)
            sequences += len(prefill)
            mean = (int(decode_kv.sum()) + ends) // sequences + self.drafts // 2
            beside = elsewhere // self.verified if elsewhere > 0 else elsewhere
            later = drafter.price((), np.full(sequences, mean), beside)
            each_s = later.pass_s + drafter.gap_s + self._decides_s(later)
            drafting_s += (self.drafts - 1) * each_s
        return drafting_s

    def _decides_s(self, price: StepPrice) -> float:
        """The host's work behind a pass of the drafter, where a step of its own is one."""
        return price.work_s if self.host_decides else 0.0

    def _work_s(self, prefill: Sequence[tuple[int, int]], sequences: int) -> float:
        """The host's work, which knows sequences and prompts, not drafts."""
        key = (len(prefill), sum(new for new, _ in prefill), sequences)
        if key not in self._works:
            if len(self._works) >= REMEMBERED:
                self._works.clear()
            alike = np.ones(sequences, dtype=np.int64)
            self._works[key] = self.target.price(prefill, alike).work_s
        return self._works[key]
