"""Random scenarios: sound ones from a grammar, then damaged in structure and in bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

Draw = random.Random
WEIRD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 10**9, 10**19, -(10**30), 0.0, -0.0, 0.5, 1e-300, 1e300, 2.5,
    "", " ", "x", "H100", "bf16", "nvlink", "../../etc/passwd", "a.toml", "c.json", "☃" * 50,
    "a\nb", "x" * 5000, [], [[]], [0], [1, -1], [None], ["a"], [1] * 40, {}, {"a": {}}, {"": 1},
    {"base": "Llama-3.1-8B"}, {"base": {"base": 3}}, {"kind": "closed"}, {"name": "vllm"},
    {"architectures": ["LlamaForCausalLM"]}, {"architectures": 3, "model_type": []},
)  # fmt: skip
INSERTED = (
    b"\0", b"\xff", b'"', b"[" * 100, b"{" * 100, b"\xef\xbb\xbf", b"NaN", b"1e999", b"\\u",
    b"a.b.", b"'''", b"9" * 30,
)  # fmt: skip
DEVICES = ("H100", "A100-SXM-80GB", "l40s", "B200", "RTX 4090", "V100", "MI300X", "P4")
MODELS: tuple[Any, ...] = (
    "Llama-3.1-8B", "Qwen3-8B", "gpt2", "Mixtral-8x7B", "DeepSeek-V3",
    {"base": "Llama-3.1-8B", "layers": 3},
)  # fmt: skip
DTYPES = ("bf16", "fp16", "fp8", "fp32", "int4_wo", "nvfp4", "fp8_block", "bfloat16", "int8")


def size(draw: Draw, most: int = 20_000) -> int:
    """A size, small ones and powers of two more often."""
    return draw.choice((1, 2, 7, 64, 128, 1024, 4096, draw.randint(1, most), most))


def kernel(draw: Draw) -> dict[str, Any]:
    """A kernel table."""
    lengths = [size(draw, 4000) for _ in range(draw.randint(1, 6))]
    heads = {"num_heads": 32, "num_kv_heads": draw.choice((1, 4, 8, 32)), "head_dim": 128}
    shape = draw.choice((
        {"op": "gemm", "m": size(draw), "n": size(draw), "k": size(draw)},
        {"op": "attention_prefill", "q_lens": lengths, "kv_lens": lengths, **heads},
        {"op": "attention_decode", "kv_lens": lengths, **heads},
        {"op": "attention_decode", "kv_len": size(draw), "batch": size(draw, 300), **heads},
        {"op": draw.choice(("rmsnorm", "layernorm", "quantize", "embedding")),
         "tokens": size(draw), "hidden": size(draw)},
        {"op": "elementwise", "kind": "gelu", "elements": size(draw)},
        {"op": "moe", "tokens": size(draw), "experts": 8, "topk": 2, "hidden": 64,
         "intermediate": 64},
        {"op": "softmax", "rows": size(draw), "cols": size(draw)},
        {"op": "sampling", "rows": size(draw, 500), "vocab": 32000},
    ))  # fmt: skip
    return {**shape, "dtype": draw.choice(DTYPES), "cache": draw.choice(("cold", "warm"))}


def workload(draw: Draw, task: str) -> dict[str, Any]:
    """A workload of a task."""
    training = {"seq_len": size(draw), "global_batch": 64, "micro_batch": draw.choice((1, 2, 3))}
    static = {"batch": size(draw, 64), "input_len": size(draw, 4000), "output_len": size(draw, 64)}
    serving = {
        "arrival": draw.choice((
            {"kind": "closed", "concurrency": size(draw)},
            {"kind": "poisson", "rate_per_s": 2.0},
            {"kind": "trace", "rows": [{"arrival_s": 0.0, "input_len": 5, "output_len": 6}]},
        )),
        "input_len": size(draw), "output_len": {"kind": "uniform", "min": 1, "max": size(draw)},
        "requests": 100,
    }  # fmt: skip
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "kernel": lambda: {"kernel": kernel(draw)},
        "collective": lambda: {
            "op": draw.choice(("all_reduce", "all_to_all", "send_recv")),
            "bytes": size(draw) * 1024, "gpus": draw.choice((2, 4, 8, 16)),
        },
        "graph": lambda: {"mode": "training", "batch": 2, "seq_len": size(draw)},
        "inference": lambda: static,
        "serving": lambda: serving,
        "training": lambda: training,
        "capacity": lambda: {"traffic": serving, "slo": {"ttft_ms": 5}, "objective": "max_rate"},
        "plan": lambda: {"objective": "mfu", "training": training},
        "diagnose": lambda: {
            "kernel": {"op": "gemm", "m": size(draw), "n": 4096, "k": 4096},
            "measured_us": draw.choice((900.0, [9e4, 91e3], [1e6] * 9)),
        },
        "fits": lambda: {"context": 4096, "users": draw.choice((1, 4)), "most": 2},
        "tune": lambda: {"kernel": "moe", "tokens": [draw.choice((1, 64, 4096))]},
        "workflow": lambda: {"stages": {"a": {"work": "fixed"}, "b": {"after": ["a"]}}},
    }  # fmt: skip
    return made[task]()


TASKS = (
    *("kernel",) * 6, *("inference",) * 2, *("collective",) * 2, "graph", "serving", "training",
    "capacity", "plan", "workflow", "diagnose", "tune", "fits",
)  # fmt: skip


def scenario(draw: Draw) -> dict[str, Any]:
    """A sound scenario of any task."""
    task = draw.choice(TASKS)
    tree: dict[str, Any] = {
        "format": 1, "task": task, "device": draw.choice(DEVICES), "workload": workload(draw, task),
    }  # fmt: skip
    extras: dict[str, Any] = {
        "id": f"c{draw.randint(0, 99)}",
        "seed": 3,
        "parallel": {"tp": draw.choice((1, 2, 4, 8)), "pp": draw.choice((1, 2))},
        "engine": draw.choice(("vllm", {"name": "sglang", "version": "1"})),
        "precision": {"weights": draw.choice(DTYPES)},
        "limits": {"clock_mhz": 1200, "power_w": 300},
        "cluster": {"gpus": draw.choice((8, 16)), "gpus_per_node": 8},
        "tier": draw.choice(("auto", "bound")),
        "host": {"factor": 0.5},
    }
    tree |= {name: value for name, value in extras.items() if draw.random() < 0.25}
    if draw.random() < 0.05:
        tree["speculative"] = {"method": "ngram", "k": 3, "acceptance": 0.6}
    if task not in ("kernel", "collective", "workflow"):
        tree["model"] = copy.deepcopy(draw.choice(MODELS))
    return tree


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths into a tree."""
    items: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            items += [(*path, key), *places(item, (*path, key))]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            items += [(*path, index), *places(item, (*path, index))]
    return items


