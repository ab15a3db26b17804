"""The ``kernel`` table of an :class:`~silicast.workload.graphs.op.Op`: inverts
:mod:`~silicast.scenario.kernels.kernel_case`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

from silicast.core.errors import SilicastError, unsupported
from silicast.kernels.products.sparsity import FLAG as SPARSE
from silicast.scenario.kernels.kernel_case import OPS, kernel_case
from silicast.scenario.kernels.tables._spec import DIRECTION, without_pass
from silicast.scenario.kernels.tables.products import quantizes
from silicast.scenario.kernels.tables.streams import KINDS
from silicast.scenario.kernels.tables.training import OPTIMIZERS
from silicast.workload.graphs.op import Affine, Op

Columns = dict[str, Any]
UNSTATED = {"batch": 1, "residual": 0}
"""Sizes that ops may leave out and tables do not."""
NO_COLUMN = ("append", "assumed_shape")
"""Flags without a column: whether an engine's call appends keys and values."""


def kernel_table_of(op: Op) -> Columns:
    """The table of an op whose sizes are numbers. It leaves out that attention appends new keys and
    values (``kv_copy`` is a kernel of its own).

    Raises:
        SilicastError: the op has sizes that only a batch knows, or is no kernel of a table
            ("unsupported").

    >>> kernel_table_of(Op.make("rmsnorm", tokens=8, hidden=4096, residual=1))
    {'op': 'rmsnorm', 'hidden': 4096, 'residual': True, 'tokens': 8, 'dtype': 'bf16'}
    """
    unknown = [name for name, dim in op.dims if isinstance(dim, (str, Affine))]
    if unknown:
        raise SilicastError("is a size that only the batch knows", field=unknown[0])
    whole, (op, direction) = op, without_pass(op)
    if op.family not in OPS:
        raise _unsupported(op, "no kernel table has this op")
    parts = _Parts(op)
    _INVERSES.get(op.family, _as_stated)(parts)
    if parts.kv_dtype:
        raise _unsupported(op, f"a cache in {parts.kv_dtype}")
    left = [name for name, value in parts.flags.items() if value and name not in NO_COLUMN]
    if left:
        raise _unsupported(op, f"its property {left[0]}")
    columns: Columns = {"op": op.family, **parts.columns, "dtype": op.variant.dtype}
    variant = op.variant
    names = {
        "library": variant.library,
        "library_version": variant.version,
        "variant": variant.kernel,
        "launch": variant.launch,
        "cache": variant.cache,
    }
    columns |= {name: value for name, value in names.items() if value}
    if variant.config:
        columns["configuration"] = dict(variant.config)
    if direction:
        columns[DIRECTION] = direction
    if _core(kernel_case(columns).op) != _core(whole):
        raise _unsupported(op, "its table means another op")
    return columns


def _core(op: Op) -> tuple[object, ...]:
    """The op without sizes and flags that have their default values."""
    spec = OPS[op.family]
    usual = {name: default for name, (_, default) in spec.optional.items()}
    stated = dict(op.dims)
    dims = {
        name: dim
        for name, dim in op.dims
        if usual.get(name, UNSTATED.get(name)) != dim
        and not (f"{name}_h" in stated and f"{name}_w" in stated)  # both sides have their own
    }
    flags = {name for name, value in op.variant.flags if value and name not in NO_COLUMN}
    if op.family == "attention_prefill" and "causal" not in dict(op.variant.flags):
        flags.add("causal")  # the default of the tables
    if op.family in ("attention_decode", "mla_prefill", "mla_decode"):
        flags.discard("causal")  # one query sees all keys either way, latent attention is causal
    return dims, flags, replace(op.variant, flags=())


def _unsupported(op: Op, why: str) -> SilicastError:
    return unsupported(f"{op.family} cannot be stated as a kernel table: {why}", "kernel")


@final
class _Parts:
    """An op that is being turned into a table.

    Attributes:
        columns: of the table, at first all sizes.
        flags, kv_dtype: of the op, until they are columns.
        variant: of the op.
    """

    def __init__(self, op: Op) -> None:
        self.columns: Columns = {n: list(v) if isinstance(v, tuple) else v for n, v in op.dims}
        self.flags = dict(op.variant.flags)
        self.variant, self.kv_dtype = op.variant, op.variant.kv_dtype

    def state(self, *names: str) -> None:
        """Turns flags into columns of the same name."""
        self.columns |= {name: self.flags.pop(name) for name in names if name in self.flags}

    def state_cache(self, column: str) -> None:
        """Turns the format of the cache into a column."""
        if self.kv_dtype:
            self.columns[column], self.kv_dtype = self.kv_dtype, ""

    def state_linear(self) -> None:
        """Turns the format of a module's linear layers into a column."""
        for name in [name for name in self.flags if name.startswith("gemm_")]:
            del self.flags[name]
            self.columns["gemm_type"] = name.removeprefix("gemm_")


