"""Whether two versions answer a corpus of 5,000 scenarios of all tasks alike.

    python benchmarks/same_answers.py corpus CORPUS.jsonl [COUNT]    write the corpus
    silicast batch CORPUS.jsonl -o ANSWERS.jsonl                     answer it, with each version
    python benchmarks/same_answers.py compare OLD.jsonl NEW.jsonl    differences by task and op
    python benchmarks/same_answers.py core [COUNT]                   with the core and without it

The corpus is drawn from fixed seeds, one a scenario, so that any part of it can be made again.
``compare`` exits with status 1 if a number, an interval, a tier or a domain differs; texts
(warnings, errors) are counted apart. ``core`` answers the corpus twice, with the compiled core and
without it, and exits with status 1 if any byte differs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COUNT = 5_000
Draw = random.Random
Tree = dict[str, Any]
BOARDS = (
    "H100", "A100-SXM-80GB", "H200", "B200", "L40S", "RTX 4090", "L4", "V100", "T4", "A40", "H20",
    "MI300X", "RTX PRO 6000 S", "GB200", "RTX 3090",
)  # fmt: skip
OTHERS = ("TPU-v5p", "MI210", "simba-like", "P4")
DENSE = ("Llama-3.1-8B", "Qwen3-8B", "Llama-2-13B", "Llama-3.1-70B", "Mistral-7B-v0.1", "gpt2")
EXPERTS = ("Mixtral-8x7B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-120b")
ENGINES = ("vllm", "sglang", "trtllm")
FORMATS = ("bf16", "bf16", "fp16", "fp8", "fp32", "int8")
PARTS = (
    ("kernel", 54), ("collective", 8), ("inference", 16), ("graph", 5), ("serving", 5),
    ("training", 6), ("plan", 1), ("capacity", 1), ("diagnose", 2), ("tune", 2),
)  # fmt: skip
"""Tasks and how many of a hundred scenarios each gets."""


def size(draw: Draw, most: int = 16_384) -> int:
    """A size; powers of two and small ones more often."""
    power = 2 ** draw.randint(0, most.bit_length() - 1)
    return draw.choice(
        (power, power, draw.randint(1, most), draw.choice((1, 7, 96, 4096)) % most + 1)
    )


def kernel(draw: Draw) -> Tree:
    """A ``kernel`` table of any family."""
    heads = {
        "num_heads": 32, "num_kv_heads": draw.choice((1, 4, 8, 32)),
        "head_dim": draw.choice((64, 128, 128, 256)),
    }  # fmt: skip
    lengths = [size(draw, 8192) for _ in range(draw.randint(1, 5))]
    rows = {"tokens": size(draw), "hidden": draw.choice((1024, 4096, 5120, 7168))}
    library = {"library": draw.choice(("torch", "liger", "vllm", "torch_compile"))}
    experts = {
        "tokens": size(draw, 8192), "experts": draw.choice((8, 64, 128)),
        "topk": draw.choice((1, 2, 8)), "hidden": 2048, "intermediate": draw.choice((768, 4096)),
    }  # fmt: skip
    shapes: tuple[Tree, ...] = (
        {"op": "gemm", "m": size(draw), "n": size(draw), "k": size(draw)},
        {"op": "gemm", "m": size(draw, 512), "n": 4096, "k": 14336, "batch": draw.choice((1, 8))},
        {"op": "attention_prefill", "q_lens": lengths, "kv_lens": lengths[::-1], **heads},
        {"op": "attention_decode", "kv_lens": lengths, **heads},
        {"op": "attention_decode", "kv_len": size(draw), "batch": size(draw, 256), **heads},
        {"op": "moe", **experts},
        {"op": draw.choice(("rmsnorm", "layernorm")), **rows, "residual": draw.random() < 0.3},
        {"op": draw.choice(("rmsnorm", "layernorm")), **rows, **library},
        {"op": "softmax", "rows": size(draw), "cols": size(draw)},
        {"op": "silu_mul", "tokens": size(draw), "width": 2 * size(draw)},
        {"op": "quantize", **rows},
        {"op": "embedding", **rows},
        {"op": "rope", "tokens": size(draw), **heads},
        {"op": "sampling", "rows": size(draw, 512), "vocab": draw.choice((32_000, 128_256))},
        {"op": "cross_entropy", "tokens": size(draw, 8192), "vocab": 128_256},
        {"op": "elementwise", "kind": draw.choice(("add", "gelu")), "elements": size(draw) * 512},
        {"op": "kv_copy", "tokens": size(draw), "num_kv_heads": 8, "head_dim": 128},
        {"op": "optimizer", "elements": size(draw) * 4096},
        {"op": "conv2d", "batch": size(draw, 64), "in_channels": 64, "out_channels": 128,
         "height": 56, "width": 56, "kernel": 3, "stride": draw.choice((1, 2)), "padding": 1},
        {"op": "mla_decode", "batch": size(draw, 128), "kv_len": size(draw), "num_heads": 128},
        {"op": "dispatch", "tokens": 512, "experts": 64, "topk": 4, "hidden": size(draw), "ep": 8},
    )  # fmt: skip
    table = {**draw.choice(shapes), "dtype": draw.choice(FORMATS)}
    if draw.random() < 0.2:
        table["cache"] = draw.choice(("cold", "warm"))
    return table


def _serving(draw: Draw) -> Tree:
    arrival = draw.choice((
        {"kind": "closed", "concurrency": size(draw, 64)},
        {"kind": "poisson", "rate_per_s": draw.choice((0.5, 2.0, 8.0))},
    ))  # fmt: skip
    return {
        "arrival": arrival, "requests": 60, "input_len": size(draw, 2048),
        "output_len": size(draw, 256),
    }  # fmt: skip


WORKLOADS: dict[str, Callable[[Draw], Tree]] = {
    "kernel": lambda draw: {"kernel": kernel(draw)},
    "collective": lambda draw: {
        "op": draw.choice(("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
        "bytes": size(draw) * draw.choice((64, 4096, 65_536)), "gpus": draw.choice((2, 8, 16, 64)),
    },
    "inference": lambda draw: {
        "batch": size(draw, 128), "input_len": size(draw, 8192), "output_len": size(draw, 512),
    },
    "graph": lambda draw: {
        "mode": draw.choice(("inference", "training")), "batch": size(draw, 16),
        "seq_len": size(draw, 1024),
    },
    "serving": _serving,
    "training": lambda draw: {
        "seq_len": draw.choice((2048, 4096, 8192)), "micro_batch": draw.choice((1, 2)),
        "global_batch": draw.choice((64, 128)),
    },
    "plan": lambda draw: {
        "objective": "mfu",
        "training": {"seq_len": 4096, "micro_batch": 1, "global_batch": draw.choice((64, 256))},
    },
    "capacity": lambda draw: {
        "traffic": _serving(draw), "slo": {"ttft_ms": 2000, "tpot_ms": draw.choice((30, 80))},
        "objective": "max_rate",
    },
    "diagnose": lambda draw: {
        "kernel": {"op": "gemm", "m": size(draw), "n": 4096, "k": 4096, "dtype": "bf16"},
        "measured_us": draw.choice((90.0, 900.0, 9e4)),
    },
    "tune": lambda draw: {"kernel": "moe", "tokens": [draw.choice((1, 64, 4096))]},
}  # fmt: skip


def scenario(number: int) -> Tree:
    """The scenario of a number: the same one every time."""
    draw = Draw(f"same answers {number}")
    names, weights = zip(*PARTS, strict=True)
    task = draw.choices(names, weights)[0]
    board = draw.choice(BOARDS if draw.random() < 0.93 else OTHERS)
    tree: Tree = {
        "format": 1, "id": f"s{number}", "task": task, "device": board,
        "workload": WORKLOADS[task](draw),
    }  # fmt: skip
    if task in ("kernel", "collective", "diagnose"):
        return tree
    small = task in ("graph", "capacity", "plan")
    tree["model"] = draw.choice(DENSE if small or draw.random() < 0.6 else EXPERTS)
    if task in ("inference", "serving", "capacity"):
        tree["engine"] = draw.choice(ENGINES)
        tree["parallel"] = {"tp": draw.choice((1, 2, 4, 8))}
    if task in ("training", "plan"):
        tree["cluster"] = {"gpus": draw.choice((8, 16, 64)), "gpus_per_node": 8}
    if task == "training":
        tree["parallel"] = {"tp": draw.choice((1, 2, 8)), "pp": draw.choice((1, 2))}
    if draw.random() < 0.15:
        tree["precision"] = {"weights": draw.choice(("fp8", "int8", "int4_wo"))}
    return tree


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf of a tree with the names that lead to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(index)))
    else:
        yield path, value


TEXTS = ("warnings", "error", "why", "remarks")


def differences(old: Tree, new: Tree) -> tuple[list[str], list[str]]:
    """Names of numbers and of texts in which two answers differ.

    >>> differences({"metrics": {"a": 1.0}, "warnings": ["x"]}, {"metrics": {"a": 2.0}})
    (['metrics.a'], ['warnings.0'])
    """
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = [p for p in sorted({*before, *after}) if before.get(p) != after.get(p)]
    numbers = [".".join(p) for p in changed if p[0] not in (*TEXTS, "hash", "version", "sources")]
    return numbers, [".".join(p) for p in changed if p[0] in TEXTS]


def compare(old: Path, new: Path) -> int:
    """Prints what differs, by task and op; returns how many scenarios' numbers do."""
    pairs = zip(old.open(encoding="utf-8"), new.open(encoding="utf-8"), strict=True)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for first, second in pairs:
        before, after = json.loads(first), json.loads(second)
        tree = scenario(int(before["id"][1:]))
        op = tree["workload"].get("kernel", {}) if tree["task"] == "kernel" else {}
        kind = f"{tree['task']} {op.get('op', '')}".strip()
        numbers, texts = differences(before, after)
        kinds[kind]["scenarios"] += 1
        kinds[kind]["answered"] += bool(after["ok"])
        kinds[kind]["numbers differ"] += bool(numbers)
        kinds[kind]["texts differ"] += bool(texts)
        if numbers and kinds[kind]["numbers differ"] <= 3:
            print(f"{before['id']} {kind}: {', '.join(numbers[:4])}")
    for kind, counts in sorted(kinds.items()):
        print(
            f"{kind:32}"
            + "".join(
                f"  {counts[n]:5} {n}"
                for n in ("scenarios", "answered", "numbers differ", "texts differ")
            )
        )
    return sum(counts["numbers differ"] for counts in kinds.values())


