"""Batches: order, ids, bit-identity, bad lines, bad files."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.core.plain_data import MAX_JSON_BYTES
from silicast.learning.dispatch import forget
from silicast.runner import workers as batch_workers
from silicast.runner.batch import run_batch, run_batch_file
from silicast.scenario.answer import encode
from silicast.scenario.reading.limits import MAX_BATCH_BYTES
from silicast.scenario.run import reply_to

GOOD: dict[str, Any] = {
    "id": "c0",
    "task": "kernel",
    "device": "H100",
    "workload": {"op": "rmsnorm", "tokens": 8, "hidden": 64},
}


def mixed_cases(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Kernel cases of several devices, families and variants."""
    draw = random.Random(seed)
    cases: list[dict[str, Any]] = []
    for number in range(count):
        lengths = [draw.randint(1, 3000) for _ in range(draw.randint(1, 9))]
        heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
        kernel: dict[str, Any] = draw.choice([
            {"op": "gemm", "m": draw.randint(1, 5000), "n": 4096, "k": draw.choice([128, 4096]),
             "dtype": draw.choice(["bf16", "fp8", "float16"])},
            {"op": "rmsnorm", "tokens": draw.randint(1, 5000), "hidden": 4096},
            {"op": "attention_prefill", "q_lens": lengths, "kv_lens": lengths, **heads},
            {"op": "attention_decode", "kv_lens": lengths, **heads},
            {"op": "attention_decode", "kv_len": lengths[0], "batch": 7, **heads},
            {"op": "conv2d"},
        ])  # fmt: skip
        device = draw.choice(["H100", "A100", "h200-sxm", "nonsense", "L40S"])
        cases.append({"id": f"c{number}", "task": "kernel", "device": device,
                      "workload": {"kernel": kernel}})  # fmt: skip
    return cases


def lines_of(cases: list[Any]) -> bytes:
    return b"".join(json.dumps(case).encode() + b"\n" for case in cases)


