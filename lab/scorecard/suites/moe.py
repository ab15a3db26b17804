"""Layers of experts: three engines' kernels in seven formats, and Triton's first product.

Constants are fitted by lab/fit_moe.py on the rows that are not held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from lab.scorecard.held_out import constants_without
from lab.scorecard.kernel_suite import KernelScore, LabelOf, Rows, size_ranges
from lab.scorecard.rows import (
    Mask,
    MeasuredRows,
    Sizes,
    Words,
    held_out,
    least_hashed,
    one_in,
    some_of,
)
from lab.scorecard.suite import Scored, Suite, predicted, resting
from lab.scorecard.tables import (
    AIC,
    AIC_DEVICES,
    Ops,
    Table,
    ops,
    read_columns,
    read_records,
    read_table,
)
from lab.scorecard.training import MANY, Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.core.prediction import ErrorFactors, Quantity
from silicast.kernels.experts.moe import PHYSICS, distribution_of
from silicast.kernels.experts.moe_recipes import style_of
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.constants import replaced
from silicast.learning.boosting import Settings
from silicast.learning.tiers import Evidence
from silicast.workload.graphs.op import OpBatch, Variant

DIMS = ("tokens", "experts", "topk", "hidden", "intermediate", "ep", "tp")
COLUMNS = ("num_tokens", "num_experts", "topk", "hidden_size", "inter_size", "moe_ep_size",
           "moe_tp_size")  # fmt: skip
UNGATED = ((22, 2048), (22, 8192), (6, 2688))
"""(topk, hidden) of Nemotron's layers, which square a ReLU and have no gate. The table does not
state it; their times are below what three matrices an expert would take at full bandwidth."""
SHARE = 40
"""One in so many rows of a campaign is read, unless told otherwise."""
PIPEWEAVE = "pipeweave/kernel_moe_w13.parquet"
PIPEWEAVE_DEVICES = {
    "A100": "A100-SXM-80GB",
    "A40": "A40",
    "H20": "H20",
    "H800": "H800-SXM-80GB",
    "L20": "L20",
    "RTX 6000 Ada": "RTX 6000 Ada",
}


def layer_held_out(d: Sizes) -> Mask:
    """One in five layers (experts, topk, hidden, intermediate), never fitted on any device."""
    return one_in(5, *(d[name] for name in DIMS[1:5]), seed=7)


def shape_held_out(d: Sizes) -> Mask:
    """One in five shares of a layer on a rank (the layer, ep, tp), on no device fitted either."""
    return one_in(5, *(d[name] for name in DIMS[1:7]), seed=13)


def problem_held_out(d: Sizes) -> Mask:
    """One in five problems (tokens and the layer), on no device fitted either."""
    return one_in(5, *(d[name] for name in DIMS[:5]), seed=13)


def _ranks_held_out(d: Sizes) -> Mask:
    """One in five pairs of tokens and ranks: where there is one layer only."""
    return one_in(5, d["tokens"], d["ep"], seed=7)


def sample(rows: MeasuredRows, count: int) -> MeasuredRows:
    """A deterministic subsample of about so many rows, by hash; another one for every variant, so
    that all of them together hold more sizes.
    """
    variant = str(rows.batch.variant).replace(", config=()", "")  # samples are of earlier seeds
    return least_hashed(rows, count, crc32(f"{rows.device} {variant}".encode()))


def _dims(s: Sizes) -> dict[str, I64]:
    return dict(zip(DIMS, s.values(), strict=True))


def _variant(words: Words, dtype: str, kernel: str, *, gated: bool = True) -> Variant:
    return Variant(
        dtype=recipe_for(dtype).name,
        library=words["backend"],
        version=words["version"],
        kernel=kernel,
        flags=tuple(sorted([("gated", gated), (words["distribution"], True)])),
    )


def _layers(words: Words, s: Sizes) -> Iterator[Ops]:
    """Layers with and without a gate apart; ``power_law_0`` is left out."""
    if words["distribution"] == "power_law_0":
        return
    dims = _dims(s)
    plain = np.full(len(dims["topk"]), "nongated" in words["kernel_source"])
    for topk, hidden in UNGATED:
        plain |= (dims["topk"] == topk) & (dims["hidden"] == hidden)
    for gated, rows in ((True, np.flatnonzero(~plain)), (False, np.flatnonzero(plain))):
        if len(rows):
            part = {name: column[rows] for name, column in dims.items()}
            variant = _variant(words, words["moe_dtype"], words["kernel_source"], gated=gated)
            held = layer_held_out(part) | shape_held_out(part)
            ((batch, _, _),) = ops("moe", variant, part, held)
            yield batch, held, rows


TABLE = Table("moe", ("moe_dtype", "distribution"), COLUMNS, _layers)


def layer_rows(data: Path) -> list[MeasuredRows]:
    """All rows of whole layers."""
    words = ("system", "backend", "version", "moe_dtype", "kernel_source", "distribution")
    return list(read_table(data, TABLE, words=words))


def thinned(parts: Sequence[MeasuredRows], count: int, share: int = SHARE) -> list[MeasuredRows]:
    """Up to ``count`` rows of each kernel, and at most one in ``share`` of its rows."""
    return [sample(part, min(count, max(20, len(part) // share))) for part in parts]


def pipeweave_rows(data: Path) -> list[MeasuredRows]:
    """The first product (gate and up) of Triton's fused kernel in bf16, routed round-robin."""
    c = read_columns(data / PIPEWEAVE, ["gpu", "M", "E", "topk", "H", "N", "latency_us"])
    flags = (("balanced", True), ("gated", True), ("w13", True))
    variant = Variant(dtype="bf16", library="triton", kernel="triton", flags=flags)
    measured_rows = []
    for gpu, device in PIPEWEAVE_DEVICES.items():
        here = c["gpu"] == gpu
        sizes = {name: c[name][here].astype(np.int64) for name in ("M", "E", "topk", "H", "N")}
        dims = {**dict(zip(DIMS, sizes.values(), strict=False)), "ep": 1, "tp": 1}
        ((batch, _, _),) = ops("moe", variant, dims, np.zeros(len(sizes["M"]), dtype=bool))
        held = layer_held_out(batch.dims) | problem_held_out(batch.dims)
        seconds = c["latency_us"][here] * 1e-6
        measured_rows.append(MeasuredRows(batch, device, seconds, held, {"source": "pipeweave"}))
    return measured_rows


