"""Attention of many queries: a prompt's, an encoder's, an image's patches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches import _sdpa
from silicast.measurement.benches._limits import dtypes, kept, launches, most_bytes, most_operations
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns


def _operations(kernel: Columns) -> float:
    pairs: float = (
        float(kernel["q_len"]) * kernel["kv_len"] * (0.5 if kernel.get("causal", True) else 1)
    )
    heads: int = kernel["num_heads"]
    return 4.0 * pairs * float(kernel.get("batch", 1) * heads * kernel["head_dim"])


@register
@final
class AttentionPrefill(Bench):
    """``scaled_dot_product_attention``. Its causal mask begins at the first key, so that causal
    calls have as many keys as queries.
    """

    op: ClassVar[str] = "attention_prefill"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`."""

        def settled(kernel: Columns) -> Columns:
            found = dict(kernel)
            group = int(found.pop("_group", 0))
            group = group or found["num_heads"] // found["num_kv_heads"]
            found, group = _sdpa.possible(found, group, machine)
            found = _sdpa.named(found, machine)
            found["num_heads"] = found["num_kv_heads"] * group
            found["kv_len"] = max(found["kv_len"], found["q_len"])
            for most, cost in (
                (most_operations(machine), _operations),
                (most_bytes(machine), self.bytes_needed),
            ):

                def capped(each: Columns, cost: Callable[[Columns], float] = cost) -> float:
                    return cost(self._tied(each, group))

                names = ("batch", "q_len", "kv_len", "num_kv_heads")
                found = self._tied(lessened(found, names, most, capped), group)
            return found

        return Ranges(
            self.op,
            {"batch": Size(1, 64), "q_len": Size(2, 16_384), "kv_len": Size(2, 16_384),
             "num_kv_heads": Size(1, 32)},
            {"dtype": dtypes(machine), "head_dim": _sdpa.WIDTHS, "_group": _sdpa.GROUPS,
             "causal": (True, False), "variant": _sdpa.variants(machine), "cache": ("warm", "cold"),
             "launch": launches(machine)},
            settled,
        )  # fmt: skip

    @staticmethod
    def _tied(kernel: Columns, group: int) -> Columns:
        keys = kernel["q_len"] if kernel.get("causal", True) else kernel["kv_len"]
        keys = max(keys, kernel["q_len"])
        return {**kernel, "kv_len": keys, "num_heads": kernel["num_kv_heads"] * group}

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        own = kept(kernel, "dtype", "head_dim", "causal", "variant", "library")
        shared = kernel.get("num_kv_heads", kernel["num_heads"]) != kernel["num_heads"]
        sizes = {"q_len": 8, "kv_len": 8, "num_heads": 2, "num_kv_heads": 1 if shared else 2}
        return {"op": self.op, "batch": 1, **sizes, **own}

    def refused(self, kernel: Columns, machine: Machine) -> str:
        """See :class:`Bench`."""
        if not isinstance(kernel["q_len"], int) or not isinstance(kernel["kv_len"], int):
            return "sequences of different lengths are not measured here"
        packaged = kernel.get("variant") in _sdpa.PACKAGES
        if kernel.get("causal", True) and kernel["q_len"] != kernel["kv_len"] and not packaged:
            return "scaled_dot_product_attention aligns its causal mask with the first key"
        return _sdpa.refusal(kernel, machine)

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        return _sdpa.needed(kernel, kernel["q_len"], kernel["kv_len"])

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        return _sdpa.tensors(kernel, machine, kernel["q_len"], kernel["kv_len"])

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        return _sdpa.attention(kernel, causal=bool(kernel.get("causal", True)))

    def context(self, kernel: Columns, machine: Machine) -> AbstractContextManager[object]:  # noqa: ARG002
        """See :class:`Bench`."""
        return _sdpa.backend(kernel)
