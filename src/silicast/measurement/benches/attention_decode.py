"""Attention of one query a sequence over its cached keys and values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches import _sdpa
from silicast.measurement.benches._limits import dtypes, kept, launches, most_bytes
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


@register
@final
class AttentionDecode(Bench):
    """``scaled_dot_product_attention`` of one query over ``kv_len`` cached keys and its own, which
    lie in one piece for each sequence. One query has nothing to mask, whether it is causal or not.
    """

    op: ClassVar[str] = "attention_decode"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            found = dict(kernel)
            group = int(found.pop("_group", 0)) or found["num_heads"] // found["num_kv_heads"]
            found, group = _sdpa.possible(found, group, machine)
            found = _sdpa.named(found, machine)
            found["num_heads"] = found["num_kv_heads"] * group

            def cost(each: Columns) -> float:
                heads = each["num_kv_heads"] * group
                return float(self.bytes_needed({**each, "num_heads": heads}))

            names = ("batch", "kv_len", "num_kv_heads")
            found = lessened(found, names, most_bytes(machine), cost)
            found["num_heads"] = found["num_kv_heads"] * group
            return found

        return Ranges(
            self.op,
            {"batch": Size(1, 256), "kv_len": Size(1, 65_536), "num_kv_heads": Size(1, 32)},
            {"dtype": dtypes(machine), "head_dim": _sdpa.WIDTHS, "_group": _sdpa.GROUPS,
             "variant": _sdpa.variants(machine), "cache": ("cold", "warm"),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "head_dim", "variant", "library")
        shared = kernel.get("num_kv_heads", kernel["num_heads"]) != kernel["num_heads"]
        sizes = {"kv_len": 8, "num_heads": 2, "num_kv_heads": 1 if shared else 2}
        return {"op": self.op, "batch": 1, **sizes, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:
        """See :class:`Bench`."""
        if not isinstance(kernel["kv_len"], int):
            return "sequences of different lengths are not measured here"
        return _sdpa.refusal(kernel, machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        return _sdpa.needed(kernel, 1, kernel["kv_len"] + 1)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        return _sdpa.tensors(kernel, machine, 1, kernel["kv_len"] + 1)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        return _sdpa.attention(kernel, causal=False)

    def context(self, kernel: Columns, machine: Machine) -> AbstractContextManager[object]:  # noqa: ARG002
        """See :class:`Bench`."""
        return _sdpa.backend(kernel)
