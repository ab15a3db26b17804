"""From Python: what `silicast recommend` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silicast.app.api import Predicted, as_flags, predict, refuse_unknown
from silicast.app.arguments import described


@described("serve", paths=True)
def recommend(
    *,
    model: str,
    device: str,
    gpus: int,
    slo: str,
    rate: float | None = None,
    trace: str | Path | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    range_ratio: float | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    price: float | str | None = None,
    price_where: str | None = None,
    **fields: Any,
) -> Predicted:
    """The plan that serves a traffic with the fewest devices, as ``silicast recommend`` finds it;
    ``why["recommendation"]`` has its scenario and the other plans.

    Args:
        gpus: the most devices to use.
        slo: what must be kept: ``"ttft_p99=2s,tpot_p99=40ms"``.
        engine: one, or several with commas between them; None = the default engine.
        dtype: format of the matrix products, or several; None = the checkpoint's.
        vary: field of a scenario of task serving -> its values to choose among:
            ``{"engine.options.max_num_seqs": [64, 256]}``.
        price: USD for an hour of the device, or as the command takes it.
        fields: further fields of a scenario.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.recommend(model="Llama-3.2-1B", device="h100", gpus=1, rate=4.0,
    ...                             slo="ttft_p99=1s", input_len=32, output_len=4)
    >>> answer.why["recommendation"]["best"]["plan"]
    'tp 1 x 1'
    """
    from silicast.app.flags import flags_of
    from silicast.app.recommending import names_of, recommend_scenario
    from silicast.app.serve_flags import ServeFlags

    given = locals()
    refuse_unknown(recommend, fields)
    chosen_among = {"engine": None, "dtype": None}
    requested = flags_of(ServeFlags, {**given, **as_flags(trace, price), **chosen_among})
    scenario = recommend_scenario(
        requested, gpus, names_of(engine, "engine"), names_of(dtype, "dtype"), vary
    )
    return predict({**scenario, **fields})
