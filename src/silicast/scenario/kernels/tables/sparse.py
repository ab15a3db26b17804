"""Sparse attention modules, with the columns of their tables.

``isl`` new tokens follow ``step`` cached ones; in a generation row ``isl`` is 1, unlike in those of
:mod:`.mla`, which count cached tokens in it: more without cached ones are warned of. One token
without a phase is taken as a decode step, and a warning says so. ``num_heads`` is
the rank's. Widths are the named model's, else those of a usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from silicast.core.errors import require
from silicast.scenario.kernels.tables._spec import (
    BATCH,
    DEGREE,
    HEADS,
    LENGTH,
    PHASES,
    TOKENS,
    WIDTH,
    Lowering,
    OpSpec,
    Range,
    guessed,
    stated_phase,
    take_names,
)
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig

Widths = Callable[[ModelConfig, int], Mapping[str, int]]
"""Sizes of a module out of a model, of one of so many tensor-parallel ranks."""

_PREFIXES = dict.fromkeys(("csa", "hca"), ("dsv4_", "dsv4_flash_"))
_ENDS = {"dsa": ("_skip_indexer",)}
"""Kind of module -> what its names in the tables begin and end with, if anything."""


def _lower(widths: Widths, kind: str) -> Callable[[Lowering], None]:
    names = tuple(
        f"{prefix}{kind}_{phase}_module{end}"
        for prefix in ("", *_PREFIXES.get(kind, ()))
        for phase in PHASES
        for end in ("", *_ENDS.get(kind, ()))
    )

    def lower(case: Lowering) -> None:
        """The phase, the indexer and the format of the linear layers become flags of the op."""
        dims, words = case.dims, case.words
        name = take_names(case, names)
        phase = stated_phase(case, name)
        new = dims.setdefault("isl", 1)
        dims.setdefault("step", 0)
        require(new != 0, "isl = 0", "isl", "at least one token")
        if not phase:
            phase = guessed(case, "generation") if new == 1 else "context"
        if phase == "generation":
            case.flags["generation"] = True
            if isinstance(new, int) and new > 1 and dims["step"] == 0:
                case.warnings.append(
                    f"generation: isl = {new} new tokens a sequence behind no cached ones; cached "
                    f"tokens are step here (isl = 1, step = {new}), other than of mla_module"
                )
        if name.endswith("skip_indexer"):
            case.flags["skip_indexer"] = True
        if linear := words.pop("gemm_type", ""):
            case.flags[f"gemm_{linear}"] = True
        if cache := words.pop("kv_cache_dtype", ""):
            words["kv_dtype"] = cache
        words.pop("mla_dtype", None)
        ranks = dims.pop("tp_size", 1)
        dims.pop("local_num_heads", None)
        if model := str(words.pop("model", "") or ""):
            result = find_model(model)
            require(
                any(kind in mixer for mixer in result.mixers),
                f"{result.name} has no {kind.upper()} layers",
                "model",
                "leave it out for the sizes of a usual model",
            )
            assert isinstance(ranks, int)
            for size, value in widths(result, ranks).items():
                dims.setdefault(size, value)

    return lower


def _latent(model: ModelConfig, ranks: int) -> Mapping[str, int]:
    mla, sparse = model.mla, model.sparse
    assert mla is not None
    assert sparse is not None
    del ranks  # num_heads is the rank's already
    return {
        "hidden": model.hidden,
        "q_rank": mla.q_lora_rank,
        "kv_rank": mla.kv_lora_rank,
        "nope": mla.qk_nope_head_dim,
        "rope": mla.qk_rope_head_dim,
        "value": mla.v_head_dim,
        "index_heads": sparse.index_heads,
        "index_dim": sparse.index_dim,
        "selected": sparse.selected,
    }


def _compressed(model: ModelConfig, ranks: int) -> Mapping[str, int]:
    sparse = model.sparse
    assert sparse is not None
    return {
        "hidden": model.hidden,
        "q_rank": sparse.q_rank,
        "head_dim": model.head_dim,
        "out_groups": max(sparse.out_groups // ranks, 1),
        "out_rank": sparse.out_rank,
        "index_heads": sparse.index_heads,
        "index_dim": sparse.index_dim,
        "selected": sparse.selected,
        "window": sparse.window,
    }


def _blocks(model: ModelConfig, ranks: int) -> Mapping[str, int]:
    sparse = model.sparse
    assert sparse is not None
    del ranks
    return {
        "hidden": model.hidden,
        "head_dim": model.head_dim,
        "group": model.heads // model.kv_heads,
        "index_heads": sparse.index_heads,
        "index_dim": sparse.index_dim,
        "selected": sparse.selected,
        "block": sparse.block,
    }


def _module(meaning: str, widths: Widths, kind: str, *names: str) -> OpSpec:
    optional: dict[str, tuple[Range, int | None]] = {
        "step": (LENGTH, None),
        "isl": (LENGTH, None),
        "tp_size": (DEGREE, 1),
        "compress_ratio": ((0, 65_536), None),
        "local_num_heads": ((0, 65_536), None),
        **dict.fromkeys(names, (WIDTH, None)),
    }
    return OpSpec(
        meaning,
        {"batch_size": BATCH, "num_heads": HEADS},
        optional,
        words={"phase": PHASES, "model": (), "architecture": (), "op_name": ()},
        dtypes=("mla_dtype", "kv_cache_dtype", "gemm_type"),
        main_dtype="mla_dtype",
        lower=_lower(widths, kind),
    )


def _kernel(meaning: str, dtype: str, names: Mapping[str, tuple[Range, int | None]]) -> OpSpec:
    """A kernel of a module: q_len new tokens a sequence, kv_len past and new ones, of a decode step
    without the new ones.
    """
    return OpSpec(
        meaning,
        {"kv_len": LENGTH},
        {"batch": (BATCH, None), "q_len": (TOKENS, 1), **names},
        lists=frozenset({"q_len", "kv_len"}),
        flags={"decode": False},
        dtypes=("kv_dtype",),
        default_dtype=dtype,
    )


_RATIO: Mapping[str, tuple[Range, int | None]] = {"ratio": (WIDTH, None), "pool": (WIDTH, None)}
_INDEXER = ("hidden", "index_heads", "index_dim", "selected")
_COMPRESSED = (*_INDEXER, "q_rank", "head_dim", "out_groups", "out_rank", "window")

OPS: Mapping[str, OpSpec] = {
    "dsa_module": _module(
        "sparse latent attention with its indexer and projections", _latent, "dsa",
        *_INDEXER, "q_rank", "kv_rank", "nope", "rope", "value",
    ),
    "csa_module": _module(
        "compressed sparse attention with its indexer and projections", _compressed, "csa",
        *_COMPRESSED,
    ),
    "hca_module": _module(
        "heavily compressed attention with its projections", _compressed, "hca", *_COMPRESSED
    ),
    "msa_module": _module(
        "block-sparse attention with its indexer and projections", _blocks, "msa",
        *_INDEXER, "head_dim", "group", "block",
    ),
    "indexer_logits": _kernel(
        "scores of an indexer; ratio tokens share a key, the best of pool keys counts", "fp8",
        {"heads": (HEADS, 64), "head_dim": (WIDTH, 128), **_RATIO},
    ),
    "topk": _kernel(
        "the k best scores of each query; ratio tokens share a score", "fp32",
        {"k": (WIDTH, 2048), **_RATIO},
    ),
    "sparse_attention": _kernel(
        "latent attention over the selected entries, those of a window, or all (selected = 0); "
        "ratio tokens share an entry", "bf16",
        {
            "num_heads": (HEADS, 128), "head_dim": (WIDTH, 576), "selected": (LENGTH, 0),
            "value_dim": (WIDTH, None), "window": (LENGTH, None), "dense_width": (WIDTH, None),
            **_RATIO,
        },
    ),
}  # fmt: skip
