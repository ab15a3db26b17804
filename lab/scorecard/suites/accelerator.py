"""Designed accelerators: another tool's counts, and chips that were built or simulated.

Of a mapping that is given, energies are those that Timeloop printed. Eyeriss' silicon is predicted
from its measured traffic, and from our own row-stationary mappings. EIE's times are predicted from
the sizes and densities of its layers.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.gpu_nests import LLMCOMPASS, score_gpu_nests
from lab.scorecard.memory_arrays import score_memory_arrays
from lab.scorecard.one_constant import least_squares_share
from lab.scorecard.sparse_vector import SparseUnits
from lab.scorecard.suite import Scored, Suite
from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.mapper.task import given_mapping, mapped, task_of
from silicast.core.numerics import F64

TIMELOOP = "accel/timeloop"
DENSE = ("eyeriss_like", "simba_like", "simple_output_stationary", "simple_weight_stationary")
EYERISS = "accel/eyeriss_jssc2017_measured.csv"
EIE = "accel/eie_isca2016_layer_us.csv"
TOOLS = "accel/accelerator_ground_truth.csv"

ALEXNET: Mapping[str, Mapping[str, int]] = {
    "CONV1": {"c": 3, "m": 96, "p": 55, "q": 55, "r": 11, "s": 11, "stride": 4},
    "CONV2": {"c": 48, "m": 128, "p": 27, "q": 27, "r": 5, "s": 5, "groups": 2},
    "CONV3": {"c": 256, "m": 384, "p": 13, "q": 13, "r": 3, "s": 3},
    "CONV4": {"c": 192, "m": 192, "p": 13, "q": 13, "r": 3, "s": 3, "groups": 2},
    "CONV5": {"c": 192, "m": 128, "p": 13, "q": 13, "r": 3, "s": 3, "groups": 2},
}
"""Sizes of AlexNet's convolutions (Krizhevsky et al., 2012)."""
BATCH = 4

EIE_UNITS = SparseUnits(units=64, clock_hz=800e6, run_bits=4, queue=8)
"""Han et al., ISCA 2016: 64 units at 800 MHz, zero runs in 4 bits, queues of 8 activations."""
EIE_LAYERS: Mapping[str, tuple[int, int, float, float]] = {
    "AlexNet FC6": (9216, 4096, 9, 35.1),
    "AlexNet FC7": (4096, 4096, 9, 35.3),
    "AlexNet FC8": (4096, 1000, 25, 37.5),
    "VGG16 FC6": (25088, 4096, 4, 18.3),
    "VGG16 FC7": (4096, 4096, 4, 37.5),
    "VGG16 FC8": (4096, 1000, 23, 41.1),
    "NT- We": (4096, 600, 10, 100),
    "NT- Wd": (600, 8791, 11, 100),
    "NT- LSTM": (1201, 2400, 10, 100),
}
"""Inputs, outputs, and densities of weights and activations in %, of the same paper's table."""


def score(data: Path, limit: int | None = None) -> Iterator[Scored]:
    """All metrics; a limit takes fewer rows of the GPUs, all other tables are small."""
    yield _energies(data)
    yield from _eyeriss(data)
    yield from _eie(data)
    yield from score_gpu_nests(data, limit)
    yield from score_memory_arrays(data)


def errors_of_others(measured: F64, estimate: F64, fitted: int = 0) -> F64:
    """Half width, in logarithms, of each row's 90 % interval, from the errors of all other rows.

    Their root mean square, times Student's quantile for as many degrees of freedom as they leave.

    Args:
        fitted: constants that the estimates share, which cost a degree each.

    >>> errors_of_others(np.array([1.0, 1.0, 1.0]), np.array([1.0, 1.1, 1.1])).round(3)
    array([0.278, 0.197, 0.197])
    """
    errors = np.log(estimate / measured)
    left_out = np.zeros(len(errors))
    for row in range(len(errors)):
        others = np.delete(errors, row)
        left = len(others) - fitted
        spread = math.sqrt(float((others**2).sum()) / left)
        left_out[row] = T_95[min(left, len(T_95)) - 1] * spread
    return left_out


T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""Student's 95 % quantile for 1, 2, ... degrees of freedom."""


def _scored(
    metric: str,
    names: list[str],
    measured: F64,
    estimate: F64,
    device: str,
    baselines: Mapping[str, F64] | None = None,
    fitted: int = 0,
) -> Scored:
    width = np.exp(errors_of_others(measured, estimate, fitted))
    return Scored(
        metric,
        measured,
        estimate,
        estimate / width,
        estimate * width,
        baselines=baselines or {},
        groups={"device": np.full(len(names), device), "layer": np.array(names)},
    )


