"""Kernel tables of recurrent mixers: the columns of their measured tables become ops."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernels.kernel_case import kernel_case

ROW: dict[str, Any] = {
    "op": "gdn", "phase": "context", "model_name": "Qwen/Qwen3.5-9B", "d_model": 4096,
    "d_conv": 4, "head_k_dim": 128, "head_v_dim": 128, "num_k_heads": 16, "num_v_heads": 32,
    "batch_size": 4, "seq_len": 512, "num_tokens": 2048, "dtype": "bf16", "library": "vllm",
    "library_version": "0.24.0", "variant": "causal_conv1d_fn",
}  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    table = {**ROW, **changes}
    return {name: value for name, value in table.items() if value is not None}


def test_a_row_becomes_an_op() -> None:
    case = kernel_case(ROW)
    assert case.words == {}
    assert dict(case.op.dims) == {
        "batch_size": 4, "seq_len": 512, "num_k_heads": 16, "num_v_heads": 32, "head_k_dim": 128,
        "head_v_dim": 128, "d_conv": 4,
    }  # fmt: skip
    assert case.op.variant.kernel == "causal_conv1d_fn"
    assert case.op.variant.flags == ()


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"phase": "generation", "seq_len": 1, "num_tokens": 4}, ("generation",)),
        ({"phase": "decode", "seq_len": 1, "num_tokens": 4}, ("generation",)),
        ({"phase": "verify"}, ("verify",)),
        ({"phase": "prefill"}, ()),
        ({"phase": None}, ()),
        ({"phase": None, "variant": "causal_conv1d_update"}, ("generation",)),
        ({"phase": None, "variant": None, "seq_len": 1, "num_tokens": None}, ("generation",)),
        ({"phase": None, "variant": None}, ()),
    ],
)
def test_phases(changes: dict[str, Any], flags: tuple[str, ...]) -> None:
    assert kernel_case(changed(**changes)).op.variant.flags == tuple((f, True) for f in flags)


def test_lengths_from_what_is_stated() -> None:
    def sizes(**changes: Any) -> tuple[object, ...]:
        op = kernel_case(changed(**changes)).op
        return op.dim("batch_size"), op.dim("seq_len"), dict(op.dims).get("num_tokens")

    assert sizes(num_tokens=None) == (4, 512, None)
    assert sizes(seq_len=None) == (4, 512, None)
    assert sizes(seq_len=None, num_tokens=2047) == (4, 512, 2047)
    assert sizes(num_tokens=600) == (4, 512, 600)
    assert sizes(batch_size=None, num_tokens=None) == (1, 512, None)
    assert sizes(seq_len=None, num_tokens=None) == (4, 1, None)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_tokens": 2049}, "num_tokens"),
        ({"num_tokens": 514}, "num_tokens"),
        ({"seq_len": None, "num_tokens": 3}, "num_tokens"),
        ({"phase": "sometimes"}, "phase"),
        ({"num_v_heads": None}, "num_v_heads"),
        ({"d_state": 128}, "d_state"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        kernel_case(changed(**changes))
    assert caught.value.field.endswith(field)
