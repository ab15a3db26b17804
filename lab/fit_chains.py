"""Fits chains of passes, as frameworks, compilers and kernels by hand run row kernels:
catalog/physics/chains.json.

    python -m lab.fit_chains

Constants of kinds of passes are of no device: cycles of a core and shares of rates. What a device
has of its own is its host. Of each benchmark every second size is held out. Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, Prior
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.backward import TABLE as GRADIENTS
from lab.scorecard.suites.backward import norm_rows
from lab.scorecard.suites.liger import TABLE, timed_rows

CYCLES: Prior = (0.7, 0.02, 6.0)
BY_HAND: Prior = (0.3, 0.02, 3.0)
SHARE: Prior = (0.95, 0.5, 1.15)
KINDS: Mapping[str, Mapping[str, Prior]] = {
    "pointwise": {"share": SHARE}, "broadcast": {"cycles": CYCLES}, "strided": {"cycles": CYCLES},
    "complex": {"cycles": (1.0, 0.02, 6.0)}, "row_sums": {"share": SHARE},
    "columns": {"cycles": (0.4, 0.02, 6.0)},
    "row_grad": {"share": SHARE, "cycles": (0.2, 0.02, 2.0), "row_cycles": (50.0, 1.0, 8000.0)},
    "weight_sums": {"share": (0.5, 0.2, 1.15), "cycles": (0.1, 0.01, 6.0)},
    "split_sums": {"share": (0.5, 0.2, 1.15), "cycles": (0.1, 0.01, 6.0)},
    "norm_grad": {"cycles": (1.5, 0.1, 6.0)},
    "rows": {"share": SHARE, "cycles": (0.2, 0.02, 2.0), "row_cycles": (200.0, 1.0, 8000.0)},
    "loop": {"element_s": (1e-9, 1e-10, 4e-9)}, "gated": {"share": SHARE},
    "rotate": {"cycles": BY_HAND}, "rotate_complex": {"cycles": BY_HAND},
    "concatenate": {"cycles": CYCLES},
    "softmax_grad": {"share": SHARE, "row_cycles": (2000.0, 1.0, 9000.0)},
    "gather": {"cycles": (2.0, 0.1, 6.0)}, "copy_rows": {"share": SHARE},
    "sum_rows": {"cycles": (2.0, 0.1, 9.0)}, "atomic": {"cycles": (4.0, 0.1, 9.0)},
    "atomic_rows": {"cycles": (2.0, 0.1, 9.0)},
    "loss_rows": {"share": SHARE, "cycles": BY_HAND, "row_cycles": (2000.0, 1.0, 9000.0)},
}  # fmt: skip
PRIORS: dict[str, Prior] = {
    **{f"{kind}.{name}": prior for kind, own in KINDS.items() for name, prior in own.items()},
    "events_s": (4e-6, 1e-6, 1e-5), "l2_rate": (1.0, 0.5, 3.0), "trips": (1.0, 0.2, 4.0),
    "small_s": (1.5e-6, 5e-7, 4e-6), "spill_cycles": (2.0, 0.05, 20.0),
    "reread_from": (0.35, 0.05, 0.6), "reread_to": (0.75, 0.61, 1.5),
    "call_s": (8e-6, 1e-6, 1e-5), "wait_s": (3e-5, 5e-6, 1e-4),
    "eager.kernel_s": (8e-6, 3e-6, 2e-5), "eager.forward_s": (1e-5, 1e-6, 1e-4),
    "eager.backward_s": (4e-5, 1e-5, 3e-4), "eager.both_s": (5e-5, 1e-5, 3e-4),
    "by_hand.kernel_s": (1e-5, 3e-6, 3e-5), "by_hand.forward_s": (5e-5, 2e-5, 8e-5),
    "by_hand.backward_s": (1.5e-4, 5e-5, 3e-4), "by_hand.both_s": (8e-5, 1e-5, 3e-4),
}  # fmt: skip
PRODUCTS = ("gated_mlp", "linear_cross_entropy", "linear_preference_loss")
"""Families that are mostly matrix products: no constant is fitted on them."""
RESIDENT = {"norm_grad": 8.0, "softmax_grad": 2.0, "loss_rows": 1.0}
"""Blocks of a core at once, from their threads: 128, 256, 1,024, and 1,024 with all registers."""
HOST: Prior = (1.0, 0.4, 2.5)
"""Of a machine over a usual one; machines whose rows never wait for the host tell nothing of it."""
PULL = 0.1
"""How strongly constants are drawn to their priors: chosen by leaving architectures out, of which
each tells some of the constants only."""
WORKSPACE = {"workspace_mib": 8.125}
WIDE_WORKSPACE = {"hopper": 32.0}
"""Stated by PyTorch's source (CUDABlas workspaces: 8.125 MiB, on Hopper 32 MiB)."""
SHARED = {"device_log_sd": 0.06, "family_log_sd": 0.08}

