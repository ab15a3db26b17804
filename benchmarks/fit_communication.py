"""Fits ``catalog/physics/communication.json`` from measured collectives, deterministically.

    .venv/bin/python -m benchmarks.fit_communication [--dry-run]

Stages run one after the other, each on the rows in which its constants decide: NCCL's ring on
NVLink, point to point, NVLS, the engines' kernels, PCIe, host floors; then the error model from
rows that no stage saw. Half of the points of the fitted devices (by a hash of device, operation,
participants and size) and every point of the held-out devices stay unseen
(:mod:`silicast.validation.collective_rows`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.communication.collective import collective_times, model_times
from silicast.communication.library import RING_DTYPES
from silicast.communication.topology import Topology
from silicast.core.catalog import CATALOG
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.validation.collective_rows import (
    OWN_NODES,
    SOURCE,
    CollectiveRows,
    read_collectives,
)
from silicast.validation.suite import data_folder

PATH = CATALOG / "physics" / "communication.json"
COMMAND = ".venv/bin/python -m benchmarks.fit_communication"
DATE = "2026-11-21"
PULL = 0.03
"""Weight of a constant's log distance from its start: keeps what the rows do not decide."""

FITTED = {
    "ampere": ["A100"],
    "hopper": ["H100"],
    "blackwell": ["B200", "GB200"],
    "ada": ["L40S", "RTX 6000 Ada"],
}
"""Architecture -> devices whose fitted rows may be used (GB200 and RTX 6000 Ada only for their
hosts: eager floors and PCIe staged in host memory)."""

Mask = Any
Span = tuple[float, float, float]
"""Start, smallest and largest value."""


@dataclass(frozen=True)
class Stage:
    """Constants fitted together.

    Attributes:
        architectures: fitted apart for each of these.
        select: rows in which they decide.
        constants: name -> start, smallest, largest; a start below 0 is a factor of ``base``.
    """

    name: str
    architectures: tuple[str, ...]
    select: Callable[[CollectiveRows], Mask]
    constants: Mapping[str, Span]


def switched_ring(rows: CollectiveRows) -> Mask:
    return (
        nccl(rows)
        & np.isin(rows.op, ["all_reduce", "all_gather", "reduce_scatter"])
        & ~in_switch(rows)
    )


def nccl(rows: CollectiveRows) -> Mask:
    return (rows.library == "nccl") & (rows.launch == "graph")


def in_switch(rows: CollectiveRows) -> Mask:
    large = nccl(rows) & (rows.op == "all_reduce") & (rows.gpus > 4) & (rows.device != "A100")
    return large & ~np.isin(rows.dtype, list(RING_DTYPES))


def point_to_point(rows: CollectiveRows) -> Mask:
    return nccl(rows) & (rows.op == "all_to_all")


def single(rows: CollectiveRows) -> Mask:
    return (rows.op == "send_recv") & (rows.size >= 8 << 20)


def kernels(*libraries: str, largest: int = 8 << 20) -> Callable[[CollectiveRows], Mask]:
    def select(rows: CollectiveRows) -> Mask:
        own = np.isin(rows.library, libraries) & (rows.launch == "graph")
        return own & (rows.size < largest) & (rows.version != "0.5.14")

    return select


def pair_kernels(rows: CollectiveRows) -> Mask:
    return kernels("vllm", "sglang")(rows) & (rows.gpus == 2) & (rows.version != "0.5.12")


def second_kernel(rows: CollectiveRows) -> Mask:
    return (
        (rows.library == "sglang")
        & (rows.version == "0.5.14")
        & (rows.launch == "graph")
        & (rows.size <= 16 << 20)
    )


def multimem(rows: CollectiveRows) -> Mask:
    large = np.where(rows.gpus == 8, 1 << 20, 2 << 20)
    mine = (rows.library == "vllm") & (rows.launch == "graph") & (rows.version >= "0.18")
    return mine & (rows.size >= large) & (rows.size < 32 << 20) & (rows.gpus > 2)


