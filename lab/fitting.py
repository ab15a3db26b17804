"""What the fit_* scripts share: solvers, error figures, and the files that they write."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from lab.scorecard import held_out
from lab.scorecard.rows import MeasuredRows
from silicast.core.catalog import CATALOG
from silicast.core.files import write_atomically
from silicast.core.prediction import Z90
from silicast.kernels.physics.constants import Physics, PhysicsCard, replaced

F = NDArray[np.float64]
Constants = dict[str, float]
Tables = dict[str, Constants]
"""Architecture -> its constants; "" = of all."""
Prior = tuple[float, float, float]
"""Where a constant starts and is drawn to, and the range it may take."""

RELATIVES = {"blackwell-rtx": "ada"}
"""Architecture on which not every engine was measured -> the one with the same matrix instruction
whose constants those engines take."""

Key = tuple[str, str]
"""Architecture (or family), and style or caller of a kernel."""

GAIN = 2e-4
"""Share of its cost that another pass over the constants must save."""

PHYSICS = CATALOG / "physics"
HELD_OUT = held_out.FOLDER
ATTENTION_FALLBACK = {
    "blackwell-rtx": "ada",
    "ampere-ga10x": "ada",
    "turing": "ampere",
    "volta": "ampere",
    "pascal": "ampere",
}
"""Architecture without measured attention -> the one whose constants it takes."""


_SLOWDOWNS: dict[int, tuple[MeasuredRows, F]] = {}


@contextmanager
def at_boost() -> Iterator[None]:
    """Inside, no board is slowed by its power limit: the first of two fits, which tells how much
    the limit slows them. The second one stands in :func:`under`.
    """
    _AT_BOOST.append(True)
    _SLOWDOWNS.clear()
    try:
        yield
    finally:
        _AT_BOOST.pop()
        _SLOWDOWNS.clear()


_AT_BOOST: list[bool] = []


@contextmanager
def under(group: str, table: Mapping[str, Any]) -> Iterator[None]:
    """Inside, kernels have the constants of a first fit, whatever was shipped before."""
    about = card("", [], "")
    constants = physics(about, table["default"], table["architectures"], table["fallback"])
    _SLOWDOWNS.clear()
    with replaced({group: constants}):
        yield
    _SLOWDOWNS.clear()


def slowdowns(rows: MeasuredRows) -> F:
    """How much longer rows take on a board with a power limit than on one at boost, under the
    constants in use: models under fit say what the latter takes, and measured boards were of the
    former.

    Computed once for a set of rows: what is fitted moves it by less than it moves a time.
    """
    if _AT_BOOST:
        return np.ones(len(rows))
    cached = _SLOWDOWNS.get(id(rows))
    if cached is None or cached[0] is not rows:
        free, held = (
            np.asarray(rows.model.estimates(rows.batch, device).estimate_s)
            for device in (rows.hardware.in_state("boost"), rows.hardware)
        )
        cached = _SLOWDOWNS[id(rows)] = rows, held / free
    return cached[1]


def rounded(table: Mapping[str, float], *, ordered: bool = True) -> Constants:
    """Four significant digits, more than the data tell; by name, or in the order that they have.

    >>> rounded({"b": 1.23456, "a": 2.0})
    {'a': 2.0, 'b': 1.235}
    """
    pairs = sorted(table.items()) if ordered else table.items()
    return {name: float(f"{value:.4g}") for name, value in pairs}


def sample(parts: Sequence[MeasuredRows], limit: int) -> list[MeasuredRows]:
    """A deterministic subsample of about ``limit`` rows over all parts, each by its share."""
    share = min(1.0, limit / max(sum(len(part) for part in parts), 1))
    rng = np.random.default_rng(0)
    return [
        part.take(np.sort(rng.permutation(len(part))[: max(1, round(len(part) * share))]))
        for part in parts
    ]


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers.

    >>> round(geometric_mean([2.0, 8.0]), 12)
    4.0
    """
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def means(tables: Iterable[Mapping[str, float]]) -> Constants:
    """Geometric mean of each constant over the tables that have it."""
    entries: dict[str, list[float]] = {}
    for table in tables:
        for name, value in table.items():
            entries.setdefault(name, []).append(value)
    return {name: geometric_mean(values) for name, values in entries.items()}


