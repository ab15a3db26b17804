"""From Python: what the commands compare, serve, train and explain do, and sweeps.

Arguments are those of the commands, with their defaults; further fields of a scenario go along.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from silicast.app.api import Predicted, as_flags, frame, plain, predict, refuse_unknown
from silicast.app.arguments import described
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Belief

if TYPE_CHECKING:
    from silicast.report.drawing.notebook import NotebookFigure


@described("serve", paths=True)
def serve(
    *,
    model: str,
    device: str,
    concurrency: int | None = None,
    rate: float | None = None,
    trace: str | Path | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    requests: int | None = None,
    range_ratio: float | None = None,
    arrival: str | None = None,
    prefix_share: float | None = None,
    slo: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    attention_dp: int | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    power_w: float | None = None,
    replicas: int | None = None,
    seed: int = 0,
    price: float | str | None = None,
    price_where: str | None = None,
    **fields: Any,
) -> Predicted:
    """Latency and throughput of a model under load, as ``silicast serve`` predicts them.

    Args:
        price: USD for an hour of the device, or as the command takes it: ``"2.3EUR"``, or the name
            of a file of prices, of which ``price_where`` chooses.
        fields: further fields of a scenario; they go before what the other arguments say.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.serve(model="Llama-3.1-8B", device="h100", concurrency=2, requests=4,
    ...                        input_len=64, output_len=8)
    >>> 0 < answer["ttft_p50_ms"] < answer["e2e_p50_ms"]
    True
    """
    from silicast.app.flags import Degrees, flags_of
    from silicast.app.serve_flags import ServeFlags, serving_scenario

    arguments = dict(locals())
    refuse_unknown(serve, fields)
    requested = flags_of(ServeFlags, {**arguments, **as_flags(trace, price)})
    degrees = flags_of(Degrees, arguments).given
    return predict({**serving_scenario(requested, degrees), **fields})


@described("serve", paths=True)
def capacity(
    *,
    model: str,
    device: str,
    slo: str,
    rate: float | None = None,
    users: bool = False,
    max_gpus: int | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    requests: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    attention_dp: int | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    replicas: int | None = None,
    seed: int = 0,
    **fields: Any,
) -> Predicted:
    """The most load under an objective, or with ``rate`` the fewest devices that carry it, as
    ``silicast capacity`` finds them.

    Args:
        users: the most clients that each wait for their answers, in place of the highest rate.
        max_gpus: devices to try at most.
        fields: further fields of a scenario; they go before what the other arguments say.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.capacity(model="Llama-3.1-8B", device="h100", slo="ttft_p90=60ms",
    ...                            requests=40, input_len=64, output_len=4)
    >>> answer["safe_rate_per_s"].estimate <= answer["max_rate_per_s"].estimate
    True
    """
    from silicast.app.commands.capacity import capacity_scenario
    from silicast.app.flags import Degrees, flags_of
    from silicast.app.serve_flags import ServeFlags

    arguments = dict(locals())
    refuse_unknown(capacity, fields)
    requested, degrees = flags_of(ServeFlags, arguments), flags_of(Degrees, arguments).given
    return predict({**capacity_scenario(requested, degrees, max_gpus, users=users), **fields})


@described("train", paths=True)
def train(
    *,
    model: str,
    device: str,
    gpus: int = 1,
    seq_len: int = 4096,
    global_batch: int = 256,
    micro_batch: int | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    optimizer: str | None = None,
    network: str | None = None,
    gpus_per_node: int | None = None,
    power_w: float | None = None,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    zero: int | None = None,
    **fields: Any,
) -> Predicted:
    """A training step, as ``silicast train`` predicts it; without degrees, the best plan.

    Args:
        fields: further fields of a scenario; they go before what the other arguments say.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.train(model="Llama-3.2-1B", device="h100", gpus=2, tp=2, global_batch=4)
    >>> answer["step_time_s"] > 0
    True
    """
    from silicast.app.flags import flags_of
    from silicast.app.train_flags import TrainDegrees, TrainFlags, training_scenario

    arguments = dict(locals())
    refuse_unknown(train, fields)
    requested, degrees = flags_of(TrainFlags, arguments), flags_of(TrainDegrees, arguments)
    return predict({**training_scenario(requested, degrees), **fields})


@described(paths=True)
def explain(
    *,
    model: str,
    device: str,
    batch: int = 1,
    input_len: int | None = None,
    output_len: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    **fields: Any,
) -> Predicted:
    """A static batch with the full tree of what its time goes to, as ``silicast explain`` shows it.

    Args:
        fields: further fields of a scenario.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.explain(model="Llama-3.1-8B", device="h100", output_len=2)
    >>> sorted(part["name"] for part in answer.why["parts"])
    ['decode', 'prefill']
    """
    from silicast.app.flags import BatchFlags, Degrees, flags_of, inference_scenario

    arguments = dict(locals())
    refuse_unknown(explain, fields)
    degrees = flags_of(Degrees, arguments).given
    tree = inference_scenario(flags_of(BatchFlags, arguments), degrees, device)
    return predict({"why": "full", **tree, **fields})


@final
@dataclass(frozen=True)
class Row:
    """One answer of several.

    Attributes:
        label: what it is called; fields: in what it differs from the others.
        predicted: the answer; None = there is none.
        reason: why there is none, or why it does not fit; "" = all is well.
    """

    label: str
    fields: Mapping[str, Any]
    predicted: Predicted | None
    reason: str = ""


@final
@dataclass(frozen=True)
class Table(Sequence[Row]):
    """Answers side by side; a sequence of :class:`Row`."""

    rows: tuple[Row, ...]

    def __getitem__(self, position: Any) -> Any:
        return self.rows[position]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __repr__(self) -> str:
        answered = sum(row.predicted is not None for row in self.rows)
        missed = next((row for row in self.rows if row.predicted is None), None)
        cause = () if missed is None else (missed.label, missed.reason)
        why = f"; {': '.join(filter(None, cause))}" if cause else ""
        return f"Table({len(self.rows)} rows, {answered} answered{why})"

    def to_dict(self) -> list[dict[str, Any]]:
        """A flat table a row: label, fields, each metric's three numbers, reason."""
        tables = []
        for row in self.rows:
            flat: dict[str, Any] = {"label": row.label, **row.fields}
            for name, belief in (row.predicted.metrics if row.predicted else {}).items():
                flat |= {
                    name: belief.estimate,
                    f"{name}_p05": belief.p05,
                    f"{name}_p95": belief.p95,
                }
            tables.append(flat | {"reason": row.reason})
        return tables

    def to_pandas(self) -> Any:
        """The same as a data frame.

        Raises:
            SilicastError: pandas is not installed.
        """
        return frame(self.to_dict())

    def plot(
        self, across: str = "output_tokens_per_s_per_gpu", up: str = "decode_step_ms"
    ) -> NotebookFigure:
        """A figure of matplotlib, which a notebook shows: one metric over another, with intervals.

        Raises:
            SilicastError: matplotlib is not installed, or no row has both metrics.
        """
        from silicast.report.drawing.notebook import points_figure

        points: list[tuple[str, Belief, Belief]] = [
            (row.label, row.predicted.metrics[across], row.predicted.metrics[up])
            for row in self.rows
            if row.predicted and across in row.predicted.metrics and up in row.predicted.metrics
        ]
        if not points:
            raise SilicastError(f"no row has {across} and {up}", hint="name two metrics")
        return points_figure(points, across, up)

    def _repr_html_(self) -> str:
        from silicast.report.drawing.notebook import table_html

        answered = [row.predicted for row in self.rows if row.predicted]
        metrics = dict.fromkeys(name for each in answered for name in each.metrics)
        rows = [
            [
                row.label,
                *(str(row.predicted.metrics.get(n, "")) if row.predicted else "" for n in metrics),
                row.reason,
            ]
            for row in self.rows
        ]
        return table_html(["", *metrics, "reason"], rows)


