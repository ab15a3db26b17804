"""llm-d's inference simulator: a few numbers of its configuration, taken from single steps.

The simulator is written in Go and in no package index of Python: names of settings are those of its
documentation, and its code was not read. It knows a time that grows with the prompt, one between
tokens, and a factor by which both grow under full load.
"""

from __future__ import annotations

from silicast.composition.prices.step_predictor import StepPredictor

MILLI = 1e3


def settings(
    predictor: StepPredictor, *, prompt: int = 1024, context: int = 1024, max_num_seqs: int = 64
) -> dict[str, float | int]:
    """Settings by name, times in milliseconds.

    Args:
        prompt: tokens of a usual prompt; ``context``: cached tokens of a usual sequence.
        max_num_seqs: sequences at once under full load.
    """
    one, other = (predictor.predict_infer_time([(new, 0)]) for new in (max(prompt // 4, 1), prompt))
    each = (other - one) / max(prompt - max(prompt // 4, 1), 1)
    alone = predictor.predict_infer_time([(1, context)])
    loaded = predictor.predict_infer_time([(1, context)] * max_num_seqs)
    return {
        "max-num-seqs": max_num_seqs,
        "prefill-overhead": max(other - each * prompt, 0.0) * MILLI,
        "prefill-time-per-token": each * MILLI,
        "inter-token-latency": alone * MILLI,
        "time-factor-under-load": max(loaded / alone, 1.0),
    }