def prefixed(style: str, table: Mapping[str, float], base: Mapping[str, float] = {}) -> Constants:
    """A style's constants under qualified names, without those that ``base`` has as well."""
    return {f"{style}.{name}": v for name, v in sorted(table.items()) if base.get(name) != v}


def own_of(table: Mapping[str, float], style: str) -> Constants:
    """A style's constants under their plain names."""
    prefix = style + "."
    return {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}


def with_relatives(tables: Tables) -> Tables:
    """Adds constants of callers that were measured on an architecture's relative alone.

    >>> with_relatives({"ada": {"fa2.x": 1.0, "fa3.x": 2.0}, "blackwell-rtx": {"fa3.x": 3.0}})
    {'ada': {'fa2.x': 1.0, 'fa3.x': 2.0}, 'blackwell-rtx': {'fa2.x': 1.0, 'fa3.x': 3.0}}
    """
    merged = dict(tables)
    for architecture, relative in RELATIVES.items():
        if architecture in tables and relative in tables:
            own_table = tables[architecture]
            callers = {name.partition(".")[0] for name in own_table}
            taken = {
                n: x for n, x in tables[relative].items() if n.partition(".")[0] not in callers
            }
            merged[architecture] = {**taken, **own_table}
    return merged


def by_key(
    parts: Iterable[MeasuredRows], name: Callable[[MeasuredRows], str]
) -> dict[Key, list[MeasuredRows]]:
    """Parts by architecture and a name, sorted."""
    table: dict[Key, list[MeasuredRows]] = {}
    for part in parts:
        table.setdefault((part.hardware.architecture, name(part)), []).append(part)
    return dict(sorted(table.items()))


def log_ratio(rows: MeasuredRows, constants: Mapping[str, float]) -> F:
    """Log of predicted over measured time; predictions are never below the bound."""
    model: Any = rows.model
    analyse = model.analyse_with(rows.batch, rows.hardware, constants)
    slowed = np.maximum(analyse.time_s, analyse.bound_s) * slowdowns(rows)
    ratio: F = np.log(slowed / rows.seconds)
    return ratio


def log_ratios(parts: Iterable[MeasuredRows], constants: Mapping[str, float]) -> F:
    """The same of several parts, one after the other."""
    return np.concatenate([log_ratio(part, constants) for part in parts])


def own_log_sd(
    logs: F, shared: Sequence[float], *, wider: float = 1.0, least: float = 0.05
) -> float:
    """Log sd of a row's own error, so that 90 % of the rows lie inside the whole interval.

    Args:
        logs: of predicted over measured time.
        shared: log sd of the errors that all rows have in common.
        wider: how much further off rows are that were not fitted.
        least: the smallest result.
    """
    total = wider * float(np.quantile(np.abs(logs), 0.9)) / Z90
    return math.sqrt(max(total * total - math.fsum(sd * sd for sd in shared), least * least))


def percent(logs: F, *names: str, digits: int = 1, sd: float = 0.0) -> dict[str, float]:
    """Figures of log ratios of predicted over measured time, in percent.

    Args:
        names: of rows, mape, median, p90, bias, log_sd, coverage90 (for which ``sd`` is needed).
        digits: kept.
    """
    off = np.abs(np.exp(logs) - 1.0)
    every: dict[str, Callable[[], float]] = {
        "rows": lambda: len(logs),
        "mape": lambda: round(100 * float(np.mean(off)), digits),
        "median": lambda: round(100 * float(np.median(off)), digits),
        "p90": lambda: round(100 * float(np.quantile(off, 0.9)), digits),
        "bias": lambda: round(100 * float(np.exp(np.median(logs)) - 1), digits),
        "log_sd": lambda: round(float(np.std(logs)), 3),
        "coverage90": lambda: round(100 * float(np.mean(np.abs(logs) <= Z90 * sd)), 1),
    }
    return {name: every[name]() for name in names}


def shares(logs: F) -> dict[str, float]:
    """Figures of log ratios as shares, for a card."""
    off = np.abs(np.exp(logs) - 1.0)
    return {
        "rows": len(logs),
        "mape": round(float(np.mean(off)), 4),
        "median": round(float(np.median(off)), 4),
        "p90": round(float(np.quantile(off, 0.9)), 4),
        "log_bias": round(float(np.mean(logs)), 4),
    }