def eager(rows: CollectiveRows) -> Mask:
    return (rows.launch == "eager") & (rows.size <= 32 << 10) & (rows.device != "GB200")


def eager_grace(rows: CollectiveRows) -> Mask:
    return (rows.launch == "eager") & (rows.size <= 32 << 10) & (rows.device == "GB200")


def eager_multimem(rows: CollectiveRows) -> Mask:
    mine = (rows.library == "vllm") & (rows.launch == "eager") & (rows.gpus == 8)
    return mine & (rows.size >= 1 << 20) & (rows.size <= 2 << 20)


def eager_large(rows: CollectiveRows) -> Mask:
    return (rows.launch == "eager") & (rows.size >= 128 << 20)


def torch(rows: CollectiveRows) -> Mask:
    return (rows.launch == "torch") & (rows.op == "all_reduce") & (rows.device != "RTX 6000 Ada")


def staged(rows: CollectiveRows) -> Mask:
    return rows.device == "RTX 6000 Ada"


def peer_pcie(rows: CollectiveRows) -> Mask:
    return nccl(rows) & (rows.op != "all_to_all") & (rows.gpus == 2) & (rows.device == "L40S")


def shared_pcie(rows: CollectiveRows) -> Mask:
    return (rows.launch == "graph") & (rows.gpus > 2) & (rows.device == "L40S")


def peer_pcie_messages(rows: CollectiveRows) -> Mask:
    return nccl(rows) & (rows.op == "all_to_all") & (rows.gpus == 2) & (rows.device == "L40S")


def ring_constants(section: str, base: float, step: float) -> dict[str, Span]:
    wide = section != "nvlink"
    return {
        f"{section}.base_us": (base, 1, 20),
        f"{section}.ll_step_us": (step, 0.2, 5),
        f"{section}.ll_efficiency": (0.2 if wide else 0.03, 0.002, 0.5),
        f"{section}.ll128_base_us": (base + 2, 1, 40),
        f"{section}.ll128_step_us": (step * 1.1, 0.2, 9),
        f"{section}.ll128_efficiency": (0.42, 0.1, 0.95),
        f"{section}.ll128_local_copy": (0.8, 0.05, 3),
        f"{section}.simple_base_us": (base + 6, 1, 60),
        f"{section}.simple_step_us": (1.5, 0.2, 20),
        f"{section}.simple_efficiency": (0.8, 0.2, 0.97),
        f"{section}.simple_fill_us": (6, 0.1, 100),
        f"{section}.simple_local_copy": (0.4, 0.05, 2),
    }


def message_constants(section: str, base: float) -> dict[str, Span]:
    return {
        f"{section}.p2p_ll_base_us": (base + 1, 1, 20),
        f"{section}.p2p_ll_step_us": (0.2, 0.02, 3),
        f"{section}.p2p_ll_efficiency": (0.1, 0.005, 0.6),
        f"{section}.p2p_base_us": (base + 6, 1, 40),
        f"{section}.p2p_step_us": (0.3, 0.02, 5),
        f"{section}.p2p_efficiency": (0.8, 0.2, 0.97),
        f"{section}.p2p_local_copy": (0.4, 0.05, 2),
        f"{section}.p2p_fill_us": (3, 0.1, 100),
    }


def shot_constants(kind: str, one: float, two: float, rate: float) -> dict[str, Span]:
    return {
        f"{kind}_one.base_us": (one, 1, 20),
        f"{kind}_one.peer_us": (0.1, 0.005, 2),
        f"{kind}_one.peer_gbps": (rate, 20, 900),
        f"{kind}_one.ceiling_gbps": (rate * 1.5, 20, 900),
        f"{kind}_two.base_us": (two, 1, 40),
        f"{kind}_two.peer_us": (0.3, 0.005, 4),
        f"{kind}_two.ceiling_gbps": (rate * 1.2, 20, 900),
    }


NVLINK = (("ampere", 8.0, 0.95), ("hopper", 4.5, 0.8), ("blackwell", 7.5, 1.3))


