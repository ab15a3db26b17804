"""The stages of ``lab.fit_communication``: which constants are fitted on which rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.scorecard.collectives import CollectiveRows
from silicast.communication.algorithms.nvls import NOT_ADDED

FITTED = {
    "ampere": ["A100"],
    "hopper": ["H100", "H200", "H20", "H800"],
    "blackwell": ["B200", "GB200"],
    "ada": ["L40S", "RTX 6000 Ada"],
}
"""Architecture -> its measured devices."""

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
    return large & ~np.isin(rows.dtype, list(NOT_ADDED))


def point_to_point(rows: CollectiveRows) -> Mask:
    return nccl(rows) & (rows.op == "all_to_all")


def single(rows: CollectiveRows) -> Mask:
    return (rows.op == "send_recv") & (rows.size >= 32 << 20)


def kernels(*libraries: str, largest: int = (8 << 20) + 1) -> Callable[[CollectiveRows], Mask]:
    def select(rows: CollectiveRows) -> Mask:
        of_graph = np.isin(rows.library, libraries) & (rows.launch == "graph")
        routed = (rows.library == "vllm") & (rows.size > 2 << 20)
        return of_graph & (rows.size < largest) & (rows.version != "0.5.14") & ~routed

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
    short = (rows.size >= 1 << 20) & (rows.size <= 2 << 20)
    return mine & short & (rows.device != "GB200")


def eager_large(rows: CollectiveRows) -> Mask:
    return (rows.launch == "eager") & (rows.size >= 128 << 20) & (rows.device != "GB200")


def torch(rows: CollectiveRows) -> Mask:
    return (rows.launch == "torch") & (rows.op == "all_reduce") & (rows.device != "RTX 6000 Ada")


def staged(rows: CollectiveRows) -> Mask:
    return rows.device == "RTX 6000 Ada"


def peer_pcie(rows: CollectiveRows) -> Mask:
    return nccl(rows) & (rows.op != "all_to_all") & (rows.gpus == 2) & (rows.device == "L40S")


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
        f"{kind}_two.floor_us": (two, 0.5, 40),
        f"{kind}_two.floor_peer_us": (0.5, 0.005, 5),
    }


NVLINK = (("ampere", 8.0, 0.95), ("hopper", 4.5, 0.8), ("blackwell", 7.5, 1.3))


def stages() -> list[Stage]:
    stage_list = []
    for architecture, base, step in NVLINK:
        architectures = (architecture,)
        stage_list += [
            Stage("ring", architectures, switched_ring, ring_constants("nvlink", base, step)),
            Stage("messages", architectures, point_to_point, message_constants("nvlink", base)),
        ]
    switches = ("hopper", "blackwell")
    nvlinks = ("ampere", *switches)
    return [
        *stage_list,
        Stage("single", ("ampere",), single, {"nvlink.single_efficiency": (0.8, 0.3, 0.97)}),
        Stage("nvls", switches, in_switch, {
            "nvls.base_us": (15, 3, 40), "nvls.nvls_efficiency": (0.7, 0.2, 0.97),
            "nvls.nvls_fill_us": (3, 0.1, 100)}),
        Stage("engines", nvlinks, kernels("vllm", "sglang"), shot_constants("custom", 4.5, 7, 170)),
        Stage("trtllm", ("ampere",), kernels("trtllm", largest=1 << 20),
              shot_constants("trtllm", 3, 8, 140)),
        Stage("trtllm", switches, kernels("trtllm", largest=32 << 20),
              shot_constants("trtllm", 3, 8, 250)),
        Stage("second", switches, second_kernel, shot_constants("second", 3, 6, 300)),
        Stage("multimem", switches, multimem, {
            "multimem.base_us": (9, 2, 30), "multimem.nvls_efficiency": (0.5, 0.1, 0.95)}),
        Stage("pcie pair", ("ada",), peer_pcie, ring_constants("pcie", 3.5, 1.4)),
        Stage("pcie messages", ("ada",), peer_pcie_messages, message_constants("pcie", 3.5)),
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