def show(title: str, scores: Mapping[str, Mapping[str, float]], width: int = 72) -> None:
    """Prints figures, a line a group, and means over all rows."""
    print(f"== {title}")
    for name, row in scores.items():
        print(f"{name:{width}s}", "  ".join(f"{k} {v}" for k, v in row.items()))
    count = np.array([row["rows"] for row in scores.values()])
    for name in ("mape", "coverage90"):
        values = np.array([row[name] for row in scores.values()])
        print(f"{title}: mean {name} {float((values * count).sum() / count.sum()):.1f}")


def fit_rows(
    priors: Mapping[str, Prior],
    parts: Sequence[MeasuredRows],
    start: Mapping[str, float],
    limit: int,
    *,
    steps: int,
    more_starts: Callable[[F, F], Sequence[F]] | None = None,
) -> Constants:
    """Constants of :func:`fit_within` on about ``limit`` of the rows."""
    sampled = sample(parts, limit)
    return fit_within(
        priors,
        lambda c: [log_ratio(part, c) for part in sampled],
        start,
        sum(len(part) for part in sampled),
        steps=steps,
        more_starts=more_starts,
    )


def fit_within(
    priors: Mapping[str, Prior],
    log_ratios: Callable[[Constants], Sequence[F]],
    start: Mapping[str, float],
    rows: int,
    *,
    weight: float = 0.01,
    steps: int | None = None,
    more_starts: Callable[[F, F], Sequence[F]] | None = None,
) -> Constants:
    """Constants by soft L1 on log ratios, within their ranges and drawn to ``start``.

    Args:
        priors: the constants that are fitted.
        log_ratios: of predicted over measured time, under all constants.
        start: of all constants; those without a prior stay.
        rows: how many rows there are: priors weigh by their number.
        more_starts: where fits begin, of the logs of where they are drawn to and of the priors'
            starts; the best counts.
    """
    names = list(priors)
    low, high = (np.log([priors[name][side] for name in names]) for side in (1, 2))
    origin = np.clip(np.log([start[name] for name in names]), low + 1e-6, high - 1e-6)
    pull = weight * np.sqrt(rows / len(names))

    def residuals(x: F) -> F:
        c = {**start, **dict(zip(names, np.exp(x).tolist(), strict=True))}
        return np.concatenate([*log_ratios(c), pull * (x - origin)])

    begin = np.clip(np.log([priors[name][0] for name in names]), low + 1e-6, high - 1e-6)
    tries = [
        least_squares(residuals, x, loss="soft_l1", f_scale=0.1, bounds=(low, high), max_nfev=steps)
        for x in ([origin] if more_starts is None else more_starts(origin, begin))
    ]
    result = min(tries, key=lambda fit: float(fit.cost))
    return {**start, **rounded(dict(zip(names, np.exp(result.x), strict=True)), ordered=False)}


@dataclass(frozen=True)
class Parameter:
    """One free constant.

    Attributes:
        of: architecture or format that has a value of its own; "" = all.
        name: as kernel models know it.
        guess: where its fit starts.
    """

    of: str
    name: str
    guess: float = 1.0

    @property
    def plain(self) -> str:
        """The name without family and style."""
        return self.name.rpartition(".")[2]

    def touches(self, of: str) -> bool:
        """Whether kernels of an architecture or format depend on it."""
        return self.of in ("", of)


def moved(
    free: Sequence[Parameter], logs: Sequence[float] | F, shared: Mapping[str, float]
) -> tuple[Constants, Tables]:
    """Shared constants and those of each architecture, from log distances to the guesses."""
    common, table = dict(shared), dict[str, Constants]()
    for name, offset in zip(free, logs, strict=True):
        target = table.setdefault(name.of, {}) if name.of else common
        target[name.name] = float(name.guess * np.exp(offset))
    return common, table