def with_and_without_core(count: int) -> int:
    """Whether a corpus has the same bytes under the compiled core and in Python; 1 = it has not."""
    with TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        write_corpus(corpus, count)
        answers = []
        for mode in ("require", "off"):
            answers.append(Path(folder, f"{mode}.jsonl"))
            command = [sys.executable, "-m", "silicast", "batch", str(corpus)]
            environment = {**os.environ, "SILICAST_CORE": mode, "SILICAST_CACHE": ""}
            subprocess.run([*command, "-o", str(answers[-1])], env=environment, check=False)
        compare(*answers)
        with_core, without_core = (path.read_bytes() for path in answers)
    print("the same bytes" if with_core == without_core else "bytes differ")
    return int(with_core != without_core)


def write_corpus(path: Path, count: int) -> None:
    lines = [json.dumps(scenario(number)) + "\n" for number in range(count)]
    path.write_text("".join(lines), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Runs one of the commands of the module's docstring."""
    if arguments[:1] == ["core"] and len(arguments) in (1, 2):
        return with_and_without_core(int(arguments[1]) if len(arguments) == 2 else COUNT)
    if arguments[:1] == ["corpus"] and len(arguments) in (2, 3):
        count = int(arguments[2]) if len(arguments) == 3 else COUNT
        write_corpus(Path(arguments[1]), count)
        return 0
    if arguments[:1] == ["compare"] and len(arguments) == 3:
        return 1 if compare(Path(arguments[1]), Path(arguments[2])) else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