def wide_rows(data: Path, *, named: bool = True) -> list[MeasuredRows]:
    """Wide expert parallelism of SGLang: the experts' part of one layer, DeepSeek-V3's.

    Rows under the distribution that the source calls uniform are left out: it is not stated which
    that is.

    Args:
        named: the kernel's name states whether it is that of a prefill or of a decode step, which
            the source states by the name of its file only.
    """

    def lower(words: Words, s: Sizes) -> list[Ops]:
        if words["distribution"] == "uniform":
            return []
        phase = words["table"].split("_")[1]
        kernel = f"deepepmoe_{phase}" if named else "deepepmoe"
        variant = _variant({**words, "backend": "sglang"}, "fp8_block", kernel)
        dims = _dims(s)
        return ops("moe", variant, dims, _ranks_held_out(dims))

    words = ("system", "version", "distribution")
    return [
        part
        for phase in ("context", "generation")
        for part in read_table(data, Table(f"wideep_{phase}_moe", (), COLUMNS, lower), words=words)
    ]


def _wide_cutlass(words: Words, s: Sizes) -> list[Ops]:
    """Wide expert parallelism of TensorRT-LLM: nothing is fitted on any of these rows."""
    variant = _variant({**words, "backend": "trtllm"}, words["moe_dtype"], "wideep_compute_cutlass")
    return ops("moe", variant, _dims(s), np.ones(len(s["topk"]), dtype=bool))


WIDE_CUTLASS = Table("wideep_moe", ("moe_dtype", "distribution"), COLUMNS, _wide_cutlass)


def wide_cutlass_rows(data: Path) -> list[MeasuredRows]:
    """All rows of that table."""
    words = ("system", "version", "moe_dtype", "distribution")
    return list(read_table(data, WIDE_CUTLASS, words=words))


