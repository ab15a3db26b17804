"""The largest static batch of sequences of one length that fits, in closed form."""

from __future__ import annotations

from collections.abc import Callable

from silicast.composition.deployment import Deployment
from silicast.composition.memory import static_batch_memory
from silicast.workload.counting import activation_bytes

MOST = 1 << 20
"""Sequences beyond which nobody asks."""


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
