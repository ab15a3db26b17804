"""From Python: what the next step of an engine takes, for simulators of engines."""

from __future__ import annotations

from typing import Any

from silicast.app.api import plain, refuse_unknown
from silicast.app.arguments import described
from silicast.composition.prices.step_predictor import StepPredictor


@described(paths=True)
def step_predictor(
    *,
    model: str | dict[str, Any],
    device: str | dict[str, Any],
    engine: str | dict[str, Any] | None = None,
    parallel: dict[str, Any] | None = None,
    load: bool = True,
    **fields: Any,
) -> StepPredictor:
    """A callable that says how many seconds a step of an engine takes: (extend, past) of every
    sequence of a batch -> seconds.

    Args:
        parallel: degrees, as {"tp": 4}.
        load: fills tables first, some seconds, so that a new state is answered in microseconds.
        fields: further fields of a scenario (``precision``, ``limits``, ``cluster``,
            ``calibration``, ...).

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> step = silicast.step_predictor(model="Llama-3.1-8B", device="h100", engine="sglang",
    ...                                load=False)
    >>> alone, mixed = step([(1, 1000)]), step([(512, 0), (1, 1000)])
    >>> 0.0 < alone < mixed < 1.0
    True
    """
    from silicast.scenario.steps import step_predictor_of

    refuse_unknown(step_predictor, fields)
    given = {"engine": engine, "parallel": parallel}
    stated = {name: value for name, value in given.items() if value is not None}
    predictor = step_predictor_of(plain({"model": model, "device": device, **stated, **fields}))
    return predictor.load() if load else predictor
