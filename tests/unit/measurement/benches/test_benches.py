"""Every bench passes the battery here, and a broken one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import times
from silicast.measurement.benches import BENCHES, attention, bench
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import stored_bytes
from silicast.measurement.benches.ranges import Ranges, Size, most_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import FailedRow, KernelRow, Protocol
from silicast.measurement.sweeps.timing import measure_kernel
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import identity
from tests.unit.measurement.benches.bench_battery import check_bench, drawn_kernels, traced_ops
from tests.unit.measurement.fake_cuda import MACHINE as GPU

pytestmark = pytest.mark.filterwarnings("ignore")

CPU = MeasuredMachine(
    "cpu", "", None, 1, 4 << 30, threads=1, dtypes=("fp32", "bf16"),
    facts={"caches": {"l2": {"bytes": 1 << 20, "instances": 1}}},
)  # fmt: skip
QUICK = Protocol("perf_counter", warm_up=1, repeats=3, seconds=0.005, cache="warm")


@pytest.mark.parametrize("op", BENCHES)
def test_the_battery_of(op: str) -> None:
    assert check_bench(BENCHES[op], CPU, draws=30) > 0


@pytest.mark.parametrize("op", BENCHES)
def test_a_gpus_draws_are_sound_tables(op: str) -> None:
    bench, drawn = BENCHES[op], BENCHES[op].ranges(GPU)
    for kernel in drawn_kernels(bench, GPU, 60, seed=1):
        case = kernel_case(kernel)
        assert case.op.family == op
        assert drawn.settle(dict(kernel)) == kernel
        assert bench.bytes_needed(kernel) <= 1.1 * most_bytes(GPU) + (1 << 20)
        assert kernel["launch"] == "graph"
        assert bench.why_not_measured(kernel, GPU) == ""


@pytest.mark.parametrize("op", BENCHES)
def test_a_kernel_is_timed(op: str) -> None:
    bench = BENCHES[op]
    kernel = bench.tiny(next(drawn_kernels(bench, CPU, 1)))
    row = measure_kernel(kernel, CPU, QUICK)
    assert isinstance(row, KernelRow), row
    # whoever predicts the row predicts the same work
    assert identity(kernel_case(row.kernel).op) == identity(kernel_case(kernel).op)


@pytest.mark.parametrize("op", BENCHES)
def test_a_gpus_draws_can_be_predicted(op: str) -> None:
    ops = [kernel_case(kernel).op for kernel in drawn_kernels(BENCHES[op], GPU, 20, seed=2)]
    assert all(time.estimate_s > 0.0 for time in times(ops, find_device("H200")))


def test_named_attention_has_the_library_of_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "installed", lambda module: module == "flash_attn")
    bench = BENCHES["attention_prefill"]
    distinct = {
        (kernel.get("variant"), kernel.get("library")) for kernel in drawn_kernels(bench, GPU, 200)
    }
    assert ("sdpa_flash", "fa2") in distinct
    assert ("sdpa_cudnn", "cudnn") in distinct
    assert (None, None) in distinct
    assert ("flash_attn", "fa2") in distinct
    assert len(distinct) == 6


@pytest.mark.parametrize("op", ["attention_prefill", "attention_decode"])
def test_attention_that_pytorch_has_no_kernel_for_is_not_drawn(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "installed", lambda _: True)
    plain = 0
    for kernel in drawn_kernels(BENCHES[op], GPU, 400):
        shared, variant = kernel["num_heads"] != kernel["num_kv_heads"], kernel.get("variant")
        assert not (shared and variant == "sdpa_efficient"), kernel
        if kernel["dtype"] == "fp32":
            assert variant == "sdpa_math" if shared else variant not in attention.HALF_ONLY, kernel
            plain += shared
    assert plain > 10


@pytest.mark.parametrize("op", ["attention_prefill", "attention_decode"])
def test_scores_that_pytorch_keeps_unasked_are_counted(op: str) -> None:
    kernel = {"op": op, "q_len": 512, "kv_len": 512, "batch": 2, "num_heads": 8, "head_dim": 64,
              "num_kv_heads": 2, "dtype": "fp32"}  # fmt: skip
    needed = BENCHES[op].bytes_needed
    assert needed(kernel) == needed({**kernel, "variant": "sdpa_math"})
    few = needed({**kernel, "variant": "sdpa_flash"})
    assert needed({**kernel, "dtype": "bf16"}) * 2 == few < needed(kernel)
    # a CPU's rows name their library; its kernel keeps none
    assert needed({**kernel, "library": "torch"}) == few


def test_shared_keys_of_xformers_are_refused() -> None:
    kernel = {"op": "attention_decode", "kv_len": 8, "num_heads": 8, "num_kv_heads": 2,
              "head_dim": 64, "variant": "sdpa_efficient", "library": "cutlass"}  # fmt: skip
    assert "a key head for each" in BENCHES["attention_decode"].why_not_measured(kernel, GPU)
    assert BENCHES["attention_decode"].why_not_measured({**kernel, "num_kv_heads": 8}, GPU) == ""


@pytest.mark.parametrize(
    ("kernel", "share"),
    [
        ({"op": "embedding", "tokens": 10, "hidden": 64, "vocab": 1000, "dtype": "fp32"}, 0.011),
        ({"op": "kv_copy", "tokens": 16, "num_kv_heads": 2, "head_dim": 64, "dtype": "fp32",
          "library": "torch"}, None),
        ({"op": "moe", "tokens": 2, "experts": 16, "topk": 2, "hidden": 64, "intermediate": 64,
          "dtype": "fp32", "library": "torch"}, 0.26),
    ],
    ids=lambda each: each["op"] if isinstance(each, dict) else "",
)  # fmt: skip
def test_what_a_call_leaves_alone_does_not_count(
    kernel: dict[str, Any], share: float | None
) -> None:
    bench = BENCHES[kernel["op"]]
    operands = bench.operands(kernel, CPU)
    touched, stored = bench.bytes_touched(kernel, operands), stored_bytes(operands)
    if share is None:  # what is written, once as it comes and once where it goes, and 16 slots
        assert touched == 2 * 16 * 2 * 2 * 64 * 4 + 16 * 8
    else:
        assert touched == pytest.approx(share * stored, rel=0.1)


@pytest.mark.parametrize("op", ["gemm", "conv2d"])
@pytest.mark.parametrize("dtype", ["tf32", "fp32"])
def test_tf32_is_for_rows_that_say_so(op: str, dtype: str) -> None:
    import torch

    indices = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [position.allow_tf32 for position in indices]
    with BENCHES[op].context({"op": op, "dtype": dtype}, GPU):
        assert [position.allow_tf32 for position in indices] == [dtype == "tf32"] * 2
    assert [position.allow_tf32 for position in indices] == before


@pytest.mark.parametrize("has", [True, False])
def test_triton_is_asked_for_where_it_is(monkeypatch: pytest.MonkeyPatch, *, has: bool) -> None:
    monkeypatch.setattr(bench, "installed", lambda _: has)
    distinct = {kernel["library"] for kernel in drawn_kernels(BENCHES["rope"], GPU, 40)}
    assert distinct == ({"triton", "torch"} if has else {"torch"})
    assert {k["library"] for k in drawn_kernels(BENCHES["rope"], CPU, 20)} == {"torch"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"op": "gemm", "m": 8, "n": 64, "k": 64, "dtype": "fp8"}, "not measured on this machine"),
        ({"op": "gemm", "m": 8, "n": 64}, "k: is missing"),
        ({"op": "rmsnorm", "tokens": 4, "hidden": 64, "dtype": "fp32", "residual": True},
         "residual = True"),
        ({"op": "softmax", "rows": 4, "cols": 64, "dtype": "fp32", "launch": "graph"}, "no graph"),
        ({"op": "attention_decode", "num_heads": 8, "head_dim": 64, "kv_len": 8, "window": 4,
          "dtype": "fp32"}, "window"),
        ({"op": "attention_prefill", "num_heads": 8, "head_dim": 64, "kv_len": 16, "q_len": 8,
          "dtype": "fp32"}, "first key"),
        ({"op": "attention_prefill", "num_heads": 8, "head_dim": 64, "kv_lens": [8, 9],
          "q_lens": [8, 9], "dtype": "fp32"}, "kv_lens"),
        ({"op": "moe", "tokens": 4, "experts": 4, "topk": 2, "hidden": 64, "intermediate": 64,
          "dtype": "fp32", "library": "torch", "ep": 2}, "ep = 2"),
        ({"op": "silu_mul", "tokens": 4, "width": 64, "dtype": "fp32", "library": "vllm"},
         "library = 'vllm'"),
        ({"op": "gemm", "m": 8, "n": 64, "k": 64, "batch": 2, "dtype": "fp32",
          "variant": "grouped_mm"}, "bf16"),
        ({"op": "elementwise", "elements": 64, "kind": "cast", "dtype": "fp32"}, "cast"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_says_why(columns: dict[str, Any], said: str) -> None:
    row = measure_kernel(columns, CPU, QUICK)
    assert isinstance(row, FailedRow)
    assert row.reason == "unsupported"
    assert said in row.message


@pytest.mark.parametrize(
    "columns",
    [
        {"dtype": "int8"}, {"dtype": "fp8"}, {"dtype": "bf16", "batch": 4},
        {"dtype": "bf16", "batch": 4, "variant": "grouped_mm"},
    ],
    ids=str,
)  # fmt: skip
def test_products_of_other_formats_are_traced_alike(columns: dict[str, Any]) -> None:
    kernel = {"op": "gemm", "m": 32, "n": 64, "k": 48, "batch": 1, "library": "torch", **columns}
    bench, machine = BENCHES["gemm"], replace(CPU, dtypes=("fp32", "bf16", "int8", "fp8"))
    if remark := bench.why_unsupported(kernel, machine):
        pytest.skip(remark)
    (op,) = traced_ops(bench, kernel, machine)
    # how the call is launched, and by whom, a trace leaves open
    assert identity(op) == identity(kernel_case(kernel).op)


def test_columns_that_change_nothing_may_be_stated() -> None:
    kernel = {"op": "attention_decode", "num_heads": 2, "num_kv_heads": 2, "head_dim": 64,
              "kv_len": 8, "batch": 1, "dtype": "fp32", "window": 0, "q_len": 1}  # fmt: skip
    assert isinstance(measure_kernel(kernel, CPU, QUICK), KernelRow)


def test_experts_one_after_the_other_are_right() -> None:
    """Against the plain sum over experts of every token, weighted."""
    import torch

    from silicast.measurement.benches.moe import looped

    torch.manual_seed(0)
    tokens, experts, hidden, inner = 6, 3, 8, 5
    x = torch.randn(tokens, hidden, dtype=torch.float64)
    w13 = torch.randn(experts, 2 * inner, hidden, dtype=torch.float64)
    w2 = torch.randn(experts, hidden, inner, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(experts)[:2] for _ in range(tokens)])
    factors = torch.rand(tokens, 2, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for t in range(tokens):
        for index in range(2):
            e = int(chosen[t, index])
            gate, up = (w13[e] @ x[t]).split(inner)
            expected[t] += factors[t, index] * (w2[e] @ (torch.nn.functional.silu(gate) * up))
    assert torch.allclose(looped(x, w13, w2, chosen, factors), expected)


def test_a_traced_product_is_the_op_of_its_table() -> None:
    kernel = {"op": "gemm", "m": 32, "n": 48, "k": 64, "batch": 2, "dtype": "fp32"}
    (op,) = traced_ops(BENCHES["gemm"], {**kernel, "library": "torch"}, CPU)
    assert (op.dim("m"), op.dim("n"), op.dim("k"), op.dim("batch")) == (32, 48, 64, 2)


class Sound(Bench):
    """A bench that keeps its promises; tests break one at a time."""

    op: ClassVar[str] = "softmax"

    def ranges(self, machine: MeasuredMachine) -> Ranges:
        return Ranges(self.op, {"rows": Size(2, 8), "cols": Size(65, 128)}, {"dtype": ("fp32",)})

    def tiny(self, kernel: dict[str, Any]) -> dict[str, Any]:
        return {"op": self.op, "rows": 2, "cols": 65, "dtype": "fp32"}

    def bytes_needed(self, kernel: dict[str, Any]) -> int:
        return 8 * int(kernel["rows"]) * int(kernel["cols"])

    def operands(self, kernel: dict[str, Any], machine: MeasuredMachine) -> tuple[Any, ...]:
        import torch

        return (torch.randn(kernel["rows"], kernel["cols"]),)

    def function(self, kernel: dict[str, Any]) -> Callable[..., object]:
        import torch

        return lambda x: torch.softmax(x, -1)


class Greedy(Sound):
    """Counts less memory than it takes."""

    def bytes_needed(self, kernel: dict[str, Any]) -> int:
        return 4 * int(kernel["rows"]) * int(kernel["cols"])


class Zeros(Sound):
    """Times zeros."""

    def operands(self, kernel: dict[str, Any], machine: MeasuredMachine) -> tuple[Any, ...]:
        import torch

        return (torch.zeros(kernel["rows"], kernel["cols"]),)


class Sharing(Sound):
    """Gives every set of operands the same memory."""

    kept: ClassVar[dict[Any, Any]] = {}

    def operands(self, kernel: dict[str, Any], machine: MeasuredMachine) -> tuple[Any, ...]:
        key, fresh = (kernel["rows"], kernel["cols"]), super().operands(kernel, machine)
        operands: tuple[Any, ...] = self.kept.setdefault(key, fresh)
        return operands


class Growing(Sound):
    """Changes its operands until they are no numbers."""

    def function(self, kernel: dict[str, Any]) -> Callable[..., object]:
        return lambda x: x.mul_(1e25)


class Misnamed(Sound):
    """Times something else than its table says."""

    def function(self, kernel: dict[str, Any]) -> Callable[..., object]:
        import torch

        return lambda x: torch.softmax(x, 0)


class Twice(Sound):
    """Times two operators as one."""

    def function(self, kernel: dict[str, Any]) -> Callable[..., object]:
        import torch

        return lambda x: torch.softmax(x, -1).neg_()


class Restless(Sound):
    """Settles to something else every time."""

    def ranges(self, machine: MeasuredMachine) -> Ranges:
        ranges = super().ranges(machine)
        return Ranges(
            ranges.op, ranges.sizes, ranges.choices, lambda k: {**k, "rows": max(1, k["rows"] - 1)}
        )


def test_a_sound_bench_passes() -> None:
    assert check_bench(Sound(), CPU, draws=8) == 6


@pytest.mark.parametrize(
    ("bench", "said"),
    [
        (Greedy, "bytes_needed"), (Zeros, "one number only"), (Sharing, "share memory"),
        (Growing, "finite"), (Misnamed, "calls it"), (Twice, "has .*softmax"),
        (Restless, "settles"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found(bench: type[Bench], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_bench(bench(), CPU, draws=8)


def test_two_benches_of_an_op_are_refused() -> None:
    with pytest.raises(ValueError, match="two benches of 'softmax'"):
        register(Sound)
