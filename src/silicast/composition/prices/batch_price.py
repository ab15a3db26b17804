"""A static batch of a deployment that is compiled: its prefill and its decode steps as prices.

What :func:`~silicast.composition.passes.static_batch.predict_static_batch` composes from every
kernel, with the reasons, this reads from the tables and surfaces of
:class:`~silicast.composition.prices.step_prices.StepPrices`, without them. Each decode step is at
the clock that its own mix of work holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from silicast.composition.passes.deployment import busiest_group
from silicast.composition.passes.static_batch import BatchTimes
from silicast.composition.prices.step_prices import StepPrices
from silicast.core.numerics import I64
from silicast.core.prediction import ErrorFactors, Quantity

_NONE: I64 = np.zeros(0, dtype=np.int64)


def batch_price(
    prices: StepPrices, input_lens: Sequence[int], output_len: int, past: int = 0
) -> BatchTimes:
    """Prices a static batch.

    The intervals are those of a batch whose numbers lie between the same powers of two; a limit of
    physics does not cut them.

    Args:
        prices: of an engine that batches continuously.
        input_lens: prompt tokens of each sequence, >= 1.
        output_len: tokens generated per sequence, >= 1; the first comes out of the prefill.
        past: tokens of each sequence before its prompt, in the cache.
    """
    group_lens = busiest_group(input_lens, prices.graph.plan.attention_dp)
    elsewhere = sum(input_lens) - sum(group_lens)
    prompts = [(tokens, past + tokens) for tokens in group_lens]
    one = prices.price(prompts, _NONE, elsewhere)
    prefill_s = float(prices.steps_s(np.array([one.pass_s]), one.work_s)[0])
    prefill_error = prices.error(prompts, _NONE, elsewhere)
    prefill = Quantity.around(prefill_s, prefill_error.log_sd)
    if output_len == 1:
        return BatchTimes(prefill, None, prefill)
    cached = np.array(group_lens, dtype=np.int64) + past
    run = prices.run(cached, output_len - 1)
    steps_s = prices.steps_s(np.array(run.pass_s), run.work_s)
    decode_s, middle = float(steps_s.sum()), len(steps_s) // 2
    decode_error = prices.error((), cached + middle)
    total = ErrorFactors.of_sum([(prefill_s, prefill_error), (decode_s, decode_error)])
    return BatchTimes(
        prefill,
        Quantity.around(float(steps_s[middle]), decode_error.log_sd),
        Quantity.around(prefill_s + decode_s, total.log_sd),
    )
