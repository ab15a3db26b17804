"""Answers of models that generate no tokens: people read of sequences and of one latency."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

Value = TypeVar("Value")

OF_TOKENS: Final = (
    "ttft_", "prefill_ms", "output_token", "total_tokens_per_s", "requests_per_s", "kv_",
    "energy_per_request_j", "energy_per_output_token_j", "cost_per_million_output_tokens",
)  # fmt: skip
"""How metrics begin that say nothing, or nothing new, where sequences are counted."""


def counts_sequences(metrics: Collection[str]) -> bool:
    """Whether an answer is of a model that generates no tokens."""
    return "sequences_per_s" in metrics


def without_tokens(metrics: Mapping[str, Value]) -> dict[str, Value]:
    """The metrics that people are shown: all, but for those of tokens where none is generated.

    >>> list(without_tokens({"ttft_p99_ms": 9, "e2e_p99_ms": 9, "sequences_per_s": 1}))
    ['e2e_p99_ms', 'sequences_per_s']
    >>> list(without_tokens({"ttft_p99_ms": 9, "e2e_p99_ms": 9, "output_tokens_per_s": 1}))
    ['ttft_p99_ms', 'e2e_p99_ms', 'output_tokens_per_s']
    """
    if not counts_sequences(metrics):
        return dict(metrics)
    return {name: value for name, value in metrics.items() if not name.startswith(OF_TOKENS)}
