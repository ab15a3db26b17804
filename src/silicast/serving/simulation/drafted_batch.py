"""A static batch whose decode steps verify drafted tokens.

    total = prefill (model and drafter) + steps x (verification + drafts)

Steps are the expected number until the slowest sequence has its tokens, see
:func:`~silicast.serving.simulation.speculation.steps_until`; those of sequences that end earlier
keep their place. Verification and drafts are the steps of
:mod:`silicast.serving.simulation.drafting`, evaluated at the same cached lengths as decode steps of
a batch without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import msgspec
import numpy as np

from silicast.composition.memory.memory import MemoryUse, static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import (
    BatchSteps,
    StaticBatch,
    decode_knots,
    predict_static_batch,
    summed,
)
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import step_model
from silicast.core.numerics import F64, I64
from silicast.core.prediction import ErrorFactors, Prediction
from silicast.serving.simulation.drafting import Drafting, drafter_weights, seen_share
from silicast.serving.simulation.speculation import steps_until

ACCEPTED = "acceptance"
"""Cause of the error of an acceptance length that nobody stated."""


@final
@dataclass(frozen=True)
class DraftedBatch:
    """A batch with drafts, and the same without.

    Attributes:
        whole: the batch; its decode step is one verification with the drafts after it.
        plain: without drafts.
        tokens_a_step: the acceptance length.
        decode_steps: expected steps until the slowest sequence has its tokens.
        tokens: of a sequence, after the first.
    """

    whole: StaticBatch
    plain: StaticBatch
    tokens_a_step: float
    decode_steps: float
    tokens: int

    @property
    def why(self) -> dict[str, float]:
        """What drafts change."""
        total_s = self.whole.total.seconds
        before = self.plain.decode_step
        step = self.whole.decode_step
        assert before is not None
        assert step is not None
        return {
            "acceptance_length_expected": round(self.tokens_a_step, 6),
            "decode_steps_expected": round(self.decode_steps, 6),
            "tpot_ms": step.seconds * 1e3 * self.decode_steps / self.tokens,
            "tpot_without_ms": before.seconds * 1e3,
            "total_speedup": round(self.plain.total.seconds / total_s, 6),
        }


def predict_drafted_batch(
    deployment: Deployment,
    drafting: Drafting,
    input_lens: Sequence[int],
    output_len: int,
    cached: int = 0,
) -> DraftedBatch:
    """Predicts a static batch whose tokens are drafted.

    Args:
        deployment: without attention_dp; ``drafting``: who drafts, and how many are kept.
        input_lens, output_len (at least 2), cached: as of
            :func:`~silicast.composition.passes.static_batch.predict_static_batch`.
    """
    plain = predict_static_batch(deployment, input_lens, output_len, cached=cached)
    knots, weights = decode_knots(output_len - 1)
    needed = steps_until(drafting.acceptance, output_len - 1, len(input_lens))
    steps = weights * (needed / (output_len - 1))
    alone = BatchStates.decode(input_lens, knots).after(cached)
    share = seen_share(deployment, drafting.verified)
    verified = _repeated(alone, share, drafting.verified)
    decodes = [("verification", _steps(deployment, verified), 1.0)]
    prompts: list[tuple[BatchSteps, F64]] = []
    phases = [plain.prefill]
    if (drafter := _on_device(drafting.drafter)) is not None:
        first = _repeated(alone, 1.0 / drafting.verified, drafting.verified)
        decodes.append(("first_draft", _steps(drafter, first), 1.0))
        if drafting.drafts > 1:
            decodes.append(("further_drafts", _steps(drafter, alone), drafting.drafts - 1.0))
        read = predict_static_batch(drafter, input_lens, 1, cached=cached)
        phases.append(replace(read.prefill, part=read.prefill.part.changed(name="drafter")))
        prompts.append((read.steps[0], np.ones(len(read.steps[0].rows))))
    middle = len(knots) // 2
    step = summed("decode_step", [_at(*each, middle, None) for each in decodes])
    decode = summed("decode", [_at(*each, middle, steps) for each in decodes])
    decode = replace(decode, error=_with_acceptance(decode.error, drafting.acceptance.log_sd))
    prefill = summed("prefill", phases)
    target = decodes[0][1]
    whole = StaticBatch(
        prefill,
        step,
        summed("total", [prefill, decode]),
        _with_drafter(plain.memory, drafting, input_lens, output_len, cached),
        (plain.clock_hz[0], target.times(middle).clock_hz),
        (plain.steps[0], target),
        steps,
        (*prompts, *((each, steps * count) for _, each, count in decodes[1:])),
    )
    return DraftedBatch(whole, plain, drafting.acceptance.mean, needed, output_len - 1)


def _on_device(drafter: Deployment | None) -> Deployment | None:
    """The drafter without work of the host, but where each of its passes is a batch of its own."""
    if drafter is None or drafter.engine.parallel.one_batch:
        return drafter
    host = msgspec.structs.replace(drafter.engine.host, step_us=0.0, request_us=0.0, token_us=0.0)
    engine = msgspec.structs.replace(drafter.engine, host=host)
    return replace(drafter, machine=replace(drafter.machine, engine=engine))


def _steps(deployment: Deployment, states: BatchStates) -> BatchSteps:
    model = step_model(deployment)
    return BatchSteps(model, states, np.arange(len(states)), model.steps(states))


def _repeated(states: BatchStates, share: float, times: int) -> BatchStates:
    """The states with ``times`` queries of each sequence, each on a share of its cached tokens."""
    seen: I64 = np.ceil(states.decode_kv * share).astype(np.int64)
    offsets = states.decode_offsets * times
    return replace(states, decode_kv=np.repeat(seen, times), decode_offsets=offsets)


def _at(name: str, steps: BatchSteps, count: float, middle: int, weights: F64 | None) -> Prediction:
    """So many of a kind of pass in the middle step, or in all."""
    weighted = np.full(1, count) if weights is None else weights * count
    if weights is None:
        steps = BatchSteps(steps.model, steps.states, np.array([middle]), steps.at_boost)
    return steps.at(name, middle, (), weighted)[0]


def _with_acceptance(error: ErrorFactors, log_sd: float) -> ErrorFactors:
    if not log_sd:
        return error
    return replace(error, loadings={**error.loadings, ACCEPTED: log_sd})


def _with_drafter(
    memory: MemoryUse, drafting: Drafting, input_lens: Sequence[int], output_len: int, cached: int
) -> MemoryUse:
    """The batch's memory with the drafter's weights and cache."""
    weights, cache = drafter_bytes(drafting, input_lens, output_len, cached)
    held = {"weights": memory.weights + weights, "kv_cache": memory.kv_cache + cache}
    return msgspec.structs.replace(memory, **held)


def drafter_bytes(
    drafting: Drafting, input_lens: Sequence[int], output_len: int, cached: int = 0
) -> tuple[int, int]:
    """What the drafter's weights and its cache take of a device beside the model's."""
    if (drafter := drafting.drafter) is None:
        return 0, 0
    weights = drafter_weights(drafter, shares_head=drafting.shares_head)
    return weights, static_batch_memory(drafter, input_lens, output_len, cached).kv_cache