def damaged(draw: Draw, tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with a value replaced, removed, renamed, nested or repeated, in place."""
    path = draw.choice(places(tree) or [("task",)])
    table: Any = tree
    for step in path[:-1]:
        table = table[step]
    last = path[-1]
    action = draw.randrange(5)
    if action == 0 and isinstance(table, dict):
        table.pop(last, None)
    elif action == 1 and isinstance(table, dict):
        name = str(last)
        table[name[:-1] + draw.choice("sxe_")] = table.pop(last, 1)
    elif action == 2:
        deep: Any = 1
        for _ in range(draw.choice((2, 70))):
            deep = draw.choice(([deep], {"a": deep}))
        table[last] = deep
    elif action == 3 and isinstance(table, dict):
        table[draw.choice(("tp", "op", "model", "pools", "kernel", "x"))] = copy.deepcopy(
            draw.choice(WEIRD)
        )
    else:
        table[last] = copy.deepcopy(draw.choice(WEIRD))
    return tree


def toml_of(value: Any, top: bool = True) -> str:
    """A tree as TOML; null has no form there and is left out."""
    if isinstance(value, dict):
        pairs = [(json.dumps(k), toml_of(v, False)) for k, v in value.items() if v is not None]
        if top:
            return "\n".join(f"{key} = {text}" for key, text in pairs)
        return "{" + ", ".join(f"{key} = {text}" for key, text in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_of(item, False) for item in value if item is not None) + "]"
    return json.dumps(value)


def byte_damaged(draw: Draw, raw: bytes) -> bytes:
    """Bytes cut, flipped, inserted or repeated."""
    data = bytearray(raw)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        action = draw.randrange(5)
        if action == 0:
            del data[at:]
        elif action == 1 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif action == 2:
            data[at:at] = draw.choice(INSERTED)
        elif action == 3:
            data[at:at] = data[max(0, at - 20) : at]
        else:
            del data[at : at + draw.randint(1, 8)]
    return bytes(data)
