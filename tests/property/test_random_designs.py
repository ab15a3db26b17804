"""Random architecture files: each is answered soundly, or refused with a cause that is named."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from silicast.accelerator.counting.einsum import OUTPUTS, Einsum, conv2d, matmul
from silicast.accelerator.design.architecture_file import checked
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.op import Op, Variant

TENSORS = ("Weights", "Inputs", "Outputs")


def random_table(rng: np.random.Generator) -> dict[str, Any]:
    """An architecture file that may be wrong: one in five has a number or a name that is."""
    levels: list[dict[str, Any]] = []
    memories = int(rng.integers(1, 5))
    for index in range(memories):
        levels.append(random_memory(rng, index))
        if rng.random() < 0.5:
            levels.append(random_fan_out(rng, index))
    table: dict[str, Any] = {
        "name": "random", "clock_mhz": float(rng.choice([100.0, 1000.0])), "level": levels,
        "compute": {"energy_pj": float(rng.choice([0.1, 1.0])),
                    "per_cycle": float(rng.choice([1.0, 2.0, 0.5]))},
        "system": {"memory_gb": 8.0}, "ramps": bool(rng.random() < 0.2),
        "idle_leaks": bool(rng.random() < 0.8),
    }  # fmt: skip
    if rng.random() < 0.3:
        table["vector"] = {"per_cycle": 16.0, "energy_pj": 1.0}
    if rng.random() < 0.3:
        level = levels[int(rng.integers(len(levels)))]
        rule: dict[str, Any] = {"level": level["name"]}
        rule[str(rng.choice(["fixed", "most"]))] = {
            str(rng.choice(["M", "N", "K", "C", "P"])): int(rng.integers(1, 9))
        }
        table["constraint"] = [rule]
    if rng.random() < 0.2:
        spoil(table, rng)
    return table


def random_memory(rng: np.random.Generator, index: int) -> dict[str, Any]:
    energy = float(rng.uniform(0.1, 10.0)) * 4.0 ** (3 - index)
    memory: dict[str, Any] = {
        "name": f"memory{index}", "word_bits": int(rng.choice([8, 16, 32])),
        "block_words": int(rng.choice([1, 1, 4])),
        "energy_pj": {"read": energy, "fill": energy, "update": energy},
    }  # fmt: skip
    if rng.random() < 0.5 or not index:
        least = 1.0 / memory["block_words"]  # as wide as a word in the cycles of a block
        port: dict[str, Any] = {"words_per_cycle": float(rng.choice([least, 1.0, 8.0, 64.0]))}
        if rng.random() < 0.3 and index:
            port["actions"] = ["read"]
        memory["port"] = [port]
    if not index:
        return memory
    memory["capacity_words"] = int(2 ** rng.integers(2, 15))
    if rng.random() < 0.4:
        remaining = rng.choice(TENSORS, int(rng.integers(1, 4)), replace=False).tolist()
        memory["keeps"] = remaining
        if rng.random() < 0.4:
            memory["may_bypass"] = remaining[:1]
    if rng.random() < 0.2:
        memory["buffers"] = 2
    if rng.random() < 0.1:
        memory["exposes_fills"] = True
    if rng.random() < 0.1:
        memory["bank_words"] = int(2 ** rng.integers(2, 6))
    if rng.random() < 0.2:
        memory["energy_pj"]["leak"] = 0.01
    return memory


def random_fan_out(rng: np.random.Generator, index: int) -> dict[str, Any]:
    mesh = [int(x) for x in rng.choice([1, 2, 3, 4, 8, 16], int(rng.integers(1, 3)))]
    return {
        "name": f"array{index}", "mesh": mesh, "multicast": bool(rng.random() < 0.8),
        "reduction": bool(rng.random() < 0.8),
    }  # fmt: skip


def spoil(table: dict[str, Any], rng: np.random.Generator) -> None:
    """Makes one number or name wrong."""
    level = table["level"][int(rng.integers(len(table["level"])))]
    changes: list[tuple[dict[str, Any], str, Any]] = [
        (table, "clock_mhz", 0.0), (table["compute"], "per_cycle", 0.0),
        (table["compute"], "energy_pj", -1.0), (level, "name", table["level"][0]["name"]),
        (table, "colour", 1), (table["system"], "memory_gb", 0.0),
    ]  # fmt: skip
    if "mesh" in level:
        changes += [(level, "mesh", [0]), (level, "systolic", "Nothing")]
    else:
        changes += [
            (level, "capacity_words", 0), (level, "word_bits", 0),
            (level, "port", [{"words_per_cycle": 0.0}]),
            (level, "port", [{"words_per_cycle": 0.1}]), (level, "keeps", ["Nothing"]),
            (level, "energy_pj", {"read": -1.0}), (level, "energy_pj", {}),
        ]  # fmt: skip
    where, field, value = changes[int(rng.integers(len(changes)))]
    where[field] = value


def random_work(rng: np.random.Generator) -> Einsum:
    if rng.random() < 0.6:
        m, n, k = (int(x) for x in rng.integers(1, 17, 3))
        return matmul(m=m, n=n, k=k)
    c, m, p, r = (int(x) for x in rng.choice([1, 2, 3, 4, 8], 4))
    return conv2d(c=c, m=m, p=p, q=2, r=r, s=1, stride=int(rng.integers(1, 3)))


def touched(einsum: Einsum, tensor: int) -> int:
    """Elements that are used: a stride longer than the window leaves some out."""
    touched = 1
    for rank in einsum.tensors[tensor].ranks:
        span = 1 + sum(step * (einsum.bounds[dim] - 1) for dim, step in rank)
        touched *= min(span, math.prod(einsum.bounds[dim] for dim, _ in rank))
    return touched


def check_answer(einsum: Einsum, mapped: Mapped) -> None:
    """What no mapping of any design can beat."""
    cost = mapped.cost
    arch = cost.architecture
    assert cost.fits.all()
    assert 0.0 <= mapped.gap <= 1.0
    cycles, energy = float(cost.cycles[0]), float(cost.energy_pj[0])
    assert math.isfinite(cycles)
    assert math.isfinite(energy)
    assert cycles * arch.units * arch.compute.per_cycle >= einsum.points * (1 - 1e-12)
    for tensor, name in enumerate(t.name for t in einsum.tensors):
        words = cost.traffic.updates if name == OUTPUTS else cost.traffic.reads
        size = touched(einsum, tensor)
        if arch.memories[0].block_words == 1:
            assert words[0, tensor, 0] >= size * (1 - 1e-12), name
    for memory in arch.memories[:1]:
        for port in memory.ports:
            assert cycles >= math.floor(float(cost.port_cycles[memory.name, port.name][0]))


def named_cause(error: SilicastError) -> str:
    """Why a design was refused: a field, or a level before a colon."""
    assert error.message
    assert error.field or ":" in error.message, error.message
    return f"refused: {error.field or error.message.split(':')[0]}"


def outcome(seed: int) -> str:
    """How one random design ends: "answered", or the field that is wrong."""
    rng = np.random.default_rng([18, seed])
    table, einsum = random_table(rng), random_work(rng)
    try:
        design = checked(table, "random.toml")
        mapping = best_mapping(
            einsum, design.architecture, design.constraints, effort=300, padding=False
        )
    except SilicastError as error:
        return named_cause(error)
    check_answer(einsum, mapping)
    return "answered"


COUNTS = [
    60,
    pytest.param(1_000, marks=pytest.mark.full),
    pytest.param(10_000, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("count", COUNTS)
def test_random_designs_are_answered_or_refused_by_name(count: int) -> None:
    ends = Counter(outcome(seed) for seed in range(count))
    assert 0.4 * count <= ends["answered"] < count


@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.nightly)])
def test_random_designs_are_devices(count: int) -> None:
    """A kernel on each, never below its bound, or a refusal."""
    answered = 0
    for seed in range(count):
        rng = np.random.default_rng([81, seed])
        table = random_table(rng)
        op = Op.make("gemm", Variant("int8"), m=int(rng.integers(1, 65)), n=32, k=64, batch=1)
        try:
            time = time_of(op, device_from(table))
        except SilicastError as error:
            named_cause(error)
            continue
        answered += 1
        assert 0 < time.bound_s <= time.estimate_s < math.inf
        assert time.p05_s <= time.estimate_s <= time.p95_s
    assert answered


def test_the_random_designs_are_not_all_alike() -> None:
    tables = [random_table(np.random.default_rng([18, seed])) for seed in range(60)]
    assert len({len(table["level"]) for table in tables}) >= 4
    assert any("constraint" in table for table in tables)
