"""SGLang's simulator: its scheduler runs as it is, a predictor says how long each batch takes.

Its interface is ``predict_infer_time(batch) -> seconds``, with ``extend_length`` and
``past_kv_length`` of each request of a batch. The simulator is a tool of SGLang's repository and in
none of its wheels (0.5.23 was read).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.errors import SilicastError

FIELDS = "extend_length", "past_kv_length"
REQUESTS = "reqs"
"""Attribute of a batch that holds its requests, where it is no list of them."""


@final
class InferTimePredictor:
    """A :class:`.StepPredictor` that takes batches as the simulator has them.

    >>> import silicast
    >>> step = silicast.step_predictor(model="Llama-3.1-8B", device="h100", engine="sglang",
    ...                                load=False)
    >>> InferTimePredictor(step).predict_infer_time([(1, 500)]) == step([(1, 500)])
    True
    """

    def __init__(self, predictor: StepPredictor) -> None:
        self.predictor = predictor

    def predict_infer_time(self, batch: Any) -> float:
        """Seconds of a batch.

        Args:
            batch: pairs, or requests with ``extend_length`` and ``past_kv_length``; or what holds
                such requests as ``reqs``.

        Raises:
            SilicastError: a request has neither form.
        """
        requests: Iterable[Any] = getattr(batch, REQUESTS, batch)
        return self.predictor.predict_infer_time([_pair(each) for each in requests])


def _pair(request: Any) -> tuple[int, int]:
    if isinstance(request, tuple | list):
        extend, past = request
        return int(extend), int(past)
    if not all(hasattr(request, name) for name in FIELDS):
        raise SilicastError(
            f"expected a pair or a request with {' and '.join(FIELDS)}, found {request!r:.60}",
            field="batch",
        )
    return int(request.extend_length), int(request.past_kv_length)
