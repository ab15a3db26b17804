"""Scenario N6's hit rate against an independent replay of the trace's block hashes.

    python -m benchmarks.prefix_hits [REQUESTS]

The first REQUESTS (1,000 unless stated) Mooncake conversations and synthetic requests are answered
with one client, so that the order in which blocks come and go is that of the trace: Llama-3.1-8B on
H200 with two sizes of its cache, and the model of N6 for as few that nothing is evicted (half of
its layers keep a window, whose blocks are shared out in another way). The replay knows nothing of
the product's radix tree: a dictionary of chained keys of blocks of 16 tokens, and a queue of free
blocks, the least recently freed first, the last of a sequence before its first (vLLM's block pool).
Tokens found must be the same to the last one.
Writes benchmarks/results/prefix_hits.json; exit status 1 if a rate differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lab import fitting
from lab.scorecard.suite import data_folder
from silicast.core.plain_data import read_scenario_file
from silicast.formats.tables import open_table
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

OUT = Path(__file__).parent / "results" / "prefix_hits.json"
N6 = Path(__file__).parent.parent / "tests" / "scenarios" / "n6.toml"
TABLE = "serving/mooncake_traces_with_block_hashes.parquet"
HASHED = 512
"""Tokens that a hash of the trace stands for."""


def main(arguments: list[str]) -> int:
    """Prints and writes both rates of each trace."""
    count = int(arguments[0]) if arguments else 1000
    table = {}
    for trace in ("mooncake_conversation", "mooncake_synthetic"):
        for model, utilisation, most in (
            ("Llama-3.1-8B", 0.3, count),
            ("Llama-3.1-8B", 0.9, count),
            ("gpt-oss-120b", 0.9, 40),
        ):
            name = f"{model} at {utilisation}, {trace}"
            table[name] = compared(trace, min(count, most), utilisation, model)
            print(f"{name}: {table[name]}", flush=True)
    fitting.write(OUT, table)
    return 0 if all(row["exact"] for row in table.values()) else 1


def compared(trace: str, count: int, utilisation: float, model: str) -> dict[str, Any]:
    """The rates of the first requests of a trace, on a device with so much of its memory."""
    tree = read_scenario_file(N6)
    options = {"gpu_memory_utilization": utilisation}
    arrival = {"kind": "closed", "concurrency": 1, "path": f"data:{TABLE}", "trace": trace}
    tree |= {"model": model, "engine": {"name": "vllm", "options": options}}
    tree |= {"workload": {"requests": count, "arrival": arrival}}
    reply = reply_to(tree, folder=N6.parent)
    assert isinstance(reply, Answer), reply
    limits = reply.why["engine_limits"]
    rows: list[dict[str, Any]] = []
    for row in open_table(data_folder() / TABLE).records():
        if row["trace"] == trace:
            rows.append(row)
        if len(rows) == count:
            break
    replayed = hit_rate(rows, limits["kv_blocks"], limits["block_tokens"])
    answered = reply.metrics["prefix_hit_rate"].estimate
    return {
        "requests": len(rows),
        "blocks": limits["kv_blocks"],
        "answered": answered,
        "replayed": replayed,
        "exact": abs(answered - replayed) < 1e-12,
    }


def hit_rate(rows: Iterable[dict[str, Any]], blocks: int, size: int) -> float:
    """Share of the prompts' tokens that are there when each request comes, one after the other."""
    pool = BlockPool(blocks, size)
    hits = prompts = 0
    for number, row in enumerate(rows):
        prompt = int(row["input_tokens"])
        prompts += prompt
        hits += pool.serve(number, row["hash_ids"], prompt, int(row["output_tokens"]))
    return hits / prompts


class BlockPool:
    """Blocks of a device's cache; each has a number, and a key once it is full."""

    def __init__(self, blocks: int, size: int) -> None:
        self._size = size
        self._free: dict[int, None] = dict.fromkeys(range(blocks))  # in the order of eviction
        self._block: dict[Any, int] = {}
        self._key: dict[int, Any] = {}

    def serve(self, number: int, hashes: Sequence[int], prompt: int, output: int) -> int:
        """Runs a request alone; how many tokens of its prompt it finds."""
        size, keys, key = self._size, [], None
        written = prompt + output - 1  # the last token is not read again
        for block in range(written // size):
            start = block * size
            inside = start + size <= prompt
            name = hashes[start // HASHED] if inside else (number, block)
            key = hash((key, name, start % HASHED if inside else -1))
            keys.append(key)
        held: list[int] = []
        for key in keys[: (prompt - 1) // size]:
            if key not in self._block:
                break
            held.append(self._block[key])
        for block in held:
            self._free.pop(block)
        hit_tokens = len(held) * size
        for place in range(len(held), -(-written // size)):
            block = next(iter(self._free))
            self._free.pop(block)
            if (old := self._key.pop(block, None)) is not None and self._block.get(old) == block:
                self._block.pop(old)
            if place < len(keys) and keys[place] not in self._block:
                self._block[keys[place]], self._key[block] = block, keys[place]
            held.append(block)
        self._free.update(dict.fromkeys(reversed(held)))
        return hit_tokens


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
