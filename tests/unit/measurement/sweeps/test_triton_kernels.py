"""Triton kernels against plain PyTorch: on a GPU, or under TRITON_INTERPRET=1 on a CPU."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
ON = "cuda" if torch.cuda.is_available() else "cpu"
if ON == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from silicast.measurement.benches.attention import rotated  # noqa: E402
from silicast.measurement.benches.moe import looped  # noqa: E402
from silicast.measurement.sweeps import triton_kernels  # noqa: E402

# the interpreter multiplies no bf16
FORMATS = (
    [torch.float32, torch.float16, torch.bfloat16] if ON == "cuda"
    else [torch.float32, torch.float16]
)  # fmt: skip
WITHIN = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def apart(result: object, expected: object) -> float:
    one, other = result.double().cpu(), expected.double().cpu()  # type: ignore[attr-defined]
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("width", [2, 200, 2300])
def test_silu_mul(dtype: object, width: int) -> None:
    x = torch.randn(5, width, device=ON).to(dtype)
    half = width // 2
    expected = torch.nn.functional.silu(x[:, :half].double()) * x[:, half:].double()
    assert apart(triton_kernels.silu_mul(x), expected) < WITHIN[dtype]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("width", [24, 64])
def test_rope(dtype: object, width: int) -> None:
    q, k = (torch.randn(3, heads, width, device=ON).to(dtype) for heads in (4, 2))
    angles = torch.rand(3, 1, width // 2, device=ON).repeat(1, 1, 2) * 6.0
    tables = angles.cos().to(dtype), angles.sin().to(dtype)
    expected = rotated(q.double(), k.double(), *(table.double() for table in tables))
    rope = triton_kernels.rope(q.clone(), k.clone(), *tables)
    for one, other in zip(rope, expected, strict=True):
        assert apart(one, other) < WITHIN[dtype]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(
    ("tokens", "count", "topk", "hidden", "inner"),
    [(7, 4, 2, 96, 40), (40, 3, 1, 64, 64), (3, 8, 2, 32, 32), (1, 2, 2, 70, 33)],
)
def test_experts(
    dtype: object, tokens: int, count: int, topk: int, hidden: int, inner: int
) -> None:
    """Experts without tokens, several blocks of one expert, and sizes that fill no tile."""
    torch.manual_seed(tokens)
    x = torch.randn(tokens, hidden, device=ON).to(dtype)
    w13 = (torch.randn(count, 2 * inner, hidden, device=ON) * hidden**-0.5).to(dtype)
    w2 = (torch.randn(count, hidden, inner, device=ON) * inner**-0.5).to(dtype)
    chosen = torch.stack([torch.randperm(count)[:topk] for _ in range(tokens)]).to(ON)
    factors = torch.rand(tokens, topk, device=ON).to(dtype)
    to = triton_kernels.routing(chosen, factors, count)
    expected = looped(x.double(), w13.double(), w2.double(), chosen, factors.double())
    assert apart(triton_kernels.experts(x, w13, w2, to), expected) < WITHIN[dtype]


def test_every_assignment_has_one_row() -> None:
    chosen = torch.randint(5, (17, 3), device=ON)
    to = triton_kernels.routing(chosen, torch.ones(17, 3, device=ON), 5)
    slots = to.slots.tolist()
    assert sorted(slot for slot in slots if slot < to.pairs) == list(range(17 * 3))
    owners = to.experts.repeat_interleave(to.rows).tolist()
    flat = chosen.reshape(-1).tolist()
    assert all(flat[slot] == owners[i] for i, slot in enumerate(slots) if slot < to.pairs)
