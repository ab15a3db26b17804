"""Pairs of questions that must have one answer, drawn by law: how many disagree by over 1 %.

    python -m benchmarks.agreeing_answers [COUNT] [--first N] [-o FILE]

A law names two ways to ask for the same thing and the numbers that must be equal. Pairs are drawn
from fixed seeds, the laws in turn, so that any part can be made again. The exit status is 1 if a
pair disagrees.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import silicast

COUNT, TOLERANCE, AGAIN = 300, 0.01, 20
RESULT = Path(__file__).parent / "results" / "agreeing_answers.json"
BOARDS = ("H100", "A100-SXM-80GB", "H200", "L40S", "RTX 4090", "MI300X", "L4", "B200")
MODELS = ("Llama-3.1-8B", "Qwen3-8B", "Qwen3-30B-A3B", "Mistral-7B-v0.1")
SMALL = ("Llama-3.2-1B", "Qwen3-0.6B", "Qwen3-1.7B")

Draw = random.Random
Numbers = dict[str, float]
Pair = tuple[Numbers, Numbers]
Law = Callable[[Draw], Pair]


def _numbers(answer: silicast.Predicted, *names: str) -> Numbers:
    """Estimates and both ends of the named metrics, or of all."""
    return {
        f"{name}.{end}": getattr(answer[name], end)
        for name in names or answer.metrics
        for end in ("estimate", "p05", "p95")
    }


def _estimates(answer: silicast.Predicted, *names: str) -> Numbers:
    return {name: answer[name].estimate for name in names}


def _batch(draw: Draw, models: tuple[str, ...] = MODELS, **fields: Any) -> dict[str, Any]:
    workload = {
        "batch": draw.choice((1, 2, 8, 24)),
        "input_len": draw.choice((100, 512, 1024, 3000)),
        "output_len": draw.choice((2, 32, 128)),
    }
    board, model = draw.choice(BOARDS), draw.choice(models)
    return {"task": "inference", "device": board, "model": model, "workload": workload, **fields}


def _with(table: Mapping[str, Any], **fields: Any) -> silicast.Predicted:
    return silicast.predict({**table, **fields})


def same_base(draw: Draw) -> Pair:
    """A device with ``base`` alone is that device."""
    table = _batch(draw)
    base = {"base": table["device"]}
    return _numbers(silicast.predict(table)), _numbers(_with(table, device=base))


def same_model_base(draw: Draw) -> Pair:
    """A model with ``base`` alone is that model."""
    table = _batch(draw)
    base = {"base": table["model"]}
    return _numbers(silicast.predict(table)), _numbers(_with(table, model=base))


def reported_clock(draw: Draw) -> Pair:
    """A limit at the largest clock that an answer reports changes nothing."""
    table = _batch(draw, SMALL)
    answer = silicast.predict(table)
    limits = {"clock_mhz": max(answer.why["clock_mhz"].values())}
    names = ("prefill_ms", "decode_step_ms", "total_ms")
    return _estimates(answer, *names), _estimates(_with(table, limits=limits), *names)


def rated_power(draw: Draw) -> Pair:
    """A limit at the power that the catalog states changes nothing."""
    from silicast.hardware.catalog import find_device

    table = _batch(draw)
    limits = {"power_w": find_device(table["device"]).power_cap_w}
    return _numbers(silicast.predict(table)), _numbers(_with(table, limits=limits))


def lengths_one_by_one(draw: Draw) -> Pair:
    """A batch of equal prompts, and the same lengths one by one."""
    table = _batch(draw)
    work = dict(table["workload"])
    count, size = work.pop("batch"), work.pop("input_len")
    listed = _with(table, workload={**work, "input_lens": [size] * count})
    return _numbers(silicast.predict(table)), _numbers(listed)


def order_of_lengths(draw: Draw) -> Pair:
    """Prompts in another order."""
    table = _batch(draw)
    sizes = [draw.randint(10, 2000) for _ in range(draw.randint(2, 9))]
    pair = [
        _with(table, workload={"input_lens": each, "output_len": 16})
        for each in (sizes, sizes[::-1])
    ]
    names = ("prefill_ms", "total_ms", "memory_gb")
    return _estimates(pair[0], *names), _estimates(pair[1], *names)


def defaults_spelled_out(draw: Draw) -> Pair:
    """What is left out, and the same stated."""
    table = _batch(draw, ("Llama-3.1-8B", "Qwen3-8B"))
    defaults = {
        "engine": "vllm",
        "parallel": {"tp": 1, "pp": 1, "ep": 1},
        "precision": {"recipe": "bf16"},
        "tier": "auto",
    }
    return _numbers(silicast.predict(table)), _numbers(_with(table, **defaults))


def compared_and_alone(draw: Draw) -> Pair:
    """A row of ``compare`` and ``infer`` of the same plan."""
    table = _batch(draw)
    work = table["workload"]
    model, board = table["model"], table["device"]
    row = silicast.compare(model=model, device=[board], **work).rows[0]
    assert row.predicted is not None
    answer = _with(table, parallel={name: row.fields.get(name, 1) for name in ("tp", "pp")})
    return _numbers(row.predicted, *answer.metrics), _numbers(answer)


def step_under_load(draw: Draw) -> Pair:
    """The median gap of clients that wait, and the decode step of a batch of as many."""
    table = _batch(draw)
    work = {**table["workload"], "batch": draw.choice((1, 4, 16)), "output_len": 64}
    step = _with(table, workload=work)["decode_step_ms"].estimate
    clients = work.pop("batch")
    work |= {"arrival": {"kind": "closed", "concurrency": clients}, "requests": 4 * clients}
    served = _with(table, task="serving", workload=work)
    return {"step": step}, {"step": served["itl_p50_ms"].estimate}


def _served(draw: Draw, rate: float, kind: str = "poisson", **fields: Any) -> dict[str, Any]:
    table = _batch(draw, ("Llama-3.1-8B", "Qwen3-8B"), **fields)
    work = {
        "arrival": {"kind": kind, "rate_per_s": rate},
        "input_len": draw.choice((128, 512)),
        "output_len": draw.choice((16, 64)),
    }
    return {**table, "task": "serving", "device": "H100", "workload": work}


def offered_and_answered(draw: Draw) -> Pair:
    """The rate that is asked, and the one that is printed; tokens follow from it."""
    rate = draw.uniform(1.0, 10.0)
    table = _served(draw, rate)
    answer = silicast.predict(table)
    tokens = rate * table["workload"]["output_len"]
    names = ("requests_per_s", "output_tokens_per_s")
    return dict(zip(names, (rate, tokens), strict=True)), _estimates(answer, *names)


def below_the_knee(draw: Draw) -> Pair:
    """A load at nine tenths of the knee that an answer names is answered as it comes."""
    table = _served(draw, 1.0, model=draw.choice((*SMALL, "Qwen3-8B")))
    rate = 0.9 * silicast.predict(table).why["knee"]["rate_per_s"]
    arrival = {"kind": "poisson", "rate_per_s": rate}
    answer = _with(table, workload={**table["workload"], "arrival": arrival})
    return {"requests_per_s": rate}, _estimates(answer, "requests_per_s")


def twice_the_replicas(draw: Draw) -> Pair:
    """Requests with equal gaps on one replica, and twice as many on two."""
    rate, seed = draw.uniform(1.0, 8.0), draw.randrange(1 << 30)
    single = _served(Draw(seed), rate, "constant")
    double = _served(Draw(seed), 2.0 * rate, "constant", pools={"all": {"count": 2}})
    names = ("tpot_mean_ms", "e2e_mean_ms", "output_tokens_per_s_per_gpu")
    pair = [_estimates(silicast.predict(each), *names) for each in (single, double)]
    return pair[0], pair[1]


def power_and_energy(draw: Draw) -> Pair:
    """Energy of a batch is its power over its time, on all its devices."""
    answer = silicast.predict(_batch(draw))
    joule = answer["power_w"].estimate * answer["total_ms"].estimate / 1e3
    return {"energy_j": joule}, _estimates(answer, "energy_j")


def cost_and_price(draw: Draw) -> Pair:
    """A million tokens cost the price of the time that they take."""
    table, price = _served(draw, 5.0), draw.uniform(1.0, 5.0)
    answer = _with(table, cluster={"price_per_gpu_hour": price})
    tokens = 5.0 * table["workload"]["output_len"]
    name = "cost_per_million_output_tokens"
    return {name: price / 3600.0 / tokens * 1e6}, _estimates(answer, name)


def capacity_served(draw: Draw) -> Pair:
    """The statistics that ``capacity`` shows, and those of ``serve`` at that rate."""
    table = _served(draw, 1.0)
    slo = {"tpot_p99_ms": draw.choice((20.0, 40.0))}
    work = {"objective": "max_rate", "slo": slo, "traffic": table["workload"]}
    answer = _with(table, task="capacity", workload=work)
    arrival = {"kind": "poisson", "rate_per_s": answer["max_rate_per_s"].estimate}
    again = _with(table, workload={**table["workload"], "arrival": arrival, "slo": slo})
    names = ("ttft_p99_ms", "tpot_p99_ms", "e2e_mean_ms", "requests_per_s")
    return _estimates(answer, *names), _estimates(again, *names)


def _step(draw: Draw, **fields: Any) -> dict[str, Any]:
    return {
        "task": "training",
        "model": draw.choice(SMALL),
        "device": draw.choice(("H100", "A100-SXM-80GB", "H200")),
        "workload": {"seq_len": draw.choice((1024, 2048)), "global_batch": 16},
        **fields,
    }


def step_of_passes(draw: Draw) -> Pair:
    """A step of two passes on one device, and twice ``graph`` in training mode with its update."""
    seq, board, model = draw.choice((512, 1024)), draw.choice(BOARDS[:3]), draw.choice(SMALL)
    common = {"model": model, "device": board, "engine": "torch-eager"}
    work = {"seq_len": seq, "global_batch": 4, "micro_batch": 2, "recompute": "none"}
    step = silicast.predict(task="training", workload=work, **common)
    work_of_step = {"mode": "training", "batch": 2, "seq_len": seq}
    plain = silicast.predict(task="graph", workload=work_of_step, **common)
    updated = silicast.predict(
        task="graph", workload={**work_of_step, "optimizer": "adamw"}, **common
    )
    both = plain["e2e_ms"].estimate + updated["e2e_ms"].estimate
    return {"step_ms": step["step_time_s"].estimate * 1e3}, {"step_ms": both}


def rates_of_a_step(draw: Draw) -> Pair:
    """Tokens a second, MFU and energy of a step follow from its time."""
    gpus = draw.choice((1, 4, 8))
    table = _step(draw, parallel={"dp": gpus}, cluster={"gpus": gpus})
    answer = silicast.predict(table)
    seconds = answer["step_time_s"].estimate
    peak = next(iter(answer.why["peak_tflops"].values()))
    wanted = {
        "tokens_per_s_per_gpu": 16 * table["workload"]["seq_len"] / seconds / gpus,
        "mfu": answer["model_tflops_per_gpu"].estimate / peak,
        "energy_j": answer["power_w"].estimate * seconds * gpus,
    }
    return wanted, _estimates(answer, *wanted)


def best_plan_pinned(draw: Draw) -> Pair:
    """The best plan of a search, and the same asked for alone; no pinned plan beats it."""
    table = _step(draw, cluster={"gpus": draw.choice((4, 8))})
    work = {"objective": "step_time", "training": table["workload"]}
    best = _with(table, task="plan", workload=work)
    plan = dict(best.why["plan"])
    plan["sp"] = plan.pop("sequence_parallel")
    micro = next(each for each in best.why["candidates"])["plan"].partition("micro-batch ")[2]
    fields = {"micro_batch": int(micro.split(",")[0]), "recompute": best.why["recompute"]}
    again = _with(table, parallel=plan, workload={**table["workload"], **fields})
    pinned = _with(table, parallel={"tp": draw.choice((1, 2)), "pp": draw.choice((1, 2))})
    seconds = [each["step_time_s"].estimate for each in (best, again, pinned)]
    return (
        {"again": seconds[0], "beaten by a pinned plan": 0.0},
        {"again": seconds[1], "beaten by a pinned plan": max(seconds[0] / seconds[2] - 1.01, 0.0)},
    )


def batch_of_one(draw: Draw) -> Pair:
    """A product, and a batched product of one."""
    sizes = {name: draw.choice((256, 1024, 4096)) for name in "mnk"}
    fields = {"op": "gemm", "dtype": "bf16", **sizes}
    pair = [
        silicast.predict(task="kernel", device=board, workload={"kernel": each})
        for board in [draw.choice(BOARDS[:5])]
        for each in (fields, {**fields, "batch": 1})
    ]
    return _numbers(pair[0]), _numbers(pair[1])


def node_and_pinned(draw: Draw) -> Pair:
    """One node each of ``compare``, and ``infer`` of the plan that it names."""
    table = _batch(draw)
    work = table["workload"]
    (row,) = silicast.compare(
        model=table["model"], device=[table["device"]], gpus="node", **work
    ).rows
    assert row.predicted is not None
    answer = _with(table, parallel=dict(row.fields))
    return _numbers(row.predicted, *answer.metrics), _numbers(answer)


def known_deployment(draw: Draw) -> Pair:
    """A batch of a deployment that is compiled, and ``infer``."""
    table = _batch(draw)
    deployment = silicast.deployment(model=table["model"], device=table["device"])
    batch = deployment.batch(**table["workload"])
    names = ("prefill_ms", "decode_step_ms", "total_ms", "memory_gb")
    answer = silicast.predict(table)
    return _estimates(answer, *names), {name: batch[name].estimate for name in names}


def fits_and_infer(draw: Draw) -> Pair:
    """What ``fits`` says that a model takes, and ``infer`` of that format at the whole context."""
    board, model = draw.choice(("RTX 4090", "RTX 3090", "L4", "M3 Max")), draw.choice(SMALL)
    context = draw.choice((1024, 4096))
    best = silicast.fits(device=board, model=model, context=context).why["fits"][0]
    work = {"batch": 1, "input_len": context - 1, "output_len": 1}
    engine, weights = {"name": "llama.cpp"}, {"weights": best["weights"]}
    table = {"task": "inference", "device": board, "model": model, "engine": engine}
    answer = silicast.predict({**table, "precision": weights, "workload": work})
    memory = answer.why["memory_gb"]
    of_fits = {"memory": best["memory_gb"], "usable": best["usable_gb"]}
    return of_fits, {"memory": answer["memory_gb"].estimate, "usable": memory["usable"]}


def recommended_and_served(draw: Draw) -> Pair:
    """The statistics of the plan that ``recommend`` chooses, and ``serve`` of that plan."""
    table = _served(draw, 1.0)
    rate, slo = draw.uniform(2.0, 12.0), {"tpot_p99_ms": draw.choice((25.0, 40.0))}
    work = {**table["workload"], "arrival": {"kind": "poisson", "rate_per_s": rate}, "slo": slo}
    asked = {"objective": "cost", "serving": work, "search": {"max_gpus": 1}}
    answer = _with(table, task="plan", workload=asked)
    again = silicast.predict(answer.why["recommendation"]["best"]["scenario"])
    names = ("ttft_p99_ms", "tpot_p99_ms", "e2e_mean_ms", "requests_per_s")
    return _estimates(answer, *names), _estimates(again, *names)


def swept_and_served(draw: Draw) -> Pair:
    """A point of a sweep of loads, and that load alone; one knee for both."""
    from silicast.scenario.answers.serving.load_sweep import SweptLoads, points_of

    table = _served(draw, 1.0)
    rate = round(draw.uniform(1.0, 6.0), 2)
    loads = SweptLoads("rate", (rate,))
    ((_, point),) = points_of(table, loads)
    assert not isinstance(point, silicast.SilicastError)
    alone = _with(table, workload={**table["workload"], "arrival": loads.arrival(rate)})
    names = ("ttft_p99_ms", "tpot_p99_ms", "requests_per_s")
    swept = {name: point.metrics[name].estimate for name in names} | dict(point.why["knee"])
    return swept, _estimates(alone, *names) | dict(alone.why["knee"])


def plan_and_devices(draw: Draw) -> Pair:
    """Memory of all devices: the same weights over twice the tensor degree take half of each."""
    table = _batch(draw, ("Llama-3.1-8B", "Qwen3-8B"))
    with_two, with_four = (
        _with(table, parallel={"tp": tp}).why["memory_gb"]["weights"] * tp for tp in (2, 4)
    )
    return {"weights": with_two}, {"weights": with_four}


def kernel_in_a_graph(draw: Draw) -> Pair:
    """A product with cold caches, and the same as the only kernel of an op graph, both at a clock
    that power does not lower.
    """
    sizes = {name: draw.choice((512, 1024, 4096)) for name in "mnk"}
    board = draw.choice(BOARDS)
    kernel = {"op": "gemm", "dtype": "bf16", "cache": "cold", **sizes}
    limits = {"clock_mhz": 1000.0}
    asked = {"device": board, "limits": limits}
    alone = silicast.predict(task="kernel", workload={"kernel": kernel}, **asked)
    weights, outputs = sizes["k"] * sizes["n"], sizes["m"] * sizes["n"]
    node: dict[str, Any] = {
        "name": "product",
        "op": "gemm",
        "dims": {"batch": 1, **sizes},
        "dtype": "bf16",
    }
    node |= {"output_bytes": 2 * outputs, "parameter_bytes": 2 * weights}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.json")
        path.write_text(json.dumps({"format": 1, "name": "product", "nodes": [node]}))
        answer = silicast.predict(task="graph", workload={"graph": str(path)}, **asked)
    (part,) = next(each for each in answer.why["parts"] if each["name"] == "forward")["parts"]
    return _estimates(alone, "latency_us"), {"latency_us": part["exposed_ms"] * 1e3}


def prefill_under_load(draw: Draw) -> Pair:
    """The prefill of ``infer``, and the time of its steps under ``serve``.

    The server's budget takes the whole prompt: pieces of one are other work.
    """
    from silicast.scenario.answers.serving.answerer import prepared
    from silicast.scenario.decode import decode
    from silicast.serving.statistics.step_mix import columns

    table = _batch(draw)
    work = {**table["workload"], "batch": 1, "output_len": 8}
    alone = _with(table, workload=work)
    del work["batch"]
    work |= {"arrival": {"kind": "closed", "concurrency": 1}, "requests": 1}
    engine = {"name": "vllm", "options": {"max_num_batched_tokens": 8192}}
    table |= {"format": 1, "task": "serving", "engine": engine, "workload": work}
    served = prepared(decode(table)).served
    (starts,) = columns(served.simulate().log.table(), "start_ns")
    return _estimates(alone, "prefill_ms"), {"prefill_ms": float(starts[-1] - starts[0]) / 1e6}


def _printed(command: str, **flags: Any) -> dict[str, Any]:
    """What a command prints as JSON.

    Raises:
        SilicastError: it refuses.
    """
    from silicast.app.cli import main

    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        main([command, *words, "--json"])
    printed: dict[str, Any] = json.loads(shown.getvalue())
    if not printed["ok"]:
        raise silicast.SilicastError(printed["error"]["message"])
    return printed


def same_answer_everywhere(draw: Draw) -> Pair:
    """A batch asked of the command line, of the tools for agents, and in Python."""
    from silicast.app.agents.tools import predict

    table = _batch(draw)
    work = {name.replace("_", "-"): size for name, size in table["workload"].items()}
    printed = _printed("infer", model=table["model"], device=table["device"], **work)
    numbers = predict(table, accept_unmeasured=True)["numbers"]
    ends = [(name, end) for name in printed["metrics"] for end in ("estimate", "p05", "p95")]
    answer = silicast.predict(table)
    python = {f"{name}.{end}": getattr(answer[name], end) for name, end in ends}
    pair = [
        {f"{door}.{name}": value for name, value in python.items()} for door in ("cli", "tools")
    ]
    other = {f"cli.{name}.{end}": printed["metrics"][name][end] for name, end in ends}
    other |= {f"tools.{name}.{end}": numbers[name][end] for name, end in ends}
    return pair[0] | pair[1], other


def served_everywhere(draw: Draw) -> Pair:
    """A load asked of the command line, in Python, and as a scenario."""
    table = _served(draw, round(draw.uniform(1.0, 9.0), 2))
    work = table["workload"]
    asked = {"model": table["model"], "device": table["device"]}
    asked |= {"rate": work["arrival"]["rate_per_s"]}
    asked |= {name: work[name] for name in ("input_len", "output_len")}
    answer, python = silicast.predict(table), silicast.serve(**asked)
    printed = _printed("serve", **{name.replace("_", "-"): value for name, value in asked.items()})
    names = ("ttft_p99_ms", "tpot_mean_ms", "e2e_p50_ms", "requests_per_s", "power_w")
    doors = {"python": {name: python[name].estimate for name in names}}
    doors["cli"] = {name: printed["metrics"][name]["estimate"] for name in names}
    wanted = _estimates(answer, *names)
    return (
        {f"{door}.{name}": wanted[name] for door in doors for name in names},
        {f"{door}.{name}": value for door, row in doors.items() for name, value in row.items()},
    )


def capacity_everywhere(draw: Draw) -> Pair:
    """A capacity asked of the command line, in Python, and as a scenario."""
    work: dict[str, Any] = {"input_len": draw.choice((128, 512)), "output_len": 16}
    model, board, limit = draw.choice(SMALL), draw.choice(BOARDS[:4]), draw.choice((8, 15, 30))
    traffic = {"arrival": {"kind": "poisson", "rate_per_s": 1.0}, **work}
    slo = {"tpot_mean_ms": float(limit)}
    asked = {"objective": "max_rate", "slo": slo, "traffic": traffic}
    wanted = silicast.predict(task="capacity", model=model, device=board, workload=asked)
    python = silicast.capacity(model=model, device=board, slo=f"tpot_mean={limit}ms", **work)
    flags = {name.replace("_", "-"): value for name, value in work.items()}
    printed = _printed("capacity", model=model, device=board, slo=f"tpot_mean={limit}ms", **flags)[
        "metrics"
    ]
    names = ("max_rate_per_s", "safe_rate_per_s", "ttft_p99_ms")
    wanted_values, python_values = _estimates(wanted, *names), _estimates(python, *names)
    cli = {f"cli.{name}": printed[name]["estimate"] for name in names}
    return wanted_values | {
        f"cli.{name}": value for name, value in wanted_values.items()
    }, python_values | cli


def clients_served(draw: Draw) -> Pair:
    """The statistics of the most clients under an objective, and those of ``serve`` with them."""
    table = _served(draw, 1.0)
    work = {**table["workload"], "arrival": {"kind": "closed", "concurrency": 1}}
    slo = {"tpot_p99_ms": draw.choice((12.0, 20.0))}
    asked = {"objective": "max_concurrency", "slo": slo, "traffic": work}
    answer = _with(table, task="capacity", workload=asked)
    clients = round(answer["max_concurrency"].estimate)
    again = {**work, "arrival": {"kind": "closed", "concurrency": clients}, "slo": slo}
    names = ("ttft_p99_ms", "tpot_p99_ms", "e2e_mean_ms", "requests_per_s")
    return _estimates(answer, *names), _estimates(_with(table, workload=again), *names)


def fewest_served(draw: Draw) -> Pair:
    """The statistics on the fewest devices that ``capacity`` finds, and those of ``serve``."""
    table = _served(draw, draw.uniform(20.0, 90.0))
    slo = {"tpot_p99_ms": draw.choice((12.0, 20.0))}
    asked = {"objective": "min_gpus", "slo": slo, "traffic": table["workload"]}
    answer = _with(table, task="capacity", workload=asked)
    pools = {"all": {"count": round(answer["gpus"].estimate)}}
    again = _with(table, pools=pools, workload={**table["workload"], "slo": slo})
    names = ("ttft_p99_ms", "tpot_p99_ms", "e2e_mean_ms", "requests_per_s")
    return _estimates(answer, *names), _estimates(again, *names)


def users_and_served(draw: Draw) -> Pair:
    """A row of ``compare`` for users, and ``serve`` of its devices."""
    model, users = draw.choice(("Llama-3.1-8B", "Qwen3-8B")), draw.randint(20, 200)
    lengths = draw.choice((128, 1024)), draw.choice((32, 128))
    work: dict[str, Any] = dict(zip(("input_len", "output_len"), lengths, strict=True))
    board, speed = draw.choice(BOARDS), draw.choice((10.0, 25.0))
    row = silicast.compare(
        model=model, device=[board], users=users, tokens_per_user=speed, **work
    ).rows[0]
    if row.predicted is None:
        raise silicast.SilicastError(f"{board}: no row")
    plan = {name: row.fields.get(name, 1) for name in ("tp", "pp")}
    pools = {"all": {"count": row.predicted.why["users"]["replicas"]}}
    arrival = {"kind": "closed", "concurrency": users}
    served = silicast.predict(
        task="serving",
        model=model,
        device=board,
        parallel=plan,
        pools=pools,
        workload={"arrival": arrival, **work},
    )
    names = ("ttft_mean_ms", "tpot_mean_ms", "output_tokens_per_s", "power_w")
    return _estimates(row.predicted, *names), _estimates(served, *names)


def encoder_in_a_graph(draw: Draw) -> Pair:
    """A batch of an encoder, and one pass of the same model as a graph."""
    where = {
        "model": draw.choice(("bert-base-uncased", "bert-large-uncased")),
        "device": draw.choice(BOARDS),
        "engine": "torch-eager",
    }
    batch, length = draw.choice((1, 4, 32)), draw.choice((128, 512))
    work_of_batch = {"batch": batch, "input_len": length, "output_len": 1}
    answer = silicast.predict(task="inference", workload=work_of_batch, **where)
    work = {"batch": batch, "seq_len": length}
    graph = silicast.predict(task="graph", workload=work, **where)
    wanted = {"ms": answer["total_ms"].estimate, "j": answer["energy_j"].estimate}
    return wanted, {"ms": graph["e2e_ms"].estimate, "j": graph["energy_j"].estimate}


def swept_and_alone(draw: Draw) -> Pair:
    """Rows of a sweep, and their scenarios alone."""
    table = _batch(draw, SMALL)
    batches = sorted(draw.sample((1, 2, 4, 8, 16), 2))
    fields = {**table["workload"], "batch": batches}
    rows = silicast.sweep(model=table["model"], device=table["device"], **fields)
    alone_values: Numbers = {}
    swept_values: Numbers = {}
    for batch, row in zip(batches, rows.rows, strict=True):
        assert row.predicted is not None
        alone = _with(table, workload={**table["workload"], "batch": batch})
        alone_values |= {f"{batch}.{name}": value for name, value in _numbers(alone).items()}
        values = _numbers(row.predicted, *alone.metrics)
        swept_values |= {f"{batch}.{name}": value for name, value in values.items()}
    return alone_values, swept_values


LAWS: tuple[Law, ...] = (
    same_base,
    same_model_base,
    reported_clock,
    rated_power,
    lengths_one_by_one,
    order_of_lengths,
    defaults_spelled_out,
    compared_and_alone,
    step_under_load,
    offered_and_answered,
    twice_the_replicas,
    power_and_energy,
    cost_and_price,
    capacity_served,
    step_of_passes,
    rates_of_a_step,
    best_plan_pinned,
    batch_of_one,
    node_and_pinned,
    known_deployment,
    fits_and_infer,
    recommended_and_served,
    swept_and_served,
    plan_and_devices,
    kernel_in_a_graph,
    prefill_under_load,
    same_answer_everywhere,
    swept_and_alone,
    below_the_knee,
    served_everywhere,
    capacity_everywhere,
    clients_served,
    fewest_served,
    users_and_served,
    encoder_in_a_graph,
)


def _answered(law: Law, seed: int) -> Pair:
    """A pair of a law; one that is refused (a model that does not fit) is drawn again."""
    for again in range(AGAIN):
        try:
            return law(Draw(seed + 10_000 * again))
        except silicast.SilicastError:
            continue
    raise ValueError(f"{law.__name__}: {AGAIN} pairs from {seed} on are refused")


def disagreements(law: Law, seed: int) -> dict[str, tuple[float, float]]:
    """Numbers of one pair that are further apart than the tolerance."""
    values, others = _answered(law, seed)
    assert values.keys() == others.keys()
    assert values
    return {
        name: (value, others[name])
        for name, value in values.items()
        if abs(value - others[name]) > TOLERANCE * max(abs(value), abs(others[name]))
    }


def run(first: int, count: int) -> Iterator[tuple[str, int, dict[str, tuple[float, float]]]]:
    for number in range(first, first + count):
        law = LAWS[number % len(LAWS)]
        yield law.__name__, number, disagreements(law, number)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    begun = time.process_time()
    pairs = list(run(options.first, options.count))
    wrong = [
        {"law": name, "seed": seed, "numbers": numbers} for name, seed, numbers in pairs if numbers
    ]
    laws = {law.__name__: (law.__doc__ or "").rstrip(".") for law in LAWS}
    table = {"pairs": len(pairs), "tolerance": TOLERANCE, "disagree": wrong, "laws": laws}
    options.output.write_text(json.dumps(table, indent=1) + "\n")
    for each in wrong:
        print(each["law"], each["seed"], each["numbers"])
    seconds = time.process_time() - begun
    print(f"{len(wrong)} of {len(pairs)} pairs disagree by over 1 % ({seconds:.0f} CPU s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
