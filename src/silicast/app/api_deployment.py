"""From Python: a deployment that is compiled once and asked many times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from silicast.app.api import Predicted, plain, predict, refuse_unknown
from silicast.app.arguments import described
from silicast.composition.prices.step_predictor import StepPredictor
from silicast.core.errors import SilicastError
from silicast.core.plain_data import shown
from silicast.scenario.compiled_deployment import BatchMetrics, KnownDeployment


@final
class CompiledDeployment:
    """A model on devices under an engine; what one question computed, the next ones look up.

    Attributes:
        step: seconds from the start of a step to that of the next, by (extend, past) of every
            sequence; see :class:`~silicast.composition.prices.step_predictor.StepPredictor`.
        warnings: what was assumed.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._known = KnownDeployment(fields)
        self.step: StepPredictor = self._known.step
        self.warnings: tuple[str, ...] = self._known.warnings

    def batch(
        self,
        *,
        output_len: int,
        batch: int | None = None,
        input_len: int | None = None,
        input_lens: list[int] | None = None,
        cached_len: int | None = None,
    ) -> BatchMetrics:
        """``prefill_ms``, ``decode_step_ms`` (the median step), ``total_ms`` and ``memory_gb`` of a
        static batch, without the reasons that :func:`silicast.infer` gives; its ``warnings`` say
        whether it fits in memory, and how unsure weights are that are known by the name of a mix.

        Times are read from tables and surfaces: a total is within half a percent of that of
        :func:`silicast.infer`, a part of it within one percent; most are within a tenth of a
        percent (``benchmarks/speed_table.py``). Intervals are those of a batch of about the same
        size. The first batch of a size takes longer than by :func:`silicast.infer`, further ones
        near it about a millisecond.

        Args:
            batch: sequences of ``input_len`` tokens each, 1 unless stated; or ``input_lens``,
                tokens of each.
            cached_len: tokens of each before them whose keys and values are cached.

        Raises:
            SilicastError: see :func:`silicast.infer`; or the engine runs a model's code pass by
                pass.
        """
        lengths = {"batch": batch, "input_len": input_len, "input_lens": plain(input_lens)}
        lengths["cached_len"] = cached_len
        sizes = {name: value for name, value in lengths.items() if value is not None}
        return self._known.batch(_with_batch({**sizes, "output_len": output_len}))

    def batches(self, rows: Iterable[Mapping[str, Any]]) -> list[BatchMetrics]:
        """:meth:`batch` of many static batches at once, with the very numbers and intervals of
        :func:`silicast.infer`: they are evaluated together, and nothing is interpolated. A hundred
        take a twentieth of the time of as many answers (``benchmarks/speed_table.py``).

        Args:
            rows: of each batch, the arguments of :meth:`batch` as a dict.

        Raises:
            SilicastError: see :meth:`batch`; or a row is no dict. It names the row.
        """
        if isinstance(rows, Mapping | str) or not isinstance(rows, Iterable):
            raise _no_row(rows, "rows", "a list of dicts")
        tables = [plain(row) for row in rows]
        for number, row in enumerate(tables):
            if not isinstance(row, dict):
                raise _no_row(row, f"rows[{number}]", "a dict")
        return self._known.batches([_with_batch(row) for row in tables])

    def serve(self, **workload: Any) -> Predicted:
        """The answer of task ``serving`` to a workload on this deployment.

        Args:
            workload: fields of the workload of a serving scenario: ``arrival``, ``requests``,
                ``input_len``, ``output_len``, ...

        Raises:
            SilicastError: see :func:`silicast.predict`.
        """
        return predict({**self._fields, "task": "serving", "workload": workload})


def _no_row(given: object, field: str, expected: str) -> SilicastError:
    hint = "a row is {'batch': 8, 'input_len': 512, 'output_len': 64}"
    return SilicastError(f"expected {expected}, found {shown(given)}", field=field, hint=hint)


def _with_batch(lengths: dict[str, Any]) -> dict[str, Any]:
    """Of one sequence, where no number is stated."""
    return lengths if lengths.keys() & {"batch", "input_lens"} else {"batch": 1, **lengths}


@described(paths=True)
def deployment(
    *,
    model: str | dict[str, Any],
    device: str | dict[str, Any],
    engine: str | dict[str, Any] | None = None,
    parallel: dict[str, Any] | None = None,
    **fields: Any,
) -> CompiledDeployment:
    """A deployment compiled once, for many steps, static batches and simulations.

    Args:
        parallel: degrees, as {"tp": 4}.
        fields: further fields of a scenario (``precision``, ``limits``, ``cluster``,
            ``calibration``, ...).

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> llama = silicast.deployment(model="Llama-3.1-8B", device="h100", engine="vllm")
    >>> batch = llama.batch(batch=8, input_len=1024, output_len=32)
    >>> 0.0 < batch["decode_step_ms"] < batch["prefill_ms"] < batch["total_ms"]
    True
    >>> 0.0 < llama.step([(1, 1000)]) < llama.step([(512, 0), (1, 1000)]) < 1.0
    True
    """
    refuse_unknown(deployment, fields)
    optional = {"engine": engine, "parallel": parallel}
    named = {name: value for name, value in optional.items() if value is not None}
    return CompiledDeployment(plain({"model": model, "device": device, **named, **fields}))


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
    sequence of a batch -> seconds. It is ``step`` of :func:`silicast.deployment`, with tables that
    are filled.

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
    refuse_unknown(step_predictor, fields)
    where = {"model": model, "device": device, "engine": engine, "parallel": parallel}
    predictor = deployment(**where, **fields).step  # type: ignore[arg-type]
    return predictor.load() if load else predictor
