"""Dynamo's mocker: a file of times on a grid, which ``--planner-profile-data`` reads.

Names, units and how a time is looked up: ``dynamo/mocker/utils/
planner_profiler_perf_data_converter.py`` of ai-dynamo 1.6.1.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.files import write_atomically

MILLI = 1e3


def write_perf_data(
    predictor: StepPredictor,
    path: str | Path,
    *,
    prompt: int = 8192,
    cached: int = 500_000,
    context: int = 32_768,
    resolution: int = 50,
) -> Path:
    """Writes prefill times by prompt, and decode times by cached tokens and context.

    Args:
        path: of the ``.npz`` file.
        prompt: longest one; ``cached``: tokens of all sequences at most; ``context``: of one.
        resolution: points along each axis.

    Returns:
        the path.

    Raises:
        SilicastError: it cannot be written.
    """
    prompts = np.unique(np.rint(np.linspace(1, prompt, resolution)))
    tokens, contexts = np.linspace(0, cached, resolution), np.linspace(1, context, resolution)
    decode = np.zeros((len(tokens), len(contexts)))
    for i, total in enumerate(tokens):
        for j, each in enumerate(contexts):
            count = max(1, round(total / each))
            past = max(1, round(total / count))
            decode[i, j] = predictor.predict_infer_time([(1, past)] * count) * MILLI
    prefill = [predictor.predict_infer_time([(int(new), 0)]) * MILLI for new in prompts]
    target, content = Path(path), BytesIO()
    np.savez(
        content,
        prefill_isl=prompts,
        prefill_ttft_ms=np.array(prefill),
        decode_active_kv_tokens=tokens,
        decode_context_length=contexts,
        decode_itl=decode,
    )
    write_atomically(target, content.getvalue())
    return target