def _energies(data: Path) -> Scored:
    """Energy of the mappings of four designs, beside what the tool printed."""
    printed = {}
    with (data / TOOLS).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            words = row["system"].split()
            if words[:1] == ["Timeloop"]:
                uj = next(part for part in row["value"].split(";") if part.strip().endswith("uJ"))
                printed[words[1]] = float(uj.split()[0])
    ours = [given_mapping(str(data / TIMELOOP / name))[1].energy_pj[0] / 1e6 for name in DENSE]
    theirs = np.array([printed[name] for name in DENSE])
    estimate, digit = np.array(ours), 0.005  # what the tool prints is rounded to it
    return Scored(
        "energy_uj",
        theirs,
        estimate,
        estimate - digit,
        estimate + digit,
        groups={"device": np.full(len(DENSE), "Timeloop's examples"), "layer": np.array(DENSE)},
    )


def _eyeriss(data: Path) -> Iterator[Scored]:
    with (data / EYERISS).open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["layer"] in ALEXNET]
    names = [row["layer"] for row in rows]

    def column(name: str) -> F64:
        return np.array([float(row[name]) for row in rows])

    design = find_design("eyeriss").architecture
    dram, buffer = design.memories[:2]
    measured_ms, buffer_mb = column("processing_latency_ms"), column("glb_mb")
    cycles = measured_ms * design.clock_hz / 1e3
    ideal = column("gmacs") * 1e9 / column("active_pes")
    words = buffer_mb * 1e6 * 8 / buffer.word_bits / buffer.ports[0].words_per_cycle
    busy = np.maximum(ideal, words)
    nests = [row_stationary(name) for name in names]
    filters = np.array([float(c.traffic.reads[0, 0, 0]) for c in nests])
    waits = np.array(
        [
            least_squares_share(*(np.delete(values, row) for values in (cycles, busy, filters)))
            for row in range(len(rows))
        ]
    )
    to_ms = 1e3 / design.clock_hz
    plain = ideal * to_ms
    all_five = (busy + filters / dram.ports[0].words_per_cycle) * to_ms
    yield _scored(
        "eyeriss_ms",
        names,
        measured_ms,
        (busy + filters * waits) * to_ms,
        "Eyeriss",
        {"no stalls, no ports": plain, "constant fitted on all five": all_five},
        fitted=1,
    )
    moved = [words_to_units(c) * buffer.word_bits / 8e6 for c in nests]
    yield _scored("eyeriss_buffer_mb", names, buffer_mb, np.array(moved), "Eyeriss")
    times = np.array([float(c.seconds[0]) * 1e3 for c in nests])
    yield _scored(
        "eyeriss_mapped_ms",
        names,
        measured_ms,
        times,
        "Eyeriss",
        {"no stalls, no ports": plain},
        fitted=1,
    )


def words_to_units(cost: MappingCost) -> float:
    """Words between the buffer and the units, which is what the authors count: inputs on their way
    in; sums both ways in every pass, also in the first. Words from DRAM are not among them.
    """
    moved = cost.traffic
    return float((moved.reads[1] + moved.updates[1] + moved.distinct[1]).sum())


def row_stationary(layer: str) -> MappingCost:
    """The mapping that the chip's own policy leads to: what it ran, not what could run on it."""
    words = [f"{name}={size}" for name, size in dict(ALEXNET[layer], n=BATCH).items()]
    return mapped(task_of("eyeriss", "conv2d", words).under("row-stationary")).cost


def _eie(data: Path) -> Iterator[Scored]:
    with (data / EIE).open(encoding="utf-8") as lines:
        head, *rows = list(csv.reader(lines))
    names = head[1:]
    table = {row[0]: np.array([float(value) for value in row[1:]]) for row in rows}
    shapes = [
        (outputs, inputs, weights / 100, active / 100)
        for inputs, outputs, weights, active in (EIE_LAYERS[name] for name in names)
    ]
    unpadded = np.array([r * c * d * a / 64 / 800 for r, c, d, a in shapes])
    balanced = np.array([EIE_UNITS.balanced_s(*shape) * 1e6 for shape in shapes])
    whole = np.array([EIE_UNITS.seconds(*shape) * 1e6 for shape in shapes])
    beside = {"without padding": unpadded}
    yield _scored("eie_balanced_us", names, table["Theoretical Time"], balanced, "EIE", beside)
    yield _scored("eie_us", names, table["Actual Time"], whole, "EIE", beside)


SUITES = (
    Suite(
        "accelerator",
        (
            TOOLS, EYERISS, EIE, LLMCOMPASS,
            *(f"{TIMELOOP}/{name}/{file}" for name in DENSE
              for file in ("parsed-processed-input.yaml", "ERT.yaml", "map.yaml")),
        ),
        score, both_tiers=False,
    ),
)  # fmt: skip