@described(paths=True)
def compare(
    *,
    model: str,
    device: Sequence[str] | str,
    batch: int = 1,
    input_len: int | None = None,
    output_len: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    users: int | None = None,
    tokens_per_user: float | None = None,
    gpus: int | str | None = None,
    price: Mapping[str, float] | str | None = None,
    **fields: Any,
) -> Table:
    """One workload on many devices, as ``silicast compare``: what fits first, the best on top.
    Without degrees each device gets the smallest plan that fits.

    Args:
        device: names; or one text with commas between them.
        users: who each wait for their answers and ask again, in place of one batch.
        tokens_per_user: tokens a second that each of them sees on average; left out, 20.
        gpus: of each: a number, "node" or "best", as the command takes it.
        price: USD for an hour of each device, or as the command takes it: ``"h100=2.3EUR"``, or
            the name of a file of prices.
        fields: further fields of a scenario.

    Raises:
        SilicastError: no device, a price or users as the command would refuse them, or a field
            that scenarios have not; what a device cannot answer stands in its row.

    >>> import silicast
    >>> comparison = silicast.compare(model="Llama-3.1-8B", device="h100, l4", output_len=4)
    >>> [row.label for row in comparison]
    ['h100', 'l4']
    """
    from silicast.app.comparing import candidates, demand_of
    from silicast.app.flags import BatchFlags, Degrees, flags_of, inference_scenario
    from silicast.report.tasks.comparison import in_order, sort_word

    arguments = dict(locals())
    refuse_unknown(compare, fields)
    names = device.split(",") if isinstance(device, str) else plain(list(device))
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise SilicastError("names no device", field="device", hint='for example ["a100", "h100"]')
    tree = plain({**inference_scenario(flags_of(BatchFlags, arguments), {}, names[0]), **fields})
    if isinstance(price, Mapping):
        price = ",".join(f"{name}={each}" for name, each in price.items())
    demand = demand_of(users, tokens_per_user, batch)
    prices = None if price is None else [price]
    result = list(
        candidates(
            tree,
            names,
            [flags_of(Degrees, arguments).given],
            demand,
            prices,
            None,
            None if gpus is None else str(gpus),
        )
    )
    return Table(
        tuple(
            Row(
                each.label,
                each.plan,
                Predicted(each.reply) if isinstance(each.reply, Answer) else None,
                each.reason,
            )
            for each in in_order(result, sort_word(None, result))
        )
    )