def fit_by_groups(
    errors: Callable[[F, int], F],
    counts: Sequence[int],
    touches: Callable[[int, int], bool],
    first: F,
    pull: F,
    *,
    begin: F | None = None,
    ceiling: F | None = None,
    step: float = -1e-3,
    reaches: Sequence[float] = (),
    **solver: Any,
) -> Any:
    """Robust least squares whose constants each move some groups of rows only.

    Where times have kinks the solver stops short of an optimum, at a point that the last bits of
    the arithmetic choose. With ``reaches`` steps along each axis follow, and the solver from there,
    until neither gains :data:`GAIN`.

    Args:
        errors: of one group under logs of all constants.
        counts: rows of each group.
        touches: whether a constant (its place) can move a group.
        first: logs that constants are drawn to; pull: how strongly.
        begin: where the solver starts, ``first`` if left out.
        ceiling: logs that must not be passed.
        step: of the logs, for differences.
        reaches: lengths of steps along the axes, in logs; not with a ceiling.
        solver: further arguments of :func:`scipy.optimize.least_squares`.
    """
    groups = range(len(counts))
    ends = np.concatenate(([0], np.cumsum(counts))).astype(int)

    def residuals(logs: F) -> F:
        return np.concatenate([*(errors(logs, i) for i in groups), (logs - first) * pull])

    def jacobian(logs: F) -> F:
        matrix = np.zeros((int(ends[-1]) + len(first), len(first)))
        base = [errors(logs, i) for i in groups]
        for j in range(len(first)):
            moved = logs.copy()
            move = -step if ceiling is not None and moved[j] + step > ceiling[j] else step
            moved[j] += move
            for i in groups:
                if touches(j, i):
                    matrix[ends[i] : ends[i + 1], j] = (errors(moved, i) - base[i]) / move
            matrix[ends[-1] + j, j] = pull[j]
        return matrix

    if ceiling is not None:
        solver["bounds"] = (np.full(len(first), -np.inf), ceiling)
    start = first if begin is None else begin
    fit = least_squares(residuals, start, jac=jacobian, loss="soft_l1", **solver)
    while reaches:
        x = _along_axes(
            errors, touches, len(counts), fit.x, first, pull, reaches, solver["f_scale"]
        )
        again = least_squares(residuals, x, jac=jacobian, loss="soft_l1", **solver)
        gain, fit = fit.cost - again.cost, again
        if gain <= GAIN * fit.cost:
            break
    return fit


def _along_axes(
    errors: Callable[[F, int], F],
    touches: Callable[[int, int], bool],
    groups: int,
    logs: F,
    first: F,
    pull: F,
    reaches: Sequence[float],
    f_scale: float,
) -> F:
    """Logs after one pass over the constants, each moved to the best of some distances."""
    costs = np.array([_soft_l1(errors(logs, i), f_scale) for i in range(groups)])
    best = logs.copy()
    for j, start in enumerate(logs):
        mine = [i for i in range(groups) if touches(j, i)]
        target, least = start, costs[mine].sum() + _soft_l1((start - first[j]) * pull[j], f_scale)
        for log in (start + sign * reach for reach in reaches for sign in (1.0, -1.0)):
            best[j] = log
            cost, new_costs = _soft_l1((log - first[j]) * pull[j], f_scale), []
            for i in mine:
                new_costs.append(_soft_l1(errors(best, i), f_scale))
                cost += new_costs[-1]
                if cost >= least:
                    break
            else:
                target, least = log, cost
                costs[mine] = new_costs
        best[j] = target
    return best


def _soft_l1(errors: F | float, f_scale: float) -> float:
    """Half the robust sum of squares, as :func:`scipy.optimize.least_squares` counts it."""
    return float(np.sum(f_scale**2 * (np.sqrt(1.0 + np.square(errors / f_scale)) - 1.0)))


def card(
    command: str, data: Sequence[str], split: str, scores: Mapping[str, Any] = {}, notes: str = ""
) -> dict[str, Any]:
    """Where constants come from; :mod:`lab.artefacts` dates what changed."""
    table = {"data": list(data), "split": split, "command": command, "date": ""}
    return {**table, "scores": scores, **({"notes": notes} if notes else {})}


def body(
    default: Mapping[str, float], tables: Tables, fallback: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Default, architectures and fallback of a file of constants; tables under "" are left out."""
    return {
        "default": rounded(default),
        "architectures": {name: rounded(tables[name]) for name in sorted(tables) if name},
        "fallback": dict(fallback or {}),
    }


def physics(
    about: Mapping[str, Any],
    default: Constants,
    tables: Tables | None = None,
    fallback: dict[str, str] | None = None,
) -> Physics:
    """Constants with their :func:`card`, unrounded."""
    return Physics(1, PhysicsCard(**about), default, tables or {}, fallback or {})


def write(path: Path, content: Any) -> None:
    """Writes a file: a :class:`~silicast.kernels.physics.constants.Physics`, or bodies of some."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(msgspec.to_builtins(content), indent=1)
    write_atomically(path, f"{text}\n".encode())