def stages() -> list[Stage]:
    found = []
    for architecture, base, step in NVLINK:
        one = (architecture,)
        found += [
            Stage("ring", one, switched_ring, ring_constants("nvlink", base, step)),
            Stage("messages", one, point_to_point, message_constants("nvlink", base)),
        ]
    switches = ("hopper", "blackwell")
    nvlinks = ("ampere", *switches)
    return [
        *found,
        Stage("single", ("ampere",), single, {"nvlink.single_efficiency": (0.8, 0.3, 0.97)}),
        Stage("nvls", switches, in_switch, {
            "nvls.base_us": (15, 3, 40), "nvls.nvls_efficiency": (0.7, 0.2, 0.97),
            "nvls.nvls_fill_us": (3, 0.1, 100)}),
        Stage("engines", nvlinks, kernels("vllm", "sglang"), shot_constants("custom", 4.5, 7, 180)),
        Stage("trtllm", nvlinks, kernels("trtllm", largest=32 << 20),
              shot_constants("trtllm", 3, 8, 250)),
        Stage("second", switches, second_kernel, shot_constants("second", 3, 6, 300)),
        Stage("multimem", switches, multimem, {
            "multimem.base_us": (9, 2, 30), "multimem.nvls_efficiency": (0.5, 0.1, 0.95)}),
        Stage("pcie pair", ("ada",), peer_pcie, ring_constants("pcie", 3.5, 1.4)),
        Stage("pcie messages", ("ada",), peer_pcie_messages, message_constants("pcie", 3.5)),
        Stage("pcie shared", ("ada",), shared_pcie, {"pcie.contention": (0.8, 0.01, 2)}),
        Stage("pcie kernels", ("ada",), pair_kernels,
              {"pair_one.base_us": (5, 1, 20), "pair_one.efficiency": (0.6, 0.1, 0.95)}),
        Stage("staged", ("ada",), staged, {
            **ring_constants("host", 3.5, 1.0), "host.simple_efficiency": (0.35, 0.1, 0.9)}),
        Stage("eager", tuple(FITTED), eager, {"eager_floor_us": (25, 5, 90)}),
        Stage("eager multimem", switches, eager_multimem, {"multimem_calls": (2, 1, 3)}),
        Stage("grace", ("blackwell",), eager_grace, {"grace_eager_floor_us": (50, 5, 90)}),
        Stage("eager copy", nvlinks, eager_large, {"copy_efficiency": (0.85, 0.3, 1.0)}),
        Stage("torch", ("ampere", "hopper"), torch, {"nvlink.torch_floor_us": (30, 1, 90)}),
    ]  # fmt: skip


Constants = dict[str, float]


def predict(rows: CollectiveRows, constants: Callable[[str], Mapping[str, float]]) -> Any:
    """Seconds per row with constants by architecture."""
    time = np.zeros(len(rows))
    for key, index in rows.groups().items():
        name, op, gpus, per_node, library, version, launch, dtype = key
        device = find_device(name)
        topology = Topology.of(device, gpus, gpus_per_node=per_node)
        time[index] = model_times(
            op,
            rows.size[index],
            topology,
            constants(device.architecture),
            library,
            launch,
            dtype,
            version,
        )[0]
    return time


def fit_stage(stage: Stage, rows: CollectiveRows, known: Constants, sweeps: int = 1) -> Constants:
    """The stage's constants that fit ``rows`` best in the logarithm, robustly."""
    names = list(stage.constants)
    start, low, high = np.log(np.array([stage.constants[name] for name in names])).T
    measured = np.log(rows.seconds)

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        trial = {**known, **dict(zip(names, map(float, np.exp(x)), strict=True))}
        error = np.log(predict(rows, lambda _: trial)) - measured
        return np.concatenate([error, PULL * (x - start)])

    for _ in range(sweeps):
        found = least_squares(
            residuals,
            np.clip(start, low, high),
            bounds=(low - 1e-9, high + 1e-9),
            loss="soft_l1",
            f_scale=0.1,
            diff_step=1e-3,
            max_nfev=60,
        )
    return {name: float(f"{np.exp(v):.4g}") for name, v in zip(names, found.x, strict=True)}


