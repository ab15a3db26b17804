"""Which layers each chunk of a pipeline holds."""

from __future__ import annotations

from silicast.core.errors import SilicastError
from silicast.workload.models.model import ModelConfig
from silicast.workload.transformers.plan import stage_bounds


def chunk_bounds(layers: int, chunks: int, predicting: int = 0) -> tuple[tuple[int, int], ...]:
    """First and one-past-last layer of each chunk of a pipeline.

    Where the layers do not divide, but do with embedding and head counted as one each, the ends
    hold one less (Megatron-LM's ``account_for_embedding_in_pipeline_split``).

    Args:
        predicting: layers that predict further tokens, which count as layers behind the others and
            are all in the last chunk (layouts of Megatron-Bridge's recipes of DeepSeek-V3).

    >>> chunk_bounds(6, 4), chunk_bounds(8, 4)[0]
    (((0, 1), (1, 3), (3, 5), (5, 6)), (0, 2))
    >>> [last - first for first, last in chunk_bounds(61, 8, 1)]
    [7, 8, 8, 8, 8, 8, 8, 7]
    """
    if predicting:
        ends = [min(first, layers) for first, _ in chunk_bounds(layers + predicting, chunks)]
        return tuple(zip(ends, [*ends[1:], layers + predicting], strict=True))
    each, left = divmod(layers + 2, chunks)
    if chunks > 1 and layers % chunks and not left:
        ends = [max(each * number - 1, 0) for number in range(chunks)]
        return tuple(zip(ends, [*ends[1:], layers], strict=True))
    if chunks > layers:
        raise SilicastError(
            f"{chunks} chunks of {layers} layers", field="parallel.pp", hint="fewer stages"
        )
    return stage_bounds(layers, chunks)


def model_bounds(model: ModelConfig, chunks: int) -> tuple[tuple[int, int], ...]:
    """:func:`chunk_bounds` of a model."""
    return chunk_bounds(model.layers, chunks, model.predicts)


def most_chunks(layers: int, ranks: int) -> int:
    """The most chunks a pipeline rank that hold alike many layers each, embedding and head counted
    as one each where the layers alone do not divide; 1 = no number above does.

    >>> most_chunks(32, 4), most_chunks(126, 16), most_chunks(31, 4)
    (8, 8, 1)
    """
    return max(
        (
            each
            for each in range(2, (layers + 2) // ranks + 1)
            if not layers % (ranks * each) or not (layers + 2) % (ranks * each)
        ),
        default=1,
    )
