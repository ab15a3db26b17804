"""A blocked product on this CPU under every legal schedule of loops, and how near the model's first
choice comes to the best.

    nice -n 10 python benchmarks/loop_schedules.py measure   -> measurements/<name>.csv.gz
    python benchmarks/loop_schedules.py             -> benchmarks/results/loop_schedules.json

One thread, single precision; schedules of ``loop_schedules.c`` (tiles, order, unrolled rows, width
of vectors). Seven problems in eight teach trees (own boosting) what the analytic model leaves
over; the others are ranked.
Regret: time of the best of the first choices over that of the best of all, less one. Two passes
time each schedule; what choosing by the first costs in the second is the floor. The best of some
hundred noisy times is quicker than any schedule is: ``net`` compares the first choice with the
schedule that one pass found best, both timed in the other pass, either way round. ``measure`` needs
gcc.
"""

from __future__ import annotations

import csv
import ctypes
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silicast.kernels.configuration import Configuration, read_configuration
from silicast.kernels.execution_models.loop_times import (
    ORDERS,
    CoreFacts,
    loop_features,
    schedules_of,
)
from silicast.learning.boosting import Settings, train

F = NDArray[np.float64]
HERE = Path(__file__).parent
DATA = HERE.parent / "measurements" / "xeon-sapphire-rapids-vm-loops.csv.gz"
RESULT = HERE / "results" / "loop_schedules.json"
CORE = CoreFacts(
    vector=16, multiplies=2, loads=2, clock_hz=2.7e9, l1_bytes=48 * 1024, l2_bytes=2 * 1024 * 1024
)
"""Intel Sapphire Rapids, Software Optimization Guide: two 512-bit multiply-adds and loads a clock,
48 KiB and 2 MiB; the clock only scales."""
PROBLEMS = [
    (m, n, k)
    for m in (8, 24, 64, 128)
    for n, k in (
        (64, 64), (64, 512), (256, 64), (256, 256), (512, 128), (128, 768), (512, 512),
        (1024, 64), (1024, 256), (96, 320), (304, 176), (208, 640),
    )
]  # fmt: skip
TILES = ((8, 32, 128), (32, 128, 512), (32, 128, 512))
REPEATS = 5
REPEAT_US = 150.0
"""A repeat takes about so long: short products are called several times."""
USUAL_FLOPS_PER_US = 1e5
PASSES = 2
FOLDS = 8
FIELDS = (
    "m",
    "n",
    "k",
    "tile_m",
    "tile_n",
    "tile_k",
    "order",
    "unroll",
    "vector",
    "us",
    "us_again",
)
TRAINED = Settings(trees=400, depth=7, rate=0.1, rows=0.6, columns=0.5, prior=2.0, clip=3.0)


def schedules(m: int, n: int, k: int) -> list[Configuration]:
    """Legal schedules of a problem: no tile twice as large as need be, no order of one loop."""
    table: dict[tuple[Any, ...], Configuration] = {}
    for tm, tn, tk, order, unroll, vector in itertools.product(*TILES, ORDERS, (1, 4, 8), (8, 16)):
        sizes = (min(tm, m), min(tn, n), min(tk, k))
        moving = "".join(x for x in order if sizes["mnk".index(x)] < (m, n, k)["mnk".index(x)])
        key = (*sizes, moving, unroll, vector)
        if unroll <= tm and vector <= tn and key not in table:
            table[key] = read_configuration(
                {"tile_m": tm, "tile_n": tn, "tile_k": tk, "order": order, "unroll": unroll,
                 "vector": vector}
            )  # fmt: skip
    return list(table.values())


