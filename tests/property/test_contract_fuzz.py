"""No scenario, however damaged, gets past the one error type; a batch always goes on."""

from __future__ import annotations

import io
import json
import math
import random
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.core.plain_data import parse_json, parse_toml
from silicast.runner.batch import run_batch
from silicast.scenario.answer import Answer, encode, refusal
from silicast.scenario.run import reply_to
from tests.property.scenario_grammar import byte_damaged, damaged, scenario, toml_of

QUICK = 120
FULL = 10_000


def raw_case(draw: random.Random) -> tuple[bytes, bool]:
    """One fuzzed case as bytes, and whether it is TOML."""
    tree = scenario(draw)
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        tree = damaged(draw, tree)
    toml = draw.random() < 0.3
    raw = (toml_of(tree) if toml else json.dumps(tree)).encode()
    return (byte_damaged(draw, raw) if draw.random() < 0.2 else raw), toml


def check_reply(line: bytes) -> bool:
    """Whether a reply is an answer; either kind must be sound."""
    reply: dict[str, Any] = json.loads(line)
    if not reply["ok"]:
        error = reply["error"]
        assert error["kind"] != "internal", error
        assert error["message"]
        text = error["message"] + error["field"] + error["hint"]
        assert "\n" not in text, error
        assert len(text) < 3000, error
        assert "metrics" not in reply
        return False
    for name, belief in reply["metrics"].items():
        assert all(math.isfinite(value) for value in belief.values())
        assert belief["p05"] <= belief["estimate"] <= belief["p95"]
        assert reply["bound"].get(name, 0.0) <= belief["p05"]
    return True


def fuzz(count: int, seed: int) -> None:
    """Runs ``count`` cases alone, and the JSON ones as one batch too."""
    draw = random.Random(seed)
    lines: list[bytes] = []
    alone: list[bytes] = []
    answered = 0
    for _ in range(count):
        raw, toml = raw_case(draw)
        try:
            tree = parse_toml(raw) if toml else parse_json(raw)
        except SilicastError as error:
            reply = encode(refusal(error))
        else:
            outcome = reply_to(tree)
            reply = encode(outcome)
            assert isinstance(outcome, Answer) == outcome.ok
        answered += check_reply(reply)
        if not toml and b"\n" not in raw and raw.strip():
            lines.append(raw)
            alone.append(reply)
    out = io.BytesIO()
    result = run_batch(io.BytesIO(b"\n".join(lines) + b"\n"), out)
    together = out.getvalue().splitlines()
    assert len(together) == len(lines) == result.cases
    for row, single in zip(together, alone, strict=True):
        check_reply(row)
        if json.loads(single)["id"] is not None:
            assert row == single
    assert answered > count // 25, "the grammar makes too few sound cases to test anything"


@pytest.mark.parametrize("seed", range(3))
def test_damaged_scenarios_give_errors_never_tracebacks(seed: int) -> None:
    fuzz(QUICK // 3, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_damaged_scenarios(seed: int) -> None:
    fuzz(FULL // 10, 1000 + seed)


@pytest.mark.parametrize("seed", range(20))
def test_sound_scenarios_survive_both_formats(seed: int) -> None:
    tree = scenario(random.Random(seed))
    assert parse_toml(toml_of(tree).encode()) == parse_json(json.dumps(tree).encode())
