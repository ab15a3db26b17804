"""Which algorithm a library takes for which size: NCCL, and the engines' own all-reduce.

The size limits below are the libraries' own defaults, read in their sources; they are rules of
software, not measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from silicast.communication.algorithm import Collective
from silicast.communication.nvls import SMALLEST as NVLS_SMALLEST
from silicast.communication.shot import peer_memory_supports
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError

LibraryName = Literal["nccl", "vllm", "sglang", "trtllm", ""]
LIBRARIES: tuple[LibraryName, ...] = ("nccl", "vllm", "sglang", "trtllm", "")

RING_DTYPES = frozenset({"int8", "uint8", "int32", "int64", "fp64"})
"""Formats that NCCL does not let the switch add (``multimem.ld_reduce``: bf16, fp16, fp32). An
op of a quantised model still reduces its 16-bit outputs."""

KIB, MIB = 1024, 1024 * 1024
UNLIMITED = 1 << 62

CUSTOM_LIMIT = 8 * MIB
"""vLLM and SGLang, ``CustomAllreduce(max_size=8192 * 1024)``."""

VLLM_CUSTOM: dict[str, dict[int, float]] = {
    "hopper": {2: 64, 4: 32, 6: 0.5, 8: 0.25},
    "blackwell": {2: 2, 4: 2, 6: 1, 8: 1},
}
VLLM_SYMMETRIC: dict[str, dict[int, float]] = {
    "hopper": {4: 32, 6: 64, 8: 64},
    "blackwell": {4: 32, 6: 128, 8: 128},
}
VLLM_SYMMETRIC_FROM = (0, 15)
"""vLLM ``all_reduce_utils.py``, MiB below which it uses its own kernel, or multimem kernels on
symmetric memory, by compute capability 9.0 and 10.0 and group size; the latter by default since
the release named. (A pair on symmetric memory is as fast as NCCL and counts as that.)"""

TRTLLM_LIMIT = {"ampere": MIB}
TRTLLM_LIMIT_LATER = 64 * MIB
"""TensorRT-LLM takes the fastest of its own kernels and NCCL up to these sizes."""

SGLANG_SECOND_KERNEL = (0, 5, 14)
"""First release whose rewritten all-reduce serves up to twice the size."""


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithms that compete for sizes up to a limit; the fastest of them is taken.

    Attributes:
        largest: the largest size in bytes that they serve.
        candidates: (algorithm name, section of the constants) pairs.
    """

    largest: int
    candidates: tuple[tuple[str, str], ...]


def choices(
    library: str, op: Collective, topology: Topology, dtype: str = "bf16", version: str = ""
) -> list[Choice]:
    """The choices of ``library`` in order of size; the last has no limit.

    Args:
        library: one of :data:`LIBRARIES`; "" = NCCL.
        dtype: element format; the switch adds only some.
        version: of the library; "" = the kernels that most of its releases have.

    Raises:
        SilicastError: unknown library.
    """
    if library not in LIBRARIES:
        raise SilicastError(
            f"unknown communication library {library!r}",
            kind="unknown_name",
            field="implementation",
            hint="nccl, vllm, sglang or trtllm",
        )
    nccl = Choice(UNLIMITED, _nccl(op, topology, dtype))
    if library in {"nccl", ""} or not peer_memory_supports(op, topology):
        return [nccl]
    nvlink = topology.fabric != "pcie"
    if library == "trtllm":
        if not nvlink:
            return [nccl]
        own = (("one_shot", "trtllm_one"), ("two_shot", "trtllm_two"))
        limit = TRTLLM_LIMIT.get(topology.device.architecture, TRTLLM_LIMIT_LATER)
        return [Choice(limit, (*own, *nccl.candidates)), nccl]
    if library == "sglang" and nvlink and _release(version) >= SGLANG_SECOND_KERNEL:
        second = (("one_shot", "second_one"), ("two_shot", "second_two"))
        return [Choice(2 * CUSTOM_LIMIT, second), nccl]
    found = _custom(topology, _custom_limit(library, topology))
    older = version and _release(version) < VLLM_SYMMETRIC_FROM
    if library == "vllm" and topology.multicast and not older:
        limit = _by_group(VLLM_SYMMETRIC, topology, 0.0)
        if limit:
            found.append(Choice(limit - 1, (("multimem", "multimem"),)))
    return [*found, nccl]


def _nccl(op: Collective, topology: Topology, dtype: str) -> tuple[tuple[str, str], ...]:
    section = topology.fabric if topology.fabric in {"pcie", "host"} else "nvlink"
    if op in {"all_to_all", "send_recv"}:
        return (("exchange", section),)
    if op == "all_reduce" and topology.nodes > 1:
        return (("ring", section), ("tree", section))
    switch = topology.multicast and topology.nodes == 1 and topology.gpus >= NVLS_SMALLEST
    if op == "all_reduce" and switch and dtype not in RING_DTYPES:
        return (("short_ring", section), ("nvls", "nvls"))
    return (("ring", section),)


def _custom(topology: Topology, limit: int) -> list[Choice]:
    """One-shot below a group-size dependent size, two-shot above (``custom_all_reduce.cuh``)."""
    if topology.fabric == "pcie":
        return [Choice(limit, (("one_shot", "pair_one"),))]
    one, two = (("one_shot", "custom_one"),), (("two_shot", "custom_two"),)
    if topology.gpus == 2:
        return [Choice(limit, one)]
    switch = (512 if topology.gpus <= 4 else 256) * KIB - 1
    return [Choice(min(switch, limit), one), Choice(limit, two)]


def _custom_limit(library: str, topology: Topology) -> int:
    if library != "vllm":
        return CUSTOM_LIMIT
    if not topology.multicast:
        return CUSTOM_LIMIT - 1
    return min(_by_group(VLLM_CUSTOM, topology, 8.0), CUSTOM_LIMIT) - 1


def _by_group(table: dict[str, dict[int, float]], topology: Topology, default: float) -> int:
    row = table.get(topology.device.architecture, {})
    even = topology.gpus + topology.gpus % 2
    return int(row.get(even, default) * MIB)


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 0.5.14.post1 -> (0, 5, 14)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
