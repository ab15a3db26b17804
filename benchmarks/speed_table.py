"""CPU seconds of the questions that people wait for, cold and known apart, and how they grow.

    SILICAST_CORE=off python -m benchmarks.speed_table [OUT.json]
    SILICAST_CORE=require python -m benchmarks.speed_table [OUT.json]

OUT.json has an entry for each of what runs (Python, the core); a run replaces its entry. One run
measures everything: each row several times, in turns with all others, so that a slow minute of a
shared machine falls on all of them; the median counts. Commands find their bytecode, as a user's
do, whatever this shell says of it. "New" is a question on a deployment that this process has not
seen, "known" one that it has; no process finds what earlier ones kept on disk, but in the row that
says so. Beside the times stand the machine, its load, the commit, how many modules the first answer
imports, and how far batches of `silicast.deployment` are from `silicast.infer`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import silicast
from benchmarks.speed_kernels import ROWS, batch_of, case_of
from silicast import _CORE
from silicast.composition.prices.step_prices import step_prices
from silicast.composition.step.step import step_model
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import kernel_times
from silicast.runner.replies import replies
from silicast.scenario.answers.plan.answerer import best_plan
from silicast.scenario.decode import decode

ROUNDS = 3
WHERE: dict[str, Any] = {"model": "Llama-3.1-8B", "device": "h100", "engine": "vllm"}
MIXED = (
    ("Llama-3.1-8B", "h100"),
    ("Llama-3.1-8B", "a100"),
    ("Qwen3-30B-A3B", "h200"),
    ("Qwen3-32B", "b200"),
)
KERNELS: dict[str, dict[str, Any]] = {
    "gemm": {"op": "gemm", "n": 4096, "k": 4096, "dtype": "bf16"},
    "attention": {
        "op": "attention_decode",
        "batch": 8,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "dtype": "bf16",
    },
    "experts": {
        "op": "moe",
        "experts": 128,
        "topk": 8,
        "hidden": 2048,
        "intermediate": 768,
        "dtype": "bf16",
    },
    "module": {"op": "mla_module", "batch": 8, "num_heads": 16, "q_len": 1, "dtype": "bf16"},
}
SIZE = {"gemm": "m", "attention": "kv_len", "experts": "tokens", "module": "kv_len"}
FAMILY = {"attention": "attention_decode", "experts": "moe", "module": "mla_module"}
"""Families whose names differ from those of the rows."""
PLAN: dict[str, Any] = {
    "task": "plan",
    "model": "gpt3-175b",
    "device": "a100-80gb",
    "cluster": {"gpus": 1024, "gpus_per_node": 8},
    "workload": {"objective": "mfu", "training": {"seq_len": 2048, "global_batch": 1024}},
}
FINALISTS = 6
LONG = 10_000
"""Requests of a long simulation."""
MEMORY = """
import resource, silicast
from benchmarks.speed_table import LONG, WHERE, serving
silicast.predict(**WHERE, task="serving", workload=serving(LONG))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
MANY = 3000
"""Lines of a long batch file: 41,184 of them in two minutes are 2.9 ms each."""
FIRST = "infer --model Llama-3.1-8B --device h100 --batch 8 --input-len 1024 --output-len 128"
SHELL_SERVE = "serve --model Llama-3.1-8B --device h100 --rate 10 --requests 1000"
TP8: dict[str, Any] = {**WHERE, "model": "Llama-3.1-70B", "parallel": {"tp": 8}}

Timed = Callable[[], float]
"""Runs something and returns how many of it there were, over which its time is divided."""


def forget() -> None:
    """Nothing is known of any deployment."""
    for kept in (step_model, step_prices):
        kept.cache_clear()


def lengths(draw: random.Random) -> dict[str, Any]:
    return {
        "batch": draw.choice((1, 2, 4, 8, 16, 32)),
        "input_len": draw.randint(16, 4096),
        "output_len": draw.randint(2, 256),
    }


def serving(requests: int) -> dict[str, Any]:
    return {
        "arrival": {"kind": "poisson", "rate_per_s": 10.0},
        "requests": requests,
        "input_len": 512,
        "output_len": 128,
        "range_ratio": 0.5,
    }


