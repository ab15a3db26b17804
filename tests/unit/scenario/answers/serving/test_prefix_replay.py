"""Prefix hits of a trace with block hashes, against a replay that knows nothing of the engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

HASHED, BLOCK = 512, 16
"""Tokens of a hash, and of a block of the engine's cache."""


def test_hits_of_one_client_are_those_of_the_hashes(tmp_path: Path) -> None:
    """One request at a time, and a cache that holds all: a prompt reuses the whole blocks of the
    longest chain of hashes that any prompt before it began with, but for its last token.
    """
    random = np.random.default_rng(7)
    rows, seen, reused, prompts = [], set[tuple[int, ...]](), 0, 0
    for number in range(24):
        chain = [int(random.integers(3)), *(int(each) for each in random.integers(0, 2, 3))]
        hashes = [hash(tuple(chain[: i + 1])) & 0xFFFFFF for i in range(len(chain))]
        length = HASHED * len(hashes)
        rows.append(
            {"timestamp": number, "input_length": length, "output_length": 1, "hash_ids": hashes}
        )
        known = max((i for i in range(1, len(hashes) + 1) if tuple(hashes[:i]) in seen), default=0)
        reused += min(known * HASHED, length - 1) // BLOCK * BLOCK
        prompts += length
        seen |= {tuple(hashes[:i]) for i in range(1, len(hashes) + 1)}
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arrival = {"kind": "closed", "concurrency": 1, "path": path.name}
    tree = {"task": "serving", "device": "H100", "model": "Llama-3.1-8B", "engine": "vllm"}
    reply = reply_to(tree | {"workload": {"arrival": arrival}}, folder=tmp_path)
    assert isinstance(reply, Answer), reply
    assert reply.metrics["prefix_hit_rate"].estimate == pytest.approx(reused / prompts, abs=1e-12)
    assert reused > prompts / 4
