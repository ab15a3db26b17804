"""Time and memory of simulations of serving, and what their metrics are, against the budgets.

    .venv/bin/python -m benchmarks.speed_serving OUT.json [CASE...]
    .venv/bin/python -m benchmarks.speed_serving --mixed CASES METRICS.json
    .venv/bin/python -m benchmarks.speed_serving --compare BEFORE.json AFTER.json

The first measures each case in a process of its own: wall and CPU seconds from a process that has
priced nothing yet (`cold`), the smallest of several runs of the same requests after it (`warm`),
and the peak of memory. The trace is Azure's conversations of 2023, scaled in time to 80 % of what
one replica carries, from the folder that ``SILICAST_DATA`` names; without it, lengths are drawn
from lognormal distributions with the trace's medians and spreads. Per-request times are written to
a CSV file, which counts.

The second answers a mixed set of scenarios as ``silicast batch`` does and keeps metrics and
seconds; the third says how far metrics of two such files, of two versions, are apart.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from silicast.core.numerics import I64
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.traffic.requests import Requests

BUDGET = {
    "azure_requests_per_s": 3000.0, "azure_peak_mb": 300.0, "tp8_10k_s": 3.0,
    "million_peak_mb": 1024.0, "start_cpu_s": 0.5, "batch_600_s": 600.0,
}  # fmt: skip
LOAD = 0.8
TRACE = "azure2023_conv"
MIXED = 600
RUNS = 3
WORTH = (
    "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms", "e2e_mean_ms",
    "output_tokens_per_s",
)  # fmt: skip


def azure() -> tuple[I64, I64, I64, str]:
    """Times in ns, tokens of prompts and of answers, and where they are from."""
    root = os.environ.get("SILICAST_DATA", "")
    path = Path(root) / "serving" / "request_traces.parquet"
    if root and path.exists():
        import pyarrow.parquet as pq

        table = pq.read_table(path, filters=[("trace", "=", TRACE)])
        at, inputs, outputs = (
            table[n].to_numpy() for n in ("arrival_s", "input_tokens", "output_tokens")
        )
        times = np.rint((at - at[0]) * 1e9).astype(np.int64)
        return times, inputs.astype(np.int64), np.maximum(outputs, 1).astype(np.int64), TRACE
    random = np.random.default_rng(0)
    count = 20_000
    inputs = np.clip(np.exp(random.normal(6.93, 0.9, count)), 4, 14_000)
    outputs = np.clip(np.exp(random.normal(4.87, 0.9, count)), 1, 1000)
    times = np.rint(np.cumsum(random.exponential(0.18, count)) * 1e9)
    items = [each.astype(np.int64) for each in (times, inputs, outputs)]
    return items[0], items[1], items[2], "drawn"


def spec_of(where: tuple[str, str, str], plan: dict[str, int]) -> ReplicaSpec:
    from silicast.composition.engines.engine import find_engine
    from silicast.composition.passes.deployment import Deployment
    from silicast.hardware.catalog import find_device
    from silicast.serving.simulation.deploy import replica_spec
    from silicast.workload.models.lookup import find_model
    from silicast.workload.transformers.plan import Plan

    model, device, engine = where
    return replica_spec(
        Deployment.from_model(
            find_model(model), find_device(device), find_engine(engine), plan=Plan(**plan)
        )
    )


def at_load(spec: ReplicaSpec, requests: int) -> Requests:
    """The trace, or its beginning again and again, at a share of what the replica carries.

    What it carries is that of a burst of requests, in a process of its own beforehand.
    """
    times, inputs, outputs, _ = azure()
    burst = Requests.from_arrays(np.zeros(4000, dtype=np.int64), inputs[:4000], outputs[:4000])
    spent_s = Simulation(burst, [spec]).run().end_ns * 1e-9
    rounds = -(-requests // len(times))
    gap = int(times[-1] // (len(times) - 1))
    every = np.concatenate([times + k * (int(times[-1]) + gap) for k in range(rounds)])[:requests]
    share = (requests / (LOAD * 4000 / spent_s)) / (float(every[-1]) * 1e-9)
    at = np.rint(every * share).astype(np.int64)
    return Requests.from_arrays(
        at, np.tile(inputs, rounds)[:requests], np.tile(outputs, rounds)[:requests]
    )


DEPLOYMENTS: dict[str, tuple[tuple[str, str, str], dict[str, int], int]] = {
    "azure, Llama-3.1-8B on H100": (("Llama-3.1-8B", "H100", "vllm"), {}, 19_366),
    "10,000 requests, Llama-3.1-70B on 8 x H100": (
        ("Llama-3.1-70B", "H100", "vllm"), {"tp": 8}, 10_000,
    ),
    "10,000 requests, DeepSeek-V3 on 8 x H200": (
        ("DeepSeek-V3", "H200", "trtllm"), {"tp": 8}, 10_000,
    ),
    "1,000,000 requests, Llama-3.1-8B on H100": (
        ("Llama-3.1-8B", "H100", "vllm"), {}, 1_000_000,
    ),
}  # fmt: skip


def simulated(name: str, requests_file: str, warm: int) -> dict[str, float]:
    """One deployment, in a process that has priced nothing yet."""
    from silicast.formats.table_writer import write_table
    from silicast.serving.statistics.tables import requests_table

    arrays = np.load(requests_file)
    requests = Requests.from_arrays(arrays["at"], arrays["asked"], arrays["said"])
    model, plan, _ = DEPLOYMENTS[name]
    spec = spec_of(model, plan)
    seconds: list[tuple[float, float]] = []
    for _ in range(1 + warm):
        wall, cpu = time.perf_counter(), time.process_time()
        records = Simulation(requests, [spec]).run()
        write_table(Path(requests_file).with_suffix(".csv"), requests_table(records), "OUT")
        seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
    count = len(requests)
    simulated = {
        "requests": count, "steps_or_stretches": len(records.log.table()),
        "cold_wall_s": seconds[0][0], "cold_cpu_s": seconds[0][1],
        "cold_requests_per_s": count / seconds[0][0], "peak_mb": peak_mb(),
        "ttft_mean_s": float(records.ttft_s().mean()),
        "tpot_mean_s": float(records.tpot_s().mean()),
    }  # fmt: skip
    if warm:
        simulated["warm_wall_s"] = min(each[0] for each in seconds[1:])
        simulated["warm_cpu_s"] = min(each[1] for each in seconds[1:])
        simulated["warm_requests_per_s"] = count / simulated["warm_wall_s"]
    return simulated


def mixed(count: int = MIXED, seed: int = 3) -> list[dict[str, Any]]:
    """Scenarios of several models, boards, engines and loads, in no order."""
    indices: list[tuple[str, dict[str, int]]] = [
        ("Llama-3.1-8B", {}), ("Llama-3.1-8B", {"tp": 2}), ("Llama-3.1-70B", {"tp": 4}),
        ("Llama-3.1-70B", {"tp": 8}), ("Qwen3-32B", {"tp": 2}), ("Qwen3-30B-A3B", {"tp": 2}),
        ("Qwen3-235B-A22B", {"tp": 8, "ep": 8}), ("gpt-oss-120b", {"tp": 4}),
        ("Mixtral-8x7B-v0.1", {"tp": 2}), ("Gemma-3-27B", {"tp": 2}), ("DeepSeek-V2-Lite", {}),
        ("DeepSeek-V3", {"attention_dp": 8, "ep": 8}), ("DeepSeek-V3", {"tp": 8}),
    ]  # fmt: skip
    random = np.random.default_rng(seed)
    cases: list[dict[str, Any]] = []
    for number in range(count):
        model, plan = indices[random.integers(len(indices))]
        device = ("h100", "h200", "b200")[random.integers(3)]
        if model == "DeepSeek-V3" and device == "h100":
            device = "h200"
        clients = int(2 ** random.integers(0, 10))
        input_len, output_len = (int(2 ** random.integers(7, 14)) for _ in range(2))
        arrival: dict[str, Any] = {"kind": "closed", "concurrency": clients}
        if random.random() < 0.2:
            arrival = {"kind": "poisson", "rate_per_s": float(2.0 ** random.uniform(-2, 2))}
        workload: dict[str, Any] = {
            "arrival": arrival, "input_len": input_len, "output_len": output_len,
            "requests": int(np.clip(4 * clients, 32, 1024)),
        }  # fmt: skip
        if random.random() < 0.5:
            workload["range_ratio"] = float(random.choice([0.2, 0.5, 0.8]))
        case: dict[str, Any] = {
            "id": str(number), "task": "serving", "model": model, "device": device,
            "engine": ("vllm", "sglang", "trtllm")[random.integers(3)],
            "workload": workload,
        }  # fmt: skip
        if plan:
            case["parallel"] = plan
        cases.append(case)
    return cases


def answered(count: int) -> dict[str, dict[str, float]]:
    """Metrics and seconds of the first mixed scenarios; no metrics where one is refused."""
    from io import BytesIO

    from silicast.runner.batch import run_batch

    answered: dict[str, dict[str, float]] = {}
    for case in mixed()[:count]:
        out = BytesIO()
        cpu, wall = time.process_time(), time.perf_counter()
        run_batch(BytesIO(json.dumps(case).encode() + b"\n"), out)
        reply = json.loads(out.getvalue())
        metrics = reply.get("metrics", {})
        answered[case["id"]] = {
            **{name: metrics[name]["estimate"] for name in WORTH if name in metrics},
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - wall,
        }
    return answered


def compared(before: Path, after: Path) -> dict[str, dict[str, float]]:
    """Relative differences of metrics in percent, over the cases of both files."""
    one, other = (json.loads(each.read_text()) for each in (before, after))
    compared: dict[str, dict[str, float]] = {}
    for name in WORTH:
        ids = [i for i in one if i in other and name in one[i] and name in other[i]]
        off = np.array([abs(other[i][name] / one[i][name] - 1.0) for i in ids]) * 100.0
        compared[name] = {
            "cases": len(ids), "median_pct": float(np.median(off)),
            "p90_pct": float(np.quantile(off, 0.9)), "largest_pct": float(off.max()),
        }  # fmt: skip
    return compared


def start_cpu_s() -> float:
    """A small serving answer from a cold shell, the smallest of several."""
    command = [
        sys.executable, "-m", "silicast", "serve", "--model", "Llama-3.1-8B", "--device", "h100",
        "--concurrency", "1", "--requests", "1", "--input-len", "128", "--output-len", "2",
    ]  # fmt: skip
    best = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def child(*arguments: str) -> dict[str, Any]:
    """What a process of this script prints."""
    command = [sys.executable, "-m", "benchmarks.speed_serving", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    child: dict[str, Any] = json.loads(done.stdout)
    return child


def prepared(name: str, path: str) -> dict[str, Any]:
    """Writes the requests of a deployment."""
    model, plan, count = DEPLOYMENTS[name]
    requests = at_load(spec_of(model, plan), count)
    np.savez(path, at=requests.arrival_ns, asked=requests.input_tokens, said=requests.output_tokens)
    return {}


def batch() -> dict[str, Any]:
    """All mixed scenarios, one process."""
    result = answered(MIXED)
    cpu = [each["cpu_s"] for each in result.values()]
    return {
        "cases": len(result), "answered": sum(WORTH[0] in each for each in result.values()),
        "cpu_s": sum(cpu), "wall_s": sum(each["wall_s"] for each in result.values()),
        "median_cpu_s": float(np.median(cpu)), "largest_cpu_s": max(cpu),
    }  # fmt: skip


def main(out: str, *wanted: str) -> None:
    """Cases one after the other, all or some by name; a file keeps its results of the others."""
    result: dict[str, Any] = {"budget": BUDGET, "trace": azure()[3]}
    if Path(out).exists():
        result = json.loads(Path(out).read_text()) | result
    for name in wanted or ("start", "batch", *DEPLOYMENTS):
        if name == "start":
            result[name] = {"cpu_s": start_cpu_s()}
        elif name == "batch":
            result[name] = child("--batch")
        else:
            with TemporaryDirectory() as folder:
                path = str(Path(folder) / "requests.npz")
                child("--prepare", name, path)
                warm = 0 if "1,000,000" in name else RUNS
                result[name] = child("--one", name, path, str(warm))
        result[name]["load_average"] = os.getloadavg()[0]
        print(name, json.dumps(result[name]))
        Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    commands: dict[str, Callable[..., Any]] = {
        "--prepare": prepared,
        "--one": lambda name, path, warm: simulated(name, path, int(warm)),
        "--batch": batch,
        "--mixed": lambda count, path: Path(path).write_text(json.dumps(answered(int(count)))),
        "--compare": lambda one, other: compared(Path(one), Path(other)),
    }
    if sys.argv[1:2] and sys.argv[1] in commands:
        print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))
    else:
        main(*sys.argv[1:])
