"""Fits ``catalog/physics/network.json`` from measured collectives between nodes, deterministically.

    python -m lab.fit_network

What holds of all networks (how many times a hop takes longer by protocol, what pieces wait for each
other, what is lost with every doubling of nodes) and, by kind of network, the time of a hop and the
share of the wire. A kind without rows takes the geometric means of the others. Kernels inside a
node keep their constants (``communication.json``).

The suite holds out whole providers: constants without any row of theirs (held_out/network.json of
the scorecard). Widths of intervals are the errors of providers that were left out in turn, of kinds
of network that others have too, and of kinds that none has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Prior, Tables
from lab.scorecard.collectives_between import TABLE, MultinodeRows, read_multinode
from lab.scorecard.rows import Mask
from silicast.communication.selection import select, shipped_sections
from silicast.core.prediction import Z90

LEAST_BYTES = 4 << 10
LONG = 1 << 20
"""Shorter messages count half: they are not what the suite scores."""
PULL = 0.3
"""Weight of a constant's log distance from its start: keeps what the rows do not decide."""
COMMON: dict[str, Prior] = {
    "network_ll128_steps": (1.6, 1, 8),
    "network_simple_steps": (3, 1, 12),
    "network_nvls_steps": (4, 1, 30),
    "network_ring_fill": (0.3, 0.01, 5),
    "network_tree_fill": (0.5, 0.01, 5),
    "network_alone": (0.9, 0.5, 1),
    "network_doubling": (0.98, 0.8, 1),
}
"""Of all networks; protocols' steps start at the order of those in the library's own tuning."""
OF_KIND: dict[str, Prior] = {"network_step_us": (8, 1, 900), "network_efficiency": (0.9, 0.3, 0.97)}
FEW_NODES = 8
PER_DOUBLING = (0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)


def predict(rows: MultinodeRows, common: Mapping[str, float], tables: Tables) -> F:
    """Seconds per row under constants of networks."""
    time = np.zeros(len(rows))
    for call, index in rows.calls():
        topology = call.topology
        time[index] = select(
            call.op, rows.size[index], topology, shipped_sections(topology.device), call.library,
            call.launch, call.dtype, call.version, call.forced,
            {**common, **tables.get(topology.network, {})},
        ).time_s  # fmt: skip
    return time


def kinds_of(rows: MultinodeRows) -> np.ndarray:
    """The kind of network of every row."""
    kinds = np.empty(len(rows), dtype="<U16")
    for call, index in rows.calls():
        kinds[index] = call.topology.network
    return kinds


def fit_constants(rows: MultinodeRows) -> tuple[Constants, Tables]:
    """What all networks share with the means of the kinds, and what each kind has."""
    kinds = sorted(set(kinds_of(rows).tolist()))
    priors = [*COMMON.values(), *(prior for _ in kinds for prior in OF_KIND.values())]
    start, low, high = np.log(np.array(priors, dtype=float)).T
    weight, measured = np.where(rows.size >= LONG, 1.0, 0.5), np.log(rows.seconds)

    def split(x: F) -> tuple[Constants, Tables]:
        values = iter(np.exp(x).tolist())
        common = {name: next(values) for name in COMMON}
        return common, {kind: {name: next(values) for name in OF_KIND} for kind in kinds}

    def residuals(x: F) -> F:
        error = np.log(predict(rows, *split(x))) - measured
        return np.concatenate([weight * error, PULL * (x - start)])

    result = least_squares(
        residuals,
        start,
        bounds=(low - 1e-9, high + 1e-9),
        loss="soft_l1",
        f_scale=0.1,
        diff_step=1e-3,
        max_nfev=40,
    )
    common, networks = split(result.x)
    return {**common, **fitting.means(networks.values())}, networks


def errors_of_others(rows: MultinodeRows) -> tuple[F, Mask]:
    """Log error of every row under constants without its provider, and whether others have its
    kind of network.
    """
    error, has_others = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    kinds = kinds_of(rows)
    for provider in sorted(set(rows.provider.tolist())):
        out = rows.provider == provider
        common, networks = fit_constants(rows.take(~out))
        left = rows.take(out)
        error[out] = np.log(predict(left, common, networks) / left.seconds)
        has_others[out] = np.isin(kinds[out], list(networks))
    return error, has_others


def widths(rows: MultinodeRows) -> Constants:
    """Log sd of a network of a known kind, of another kind, and of a doubling of nodes beyond."""
    error, has_others = errors_of_others(rows)
    long = rows.size >= LONG
    sds = {}
    for name, mask in (("", has_others), ("_unmeasured", ~has_others)):
        chosen = error[mask & long] if (mask & long).any() else error[long]
        sds[f"network_log_sd{name}"] = fitting.own_log_sd(chosen, ())
    least = sds["network_log_sd"]
    sds["network_log_sd_unmeasured"] = max(least, sds["network_log_sd_unmeasured"])
    most = int(rows.nodes.max())
    return {
        **sds,
        "network_most_nodes": float(most),
        "network_log_sd_doubling": per_doubling(rows, sds["network_log_sd"]),
    }


def per_doubling(rows: MultinodeRows, log_sd: float) -> float:
    """What each doubling beyond the nodes that were fitted adds: of a few values the least under
    which nine in ten rows of many nodes are covered by constants of few.
    """
    many = rows.nodes > FEW_NODES
    if not many.any():
        return PER_DOUBLING[-1]
    common, networks = fit_constants(rows.take(~many))
    left = rows.take(many & (rows.size >= LONG))
    error = np.abs(np.log(predict(left, common, networks) / left.seconds))
    doublings = np.log2(left.nodes / FEW_NODES)
    for value in PER_DOUBLING:
        if np.mean(error <= Z90 * np.hypot(log_sd, value * doublings)) >= 0.9:
            return value
    return PER_DOUBLING[-1]


class Network(Fitter[MultinodeRows]):
    """Networks between nodes; "architectures" are kinds of network."""

    group = "network"
    data = (TABLE,)
    split = (
        "Fitted: all rows. Scores: rows of 1 MiB and more under constants without any row of their "
        "provider, as the suite collectives-multinode holds them out."
    )
    notes = (
        "Nodes up to 64 were measured on InfiniBand only; other kinds have two nodes, and one "
        "message of 16. all_to_all and reduce_scatter were not measured."
    )

    def rows(self, data: Path) -> MultinodeRows:
        return read_multinode(data, least=LEAST_BYTES)

    def fit(self, rows: MultinodeRows) -> Body:
        common, networks = fit_constants(rows)
        return fitting.body({**common, **widths(rows)}, networks)

    def scores(self, rows: MultinodeRows, body: Body) -> Mapping[str, Any]:
        error, has_others = errors_of_others(rows)
        long, kinds = rows.size >= LONG, kinds_of(rows)
        groups = {"all": long, "kind known": long & has_others, "kind unknown": long & ~has_others}
        groups |= {name: long & (rows.provider == name) for name in sorted(set(rows.provider))}
        groups |= {name: long & (kinds == name) for name in sorted(set(kinds))}
        names = ("rows", "mape", "median", "bias")
        scores = {str(k): fitting.percent(error[m], *names) for k, m in groups.items() if m.any()}
        for name, row in scores.items():
            print(f"{name:16}", row)
        return scores

    def left_out(self, rows: MultinodeRows, body: Body) -> Sequence[str]:
        """Providers instead of architectures."""
        return sorted(set(rows.provider.tolist()))

    def without(self, rows: MultinodeRows, architecture: str, body: Body) -> Body:
        return self.fit(rows.take(rows.provider != architecture))


if __name__ == "__main__":
    Network().run()
