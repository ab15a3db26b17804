"""Sweeps: every point once in the store, whatever interrupts, divides or repeats them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.scenario_space import read_scenario_space
from silicast.runner import store as stores
from silicast.runner import sweep as sweeps
from silicast.runner.batch import run_batch
from silicast.runner.points import PointCase
from silicast.runner.racing import raced
from silicast.runner.results import Condition, export, reproduced, stored_rows, write_cases
from silicast.runner.store import AnswerStore, part_name
from silicast.runner.stored_front import front_of
from silicast.runner.sweep import Sweep, SweepTally, shard_of

pytest.importorskip("pyarrow")

SPACE = """
[scenario]
task = "kernel"
device = "h100"
[scenario.kernel]
op = "gemm"
m = 8
n = 4096
k = 4096
[[axis]]
field = "kernel.m"
range = [1, 128]
factor = 2
[[axis]]
field = "kernel.dtype"
values = ["bf16", "fp8", "nonsense"]
"""


@pytest.fixture
def swept(tmp_path: Path) -> Sweep:
    path = tmp_path / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    return Sweep(read_scenario_space(path), tmp_path)


def exported(store: AnswerStore, target: Path) -> bytes:
    export(store, stored_rows(store), target)
    return target.read_bytes()


def test_answers_are_those_of_a_batch_byte_for_byte(swept: Sweep, tmp_path: Path) -> None:
    store = AnswerStore.begun(tmp_path / "store")
    tally = swept.run(store)
    assert (tally.answered, tally.refused, tally.known) == (16, 8, 0)
    answers = exported(store, tmp_path / "answers.jsonl")
    write_cases(store, stored_rows(store), tmp_path / "cases.jsonl")
    out = io.BytesIO()
    run_batch(io.BytesIO((tmp_path / "cases.jsonl").read_bytes()), out)
    assert answers == out.getvalue()


def test_parts_interruptions_and_repetitions_give_the_same_bytes(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = AnswerStore.begun(tmp_path / "whole")
    swept.run(whole)
    parts = AnswerStore.begun(tmp_path / "parts")
    monkeypatch.setattr(sweeps, "CHUNK_ROWS", 3)
    for shard in (2, 0):
        Sweep(swept.space, swept.folder, (), shard, 3).run(parts)
    add = AnswerStore.add
    written = list[Path]()

    def killed(self: AnswerStore, *arguments: object) -> Path:
        if written:
            raise KeyboardInterrupt
        written.append(add(self, *arguments))  # type: ignore[arg-type]
        return written[0]

    monkeypatch.setattr(AnswerStore, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        Sweep(swept.space, swept.folder, (), 1, 3).run(parts)
    monkeypatch.setattr(AnswerStore, "add", add)
    before = len(parts.keys())
    assert 0 < before < 24
    tally = swept.run(parts)
    assert tally.known == before
    assert tally.answered + tally.refused == 24 - before
    assert exported(parts, tmp_path / "b.jsonl") == exported(whole, tmp_path / "a.jsonl")
    assert swept.run(parts).answered == 0


def test_a_part_reads_keys_of_its_own_points_alone(swept: Sweep, tmp_path: Path) -> None:
    """Reading those of all other parts would cost a store of n parts n / 2 times its size."""
    store = AnswerStore.begun(tmp_path / "store")
    first, second = (Sweep(swept.space, swept.folder, (), shard, 2) for shard in (0, 1))
    done = first.run(store)
    assert store.keys(part_name(swept.space, 1, 2)) == set()
    assert len(store.keys(part_name(swept.space, 0, 2))) == done.done
    assert len(store.keys(part_name(swept.space, 1, 3))) == done.done  # divided otherwise
    assert second.run(store).known == 0
    assert first.run(store).known == done.done
    assert len(store.keys()) == swept.run(store).known == 24


def test_a_shard_written_twice_counts_once(swept: Sweep, tmp_path: Path) -> None:
    store = AnswerStore.begun(tmp_path / "store")
    swept.run(store)
    (path,) = store.shards()
    shutil.copy(path, path.with_name("copy.parquet"))
    assert len(stored_rows(store).rows) == 24


def test_rows_of_other_versions_stay_and_are_left_out(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AnswerStore.begun(tmp_path / "store")
    with monkeypatch.context() as other:
        other.setattr("silicast.runner.points.package_hash", lambda: "0" * 16)
        other.setattr(stores, "package_hash", lambda: "0" * 16)
        swept.run(store)
    assert stored_rows(store).others == 24
    assert not stored_rows(store).rows
    assert swept.run(store).answered == 16  # other numbers: nothing is known
    assert len(stored_rows(store).rows) == 24
    assert len(stored_rows(store, "all").rows) == 48


def test_rows_are_chosen_ordered_and_made_again(swept: Sweep, tmp_path: Path) -> None:
    store = AnswerStore.begun(tmp_path / "store")
    swept.run(store)
    rows = stored_rows(store).where(
        [Condition.parse("kernel.dtype=bf16"), Condition.parse("ok=true")]
    )
    assert [row["kernel.m"] for row in rows.rows] == [1, 2, 4, 8, 16, 32, 64, 128]
    falling = [row["latency_us"] for row in rows.by("-latency_us").rows]
    assert falling == sorted(falling, reverse=True)
    assert len(falling) == 8
    made = reproduced(store, rows.rows[0]["key"][:12], tmp_path)
    assert made.same
    assert '"m":1' in made.scenario
    with pytest.raises(SilicastError, match=r"no column 'kernel\.q'"):
        rows.where([Condition.parse("kernel.q=1")])
    front, probability = front_of(stored_rows(store), "latency_us")
    best = min(row["latency_us"] for row in stored_rows(store).rows if row["ok"])
    assert min(row["latency_us"] for row in front.rows) == best
    assert sum(probability.values()) <= 1.0 + 1e-9  # of one metric, one row is the best


def test_words_are_not_compared_with_numbers(swept: Sweep, tmp_path: Path) -> None:
    """Without the check 5us keeps no row, which reads as if none were so quick."""
    store = AnswerStore.begun(tmp_path / "store")
    swept.run(store)
    with pytest.raises(SilicastError) as error:
        stored_rows(store).where([Condition.parse("latency_us<5us")])
    assert "latency_us is a number, found '5us'" in str(error.value)


UNFIT = """
[scenario]
task = "inference"
model = "Llama-3.1-70B"
workload = { batch = 1, input_len = 64, output_len = 2 }
[[axis]]
field = "device"
values = ["l4", "h100", "mi300x"]
"""


def test_what_does_not_fit_says_by_how_much_and_is_on_no_front(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(UNFIT, encoding="utf-8")
    store = AnswerStore.begun(tmp_path / "store")
    Sweep(read_scenario_space(path), tmp_path).run(store)
    rows = stored_rows(store)
    lacking = {row["device"]: row["memory_excess_gb"] for row in rows.rows}
    assert lacking["l4"] > lacking["h100"] > lacking["mi300x"] == 0.0
    assert [row["device"] for row in front_of(rows, "total_ms,memory_gb")[0].rows] == ["mi300x"]


def test_bad_stores_are_refused(swept: Sweep, tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="is not empty and no store"):
        AnswerStore.begun(tmp_path)
    store = AnswerStore.begun(tmp_path / "store")
    swept.run(store)
    (path,) = store.shards()
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SilicastError, match="is no whole shard"):
        store.keys()
    (tmp_path / "store" / "manifest.json").write_text('{"kind": "silicast store", "format": 9}')
    with pytest.raises(SilicastError, match="format 9"):
        store.checked()


def test_a_full_disk_leaves_no_half_shard(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AnswerStore.begun(tmp_path / "store")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("pyarrow.parquet.write_table", full)
        with pytest.raises(SilicastError, match="No space left"):
            swept.run(store)
    assert [*(tmp_path / "store" / "rows").iterdir()] == []
    assert swept.run(store, tally=SweepTally()).answered == 16


def test_a_race_answers_into_the_store_and_is_taken_up_again(swept: Sweep, tmp_path: Path) -> None:
    """Without noise: the quickest kernel wins, refused points lose, nothing is in doubt."""
    store = AnswerStore.begun(tmp_path / "store")
    counts: list[int] = []

    def answer(cases: Iterator[PointCase]) -> None:
        counts.append(swept.run(store, cases=cases).answered)

    run = raced(swept, store, "latency_us", answer)
    everything = AnswerStore.begun(tmp_path / "all")
    swept.run(everything)
    best = min(row["latency_us"] for row in stored_rows(everything).rows if row["ok"])
    assert run.values[0] == best
    assert run.values[-1] is None
    assert run.points[-1].fields["kernel.dtype"] == "nonsense"
    assert run.result.lost == 0.0
    assert counts[0] == 16 * 4  # of 24 points, 8 are refused
    counts.clear()
    assert raced(swept, store, "latency_us", answer).points == run.points
    assert sum(counts) == 0
    with pytest.raises(SilicastError, match="no point that fits has latency_ms") as caught:
        raced(swept, store, "latency_ms", answer)
    assert "latency_us" in caught.value.hint


KERNELS = """
[scenario]
task = "kernel"
device = "h100"
kernel = { n = 64, k = 64, OP }
[[axis]]
field = "kernel.mm"
values = [1, 2]
"""


def test_a_size_that_no_op_has_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(KERNELS.replace("OP", 'op = "gemm"'))
    with pytest.raises(SilicastError, match="gemm has no field 'mm'") as refused:
        Sweep(read_scenario_space(path), tmp_path).check()
    assert (refused.value.field, refused.value.file) == ("kernel.mm", str(path))
    ops = '[[axis]]\nfield = "kernel.op"\nvalues = ["gemm", "softmax"]\n'
    path.write_text(KERNELS.replace(", OP", "") + ops)
    Sweep(read_scenario_space(path), tmp_path).check()  # others may have it: a reason of points


def cases() -> Iterator[tuple[str, dict[str, str], tuple[int, int]]]:
    yield "1/4", {}, (1, 4)
    yield "auto/4", {"SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_MIN": "5"}, (1, 4)
    yield "auto", {"SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_COUNT": "8"}, (6, 8)
    yield "auto/4", {"JOB_COMPLETION_INDEX": "3"}, (3, 4)
    yield "auto", {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "2"}, (0, 2)


@pytest.mark.parametrize(("text", "environment", "expected"), [*cases()])
def test_the_part_of_a_process_follows_from_its_environment(
    text: str, environment: dict[str, str], expected: tuple[int, int]
) -> None:
    assert shard_of(text, environment) == expected


@pytest.mark.parametrize("text", ["4/4", "auto/4", "x/2", "1", "auto"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SilicastError, match="--shard"):
        shard_of(text, {})
