"""Measured layers of experts as arrays: which tables, which rows, which of them are held out.

The suite scores what benchmarks/fit_moe.py must not fit, so both read the rows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.moe_recipes import style_of
from silicast.validation.gemm_rows import AIC_DEVICES, mixed
from silicast.workload.op import Variant

DIMS = ("tokens", "experts", "topk", "hidden", "intermediate", "ep", "tp")
COLUMNS = ("num_tokens", "num_experts", "topk", "hidden_size", "inter_size", "moe_ep_size",
           "moe_tp_size")  # fmt: skip
KEYS = ("system", "backend", "version", "moe_dtype", "kernel_source", "distribution")
UNGATED = ((22, 2048), (22, 8192), (6, 2688))
"""(topk, hidden) of Nemotron's layers, which square a ReLU and have no gate. The table does not say
so; that their times are below what three matrices an expert would take at full bandwidth does."""

SHARE = 40
"""One in so many rows of a campaign is read, unless told otherwise."""

PIPEWEAVE_DEVICES = {
    "A100": "A100-SXM-80GB", "A40": "A40", "H20": "H20", "H800": "H800-SXM-80GB", "L20": "L20",
    "RTX 6000 Ada": "RTX 6000 Ada",
}  # fmt: skip


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device and variant.

    Attributes:
        source: "aic" or "pipeweave".
        device, variant: what ran them and how.
        sizes: int64 array (dimensions, rows), in the order of :data:`DIMS`.
        seconds: measured time of one call.
        held_out: rows that no constant may be fitted on.
    """

    source: str
    device: str
    variant: Variant
    sizes: I64
    seconds: F64
    held_out: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, index: NDArray[np.bool_] | I64) -> Rows:
        """Some of the rows."""
        return Rows(
            self.source, self.device, self.variant, np.ascontiguousarray(self.sizes[:, index]),
            self.seconds[index], self.held_out[index],
        )  # fmt: skip

    def only(self, held_out: bool | None, known_layer: bool | None) -> Rows:
        """The rows that are (or are not) held out, of layers known (or not); None = either."""
        wanted = np.ones(len(self), dtype=np.bool_)
        if held_out is not None:
            wanted &= self.held_out == held_out
        if known_layer is not None:
            wanted &= layer_held_out(self.sizes) != known_layer
        return self if wanted.all() else self.take(wanted)

    @property
    def dims(self) -> dict[str, I64]:
        """Dimensions as an OpBatch takes them."""
        return dict(zip(DIMS, self.sizes, strict=True))

    @property
    def style(self) -> str:
        """The style of kernel that the model takes them for."""
        architecture = find_device(self.device).architecture
        dtype = recipe_for(self.variant.dtype).name
        known = self.variant
        return style_of(known.kernel, known.library, dtype, architecture, known.version)


def layer_held_out(sizes: I64) -> NDArray[np.bool_]:
    """One in five layers (experts, topk, hidden, intermediate), never fitted on any device."""
    held: NDArray[np.bool_] = mixed(*sizes[1:5], seed=7) % np.uint64(5) == 0
    return held


def shape_held_out(sizes: I64) -> NDArray[np.bool_]:
    """One in five shares of a layer on a rank (the layer, ep, tp), on no device fitted either."""
    held: NDArray[np.bool_] = mixed(*sizes[1:7], seed=13) % np.uint64(5) == 0
    return held


def problem_held_out(sizes: I64) -> NDArray[np.bool_]:
    """One in five problems (tokens and the layer), on no device fitted either."""
    held: NDArray[np.bool_] = mixed(*sizes[:5], seed=13) % np.uint64(5) == 0
    return held


def sample(rows: Rows, count: int) -> Rows:
    """A deterministic subsample of about so many rows, by hash; another one for every variant, so
    that all of them together hold more sizes.
    """
    if len(rows) <= count:
        return rows
    salt = crc32(f"{rows.device} {rows.variant}".encode())
    key = mixed(*rows.sizes, np.full(len(rows), salt, dtype=np.int64), seed=1)
    return rows.take(np.sort(np.argsort(key, kind="stable")[:count]))