def measure() -> None:
    """Compiles the kernels and times every schedule of every problem."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "loops.so"
        subprocess.run(
            ["gcc", "-O3", "-march=native", "-mprefer-vector-width=512", "-shared", "-fPIC",
             str(HERE / "loop_schedules.c"), "-o", str(library)],
            check=True,
        )  # fmt: skip
        code = ctypes.CDLL(str(library))
        code.run.restype = ctypes.c_double
        begin = time.process_time()
        with gzip.open(DATA, "wt", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(FIELDS)
            for sizes in PROBLEMS:
                writer.writerows(_timed(code, *sizes))
                print(sizes, round(time.process_time() - begin, 1), "CPU s", flush=True)


def _timed(code: Any, m: int, n: int, k: int) -> list[list[Any]]:
    random = np.random.default_rng(0)
    a, b, c = (random.random(size, dtype=np.float32) for size in ((m, k), (k, n), (m, n)))
    every = schedules(m, n, k)
    rows: dict[Configuration, list[Any]] = {}
    calls = max(1, round(REPEAT_US * USUAL_FLOPS_PER_US / (2.0 * m * n * k)))
    for _ in range(PASSES):  # one after the other, so that no schedule has all of a bad moment
        for way in every:
            rows.setdefault(way, []).append(_once(code, (a, b, c), (m, n, k), way, calls))
            c[:] = 0.0
    return [
        [m, n, k, *(way.number(f"tile_{side}") for side in "mnk"), way.word("order"),
         way.number("unroll"), way.number("vector"), *(round(us, 3) for us in row)]
        for way, row in rows.items()
    ]  # fmt: skip


def _once(
    code: Any, arrays: tuple[Any, ...], sizes: tuple[int, int, int], way: Configuration, calls: int
) -> float:
    tile = (ctypes.c_long * 3)(*(way.number(f"tile_{side}") for side in "mnk"))
    order = (ctypes.c_int * 3)(*("mnk".index(side) for side in way.word("order")))
    once: float = code.run(
        *(x.ctypes.data_as(ctypes.c_void_p) for x in arrays),
        *(ctypes.c_long(size) for size in sizes), tile, order, way.number("unroll"),
        way.number("vector"), REPEATS, calls,
    )  # fmt: skip
    return once


def judged() -> dict[str, Any]:
    """Regret on problems that taught nothing."""
    with gzip.open(DATA, "rt", newline="") as stream:
        rows = list(csv.DictReader(stream))
    sizes = [tuple(int(row[name]) for name in "mnk") for row in rows]
    configurations = [
        read_configuration(
            {name: row[name] if name == "order" else int(row[name]) for name in FIELDS[3:9]}
        )
        for row in rows
    ]
    once, again = (np.array([float(row[name]) for row in rows]) for name in ("us", "us_again"))
    us = np.minimum(once, again)
    m, n, k = (np.array(column, dtype=np.float64) for column in zip(*sizes, strict=True))
    analytic, columns = loop_features(m, n, k, schedules_of(configurations), CORE)
    problems = sorted(set(sizes))
    position = np.array([problems.index(each) for each in sizes])
    predicted = np.empty(len(us))
    for fold in range(FOLDS):
        fit = position % FOLDS != fold
        trees = train(columns[:, fit], np.log(us[fit] * 1e-6 / analytic[fit]), TRAINED)
        predicted[~fit] = analytic[~fit] * np.exp(trees.evaluate(columns[:, ~fit]))
    table = {"analytic": analytic, "learned": predicted, "at random": _random(len(us))}
    table["measured once, timed again"] = once
    return {
        "machine": "Intel Sapphire Rapids, two virtual cores, shared; one thread's own CPU time",
        "problems": len(problems), "schedules": len(us),
        "median_ape_pct": round(100.0 * float(np.median(np.abs(predicted / us * 1e6 - 1.0))), 2),
        "noise_pct": round(100.0 * float(np.median(np.abs(again / once - 1.0))), 2),
        "regret_pct": {
            name: _regrets(time, again if time is once else us, position)
            for name, time in table.items()
        },
        "net_regret_pct": {
            name: _net(time, (once, again), position)
            for name, time in table.items() if time is not once
        },
    }  # fmt: skip


def _random(count: int) -> F:
    return np.random.default_rng(1).random(count)


def _regrets(predicted: F, us: F, index: NDArray[np.int64]) -> dict[str, float]:
    first, ten = [], []
    for problem in range(int(index.max()) + 1):
        rows = np.flatnonzero(index == problem)
        order = rows[np.argsort(predicted[rows], kind="stable")]
        best = us[rows].min()
        first.append(us[order[0]] / best - 1.0)
        ten.append(us[order[:10]].min() / best - 1.0)
    figures = {
        "first_mean": np.mean(first), "first_p90": np.quantile(first, 0.9),
        "ten_mean": np.mean(ten), "ten_p90": np.quantile(ten, 0.9),
    }  # fmt: skip
    return {name: round(100.0 * float(value), 2) for name, value in figures.items()}


def _net(predicted: F, passes: tuple[F, F], index: NDArray[np.int64]) -> dict[str, float]:
    """Regret of the first choice net of noise, means of both ways round; below zero where the
    choice is quicker than what a pass found best.
    """
    net = []
    for problem in range(int(index.max()) + 1):
        rows = np.flatnonzero(index == problem)
        first = rows[predicted[rows].argmin()]
        ways = (passes, passes[::-1])
        ratios = [timed[first] / timed[rows[item[rows].argmin()]] for item, timed in ways]
        net.append(float(np.sqrt(ratios[0] * ratios[1])) - 1.0)
    figures = {"mean": np.mean(net), "median": np.median(net), "p90": np.quantile(net, 0.9)}
    return {name: round(100.0 * float(value), 2) for name, value in figures.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    else:
        result = judged()
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1))