def answers(raw: bytes) -> list[dict[str, Any]]:
    out = io.BytesIO()
    run_batch(io.BytesIO(raw), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_batch_is_the_single_runs_bit_for_bit() -> None:
    cases = mixed_cases(120)
    forget()
    alone = []
    for case in cases:
        forget()
        alone.append(encode(reply_to(case)))
    forget()
    out = io.BytesIO()
    run_batch(io.BytesIO(lines_of(cases)), out)
    together = out.getvalue().splitlines()
    assert together == alone
    assert sum(b'"ok":true' in line for line in alone) > 50
    assert sum(b'"ok":false' in line for line in alone) > 10


def test_order_of_cases_changes_no_answer() -> None:
    cases = mixed_cases(60, seed=2)
    forget()
    forward = {row["id"]: row for row in answers(lines_of(cases))}
    forget()
    assert {row["id"]: row for row in answers(lines_of(cases[::-1]))} == forward


def test_windows_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = lines_of(mixed_cases(40, seed=3))
    whole = answers(raw)
    monkeypatch.setattr(batch_workers, "MOST_LINES", 7)
    forget()
    assert answers(raw) == whole


def test_bad_lines_are_answered_in_their_place() -> None:
    good = json.dumps(GOOD).encode()
    raw = b"\n".join([
        b"\xef\xbb\xbf" + good, b"", b"{", good, b'{"id": "x", "task": 3}', b"\xff\xfe", b"[]",
        b'{"id": {"a": 1}}', b"[" * 5000, good,
    ])  # fmt: skip
    rows = answers(raw)
    assert [row["ok"] for row in rows] == [True, False, True, *[False] * 5, True]
    assert [row["id"] for row in rows] == ["c0", 3, "c0", "x", 6, 7, 8, 9, "c0"]
    assert all(row["error"]["message"] for row in rows if not row["ok"])


def test_a_case_without_an_id_gets_its_lines_number() -> None:
    case = mixed_cases(1)[0]
    del case["id"]
    assert [row["id"] for row in answers(lines_of([case, case]))] == [1, 2]


def test_ids_of_several_cases_are_named() -> None:
    bare = {name: value for name, value in GOOD.items() if name != "id"}
    cases = [bare, GOOD, {**GOOD, "id": 1}, {**GOOD, "id": "2"}]
    assert run_batch(io.BytesIO(lines_of(cases)), io.BytesIO()).shared_ids == (1,)
    assert run_batch(io.BytesIO(lines_of(cases[:2])), io.BytesIO()).shared_ids == ()


def test_a_start_that_is_cut_in_a_character_is_text(tmp_path: Path) -> None:
    case = {**GOOD, "id": "é" * 200}
    line = json.dumps(case, ensure_ascii=False).encode()
    for pad in range(2):
        source = tmp_path / "in.jsonl"
        source.write_bytes(b" " * (4096 - line.index("é".encode()) - 2 * 100 - 1 + pad) + line)
        assert run_batch_file(source, tmp_path / "out.jsonl").exit_status == 0


def test_a_line_that_is_too_long_is_skipped_whole() -> None:
    good = lines_of([mixed_cases(1)[0]])
    long = b'{"id": "' + b"x" * (2 * MAX_JSON_BYTES) + b'"}\n'
    rows = answers(long + good)
    assert [row["id"] for row in rows] == [1, "c0"]
    assert rows[0]["error"]["kind"] == "limit"


def test_a_defect_in_one_case_costs_that_case_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from silicast.scenario.answers.kernel import answerer as kernel

    real = kernel._prepare

    def breaks(scenario: Any) -> Any:
        if scenario.raw.id == "c1":
            raise ZeroDivisionError("boom")
        return real(scenario)

    monkeypatch.setattr(kernel, "_prepare", breaks)
    cases = [case | {"device": "H100"} for case in mixed_cases(4)]
    rows = answers(lines_of(cases))
    assert rows[1]["error"]["kind"] == "internal"
    assert "ZeroDivisionError: boom" in rows[1]["error"]["message"]
    assert [row["id"] for row in rows] == ["c0", "c1", "c2", "c3"]


def test_files_progress_and_exit_status(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = [case | {"device": "H100", "workload": {"op": "rmsnorm", "tokens": 8, "hidden": 64}}
            for case in mixed_cases(5)]  # fmt: skip
    source.write_bytes(lines_of(good))
    seen: list[int] = []
    result = run_batch_file(source, target, seen.append)
    assert (result.answered, result.failed, result.exit_status) == (5, 0, 0)
    assert seen[-1] == 5
    source.write_bytes(lines_of([*good, {"task": "x"}]))
    assert run_batch_file(source, target).exit_status == 3
    assert len(target.read_bytes().splitlines()) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_an_empty_file_has_no_cases(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"\n")
    result = run_batch_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert (result.cases, result.exit_status) == (0, 0)
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_paths_in_a_case_start_at_the_batch_file(tmp_path: Path) -> None:
    from silicast.core.catalog import CATALOG

    source = CATALOG / "devices" / "nvidia-h100-sxm-80gb.toml"
    (tmp_path / "d.toml").write_bytes(source.read_bytes())
    case = {"task": "kernel", "device": "d.toml",
            "workload": {"op": "rmsnorm", "tokens": 8, "hidden": 64}}  # fmt: skip
    (tmp_path / "in.jsonl").write_bytes(lines_of([case]))
    assert run_batch_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl").failed == 0


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\x00\x01")
    (tmp_path / "latin").write_bytes('{"a": "café"}'.encode("latin-1") * 10)
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as stream:
        os.truncate(stream.fileno(), MAX_BATCH_BYTES + 1)
    (tmp_path / "short").write_bytes('{"a": 1} é'.encode("latin-1"))
    (tmp_path / "marked").write_bytes(b"\xff\xfe")
    for name, kind in (("none", "io"), ("", "io"), ("binary", "io"), ("latin", "io"),
                       ("short", "io"), ("marked", "io"), ("huge.jsonl", "limit")):  # fmt: skip
        with pytest.raises(SilicastError) as caught:
            run_batch_file(tmp_path / name, tmp_path / "out.jsonl")
        assert caught.value.kind == kind
    assert not (tmp_path / "out.jsonl").exists()


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(lines_of(mixed_cases(1)))
    with pytest.raises(SilicastError) as caught:
        run_batch_file(tmp_path / "in.jsonl", tmp_path / "no" / "out.jsonl")
    assert caught.value.kind == "io"
    with pytest.raises(SilicastError):
        run_batch_file(tmp_path / "in.jsonl", tmp_path)


def test_a_line_that_is_no_valid_case_keeps_its_id(tmp_path: Path) -> None:
    source, target = tmp_path / "cases.jsonl", tmp_path / "answers.jsonl"
    source.write_bytes(b'{"id": "a-1", "m": NaN}\n{"id": 7, "task": \n{"m": NaN}\n')
    run_batch_file(source, target)
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    assert [answer["id"] for answer in answers] == ["a-1", 7, 3]
    assert not any(answer["ok"] for answer in answers)


def test_static_batches_are_the_same_in_any_company() -> None:
    cases: list[dict[str, Any]] = [
        {"id": f"{model} {device} {batch}", "task": "inference", "model": model, "device": device,
         "workload": {"batch": batch, "input_len": 100 * batch, "output_len": 3 * batch}}
        for model in ("Llama-3.1-8B", "Qwen3-30B-A3B") for device in ("h100", "nowhere")
        for batch in (1, 3, 40)
    ]  # fmt: skip
    cases.append({**cases[0], "id": "lens", "workload": {"input_lens": [5, 900], "output_len": 1}})
    alone = {case["id"]: encode(reply_to(case)) for case in cases}
    random.Random(0).shuffle(cases)
    out = io.BytesIO()
    run_batch(io.BytesIO(lines_of(cases)), out)
    assert out.getvalue().splitlines() == [alone[case["id"]] for case in cases]
