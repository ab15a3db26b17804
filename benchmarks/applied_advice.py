"""Printed causes and remedies, applied: whether each helps.

    python -m benchmarks.applied_advice [COUNT] [-o FILE]

Kinds of advice are drawn from fixed seeds. A cause helps where twice the resource that an answer
names shortens what it limits; a remedy where the case with it is answered, fits, starts or is
quicker, as its sentence says, and, of memory, where one step less than it does not fit. The exit
status is 1 if one does not help.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import silicast
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device

COUNT, AGAIN = 500, 40
RESULT = Path(__file__).parent / "results" / "applied_advice.json"
BOARDS = ("H100", "A100-SXM-80GB", "H200", "L40S", "L4", "RTX 4090", "MI300X", "B200")
MODELS = ("Llama-3.1-8B", "Qwen3-8B", "Mistral-7B-v0.1", "Qwen3-0.6B", "Llama-3.2-1B")
LARGE = ("Llama-3.1-70B", "Qwen3-32B", "Qwen2.5-72B", "Mixtral-8x7B-v0.1", "Llama-3.1-8B")

Tree = dict[str, Any]
Applied = tuple[str, bool]
"""The sentence, and whether it helped."""
Draw = random.Random


def with_twice(board: str, resource: str) -> Tree | None:
    """A board with twice of a resource; None where it is not one that a device file states."""
    device = find_device(board)
    if resource == "dram":
        size = device.dram.bandwidth_bytes_per_s / 1e9
        return {"base": board, "memory": {"dram": {"bandwidth_gb_per_s": 2.0 * size}}}
    if resource == "tensor":
        rates = {name: 2.0 * rate for name, rate in device.core.pipes["tensor"].rate.items()}
        table: Tree = {"pipes": {"tensor": rates}}
        level = device.compute
        while level.children:
            level, table = level.children[0], {"children": [table]}
        return {"base": board, "compute": table}
    return None


def kernel_cause(draw: Draw) -> Iterator[Applied]:
    """What a product is bound by, doubled."""
    board = draw.choice(BOARDS)
    sizes = {name: draw.choice((64, 512, 2048, 8192)) for name in "mnk"}
    table = {"task": "kernel", "workload": {"kernel": {"op": "gemm", "dtype": "bf16", **sizes}}}
    answer = silicast.predict(**table, device=board)
    cause, far = str(answer.why["bound_by"]), float(answer.why["of_bound"]) < 0.2
    twice = with_twice(board, cause)
    if twice is not None and not far:  # far from it, the answer says "too short to use the device"
        more = silicast.predict(**table, device=twice)
        helps = more["latency_us"].estimate < answer["latency_us"].estimate
        yield f"gemm {sizes} on {board}: bound by {cause}", helps


def batch_cause(draw: Draw) -> Iterator[Applied]:
    """What prefill and decode are bound by, doubled."""
    board = draw.choice(BOARDS)
    work = {
        "batch": draw.choice((1, 8, 32)),
        "input_len": draw.choice((128, 1024, 4096)),
        "output_len": 32,
    }
    table = {"task": "inference", "model": draw.choice(MODELS), "workload": work}
    answer = silicast.predict(**table, device=board)
    for phase, metric in (("prefill", "prefill_ms"), ("decode", "decode_step_ms")):
        part = next(each for each in answer.why["parts"] if each["name"] == phase)
        twice = with_twice(board, part["bound_by"])
        if twice is not None:
            more = silicast.predict(**table, device=twice)
            helps = more[metric].estimate < answer[metric].estimate
            case = f"{table['model']} {work} on {board}"
            yield f"{case}: {phase} is bound by {part['bound_by']}", helps


def memory_remedy(draw: Draw) -> Iterator[Applied]:
    """A smaller batch or a larger degree that would fit."""
    work = {
        "batch": draw.choice((8, 32, 128, 512)),
        "input_len": draw.choice((512, 2048, 8192)),
        "output_len": 64,
    }
    degree = draw.choice((1, 2, 4))
    table = {"task": "inference", "model": draw.choice(LARGE), "device": draw.choice(BOARDS)}

    def excess(batch: int, tp: int) -> bool:
        again = {**work, "batch": batch}
        answer = silicast.predict(**table, workload=again, parallel={"tp": tp})
        return any(line.startswith("does not fit") for line in answer.warnings)

    first = silicast.predict(**table, workload=work, parallel={"tp": degree})
    line = next((each for each in first.warnings if each.startswith("does not fit")), "")
    case = f"{table['model']} {work} on {table['device']}, tp {degree}"
    if stated := re.search(r"a batch of ([\d,]+)", line):
        batch = int(stated[1].replace(",", ""))
        least = not excess(batch, degree) and excess(batch + 1, degree)
        yield f"{case}: it would fit with a batch of {batch}", least
    if stated := re.search(r"tp = (\d+)", line):
        tp = int(stated[1])
        yield f"{case}: it would fit with tp = {tp}", not excess(work["batch"], tp)


def start_remedy(draw: Draw) -> Iterator[Applied]:
    """The change with which a server starts."""
    table: Tree = {"model": draw.choice(LARGE), "device": draw.choice(BOARDS), "task": "serving"}
    arrival = {"kind": "closed", "concurrency": 1}
    table["workload"] = {"arrival": arrival, "requests": 1, "input_len": 64, "output_len": 2}
    if draw.random() < 0.5:
        table["engine"] = {"name": "vllm", "options": {"max_model_len": 131072}}
    try:
        silicast.predict(table)
    except SilicastError as error:
        for field, value in re.findall(r"(max_model_len|tp) = (\d+)", error.hint):
            options = {"max_model_len": int(value)}
            change: Tree = {"engine": {"name": "vllm", "options": options}}
            if field == "tp":
                change = {"parallel": {"tp": int(value)}}
            yield (
                f"{table['model']} on {table['device']}: it starts with {field} = {value}",
                (_answers({**table, **change})),
            )


def pipeline_remedy(draw: Draw) -> Iterator[Applied]:
    """The change with which a token takes less time."""
    stages, ranks = draw.choice((2, 4, 8)), draw.choice((1, 2, 4))
    micro = draw.choice((1, 2))
    work = {"seq_len": 2048, "micro_batch": micro, "global_batch": micro * ranks * stages * 2}
    table: Tree = {
        "task": "training",
        "model": draw.choice(("Llama-3.1-8B", "Llama-3.2-1B", "Qwen3-8B")),
        "device": draw.choice(("H100", "A100-SXM-80GB")),
        "cluster": {"gpus": stages * ranks},
    }
    plan = {"pp": stages, "dp": ranks}
    now = silicast.predict(**table, workload=work, parallel=plan)
    line = next((each for each in now.warnings if "a token takes less time with" in each), "")
    tokens = now["tokens_per_s_per_gpu"].estimate
    remedies = line.partition("less time with")[2]
    for name, field, value in re.findall(r"(parallel|workload)\.(\w+) = (\d+)", remedies):
        tables: Tree = {"parallel": dict(plan), "workload": dict(work)}
        tables[name][field] = int(value)
        if field == "pp":
            tables["parallel"]["dp"] = ranks * stages // int(value)
        more = silicast.predict(**table, **tables)
        helps = more["tokens_per_s_per_gpu"].estimate > tokens
        yield f"{table['model']} {plan} {work}: {name}.{field} = {value}", helps


def _answers(table: Tree) -> bool:
    try:
        silicast.predict(table)
    except SilicastError:
        return False
    return True


KINDS: tuple[tuple[Callable[[Draw], Iterator[Applied]], int], ...] = (
    (kernel_cause, 30),
    (batch_cause, 25),
    (memory_remedy, 30),
    (start_remedy, 9),
    (pipeline_remedy, 6),
)
"""Kinds of advice, and how many of a hundred are of each."""


def applied(kind: Callable[[Draw], Iterator[Applied]], count: int) -> list[Applied]:
    """So many sentences of a kind, each with whether it helped; cases without any are passed by."""
    sentences: dict[str, bool] = {}
    for seed in range(AGAIN * count):
        try:
            for sentence, helps in kind(Draw(seed)):
                sentences.setdefault(sentence, helps)
        except SilicastError:
            continue
        if len(sentences) >= count:
            break
    return list(sentences.items())[:count]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    begun, failed = time.process_time(), list[str]()
    kinds: dict[str, Tree] = {}
    for kind, share in KINDS:
        sentences = applied(kind, max(options.count * share // 100, 1))
        wrong = [sentence for sentence, helps in sentences if not helps]
        words = (kind.__doc__ or "").rstrip(".")
        kinds[kind.__name__] = {
            "what": words,
            "applied": len(sentences),
            "help": len(sentences) - len(wrong),
        }
        failed += wrong
        print(kind.__name__, len(sentences), len(wrong), f"{time.process_time() - begun:.0f} CPU s")
    table = {"kinds": kinds, "do_not_help": failed}
    options.output.write_text(json.dumps(table, indent=1) + "\n")
    count = sum(each["applied"] for each in kinds.values())
    for each in failed:
        print("does not help:", each)
    print(f"{len(failed)} of {count} do not help")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