def sweep(
    *,
    task: str = "inference",
    space: str | Path | None = None,
    store: str | Path | None = None,
    workers: int = 1,
    **fields: Any,
) -> Table:
    """Every combination of keyword lists, answered; what cannot be answered says why. A static
    batch has the sizes of :func:`silicast.infer` where none are given.

    Args:
        space: a file as ``silicast sweep`` takes it, in place of fields; with ``store``.
        store: a folder that keeps the answers: stored answers are not made again.
        workers: processes that answer into it.
        fields: fields of a scenario, of its workload or of ``parallel``; a list (a tuple, a
            range, an array of numpy) is swept over, a field whose value is a list itself is a list
            of lists.

    >>> import silicast
    >>> table = silicast.sweep(model="Llama-3.1-8B", device=["h100", "a100"], batch=[1, 8],
    ...                        input_len=64, output_len=2)
    >>> len(table), table[1].fields
    (4, {'device': 'h100', 'batch': 8})
    """
    if space is not None or store is not None:
        return _stored(space, store, workers, fields)
    usual = task == "inference" and not any(name in fields for name in _WHOLE_BATCHES)
    fields = {name: plain(value) for name, value in fields.items()}
    swept = {name: value for name, value in fields.items() if isinstance(value, list)}
    fixed = {name: value for name, value in fields.items() if name not in swept}
    rows = []
    for values in itertools.product(*swept.values()):
        changes = dict(zip(swept, values, strict=True))
        label = ", ".join(f"{name} {value}" for name, value in changes.items())
        requested = {**fixed, **changes}
        if usual:
            requested = _with_usual_sizes(requested)
        try:
            rows.append(Row(label, changes, predict(scenario(task=task, **requested))))
        except SilicastError as error:
            rows.append(Row(label, changes, None, str(error)))
    return Table(tuple(rows))


def _stored(
    space: str | Path | None, store: str | Path | None, workers: int, fields: Mapping[str, Any]
) -> Table:
    """The points of a file, answered into a store."""
    from silicast.exploration.scenario_space import read_scenario_space
    from silicast.runner.results import answers_of
    from silicast.runner.store import AnswerStore
    from silicast.runner.sweep import Sweep

    if space is None or store is None:
        missing = "space" if space is None else "store"
        raise SilicastError("is missing: a store is of the points of a file", field=missing)
    if fields:
        raise SilicastError("holds all fields: give no others", field="space")
    path = Path(space)
    swept = Sweep(read_scenario_space(path), path.parent)
    swept.check()
    opened = AnswerStore.begun(Path(store))
    swept.run(opened, workers=workers)
    rows = []
    for changes, reply in answers_of(opened, swept.cases()):
        label = ", ".join(f"{name} {value}" for name, value in changes.items())
        if isinstance(reply, Answer):
            rows.append(Row(label, changes, Predicted(reply)))
        else:
            rows.append(Row(label, changes, None, str(reply.error.as_error())))
    return Table(tuple(rows))


_WHOLE_BATCHES = ("workload", "input_lens")
"""Fields that say all sizes of a static batch."""


def _with_usual_sizes(requested: Mapping[str, Any]) -> dict[str, Any]:
    from silicast.scenario.reading.usual_lengths import usual_lengths

    lengths = (requested.get("input_len"), requested.get("output_len"))
    return {"batch": 1, **requested, **usual_lengths(requested.get("model"), *lengths)}


def scenario(*, task: str, **fields: Any) -> dict[str, Any]:
    """The scenario of flat keywords: those of its top as they are, degrees into ``parallel``, the
    rest into the workload.

    >>> scenario(task="inference", device="h100", tp=2, batch=8)
    {'task': 'inference', 'device': 'h100', 'parallel': {'tp': 2}, 'workload': {'batch': 8}}
    """
    from silicast.core.decode import fields_of
    from silicast.scenario.schema import ParallelTable, RawScenario

    top, degrees = fields_of(RawScenario), fields_of(ParallelTable)
    scenario: dict[str, Any] = {"task": task}
    inner: dict[str, dict[str, Any]] = {"parallel": {}, "workload": {}}
    for name, value in fields.items():
        if name in top:
            scenario[name] = value
        else:
            inner["parallel" if name in degrees else "workload"][name] = value
    for table, values in inner.items():
        if values:
            scenario[table] = {**scenario.get(table, {}), **values}
    return scenario