class Rows:
    """The rows of the table; each call is one measurement."""

    def __init__(self) -> None:
        self.draw = random.Random(36)
        self.known = silicast.deployment(**WHERE)
        self.known.batch(batch=8, input_len=1000, output_len=128)
        self._bytecode, self._cache = TemporaryDirectory(), TemporaryDirectory()

    def kernel(self, name: str) -> float:
        """Kernels one by one, each of a size of its own."""
        for _ in range(20):
            size = {SIZE[name]: self.draw.randint(1, 8192)}
            silicast.predict(task="kernel", device="h100", workload={**KERNELS[name], **size})
        return 20

    def kernels(self, name: str) -> float:
        """Microseconds of each of many kernels of sizes of their own in one call."""
        family = FAMILY.get(name, name)
        model, batch = implementation_for(family, "simt"), batch_of(family, ROWS)
        assert model is not None
        start = cpu_s()
        kernel_times(model, batch, find_device(case_of(family)[0]))
        return 1e6 * (cpu_s() - start) / ROWS

    def new_batch(self) -> float:
        forget()
        silicast.infer(**WHERE, **lengths(self.draw))
        return 1

    def known_batch(self) -> float:
        for _ in range(5):
            silicast.infer(**WHERE, **lengths(self.draw))
        return 5

    def compiled_batch(self, *, near: bool) -> float:
        """Through `silicast.deployment`, of a size of its own, or near those before it."""
        count = 30 if near else 5
        for _ in range(count):
            sizes = lengths(self.draw)
            if near:
                sizes |= {"batch": 8, "input_len": 1000 + self.draw.randint(0, 23)}
                sizes |= {"output_len": 128}
            self.known.batch(**sizes)
        return count

    def batches(self, count: int) -> float:
        """Rows of :meth:`silicast.CompiledDeployment.batches`, each of a size of its own."""
        self.known.batches([lengths(self.draw) for _ in range(count)])
        return count

    def steps(self, count: int) -> float:
        """Steps of batches of their own, asked for together."""
        states = [
            [(1, self.draw.randint(16, 8192) + each) for each in range(16)] for _ in range(count)
        ]
        self.known.step.many(states)
        return count

    def file(self, deployments: int, count: int = 60) -> float:
        """Rows of a batch file, of one deployment or of several in turns."""
        lines = []
        for number in range(count):
            model, device = MIXED[number % deployments]
            case = {"task": "inference", "model": model, "device": device}
            line = json.dumps({**case, "workload": lengths(self.draw)})
            lines.append((number + 1, line.encode()))
        replies(lines)
        return count

    def step(self, *, known: bool) -> float:
        """Steps of a batch that decodes, as they follow each other, or of batches of their own."""
        count = 400 if known else 50
        for number in range(count):
            mean = 1000 + number if known else self.draw.randint(16, 8192)
            self.known.step([(1, mean + each) for each in range(16)])
        return count

    def serve(self, requests: int, *, cold: bool, where: dict[str, Any] = WHERE) -> float:
        if cold:
            forget()
        silicast.predict(**where, task="serving", workload=serving(requests))
        return requests

    def search(self, finalists: int) -> float:
        best_plan(decode(PLAN), finalists=finalists)
        return 1

    def shell(self, *arguments: str, kept: bool = False) -> float:
        """A command in a process of its own, with the bytecode of an earlier one, and what earlier
        ones kept on disk if it may; returns one.
        """
        self.child(["-m", "silicast", *arguments], kept=kept)
        return 1

    def child(
        self, arguments: list[str], *, kept: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Python in a process of its own."""
        shell = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
        shell["PYTHONPYCACHEPREFIX"] = self._bytecode.name
        shell["SILICAST_CACHE"] = self._cache.name if kept else ""
        command = [sys.executable, *arguments]
        return subprocess.run(command, check=True, capture_output=True, env=shell, text=True)


def rows() -> dict[str, tuple[Timed, float, str]]:
    """Name -> what is measured, its factor to the unit, the unit."""
    row, first = Rows(), FIRST.split()
    serving_command = (*SHELL_SERVE.split(), "--input-len", "512", "--output-len", "128")
    return {
        "first answer from the shell": (lambda: row.shell(*first), 1.0, "s"),
        "serve of 1,000 requests from the shell": (lambda: row.shell(*serving_command), 1.0, "s"),
        "the same, prices kept by an earlier one": (
            lambda: row.shell(*serving_command, kept=True),
            1.0,
            "s",
        ),
        **{
            f"kernel from Python: {name}": (partial(row.kernel, name), 1e6, "us")
            for name in KERNELS
        },
        "static batch, new deployment": (row.new_batch, 1e3, "ms"),
        "static batch, known deployment": (row.known_batch, 1e3, "ms"),
        "row of a batch file, 1 deployment": (lambda: row.file(1), 1e3, "ms"),
        "row of a batch file, 4 deployments": (lambda: row.file(4), 1e3, "ms"),
        "deployment.batch, size of its own": (lambda: row.compiled_batch(near=False), 1e3, "ms"),
        "deployment.batch, near known ones": (lambda: row.compiled_batch(near=True), 1e3, "ms"),
        "deployment.batches, a row of 300": (lambda: row.batches(300), 1e3, "ms"),
        "step, size of its own": (lambda: row.step(known=False), 1e6, "us"),
        "step, near known ones": (lambda: row.step(known=True), 1e6, "us"),
        "step.many, one of 300": (lambda: row.steps(300), 1e6, "us"),
        "request of 300 served, cold": (lambda: row.serve(300, cold=True), 1e3, "ms"),
        "request of 300 served, known": (lambda: row.serve(300, cold=False), 1e3, "ms"),
        "request of 1,200 served, known": (lambda: row.serve(1200, cold=False), 1e3, "ms"),
    }


def cpu_s() -> float:
    """CPU seconds of this process and of those that it ran."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def measured() -> Iterator[tuple[str, float, str]]:
    """Rows in turns; once what takes seconds, and the search, which keeps its chunks."""
    table = rows()
    table["first answer from the shell"][0]()  # writes the bytecode
    spent: dict[str, list[float]] = {name: [] for name in table}
    for _ in range(ROUNDS):
        for name, (run, factor, _) in table.items():
            start = cpu_s()
            count = run()
            spent[name].append(factor * (cpu_s() - start) / count)
    for name, (_, _, unit) in table.items():
        yield name, statistics.median(spent[name]), unit
    for name in KERNELS:
        yield f"kernel of {ROWS:,} in one call: {name}", Rows().kernels(name), "us"
    for name, where in (("8B", WHERE), ("70B, TP 8", TP8)):
        start = cpu_s()
        Rows().serve(LONG, cold=True, where=where)
        yield f"{LONG:,} requests served, {name}, cold", LONG / (cpu_s() - start), "requests/s"
    start = cpu_s()
    Rows().file(len(MIXED), MANY)
    yield f"row of a batch file of {MANY:,}, 4 deployments", 1e3 * (cpu_s() - start) / MANY, "ms"
    start = cpu_s()
    Rows().search(2)
    few = cpu_s() - start
    Rows().search(2 + FINALISTS)
    yield "search of 2 finalists, GPT-3 175B, 1,024 GPUs", few, "s"
    yield "a further finalist", 1e3 * (cpu_s() - start - few) / FINALISTS, "ms"
    imports = Rows().child(["-X", "importtime", "-m", "silicast", *FIRST.split()]).stderr
    modules = imports.count("import time:") - 1  # less the heading
    yield "modules that the first answer imports", modules, "modules"
    memory = Rows().child(["-c", MEMORY]).stdout
    yield f"memory at most, {LONG:,} requests served", float(memory), "MiB"


def off() -> dict[str, float]:
    """How far totals of `silicast.deployment` are from `silicast.infer`, percent."""
    draw, compiled = random.Random(7), silicast.deployment(**WHERE)
    errors = []
    for _ in range(30):
        sizes = lengths(draw)
        exact = silicast.infer(**WHERE, **sizes).total_ms.estimate
        errors.append(100.0 * abs(compiled.batch(**sizes)["total_ms"].estimate / exact - 1.0))
    return {"median_pct": statistics.median(errors), "most_pct": max(errors)}


def main(out: str = "") -> None:
    os.environ["SILICAST_CACHE"] = ""
    start = cpu_s()
    table = {name: {"value": value, "unit": unit} for name, value, unit in measured()}
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    result = {
        "commit": commit,
        "machine": {"processors": os.cpu_count(), "load_average": os.getloadavg()[0]},
        "rows": table,
        "deployment_batch_off": off(),
        "cpu_s": cpu_s() - start,
    }
    for name, row in table.items():
        print(f"{name:48}{row['value']:10.3g} {row['unit']}")
    print(result["deployment_batch_off"])
    if out:
        path = Path(out)
        former = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        former[_CORE.description] = result
        path.write_text(json.dumps(former, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
