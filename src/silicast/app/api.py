"""Predictions from Python; the same structure as a scenario file.

>>> import silicast
>>> gemm = {"op": "gemm", "m": 8, "n": 4096, "k": 4096}
>>> answer = silicast.predict(task="kernel", device="H100", workload={"kernel": gemm})
>>> answer["latency_us"].p05 <= answer["latency_us"].estimate
True
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from silicast.app.arguments import ARGUMENTS, described
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.packages import missing_package
from silicast.core.plain_data import check_tree
from silicast.core.prediction import Domain, Tier
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.decode import decode
from silicast.scenario.road import refuse_coming
from silicast.scenario.run import run, run_file

SHOWN = 4
"""Metrics of an answer's short form."""


if TYPE_CHECKING:
    from silicast.report.drawing.notebook import NotebookFigure


@final
@dataclass(frozen=True, slots=True, repr=False)
class Predicted:
    """An answer for Python.

    Attributes:
        metrics: metric, with its unit in the name -> estimate, p05 and p95.
        bound: metric -> its physical limit, where it has one.
        why: where the time goes, as plain tables.
        answer: the same as it goes into JSON.
    """

    answer: Answer

    def __repr__(self) -> str:
        """The first metrics, and how much is known; not the tree of parts."""
        every = list(self.metrics.items())
        remarks = [f"{name}={belief}" for name, belief in every[:SHOWN]]
        if more := len(every[SHOWN:]):
            remarks.append(f"further_metrics={more}")
        remarks += [
            f"tier={self.tier!r}",
            f"domain={self.domain!r}",
            f"warnings={len(self.warnings)}",
        ]
        return f"Predicted({', '.join(remarks)})"

    def __getitem__(self, metric: str) -> Belief:
        """One metric; KeyError names those there are."""
        belief = self.answer.metrics.get(metric)
        if belief is None:
            raise KeyError(f"no metric {metric!r}; there are {', '.join(self.answer.metrics)}")
        return belief

    @property
    def metrics(self) -> Mapping[str, Belief]:
        return self.answer.metrics

    @property
    def bound(self) -> Mapping[str, float]:
        return self.answer.bound

    @property
    def tier(self) -> Tier:
        """What kind of knowledge the answer rests on."""
        return self.answer.tier

    @property
    def domain(self) -> Domain:
        """How far from measured ground."""
        return self.answer.domain

    @property
    def warnings(self) -> tuple[str, ...]:
        """Named fallbacks and other things to know."""
        return tuple(self.answer.warnings)

    @property
    def why(self) -> Mapping[str, Any]:
        """The tree of parts."""
        return self.answer.why

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain tables, as it goes into JSON."""
        builtins: dict[str, Any] = msgspec.to_builtins(self.answer)
        return builtins

    def to_pandas(self) -> Any:
        """A data frame: a row a metric, with estimate, p05, p95 and bound.

        Raises:
            SilicastError: pandas is not installed.
        """
        return frame(
            [
                {
                    "metric": name,
                    "estimate": belief.estimate,
                    "p05": belief.p05,
                    "p95": belief.p95,
                    "bound": self.bound.get(name),
                }
                for name, belief in self.metrics.items()
            ]
        )

    def plot(self) -> NotebookFigure:
        """A figure that a notebook shows: the intervals of all metrics, as factors of estimates.

        Raises:
            SilicastError: matplotlib is not installed.
        """
        from silicast.report.drawing.notebook import intervals_figure

        return intervals_figure(self.metrics)

    def _repr_html_(self) -> str:
        """The metrics as a table."""
        from silicast.report.drawing.notebook import answer_html

        return answer_html(self.answer)


@final
@dataclass(frozen=True, slots=True, repr=False)
class StaticBatchTimes:
    """A static batch for Python.

    Attributes:
        prefill_ms, decode_step_ms (the median step), total_ms, memory_gb (per device): estimate,
            p05 and p95; ``decode_step_ms`` is None where nothing is decoded.
        predicted: the whole answer.
    """

    prefill_ms: Belief
    decode_step_ms: Belief | None
    total_ms: Belief
    memory_gb: Belief
    predicted: Predicted

    def __repr__(self) -> str:
        """As that of the whole answer."""
        return repr(self.predicted).replace("Predicted", "StaticBatchTimes", 1)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Named fallbacks, "does not fit" and other things to know."""
        return self.predicted.warnings

    def to_dict(self) -> dict[str, Any]:
        return self.predicted.to_dict()

    def to_pandas(self) -> Any:
        return self.predicted.to_pandas()

    def plot(self) -> NotebookFigure:
        return self.predicted.plot()

    def _repr_html_(self) -> str:
        return self.predicted._repr_html_()


