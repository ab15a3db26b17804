"""Query-key pairs, exactly."""

from __future__ import annotations

from collections.abc import Sequence


def step_pairs(
    prefill: Sequence[tuple[int, int]],
    decode: Sequence[int],
    window: int = 0,
    *,
    chunked: bool = False,
) -> tuple[int, int]:
    """Pairs of all sequences in prefill, and of all that decode, with a window or chunks.

    Args:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
        window: last keys that a query sees, 0 = all; ``chunked``: or the size of its own chunk.
    """
    chunk, reach = (window, 0) if chunked else (0, window)
    first = sum(attention_pairs(new, kv, reach, chunk) for new, kv in prefill)
    return first, sum(attention_pairs(1, cached + 1, reach, chunk) for cached in decode)


def attention_pairs(new: int, total: int, window: int = 0, chunk: int = 0) -> int:
    """Query-key pairs of ``new`` tokens at the end of ``total``, causal, each query seeing its
    last ``window`` keys (0 = all), or those of its own ``chunk``.

    >>> attention_pairs(4, 4), attention_pairs(1, 9), attention_pairs(4, 6, 5)
    (10, 9, 17)
    >>> attention_pairs(4, 6, chunk=4)      # the queries see 3, 4, 1 and 2 keys
    10
    """
    if chunk:
        return _chunked_pairs(total, chunk) - _chunked_pairs(total - new, chunk)
    past = total - new
    reach = window or total
    growing = min(max(reach - past, 0), new)
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * min(reach, total)


def _chunked_pairs(tokens: int, chunk: int) -> int:
    """Pairs of all of ``tokens``, each with the keys of its chunk up to itself."""
    full, rest = divmod(tokens, chunk)
    return full * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2