def _as_stated(parts: _Parts) -> None:
    del parts


def _flags(*names: str) -> Callable[[_Parts], None]:
    return lambda parts: parts.state(*names)


def _attention(parts: _Parts) -> None:
    parts.state("causal")
    parts.state_cache("kv_dtype")
    if parts.flags.pop("ragged", False):
        parts.columns["kv_layout"] = "ragged"


def _norm(parts: _Parts) -> None:
    parts.columns["residual"] = bool(parts.columns.get("residual", 0))


def _elementwise(parts: _Parts) -> None:
    kinds = {kind for kind, _ in KINDS.values()}
    for name in [name for name in parts.flags if name in kinds]:
        del parts.flags[name]
        parts.columns["kind"] = name


def _experts(parts: _Parts) -> None:
    parts.state("gated")
    for part in ("w13", "w2"):
        if parts.flags.pop(part, False):
            parts.columns["part"] = part
    if len(parts.flags) == 1:
        (name,) = parts.flags
        del parts.flags[name]
        _, histogram, shares = name.partition("histogram:")
        distribution = [float(share) for share in shares.split(",")] if histogram else name
        parts.columns["distribution"] = distribution


def _product(parts: _Parts) -> None:
    parts.state("includes_quantize", SPARSE)
    usual = quantizes(parts.variant.library, parts.variant.dtype)
    if usual and "includes_quantize" not in parts.columns:
        parts.columns["includes_quantize"] = False


def _latent(parts: _Parts) -> None:
    parts.flags.pop("causal", None)
    parts.state_cache("kv_cache_dtype")


def _selection(parts: _Parts) -> None:
    parts.state("decode")
    parts.state_cache("kv_dtype")


def _latent_block(parts: _Parts) -> None:
    _latent(parts)
    parts.state_linear()
    decode = parts.flags.pop("generation", False)
    parts.columns["phase"] = "generation" if decode else "context"


def _sparse(kind: str) -> Callable[[_Parts], None]:
    def inverse(parts: _Parts) -> None:
        _latent_block(parts)
        if parts.flags.pop("skip_indexer", False):
            phase = parts.columns.pop("phase")
            parts.columns["op_name"] = f"{kind}_{phase}_module_skip_indexer"

    return inverse


def _mixer(parts: _Parts) -> None:
    phases = [name for name in ("generation", "verify") if parts.flags.pop(name, False)]
    parts.columns["phase"] = phases[0] if phases else "context"


def _kv_copy(parts: _Parts) -> None:
    parts.state_cache("kv_dtype")


def _optimizer(parts: _Parts) -> None:
    parts.state("master", "fp32_states", "fp32_grads")
    for kind in OPTIMIZERS:
        if parts.flags.pop(kind, False):
            parts.columns["kind"] = kind


_INVERSES: Mapping[str, Callable[[_Parts], None]] = {
    "gemm": _product, "conv2d": _flags("backward_data", "backward_weights"),
    "attention_prefill": _attention, "attention_decode": _attention, "rmsnorm": _norm,
    "layernorm": _norm, "elementwise": _elementwise, "moe": _experts, "mla_prefill": _latent,
    "mla_decode": _latent, "mla_module": _latent_block,
    **{f"{kind}_module": _sparse(kind) for kind in ("dsa", "csa", "hca", "msa")},
    **dict.fromkeys(("indexer_logits", "topk", "sparse_attention"), _selection),
    "quantize": _flags("static"), **dict.fromkeys(("gdn", "kda", "mamba2"), _mixer),
    "kv_copy": _kv_copy, "optimizer": _optimizer,
    **dict.fromkeys(
        ("lstm", "gru", "rnn"), _flags("backward_data", "backward_weights", "persistent")
    ),
}  # fmt: skip
"""Op -> the inverse of its ``lower`` in ``kernel_tables``; ops without an entry have none."""
