"""The largest static batch of sequences of one length that fits, and the longest sequence: in
closed form under engines with layers of their own, by trial where a framework runs a model's code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from silicast.composition.memory.memory import static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.workload.models.counting import activation_bytes

if TYPE_CHECKING:
    from silicast.workload.frameworks.eager import Framework

MOST = 1 << 20
"""Sequences beyond which nobody asks."""
LONGEST = 1 << 24
"""Tokens beyond which nobody asks."""


@lru_cache(maxsize=1024)
def largest_padded_batch(
    deployment: Deployment, prompt_tokens: int, output_tokens: int, framework: Framework
) -> int:
    """:func:`largest_batch` where a framework runs the model's code: what results take follows from
    its operations, and is nearly in proportion to the batch.
    """
    from silicast.composition.passes.framework_pass import framework_memory

    def free(count: int) -> int:
        """Bytes that are left, below 0 = that are missing."""
        memory = framework_memory(deployment, count, prompt_tokens, output_tokens, framework)
        return memory.usable - memory.total

    return most_with_room(free, MOST) * deployment.plan.attention_dp


@lru_cache(maxsize=1024)
def longest_prompt(
    deployment: Deployment, output_tokens: int, framework: Framework | None = None
) -> int:
    """Tokens of the longest prompt of a sequence that runs alone, up to what the model is made for;
    0 = none fits.
    """
    from silicast.composition.passes.static_batch import batch_memory

    def free(tokens: int) -> int:
        memory = batch_memory(deployment, [tokens], output_tokens, framework)
        return memory.usable - memory.total

    made_for = deployment.model.max_positions
    return most_with_room(free, max(made_for - output_tokens + 1, 1) if made_for else LONGEST)


def largest_batch(deployment: Deployment, prompt_tokens: int, output_tokens: int) -> int:
    """Sequences of a static batch that fit beside the weights, all groups of ranks together; 0 =
    not even one fits.

    The cache grows with each sequence alike and what else a device holds does not, but for the
    results of the largest step.
    """
    model, plan, policy = deployment.model, deployment.plan, deployment.policy
    one = static_batch_memory(deployment, [prompt_tokens], output_tokens)
    free = one.usable - one.weights - one.framework

    def results(count: int) -> int:
        tokens = count * prompt_tokens
        step = min(tokens, policy.chunk_tokens) if policy.chunk_tokens else tokens
        return activation_bytes(model, plan, deployment.precision, step, count, policy)

    def fits(count: int) -> bool:
        if model.encoder is None:
            return count * one.kv_cache + results(count) <= free
        lengths = [prompt_tokens] * count * plan.attention_dp
        return static_batch_memory(deployment, lengths, output_tokens).excess == 0

    each = one.kv_cache or max(one.activations, 1)
    guess = max(free - one.activations, 0) // each
    if one.kv_cache and model.encoder is None:
        guess = max(free - results(guess), 0) // each
    return most_that(fits, guess) * plan.attention_dp


def most_that(fits: Callable[[int], bool], guess: int, most: int = MOST) -> int:
    """The largest number up to ``most`` that fits, where smaller ones do too; 0 = none.

    Args:
        guess: near which it is looked for.

    >>> [most_that(lambda n: n <= 37, guess) for guess in (0, 1, 36, 37, 38, 500)]
    [37, 37, 37, 37, 37, 37]
    >>> most_that(lambda n: False, 9), most_that(lambda n: True, 9, most=12)
    (0, 12)
    """
    low, high = 0, most + 1
    at, step = guess, 1
    while high - low > 1:
        at = min(max(at, low + 1), high - 1)
        if fits(at):
            low = at
        else:
            high = at
        if low and high <= most:
            at = low + 1 if at == low and step == 1 else (low + high) // 2
        else:
            at = low + step if low else high - step
        step *= 2
    return low


def most_with_room(free: Callable[[int], int], most: int) -> int:
    """The largest number up to ``most`` that leaves something free, where larger ones leave less; 0
    = none. Tries where a straight line between what is known crosses zero, and now and then halves.

    >>> [most_with_room(lambda n: 1000 - n * n, most) for most in (9, 1 << 20)]
    [9, 31]
    >>> most_with_room(lambda n: -1, 9)
    0
    """
    left = free(1)
    if left < 0:
        return 0
    low, high, missing = 1, min(2, most), free(min(2, most))
    slope = max(left - missing, 1)
    while (
        missing >= 0 and high < most
    ):  # out to where nothing is free, a little further than it seems
        low, left = high, missing
        high = min(low + max(left * 9 // (8 * slope), low), most)
        missing = free(high)
        slope = max((left - missing) // (high - low), 1)
    if missing >= 0:
        return high
    tries = 0
    while high - low > 1:
        tries += 1
        at = (low + high) // 2 if tries % 4 == 0 else low + (high - low) * left // (left - missing)
        at = min(max(at, low + 1), high - 1)
        if (result := free(at)) >= 0:
            low, left = at, result
        else:
            high, missing = at, result
    return low