Parts = list[MeasuredRows]


class Chains(Fitter[Parts]):
    """Row kernels by provider."""

    group = "chains"
    data = (TABLE, GRADIENTS)
    split = (
        "of each benchmark every second size, the smallest first, is never fitted; of gradients of "
        "norms on GB200 and H200 one shape in four, by hash"
    )
    capped = True

    def rows(self, data: Path) -> Parts:
        every = [part for parts in timed_rows(data).values() for part in parts]
        return [*every, *norm_rows(data)]

    def fit(self, rows: Parts) -> Body:
        train = held_out(rows, False)
        parts = [part for part in train if part.batch.family not in PRODUCTS]
        boards = sorted({part.hardware.architecture for part in parts})
        priors = {**PRIORS, **{f"{board}:host_factor": HOST for board in boards}}
        start = {name: prior[0] for name, prior in priors.items()}
        start |= {f"{kind}.resident_rows": x for kind, x in RESIDENT.items()}
        start |= {**SHARED, **WORKSPACE, "independent_log_sd": 0.1, "host_factor": 1.0}

        def logs(c: Mapping[str, float]) -> list[Any]:
            return [fitting.log_ratio(part, _own(part, c)) for part in parts]

        fit_within = fitting.fit_within(
            priors, logs, start, sum(map(len, parts)), weight=PULL, steps=25
        )
        off = np.concatenate(logs(fit_within))
        fit_within["independent_log_sd"] = fitting.own_log_sd(off, list(SHARED.values()), wider=1.3)
        print("chains", fitting.percent(off, "rows", "mape", "p90", "bias"))
        table = {b: {"host_factor": fit_within.pop(f"{b}:host_factor")} for b in boards}
        for part in train:
            counts = table[part.hardware.architecture]
            name = f"measured.{part.batch.family}"
            counts[name] = counts.get(name, 0.0) + len(part)
        usual = {"host_factor": fitting.means(table.values())["host_factor"]}
        for board in boards:
            if board in WIDE_WORKSPACE:
                table[board]["workspace_mib"] = WIDE_WORKSPACE[board]
        return fitting.body({**fit_within, **usual}, table)

    def scores(self, rows: Parts, body: Body) -> Mapping[str, Any]:
        table: dict[str, Parts] = {}
        for part in rows:
            if part.batch.family in PRODUCTS:
                continue
            direction = part.words.get("direction", "backward")
            provider = part.words.get("provider", part.batch.variant.library)
            key = "/".join((part.device, direction, provider))
            table.setdefault(key, []).append(part)
        return {
            key: fitting.shares(_logs(held_out(parts), body))
            for key, parts in sorted(table.items())
            if held_out(parts)
        }

    def without(self, rows: Parts, architecture: str, body: Body) -> Body:
        others = [part for part in rows if part.hardware.architecture != architecture]
        mine = [part for part in rows if part.hardware.architecture == architecture]
        fit = self.fit(others)
        print(architecture, "from the others", fitting.shares(_logs(mine, fit)))
        return fit


def _own(part: MeasuredRows, c: Mapping[str, float]) -> Constants:
    prefix = f"{part.hardware.architecture}:"
    return {**c, **{k.removeprefix(prefix): v for k, v in c.items() if k.startswith(prefix)}}


def _logs(parts: Sequence[MeasuredRows], body: Body) -> Any:
    return np.concatenate(
        [
            fitting.log_ratio(
                part,
                {**body["default"], **body["architectures"].get(part.hardware.architecture, {})},
            )
            for part in parts
        ]
    )


if __name__ == "__main__":
    Chains().run()