def predict(
    scenario: Mapping[str, Any] | str | os.PathLike[str] | None = None, /, **fields: Any
) -> Predicted:
    """The answer to a scenario.

    Args:
        scenario: a scenario file, or its content as a dictionary.
        fields: fields of the scenario; they go before those of ``scenario`` if that is a
            dictionary.

    Raises:
        SilicastError: it cannot be read or answered; names the field and what to do.
    """
    if isinstance(scenario, (str, os.PathLike)):
        if fields:
            raise SilicastError("a file and fields are both given", hint="give one of them")
        return Predicted(run_file(Path(scenario)))
    tree = plain({**(scenario or {}), **fields})
    check_tree(tree)
    refuse_coming(tree)
    return Predicted(run(decode(tree, checked=True)))


@described(paths=True)
def infer(
    *,
    model: str | dict[str, Any],
    device: str | dict[str, Any],
    output_len: int | None = None,
    batch: int | None = None,
    input_len: int | None = None,
    input_lens: list[int] | None = None,
    cached_len: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    engine: str | dict[str, Any] | None = None,
    dtype: str | None = None,
    weights: str | None = None,
    kv_dtype: str | None = None,
    power_w: float | None = None,
    clock_mhz: float | None = None,
    **fields: Any,
) -> StaticBatchTimes:
    """Times and memory of one static batch: all prompts prefilled at once, then decoded.

    Args:
        fields: further fields of a scenario (``parallel``, ``precision``, ``limits``, ``host``,
            ``cluster``, ``tier``, ...).

    Raises:
        SilicastError: see :func:`predict`; or a field is given in both its forms and they differ.
    """
    from silicast.scenario.reading.usual_lengths import usual_lengths

    refuse_unknown(infer, fields)
    tokens = usual_lengths(plain(model), plain(input_len), plain(output_len))
    workload: dict[str, Any] = {"batch": 1 if batch is None else batch, **tokens}
    if input_lens is not None:
        lengths = {"input_lens": input_lens, "batch": batch, "input_len": input_len}
        sizes = {name: value for name, value in lengths.items() if value is not None}
        workload = {**sizes, "output_len": tokens["output_len"]}
    if cached_len is not None:
        workload["cached_len"] = cached_len
    short = {
        "tp": tp,
        "pp": pp,
        "dtype": dtype,
        "weights": weights,
        "kv_dtype": kv_dtype,
        "power_w": power_w,
        "clock_mhz": clock_mhz,
    }
    tree: dict[str, Any] = {
        "task": "inference",
        "model": model,
        "device": device,
        "workload": workload,
        **({} if engine is None else {"engine": engine}),
        **fields,
    }
    for name, value in short.items():
        if value is not None:
            table, _, field = ARGUMENTS[name].path.partition(".")
            tree[table] = _completed(table, tree.get(table), field, name, value)
    result = predict(tree)
    return StaticBatchTimes(
        prefill_ms=result["prefill_ms"],
        decode_step_ms=result.metrics.get("decode_step_ms"),
        total_ms=result["total_ms"],
        memory_gb=result["memory_gb"],
        predicted=result,
    )


def refuse_unknown(function: Callable[..., Any], fields: Mapping[str, Any]) -> None:
    """Refuses keywords that are neither arguments of a function nor fields of a scenario.

    Raises:
        SilicastError: the first of them; the nearest arguments and fields are offered.
    """
    from silicast.core.decode import fields_of
    from silicast.core.naming import near
    from silicast.scenario.schema import RawScenario

    scenario_fields = fields_of(RawScenario)
    for name in fields:
        if name not in scenario_fields:
            arguments = [
                parameter.name
                for parameter in signature(function).parameters.values()
                if parameter.kind != Parameter.VAR_KEYWORD
            ]
            hint = near(name, [*arguments, *scenario_fields])
            if hint.startswith("known"):
                hint = f"see help(silicast.{function.__name__})"
            raise unknown_name(f"unknown argument {name!r:.80}", name[:80], hint)


def plain(value: Any) -> Any:
    """What notebooks hold as a scenario holds it: numbers and arrays of numpy as numbers and lists,
    paths as text, all tables and lists likewise.

    >>> plain({"model": Path("my/config.json"), "lengths": (1, 2)})
    {'model': 'my/config.json', 'lengths': [1, 2]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


def as_flags(trace: str | Path | None, price: float | str | None) -> dict[str, Any]:
    """Arguments that commands take as another type."""
    return {
        "trace": None if trace is None else Path(trace),
        "price": None if price is None else str(price),
    }


def frame(rows: list[dict[str, Any]]) -> Any:
    """Rows as a data frame of pandas.

    Raises:
        SilicastError: it is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise missing_package("pandas", otherwise="take to_dict()") from None
    return pandas.DataFrame(rows)


def _completed(table: str, stated: Any, field: str, name: str, value: Any) -> Any:
    """A table of a scenario with what was given by a short name; they may not contradict."""
    if not (stated is None or isinstance(stated, Mapping)):
        return stated  # a table of the wrong type is refused where it is decoded
    before = (stated or {}).get(field)
    if before not in (None, value):
        raise SilicastError(
            f"{name} is {value!r}, but {table}.{field} is {before!r}",
            field=f"{table}.{field}",
            hint="keep one of them",
        )
    return {**(stated or {}), field: value}