def aic_rows(
    data: Path,
    count: int,
    *,
    held_out: bool | None = None,
    known_layer: bool | None = None,
    share: int = SHARE,
) -> list[Rows]:
    """Up to ``count`` rows of each device, backend, version, format, kernel and distribution.

    A group gives at most one in ``share`` of its rows, so that large campaigns count for more.

    Args:
        data: the data folder.
        count: rows of each group.
        held_out: only rows that are (or are not) held out.
        known_layer: only rows of layers of which some rows are (or none is) fitted.
        share: one in so many rows of a group is read.
    """
    import pyarrow.parquet as pq

    names = [*KEYS, *COLUMNS, "latency_us"]
    table = pq.read_table(data / "aiconfigurator/moe.parquet", columns=names)
    code = np.zeros(len(table), dtype=np.int64)
    labels = []
    for key in KEYS:
        column = table[key].combine_chunks()
        labels.append(column.dictionary.to_pylist())
        code = code * len(labels[-1]) + column.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(code, kind="stable")
    values, starts = np.unique(code[order], return_index=True)
    sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in COLUMNS])
    micros = table["latency_us"].to_numpy().astype(np.float64)
    found = []
    for value, index in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
        words, rest = [], value
        for options in reversed(labels):
            rest, place = divmod(rest, len(options))
            words.append(options[place])
        system, backend, version, dtype, kernel, distribution = reversed(words)
        if system not in AIC_DEVICES or distribution == "power_law_0":
            continue
        plain = np.full(len(index), "nongated" in kernel)
        for topk, hidden in UNGATED:
            plain |= (sizes[2, index] == topk) & (sizes[3, index] == hidden)
        for gated, part in ((True, index[~plain]), (False, index[plain])):
            flags = tuple(sorted([("gated", gated), (distribution, True)]))
            variant = Variant(
                dtype=recipe_for(dtype).name, library=backend, version=version, kernel=kernel,
                flags=flags,
            )  # fmt: skip
            held = layer_held_out(sizes[:, part]) | shape_held_out(sizes[:, part])
            rows = Rows(
                "aic", AIC_DEVICES[system], variant, sizes[:, part], micros[part] * 1e-6, held
            ).only(held_out, known_layer)
            if len(rows):
                found.append(sample(rows, min(count, max(20, len(rows) // share))))
    return found


def pipeweave_rows(
    data: Path, count: int, *, held_out: bool | None = None, known_layer: bool | None = None
) -> list[Rows]:
    """The first product (gate and up) of Triton's fused kernel in bf16, routed round-robin."""
    import pyarrow.parquet as pq

    names = ["gpu", "weight_type", "M", "E", "topk", "H", "N", "latency_us"]
    table = pq.read_table(data / "pipeweave/kernel_moe_w13.parquet", columns=names)
    c: dict[str, NDArray[Any]] = {n: table[n].to_numpy(zero_copy_only=False) for n in names}
    found = []
    for gpu, device in PIPEWEAVE_DEVICES.items():
        here = c["gpu"] == gpu
        m, e, k, h, n = (c[x][here].astype(np.int64) for x in ("M", "E", "topk", "H", "N"))
        ones = np.ones_like(m)
        sizes = np.stack((m, e, k, h, n, ones, ones))
        rows = Rows(
            "pipeweave", device,
            Variant(dtype="bf16", library="triton", kernel="triton",
                    flags=(("balanced", True), ("gated", True), ("w13", True))),
            sizes, c["latency_us"][here] * 1e-6, layer_held_out(sizes) | problem_held_out(sizes),
        )  # fmt: skip
        found.append(sample(rows.only(held_out, known_layer), count))
    return found


def wide_rows(
    data: Path, count: int, *, held_out: bool | None = None, named: bool = True
) -> list[Rows]:
    """Wide expert parallelism of SGLang: the experts' part of one layer, DeepSeek-V3's.

    There is one layer only: one in five pairs of tokens and ranks is held out instead. Rows under
    the distribution that the source calls uniform are left out: it is not said what it is.

    Args:
        named: the kernel's name says whether it is that of a prefill or of a decode step, which
            the source tells by its file alone.
    """
    import pyarrow.parquet as pq

    found: dict[tuple[str, str, str], list[Rows]] = {}
    for phase in ("context", "generation"):
        table = pq.read_table(data / f"aiconfigurator/wideep_{phase}_moe.parquet")
        sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in COLUMNS])
        words = [table[name].to_pylist() for name in ("system", "version", "distribution")]
        keys = np.array(["|".join(row) for row in zip(*words, strict=True)])
        for key in np.unique(keys).tolist():
            system, version, distribution = key.split("|")
            if system not in AIC_DEVICES or distribution == "uniform":
                continue
            here = keys == key
            variant = Variant(
                dtype="fp8_block", library="sglang", version=version,
                kernel=f"deepepmoe_{phase}" if named else "deepepmoe",
                flags=(("gated", True), (distribution, True)),
            )  # fmt: skip
            held = mixed(sizes[0, here], sizes[5, here], seed=7) % np.uint64(5) == 0
            seconds = table["latency_us"].to_numpy()[here].astype(np.float64) * 1e-6
            rows = Rows("wide", AIC_DEVICES[system], variant, sizes[:, here], seconds, held)
            if held_out is not None:
                rows = rows.take(rows.held_out == held_out)
            found.setdefault((phase, system, key), []).append(sample(rows, count))
    return [rows for parts in found.values() for rows in parts if len(rows)]


def wide_cutlass_rows(data: Path, count: int) -> list[Rows]:
    """Wide expert parallelism of TensorRT-LLM: no constant is fitted on any of these rows."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / "aiconfigurator/wideep_moe.parquet")
    sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in COLUMNS])
    words = [table[name].to_pylist() for name in ("system", "version", "moe_dtype", "distribution")]
    keys = np.array(["|".join(row) for row in zip(*words, strict=True)])
    found = []
    for key in np.unique(keys).tolist():
        system, version, dtype, distribution = key.split("|")
        here = keys == key
        variant = Variant(
            dtype=recipe_for(dtype).name, library="trtllm", version=version,
            kernel="wideep_compute_cutlass", flags=(("gated", True), (distribution, True)),
        )  # fmt: skip
        seconds = table["latency_us"].to_numpy()[here].astype(np.float64) * 1e-6
        held = np.ones(len(seconds), dtype=np.bool_)
        rows = Rows("wide", AIC_DEVICES[system], variant, sizes[:, here], seconds, held)
        found.append(sample(rows, count))
    return found


def fused_rows(data: Path, *, held_out: bool | None = None) -> list[Rows]:
    """Experts with dispatch and combine in one kernel, as DeepGEMM has them for DeepSeek-V4.

    The table counts tokens of a rank; the layer gets those of all. One in five pairs of tokens and
    ranks is held out.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(data / "aiconfigurator/dsv4_megamoe_module.parquet")
    names = [{"num_tokens": "global_num_tokens"}.get(name, name) for name in COLUMNS]
    sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in names])
    words = [table[name].to_pylist() for name in ("system", "version", "distribution")]
    keys = np.array(["|".join(row) for row in zip(*words, strict=True)])
    found = []
    for key in np.unique(keys).tolist():
        system, version, distribution = key.split("|")
        if system not in AIC_DEVICES:
            continue
        here = keys == key
        variant = Variant(
            dtype="w4a8_mxfp4_mxfp8", library="sglang", version=version, kernel="deepgemm_megamoe",
            flags=tuple(sorted([("gated", True), (distribution, True)])),
        )  # fmt: skip
        held = mixed(sizes[0, here], sizes[5, here], seed=7) % np.uint64(5) == 0
        seconds = table["latency_us"].to_numpy()[here].astype(np.float64) * 1e-6
        rows = Rows("wide", AIC_DEVICES[system], variant, sizes[:, here], seconds, held)
        found.append(rows if held_out is None else rows.take(rows.held_out == held_out))
    return [rows for rows in found if len(rows)]
