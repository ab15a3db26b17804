"""Which algorithm a library takes."""

from __future__ import annotations

import pytest

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.library import UNLIMITED, choices
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device

MIB = 1 << 20


def names(
    library: str,
    gpus: int,
    size: int,
    device: str = "H100",
    op: Collective = "all_reduce",
    dtype: str = "bf16",
    version: str = "",
) -> set[str]:
    topology = Topology.from_device(find_device(device), gpus)
    rules = choices(library, op, topology, dtype, version)
    assert rules[-1].largest == UNLIMITED
    rule = next(rule for rule in rules if size <= rule.largest)
    return {name for name, _ in rule.candidates}


def test_nccl_leaves_long_all_reduces_of_large_groups_to_the_switch() -> None:
    assert names("nccl", 8, MIB) == {"short_ring", "nvls"}
    assert names("nccl", 4, MIB) == {"ring"}
    assert names("nccl", 8, MIB, device="A100") == {"ring"}
    assert names("nccl", 8, MIB, op="all_gather") == {"ring"}


def test_the_switch_does_not_add_integers() -> None:
    assert names("nccl", 8, MIB, dtype="int8") == {"ring"}


def test_nccl_builds_trees_between_nodes() -> None:
    assert names("nccl", 16, MIB) == {"ring", "tree", "nvls_tree"}


def test_messages_are_exchanged() -> None:
    assert names("nccl", 8, MIB, op="all_to_all") == {"exchange"}
    assert names("nccl", 2, MIB, op="send_recv") == {"exchange"}


@pytest.mark.parametrize(
    ("gpus", "size", "expected"),
    [
        (2, 4 * MIB, "one_shot"),
        (4, 512 * 1024 - 1, "one_shot"),
        (4, 512 * 1024, "two_shot"),
        (8, 256 * 1024 - 1, "one_shot"),
        (8, 256 * 1024, "two_shot"),
        (8, 8 * MIB, "two_shot"),
    ],
)
def test_sglang_reads_peers_once_for_small_messages(gpus: int, size: int, expected: str) -> None:
    assert names("sglang", gpus, size) == {expected}


def test_engines_leave_large_messages_and_other_operations_to_nccl() -> None:
    assert names("sglang", 8, 8 * MIB + 1) == {"short_ring", "nvls"}
    assert names("sglang", 8, 1024, op="all_gather") == {"ring"}
    assert names("sglang", 16, 1024) == {"ring", "tree", "nvls_tree"}


def test_newer_sglang_has_a_larger_limit() -> None:
    assert names("sglang", 8, 16 * MIB, version="0.5.14") == {"one_shot", "two_shot"}
    assert names("sglang", 8, 16 * MIB, version="0.5.10.post1") == {"short_ring", "nvls"}


def test_vllm_uses_symmetric_memory_where_the_switch_can_reduce() -> None:
    assert names("vllm", 8, 128 * 1024) == {"one_shot"}
    assert names("vllm", 8, 256 * 1024) == {"multimem"}
    assert names("vllm", 8, 256 * 1024, device="A100") == {"two_shot"}
    assert names("vllm", 8, 64 * MIB) == {"short_ring", "nvls"}


def test_over_pcie_only_a_pair_has_its_own_kernel() -> None:
    assert names("vllm", 2, 1024, device="L40S") == {"one_shot"}
    assert names("vllm", 4, 1024, device="L40S") == {"ring"}
    assert names("trtllm", 2, 1024, device="L40S") == {"ring"}
    assert names("vllm", 2, 1024, device="RTX 6000 Ada") == {"ring"}


def test_an_unknown_library_is_refused() -> None:
    with pytest.raises(SilicastError, match="nccl, sglang, trtllm or vllm"):
        names("gloo", 2, 1)
