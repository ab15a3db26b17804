"""Formulas of loop nests against the accounting of the same mappings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.accelerator.counting.accounting import AccessCounts, account
from silicast.accelerator.counting.closed_form import FormulaLayout, Nest, closed_form
from silicast.accelerator.counting.cost import cost_of
from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.counting.problems import PRODUCT, PRODUCTS, WINDOWS, ProblemShape
from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory, Port
from silicast.accelerator.design.chip import chip_of
from silicast.accelerator.mapper.refit import counted, work_of
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from tests.sampling import seeds

SEEDS = seeds(2000, quick=30)
CLOSE = 1e-12


def design(rng: np.random.Generator) -> Architecture:
    """A chain of up to four memories with fan-outs between."""

    def yes() -> bool:
        return bool(rng.random() < 0.5)

    def memory(name: str, keeps: tuple[str, ...] | None) -> Memory:
        ports = (
            Port("in", float(rng.integers(1, 9)), ("fill", "update"), (), exposed=yes()),
            Port("out", float(rng.integers(1, 9)), ("read",), ("Inputs",) if yes() else ()),
        )
        return Memory(
            name, keeps=keeps, block_words=int(rng.integers(1, 5)), ports=ports if yes() else (),
            cluster=int(rng.integers(1, 3)), exposes_fills=yes(), read_pj=float(rng.random()),
            fill_pj=float(rng.random()), update_pj=float(rng.random()),
            leak_pj_per_cycle=float(rng.random()) if yes() else None, buffers=1.0 + yes(),
        )  # fmt: skip

    def fan(name: str, mesh: tuple[int, ...]) -> FanOut:
        systolic = str(rng.choice(["", "Weights", "Outputs"]))
        return FanOut(name, mesh, yes(), yes(), systolic, hop_pj=float(rng.random()))

    nodes: list[Memory | FanOut] = [
        memory("dram", None), fan("cores", (2,)), memory("buffer", None)
    ]  # fmt: skip
    # Where all are held, a window slides over two levels.
    nodes += [fan("array", (4, 4)), memory("weights", None if yes() else ("Weights",))]
    if yes():
        nodes += [fan("lanes", (3,)), memory("sums", ("Outputs",))]
    return Architecture(
        "chip", tuple(nodes), Compute("mac", float(rng.integers(1, 3)), float(rng.random()), 0.1),
        idle_leaks=yes(), overhead=1.0 + float(rng.integers(0, 2)) / 4.0, ramps=yes(),
    )  # fmt: skip


def problem(rng: np.random.Generator) -> Einsum:
    size = {name: int(n) for name, n in zip("abcdefg", rng.integers(1, 14, 7), strict=True)}
    kind = rng.integers(4)
    if kind == 0:
        return matmul(m=size["a"], n=size["b"], k=size["c"])
    if kind == 1:
        return matmul(
            m=size["a"], n=size["b"], k=size["c"], batch=size["d"] + 1, weights_per_batch=True
        )
    if kind == 2:  # of one row alone, whose window slides along loops of several levels
        return conv2d(
            c=1, m=size["b"] % 2 + 1, p=size["c"], q=1, r=size["e"] % 4 + 1, s=1,
            stride=int(rng.integers(1, 3)),
        )  # fmt: skip
    return conv2d(
        c=size["a"], m=size["b"], p=size["c"], q=size["d"], r=size["e"] % 4 + 1,
        s=size["f"] % 3 + 1, groups=1 + size["g"] % 2, stride=int(rng.integers(1, 4)),
        dilation=int(rng.integers(1, 3)),
    )  # fmt: skip


def mapping(rng: np.random.Generator, einsum: Einsum, arch: Architecture) -> MappingBatch:
    """Loops of any bounds that cover a problem, none longer than what is left."""
    slots = arch.slots
    factors = np.ones((len(slots), len(einsum.dims), 1))
    for d, size in enumerate(einsum.bounds.values()):
        covered = 1.0
        for slot in range(len(slots) - 1, -1, -1):
            left = np.ceil(size / covered)
            room = slots[slot].limit / factors[slot, :, 0].prod()
            if rng.random() < 0.6:
                factors[slot, d, 0] = min(left, max(1.0, np.floor(room)), rng.integers(1, 5))
            if slot == 0:
                factors[slot, d, 0] = left
            covered *= factors[slot, d, 0]
    positions = rng.permuted(
        np.tile(np.arange(len(einsum.dims), dtype=np.int8), (len(slots), 1)), axis=1
    )
    keep = []
    for level, memory in enumerate(arch.memories):
        names = {n for n in einsum.names if memory.may_keep(n)}
        if level == 1 and rng.random() < 0.5:
            names -= {str(rng.choice(einsum.names))}
        keep.append(frozenset(names))
    return MappingBatch(factors, positions[:, :, None], tuple(keep))


def nest_of(batch: MappingBatch, shares: tuple[float, ...], *, less: bool) -> Nest:
    turning = [(s, d) for s, d in np.argwhere(batch.factors[:, :, 0] > 1).tolist()]
    turning.sort(key=lambda place: (place[0], batch.positions[place[0], place[1], 0]))
    return Nest(tuple(turning), batch.keep, shares, less)


def with_shares(traffic: AccessCounts, shares: tuple[float, ...], main: F64 | None) -> AccessCounts:
    """Words of narrower elements, and so much of each tensor between main memory and the chip."""
    if shares:
        bits = np.array(shares)[:, None]
        traffic = replace(
            traffic, reads=traffic.reads * bits, fills=traffic.fills * bits,
            updates=traffic.updates * bits, tiles=traffic.tiles * bits,
            distinct=traffic.distinct * bits, hops=traffic.hops * bits,
        )  # fmt: skip
    if main is not None:
        traffic.reads[0] *= main
        traffic.updates[0] *= main
        for t in range(len(main)):
            inside = [v for v in range(1, len(traffic.fills)) if traffic.tiles[v, t].any()]
            if inside:
                traffic.fills[inside[0], t] *= main[t]
    return traffic


def exact(
    einsum: Einsum, arch: Architecture, batch: MappingBatch, shares: tuple[float, ...],
    main: F64 | None, sizes: F64 | None = None,
) -> F64:  # fmt: skip
    """The results of a formula, from the accounting."""
    traffic = with_shares(account(einsum, arch, batch, sizes), shares, main)
    cost = cost_of(einsum, arch, traffic, sizes)
    words = traffic.reads + traffic.fills + traffic.updates
    return np.stack(
        [
            cost.cycles, np.ceil(traffic.steps / arch.compute.per_cycle),
            cost.march_cycles, cost.loading_cycles, cost.exposed_cycles, cost.energy_pj,
            *cost.port_cycles.values(), *words.sum(axis=1), *words[0],
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_formula_is_the_accounting_of_any_mapping(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        arch, einsum = design(rng), problem(rng)
        batch = mapping(rng, einsum, arch)
        shares = () if rng.random() < 0.5 else (1.0, 0.5, 2.0)
        main = None if rng.random() < 0.5 else rng.random((3, 1))
        nest = nest_of(batch, shares, less=main is not None)
        inputs = [float(size) for size in einsum.bounds.values()]
        inputs += [float(batch.factors[loop][0]) for loop in nest.loops]
        inputs += [] if main is None else main[:, 0].tolist()
        form = closed_form(einsum, arch, nest)
        alone = form.evaluate(inputs)
        rows = form.evaluate([np.full(3, value) for value in inputs])
        wanted = exact(einsum, arch, batch, shares, main)[:, 0]
        assert len(alone) == FormulaLayout.from_einsum(arch, einsum).size
        np.testing.assert_allclose(alone, wanted, rtol=CLOSE, atol=0)
        for one, every in zip(alone, rows, strict=True):
            assert (np.broadcast_to(every, 3) == one).all()


@pytest.mark.parametrize("op", [PRODUCT, PRODUCTS, WINDOWS])
@pytest.mark.parametrize(
    "name", ["tpu-v4-nest", pytest.param("simba-like", marks=pytest.mark.full), "hbm-pim"]
)
def test_refitted_mappings_cover_fit_and_cost_what_accounting_says(name: str, op: str) -> None:
    chip, kind = chip_of(find_device(name)), ProblemShape(op)
    if op == WINDOWS and not chip.slides:
        pytest.skip(f"{name} unrolls convolutions")
    form, bits = ("int8", 8.0) if name == "simba-like" else ("fp16", 16.0)
    rng = np.random.default_rng(3)
    rows = 3 if op == WINDOWS else 8
    sizes = np.stack([
        np.full(rows, 3.0) if dim in "RS" else rng.integers(2, 40 if op == WINDOWS else 3000, rows)
        for dim in kind.dims
    ]).astype(float)  # fmt: skip
    result = counted(chip, kind, sizes, form, bits)
    templates, chosen = work_of(chip, kind, form, bits, (), ()).templates(sizes)
    best = np.full(rows, np.inf)
    for number, template in enumerate(templates):
        batch = template.mappings(sizes)
        assert (batch.factors.prod(axis=0) >= sizes).all()
        for dim, row in enumerate(template.growing):
            for slot, _ in (each for each in row if not template.arch.slots[each[0]].is_spatial):
                factor = batch.factors[slot, dim]
                others = batch.factors[:, dim].prod(axis=0) / factor
                assert (factor <= np.ceil(sizes[dim] / others)).all(), (
                    "turns that find nothing left"
                )
        limits = np.array([slot.limit for slot in template.arch.slots])[:, None]
        assert (batch.factors.prod(axis=1) <= limits).all()
        traffic = account(template.einsum, template.arch, batch, sizes)
        cost = cost_of(template.einsum, template.arch, traffic, sizes)
        tried = (chosen == number).any(axis=0)
        assert cost.fits[tried].all()
        merit = np.where(tried, cost.cycles * np.maximum(cost.energy_pj, 1.0), np.inf)
        best = np.minimum(best, merit)
    merit = result.cycles * np.maximum(result.energy_pj, 1.0)
    np.testing.assert_allclose(merit, best, rtol=1e-11)