def fit_all(rows: CollectiveRows, default: Constants) -> dict[str, Constants]:
    """Constants of every architecture, stage by stage."""
    found: dict[str, Constants] = {name: {} for name in FITTED}
    for stage in stages():
        for architecture in stage.architectures:
            mine = rows.fitted & np.isin(rows.device, FITTED[architecture]) & stage.select(rows)
            chosen = rows.take(mine)
            known = {**default, **found[architecture]}
            values = fit_stage(stage, chosen, known)
            found[architecture].update(values)
            after = predict(chosen, {key: {**known, **values} for key in FITTED}.__getitem__)
            error = np.abs(after / chosen.seconds - 1.0)
            print(
                f"{stage.name:14} {architecture:10} {len(chosen):5} rows, fitted error "
                f"{100 * error.mean():5.1f} % mean {100 * np.median(error):5.1f} % median"
            )
    return found


def means(found: dict[str, Constants], default: Constants) -> Constants:
    """Defaults for architectures without data: geometric means over those with.

    PCIe contention is the exception: of the two L40S hosts measured, one shows none and one much
    (no peer access across its sockets). An unknown host is taken to lie between the two.
    """
    result = dict(default)
    for name in sorted({name for values in found.values() for name in values}):
        values = [found[a][name] for a in sorted(found) if name in found[a]]
        result[name] = float(f"{np.exp(np.mean(np.log(values))):.4g}")
    four = 1.0 + 3.0 * found["ada"]["pcie.contention"]
    result["pcie.contention"] = result["host.contention"] = float(f"{(four**0.5 - 1.0) / 3.0:.4g}")
    return result


FALLBACK = {"volta": "ampere"}


def _card(scores: dict[str, Any]) -> PhysicsCard:
    return PhysicsCard(
        data=[SOURCE, OWN_NODES],
        split=(
            "Fitted: half of the points (hash of device, op, participants, size) of A100, H100, "
            "B200, L40S, RTX 6000 Ada. Held out: the other half, all of H200, GB200 (but its "
            "host's eager floor), H20, H800. A random half of the held-out rows sets the "
            "log_sd_*, the scores are of the others."
        ),
        command=COMMAND,
        date=DATE,
        scores=scores,
        notes=(
            "network_efficiency and network_step_us rest on one H100 pair across nodes (36 of "
            "50 GB/s) and are no fit."
        ),
    )


def predict_all(rows: CollectiveRows, physics: Physics) -> dict[str, Any]:
    """Estimate, interval and share of the host's floor, per row."""
    out = {name: np.zeros(len(rows)) for name in ("estimate", "p05", "p95", "floor")}
    for key, index in rows.groups().items():
        name, op, gpus, per_node, library, version, launch, dtype = key
        topology = Topology.of(find_device(name), gpus, gpus_per_node=per_node)
        times = collective_times(
            op, rows.size[index], gpus, topology, library, launch, dtype, version, physics=physics
        )
        graph = collective_times(
            op, rows.size[index], gpus, topology, library, "graph", dtype, version, physics=physics
        )
        out["estimate"][index] = times.estimate_s
        out["p05"][index], out["p95"][index] = times.p05_s, times.p95_s
        out["floor"][index] = times.estimate_s > 1.3 * graph.estimate_s
    return out


def spreads(rows: CollectiveRows, physics: Physics) -> Constants:
    """Log sd by regime: such that 90 % of the given unseen rows lie within 1.645 of it."""
    found = predict_all(rows, physics)
    error = np.abs(np.log(rows.seconds / found["estimate"]))
    base = physics.default
    shared = base["log_sd_network"] ** 2 + base["log_sd_device"] ** 2
    pcie = np.isin(rows.device, ["L40S", "RTX 6000 Ada"])
    floor = found["floor"] > 0
    engine = ~floor & ~pcie & (rows.library != "nccl") & (rows.size < 8 << 20)
    regimes = {
        "log_sd_nvlink": ~floor & ~pcie & ~engine,
        "log_sd_kernels": engine,
        "log_sd_pcie": ~floor & (rows.device == "L40S") & (rows.gpus == 2),
        "log_sd_shared_pcie": ~floor & pcie & (rows.gpus > 2),
        "log_sd_eager": floor & (rows.launch == "eager"),
        "log_sd_torch": floor & (rows.launch == "torch"),
    }
    result = {}
    for name, mask in regimes.items():
        total = float(np.quantile(error[mask], 0.9)) / Z90
        result[name] = float(f"{max(total * total - shared, 0.0004) ** 0.5:.3g}")
    return result