def _fused(words: Words, s: Sizes) -> list[Ops]:
    """Experts with dispatch and combine in one kernel, as DeepGEMM has them for DeepSeek-V4.

    The table counts tokens of a rank; the layer gets those of all.
    """
    dims = _dims(s)
    variant = _variant({**words, "backend": "sglang"}, "w4a8_mxfp4_mxfp8", "deepgemm_megamoe")
    return ops("moe", variant, dims, _ranks_held_out(dims))


FUSED = Table("dsv4_megamoe_module", ("distribution",), ("global_num_tokens", *COLUMNS[1:]), _fused)


def fused_rows(data: Path) -> list[MeasuredRows]:
    """All rows of that table."""
    return list(read_table(data, FUSED, words=("system", "version", "distribution")))


def _training_rows(data: Path) -> Iterator[MeasuredRows]:
    # one in 16 rows of a campaign: more teach little and cost minutes
    yield from thinned(layer_rows(data), MANY, 16)
    yield from (sample(part, MANY) for part in pipeweave_rows(data))


SOURCES = (
    Source(
        "moe",
        (TABLE.path, PIPEWEAVE),
        "one layer in five, by hash, is held out on every device; of the others one share of a "
        "rank in five (layer, ep, tp), and of w13 one problem in five",
        _training_rows,
        Settings(trees=100, depth=7, rate=0.2, rows=0.5, columns=0.4, prior=6.0, clip=2.5),
    ),
)


def roofline_s(rows: MeasuredRows, _: KernelTimes) -> F64:
    """The larger of two times: operations of an even share at the peak rate, and the weights of
    the experts hit with tokens in and out at the datasheet bandwidth.
    """
    variant = rows.batch.variant
    device, recipe = rows.hardware, recipe_for(variant.dtype)
    d = {name: values.astype(np.float64) for name, values in rows.batch.dims.items()}
    widths = 3.0 if variant.flag("gated", True) else 2.0
    if variant.flag("w13"):
        widths -= 1.0
    assigned = d["tokens"] * d["topk"]
    weights = d["hidden"] * d["intermediate"] / d["tp"] * widths
    peak = device.peak_per_s(device.matrix_pipe(recipe.compute), recipe.compute)
    hit = np.minimum(d["experts"], assigned) / d["ep"]
    moved = np.maximum(hit, 1.0) * weights * recipe.weight_bits / 8.0
    moved = moved + d["tokens"] * d["hidden"] * 4.0
    return np.maximum(
        2.0 * assigned / d["ep"] * weights / peak, moved / device.dram.bandwidth_bytes_per_s
    )


def unknown_times(rows: MeasuredRows) -> KernelTimes:
    """As if no device of the architecture had been measured: the analytic tier alone."""
    without = constants_without(PHYSICS, rows.hardware.architecture)
    with replaced({PHYSICS: without}), resting(Evidence(learned=False)):
        return predicted(rows)


def kernel_style(rows: MeasuredRows) -> str:
    """The style of kernel that the model takes the rows for."""
    v = rows.batch.variant
    return style_of(v.kernel, v.library, v.dtype, rows.hardware.architecture, v.version)


LABELS: Mapping[str, LabelOf] = {
    "style": lambda rows, _: kernel_style(rows),
    "format": lambda rows, _: rows.batch.variant.dtype,
    "routing": lambda rows, _: distribution_of(rows.batch.variant),
    "regime": size_ranges("tokens", (64, 1024), ("tokens <= 64", "65-1024", "> 1024")),
}
ROWS_PER_GROUP = 400
"""Rows read of each device, campaign, format, kernel and routing distribution."""
MLP = tuple(f"{AIC}wideep_{phase}_mlp.parquet" for phase in ("context", "generation"))


def unseen_layers(parts: Sequence[MeasuredRows]) -> list[MeasuredRows]:
    """Rows of layers of which none is fitted."""
    return some_of(parts, lambda part: layer_held_out(part.batch.dims))


def unseen_shapes(parts: Sequence[MeasuredRows]) -> list[MeasuredRows]:
    """Rows that are held out of layers of which others are fitted."""
    return some_of(parts, lambda part: part.held_out & ~layer_held_out(part.batch.dims))


