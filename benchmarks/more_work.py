"""Pairs of kernels of which one has more work, or more cores: how often more takes less time.

    python -m benchmarks.more_work [PAIRS] [--seed N] [--grow clock] [--whole-models] [-o FILE]

A pair is one op with a size grown (by one unit, a tenth, a half, or to twice) on one device, or one
op on a board and on the same with more cores; time and energy of both are compared. `--grow` draws
pairs of boards only: with more cores, a higher `limits.clock_mhz`, a higher `limits.power_w`, or a
higher clock that the device itself states. `--whole-models` compares prefill and decode of static
batches on pairs of boards (:mod:`benchmarks.more_work_of_models`), also of more bandwidth. Devices,
families, formats, libraries and sizes are drawn from fixed seeds. Libraries choose kernels in
steps, so that a measured kernel may dip too; dips over 0.1, 1, 2 and 5 % are counted. A quarter of
the draws leave the learned corrections out: a dip of theirs is the analytic model's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import more_work_of_models as of_models
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.kernels.physics.energy import kernel_energy
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import Evidence, kernel_times
from silicast.scenario.resolve import limited
from silicast.scenario.schema import LimitsTable
from silicast.workload.graphs.op import OpBatch, Variant

PAIRS, ROWS = 10_000, 8
RESULTS = Path(__file__).parent / "results"
DIPS = (0.001, 0.01, 0.02, 0.05)
GROWN = (0.0, 0.1, 0.5, 1.0)
"""By what share a size grows; 0 = by one."""
CORES, CLOCK, POWER, BASE_CLOCK = BOARDS = ("cores", "clock", "power", "base_clock")
"""What a board may have more of."""
WORST = 20
LIBRARIES = ("", "", "cublas", "torch", "vllm", "sglang", "trtllm")
HEADS = ((8, 8), (16, 2), (32, 8), (64, 8), (40, 8), (64, 4), (8, 1))
WIDTHS = (64, 128, 128, 256)

Sizes = dict[str, I64]


@dataclass(frozen=True)
class Grown:
    """A family's draws.

    Attributes:
        sizes: of which each dimension is drawn, evenly in the logarithm: low, high, step.
        dims: those that may grow.
        formats: of which one is drawn.
        together: sizes that grow with another.
    """

    sizes: Mapping[str, tuple[int, int, int]]
    dims: tuple[str, ...]
    formats: tuple[str, ...] = ("bf16", "fp16", "fp32")
    together: Mapping[str, str] | None = None


TOKENS = {"tokens": (1, 65536, 1)}
FAMILIES: Mapping[str, Grown] = {
    "gemm": Grown(
        {"m": (1, 16384, 1), "n": (256, 16384, 64), "k": (256, 16384, 64)},
        ("m", "n", "k"),
        ("bf16", "fp16", "fp32", "fp8", "int8"),
    ),
    "attention_prefill": Grown(
        {"batch": (1, 16, 1), "q_len": (16, 8192, 1)},
        ("batch", "q_len"),
        ("bf16", "fp16"),
        {"q_len": "kv_len"},
    ),
    "attention_decode": Grown(
        {"batch": (1, 256, 1), "kv_len": (64, 32768, 1)}, ("batch", "kv_len"), ("bf16", "fp16")
    ),
    "moe": Grown(
        {"tokens": (1, 8192, 1), "hidden": (1024, 8192, 256), "intermediate": (512, 8192, 256)},
        ("tokens", "hidden", "intermediate"),
        ("bf16", "fp16", "fp8"),
    ),
    "conv2d": Grown(
        {
            "batch": (1, 256, 1),
            "in_channels": (16, 1024, 16),
            "out_channels": (16, 1024, 16),
            "height": (7, 224, 1),
        },
        ("batch", "in_channels", "out_channels", "height"),
        together={"height": "width"},
    ),
    "mla_decode": Grown(
        {"batch": (1, 256, 1), "kv_len": (64, 32768, 1)}, ("batch", "kv_len"), ("bf16",)
    ),
    "rmsnorm": Grown({**TOKENS, "hidden": (512, 16384, 64)}, ("tokens", "hidden")),
    "layernorm": Grown({**TOKENS, "hidden": (512, 16384, 64)}, ("tokens", "hidden")),
    "silu_mul": Grown({**TOKENS, "width": (512, 32768, 64)}, ("tokens", "width")),
    "softmax": Grown({"rows": (1, 65536, 1), "cols": (64, 32768, 8)}, ("rows", "cols")),
    "elementwise": Grown({"elements": (1, 1 << 28, 1)}, ("elements",)),
    "optimizer": Grown({"elements": (1, 1 << 28, 1)}, ("elements",), ("bf16", "fp32")),
    "quantize": Grown({**TOKENS, "hidden": (512, 16384, 64)}, ("tokens", "hidden"), ("bf16",)),
}
GIVEN: Mapping[str, Mapping[str, int]] = {
    "moe": {"experts": 64, "topk": 8},
    "conv2d": {"kernel": 3, "stride": 1, "padding": 1},
    "mla_decode": {
        "q_len": 1,
        "num_heads": 16,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
}


@dataclass(frozen=True)
class Question:
    """Some ops of one variant on one device, with and without the learned corrections."""

    device: Device
    family: str
    variant: Variant
    learned: bool

    def answer(self, sizes: Sizes, device: Device | None = None) -> tuple[F64, F64 | None]:
        """Times and energies of the ops, on the device or on another.

        Raises:
            SilicastError: the device cannot run them.
        """
        device = device or self.device
        model = implementation_for(self.family, device.execution_model)
        if model is None:
            raise SilicastError(f"no model of {self.family}")
        batch = OpBatch(self.family, self.variant, sizes)
        times = kernel_times(model, batch, device, Evidence(learned=self.learned))
        energy = kernel_energy(times, batch, device)
        return times.estimate_s, None if energy is None else np.array(
            [each.estimate for each in energy.quantities()]
        )


def drawn_sizes(draw: np.random.Generator, family: str) -> Sizes:
    """Sizes of some ops of a family."""
    grown = FAMILIES[family]
    sizes: Sizes = {}
    for name, (low, high, step) in grown.sizes.items():
        values = np.exp(draw.uniform(np.log(low), np.log(high), ROWS)).astype(np.int64)
        sizes[name] = np.maximum(values // step, 1) * step
    shape = dict(GIVEN.get(family, {}))
    if family.startswith("attention"):
        heads, kv_heads = HEADS[draw.integers(len(HEADS))]
        width = WIDTHS[draw.integers(len(WIDTHS))]
        shape |= {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width}
        shape |= {"q_len": 1} if family == "attention_decode" else {}
    sizes |= {name: np.full(ROWS, value) for name, value in shape.items()}
    for name, other in (grown.together or {}).items():
        sizes[other] = sizes[name]
    return sizes


def grown_sizes(sizes: Sizes, family: str, name: str, share: float) -> Sizes:
    """The same with one size grown."""
    grown = FAMILIES[family]
    step = grown.sizes[name][2]
    more = np.maximum(np.ceil(sizes[name] * (1.0 + share) / step), sizes[name] // step + 1)
    values = more.astype(np.int64) * step
    result = {**sizes, name: values}
    other = (grown.together or {}).get(name)
    return {**result, other: values} if other else result


def questions(draw: np.random.Generator, devices: tuple[Device, ...]) -> Iterator[Question]:
    """Random ones, the families in turn; a device may not run some."""
    while True:
        for family, grown in FAMILIES.items():
            variant = Variant(
                grown.formats[draw.integers(len(grown.formats))],
                library=LIBRARIES[draw.integers(len(LIBRARIES))],
                flags=(("causal", True),) if family == "attention_prefill" else (),
            )
            device = devices[draw.integers(len(devices))]
            yield Question(device, family, variant, bool(draw.integers(4)))


def pair_of_boards(device: Device, name: str, draw: np.random.Generator) -> tuple[Device, Device]:
    """A board and one that has more of something.

    Raises:
        SilicastError: no such board runs, or it has no limit of power.
    """
    if name == CORES:
        other = of_models.changed(device, cores=draw.uniform(0.5, 2.0))
        return (other, device) if other.cores < device.cores else (device, other)
    low, high = np.sort(draw.uniform(0.35, 1.2, 2))
    if name == BASE_CLOCK:
        less, more = (of_models.changed(device, base_clock=float(x)) for x in (low, high))
        return less, more
    if name == POWER:
        if device.power_cap_w is None:
            raise SilicastError(f"{device.name} has no limit of power")
        limits = [LimitsTable(power_w=share * device.power_cap_w) for share in (low, high)]
    else:
        mhz = device.clocks.boost_hz / 1e6
        limits = [LimitsTable(clock_mhz=share * mhz) for share in (low, high)]
    return limited(device, limits[0]), limited(device, limits[1])


def dips(
    pairs: int, seed: int, devices: tuple[Device, ...], more_of: str | None = None
) -> list[dict[str, Any]]:
    """One record a pair: by what share of the time and energy of less work more takes less.

    Args:
        pairs: how many.
        seed: of the draws.
        devices: of which one is drawn.
        more_of: one of `BOARDS`: only pairs of boards that differ in it.
    """
    draw = np.random.default_rng(seed)
    records: list[dict[str, Any]] = []
    for question in questions(draw, devices):
        if len(records) >= pairs:
            break
        sizes = drawn_sizes(draw, question.family)
        names = FAMILIES[question.family].dims
        name = more_of or (*names, CORES)[draw.integers(len(names) + 1)]
        try:
            grown, times, dip, of_energy = compared(question, sizes, name, draw)
        except SilicastError:
            continue
        asked = {
            "device": question.device.name,
            "kind": question.device.execution_model,
            "family": question.family,
            "dtype": question.variant.dtype,
            "library": question.variant.library,
            "learned": question.learned,
            "grown": name,
        }
        records += [
            {
                **asked,
                "sizes": {key: int(value[row]) for key, value in sizes.items()},
                "to": int(grown[row]),
                "dip": float(dip[row]),
                "energy_dip": None if of_energy is None else float(of_energy[row]),
                "us": float(times[row] * 1e6),
            }
            for row in range(ROWS)
        ]
    return records[:pairs]


def compared(
    question: Question, sizes: Sizes, name: str, draw: np.random.Generator
) -> tuple[I64, F64, F64, F64 | None]:
    """What a size, or the cores, grow to; the times of less, and by what share more work takes less
    time and energy, or a board with more more time; shape (rows,). Energy is None where it is not
    compared (of boards) or not known.

    Raises:
        SilicastError: the device cannot run them.
    """
    if name in BOARDS:
        less, more = pair_of_boards(question.device, name, draw)
        (less_s, _), (more_s, _) = question.answer(sizes, less), question.answer(sizes, more)
        return np.full(ROWS, amount(more, name)), less_s, 1.0 - less_s / more_s, None
    less_s, less_j = question.answer(sizes)
    grown = grown_sizes(sizes, question.family, name, GROWN[draw.integers(len(GROWN))])
    more_s, more_j = question.answer(grown)
    of_energy = None if less_j is None or more_j is None else 1.0 - more_j / less_j
    return grown[name], less_s, 1.0 - more_s / less_s, of_energy


def amount(device: Device, name: str) -> int:
    """Cores, MHz or watts of a board."""
    if name == CORES:
        return device.cores
    if name == POWER:
        return round(device.power_cap_w or 0.0)
    return round(device.clocks.max_hz / 1e6)


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of dips: of all, by family and size grown, by kind of device and by device."""

    def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
        of_time = np.array([row["dip"] for row in rows])
        counts: dict[str, Any] = {
            "pairs": len(rows),
            **{f"time_over_{dip:.3g}": int((of_time > dip).sum()) for dip in DIPS},
            "worst": round(float(of_time.max()), 4),
        }
        of_energy = np.array([row["energy_dip"] for row in rows if row["energy_dip"] is not None])
        if len(of_energy):
            counts |= {f"energy_over_{dip:.3g}": int((of_energy > dip).sum()) for dip in DIPS}
            counts["worst_energy"] = round(float(of_energy.max()), 4)
        return counts

    def by(*keys: str) -> dict[str, Any]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in records:
            groups.setdefault("/".join(str(row[key]) for key in keys), []).append(row)
        return {name: counted(rows) for name, rows in sorted(groups.items())}

    worst = sorted(records, key=lambda row: -max(row["dip"], row["energy_dip"] or 0.0))
    return {
        "all": counted(records),
        "learned": by("learned"),
        "kinds": by("kind"),
        "families": by("family", "grown"),
        "devices": {
            name: each for name, each in by("device").items() if each[f"time_over_{DIPS[-1]:.3g}"]
        },
        "worst": [row for row in worst[:WORST] if max(row["dip"], row["energy_dip"] or 0.0) > 0.0],
    }