def host_spread(physics: Physics) -> float:
    """Half the log distance between the two PCIe platforms measured: peers, or host memory."""
    size = np.array([256 << 20])
    pair = [
        collective_times("all_reduce", size, 2, find_device(name), physics=physics).estimate_s[0]
        for name in ("L40S", "RTX 6000 Ada")
    ]
    return float(f"{abs(np.log(pair[0] / pair[1])) / 2:.3g}")


def architecture_spread(rows: CollectiveRows, found: dict[str, Constants], old: Constants) -> float:
    """Log sd of what each NVLink architecture's rows say of the means of the others'."""
    errors = []
    for architecture, devices in FITTED.items():
        others = {name: values for name, values in found.items() if name != architecture}
        mine = rows.take(np.isin(rows.device, devices) & nccl(rows) & (rows.device != "L40S"))
        if len(mine) and architecture != "ada":
            constants = means(others, old)
            time = predict(mine, {key: constants for key in FITTED}.__getitem__)
            errors.append(np.abs(np.log(time / mine.seconds)))
    return float(f"{np.quantile(np.concatenate(errors), 0.9) / Z90:.3g}")


def scores(rows: CollectiveRows, physics: Physics) -> dict[str, Any]:
    """Error by library, launch and device, and the coverage of the 90 % intervals."""
    found = predict_all(rows, physics)
    ratio = found["estimate"] / rows.seconds
    inside = (rows.seconds >= found["p05"]) & (rows.seconds <= found["p95"])
    table: dict[str, Any] = {}

    def add(name: str, mask: Mask) -> None:
        error = np.abs(ratio[mask] - 1.0)
        table[name] = {
            "rows": int(mask.sum()),
            "mape": round(100 * float(error.mean()), 1),
            "median_ape": round(100 * float(np.median(error)), 1),
            "bias": round(100 * float(np.median(ratio[mask]) - 1.0), 1),
            "coverage": round(100 * float(inside[mask].mean()), 1),
        }

    for library, launch in sorted(set(zip(rows.library, rows.launch, strict=True))):
        add(f"{library} {launch}", (rows.library == library) & (rows.launch == launch))
        for device in sorted(set(rows.device)):
            mask = (rows.library == library) & (rows.launch == launch) & (rows.device == device)
            if mask.any():
                add(f"{library} {launch} {device}", mask)
    add("all", np.ones(len(rows), dtype=bool))
    return table


def main() -> None:
    """Fits, scores and writes the constants file."""
    rows = read_collectives(data_folder())
    old = json.loads(PATH.read_text())["default"]
    found = fit_all(rows, old)
    empty = _card({})
    default = means(found, old)
    unseen = rows.take(~rows.fitted)
    even = np.random.default_rng(0).permutation(len(unseen)) % 2 == 0
    default.update(spreads(unseen.take(even), Physics(1, empty, default, found, FALLBACK)))
    table = Physics(1, empty, default, found, FALLBACK)
    default["log_sd_network_pcie"] = host_spread(table)
    default["log_sd_device_unmeasured"] = architecture_spread(rows, found, old)
    report = scores(unseen.take(~even), table)
    physics = msgspec.structs.replace(table, card=_card(report))
    if "--dry-run" not in sys.argv:
        text = msgspec.json.format(msgspec.json.encode(physics, order="sorted"), indent=1)
        PATH.write_bytes(text + b"\n")
    for name, row in report.items():
        print(f"{name:28}", row)


if __name__ == "__main__":
    main()