def _scored_rows(data: Path, limit: int | None) -> Rows:
    count = ROWS_PER_GROUP if limit is None else max(4, limit // 150)
    layers, first = layer_rows(data), pipeweave_rows(data)
    wide, unnamed = (held_out(wide_rows(data, named=named)) for named in (True, False))
    return {
        "layer_us": thinned(unseen_layers(layers), count),
        "shape_us": thinned(unseen_shapes(layers), count),
        "w13_us": [sample(part, 10 * count) for part in unseen_layers(first)],
        "w13_problem_us": [sample(part, 10 * count) for part in unseen_shapes(first)],
        "w13_device_us": [sample(part, 2 * count) for part in first],
        "wide_sglang_us": [sample(part, count) for part in wide],
        "wide_unnamed_us": [sample(part, count) for part in unnamed],
        "wide_trtllm_us": [sample(part, count) for part in wide_cutlass_rows(data)],
        "fused_exchange_us": held_out(fused_rows(data)),
    }


LAYERS = KernelScore(_scored_rows, roofline_s, LABELS, {"w13_device_us": unknown_times})


def _score(data: Path, limit: int | None) -> list[Scored]:
    parts = [
        _scored_mlp(phase, AIC_DEVICES[system], rows)
        for phase, table in zip(("context", "generation"), MLP, strict=True)
        for system in sorted(AIC_DEVICES)
        if (rows := read_records(data / table, system=system))
    ]
    return [*LAYERS(data, limit), Scored.joined("wide_shared_us", parts)]


def _scored_mlp(phase: str, device: str, rows: list[dict[str, int | str]]) -> Scored:
    """Shared experts of DeepSeek-V3 beside wide expert parallelism, of which nothing was fitted.

    Gate and up, activation, down run one after another in a graph: their errors add up as those of
    the parts of a step do.
    """
    tokens, hidden, inner = (
        np.array([row[name] for row in rows], dtype=np.int64)
        for name in ("num_token", "hidden_size", "intermediate_size")
    )
    product = Variant(
        dtype=recipe_for(str(rows[0]["quant_type"])).name,
        library="sglang",
        version=str(rows[0]["version"]),
        launch="graph",
        flags=(("includes_quantize", True),),
    )
    ones, seconds = (
        np.ones_like(tokens),
        np.array([float(row["latency_us"]) for row in rows]) * 1e-6,
    )
    batches = (
        OpBatch("gemm", product, {"m": tokens, "n": 2 * inner, "k": hidden, "batch": ones}),
        OpBatch("silu_mul", Variant(launch="graph"), {"tokens": tokens, "width": 2 * inner}),
        OpBatch("gemm", product, {"m": tokens, "n": hidden, "k": inner, "batch": ones}),
    )
    held = np.ones(len(rows), dtype=bool)
    kernels = [predicted(MeasuredRows(batch, device, seconds, held)) for batch in batches]
    sums = [_sum(kernels, row) for row in range(len(rows))]
    return Scored(
        "wide_shared_us",
        measured=1e6 * seconds,
        estimate=1e6 * np.array([total.estimate for total in sums]),
        p05=1e6 * np.array([total.p05 for total in sums]),
        p95=1e6 * np.array([total.p95 for total in sums]),
        roofline=1e6 * (kernels[0].bound_s + kernels[1].bound_s + kernels[2].bound_s),
        groups={"device": np.full(len(rows), device), "phase": np.full(len(rows), phase)},
    )


def _sum(kernels: Sequence[KernelTimes], row: int) -> Quantity:
    terms = [
        (
            float(times.estimate_s[row]),
            ErrorFactors(times.shared_log_sd, float(times.independent_log_sd[row])),
        )
        for times in kernels
    ]
    total = sum(seconds for seconds, _ in terms)
    return Quantity.around(total, ErrorFactors.of_sum(terms).log_sd)


TABLES = (
    TABLE.path,
    PIPEWEAVE,
    f"{AIC}wideep_context_moe.parquet",
    f"{AIC}wideep_generation_moe.parquet",
    WIDE_CUTLASS.path,
    FUSED.path,
    *MLP,
)
SUITES = (Suite("moe", TABLES, _score),)