def main() -> None:
    """Prints and writes the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", nargs="?", type=int, default=PAIRS)
    parser.add_argument("--seed", type=int, default=0)
    every = sorted({*BOARDS, *of_models.KINDS})
    parser.add_argument("--grow", choices=every, help="only pairs of boards that differ in this")
    parser.add_argument("--whole-models", action="store_true", help="static batches of models")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    served = of_models.KINDS if options.whole_models else BOARDS
    if options.grow and options.grow not in served:
        parser.error(f"--grow is one of {', '.join(served)} here")
    parts = ("more_work", *(("whole_models",) if options.whole_models else ()), options.grow)
    name = "_".join(filter(None, parts)) + ".json"
    index = device_index()
    devices = tuple(index.get(name) for name in index.names)
    asked = of_models.dips if options.whole_models else dips
    table = summary(list(asked(options.pairs, options.seed, devices, options.grow)))
    for group in ("all", "learned", "kinds", "families"):
        print(group, *_lines(table[group] if group != "all" else {"": table[group]}), sep="\n")
    print("worst", *table["worst"], sep="\n  ")
    output = options.output or RESULTS / name
    output.write_text(json.dumps(table, indent=1) + "\n")


def _lines(table: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, each in table.items():
        values = " ".join(f"{key} {value}" for key, value in each.items())
        yield f"  {name:28s} {values}"


if __name__ == "__main__":
    main()
