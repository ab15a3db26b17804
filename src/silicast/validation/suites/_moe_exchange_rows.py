"""Measured dispatches and combines as arrays, and which of them are held out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.validation.gemm_rows import AIC_DEVICES, mixed
from silicast.workload.op import OpBatch, Variant


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device, phase and variant.

    Attributes:
        batch: the ops.
        seconds: measured time of one call.
        held_out: rows that no constant may be fitted on: one in four (hidden, topk, experts); of
            groups that span nodes and of exchanges over NVLink alone, which have few such layers,
            one in two pairs of tokens and nodes.
    """

    device: str
    batch: OpBatch
    seconds: F64
    held_out: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, index: NDArray[np.bool_] | I64) -> Rows:
        """Some of the rows."""
        dims = {name: values[index] for name, values in self.batch.dims.items()}
        batch = OpBatch(self.batch.family, self.batch.variant, dims)
        return Rows(self.device, batch, self.seconds[index], self.held_out[index])


def load_rows(data: Path) -> list[Rows]:
    """Every row in a fixed order; of DeepEP v2 none (minutes of warm-up noise)."""
    folder = data / "aiconfigurator"
    return [*_vllm_and_trtllm(folder), *_sglang(folder), *_one_sided(folder)]


def _table(path: Path) -> dict[str, NDArray[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}


def _rows(
    system: str, phase: str, variant: Variant, c: dict[str, NDArray[Any]], here: NDArray[np.bool_],
    names: dict[str, str], micros: NDArray[Any], ep: int | None = None, nodes: int = 1,
    *, few_layers: bool = False,
) -> Rows:  # fmt: skip
    dims = {name: c[column][here].astype(np.int64) for name, column in names.items()}
    if ep is not None:
        dims["ep"] = np.full(int(here.sum()), ep, dtype=np.int64)
    dims["nodes"] = np.full(int(here.sum()), nodes, dtype=np.int64)
    held = mixed(dims["hidden"], dims["topk"], dims["experts"], seed=3) % np.uint64(4) == 0
    if nodes > 1 or few_layers:
        held = mixed(dims["tokens"], dims["nodes"], seed=3) % np.uint64(2) == 0
    seconds = micros[here].astype(np.float64) * 1e-6
    return Rows(AIC_DEVICES[system], OpBatch(phase, variant, dims), seconds, held)


def _vllm_and_trtllm(folder: Path) -> list[Rows]:
    c = _table(folder / "moe_a2a.parquet")
    names = {"tokens": "num_tokens", "hidden": "hidden_size", "topk": "topk",
             "experts": "num_experts", "ep": "ep_size", "sms": "sms"}  # fmt: skip
    keys = np.array(
        ["|".join(map(str, row)) for row in zip(
            c["system"], c["backend"], c["version"], c["comm_backend"], c["phase"],
            c["comm_dtype"], strict=True)]
    )  # fmt: skip
    found = []
    for key in np.unique(keys).tolist():
        system, backend, version, kernel, phase, dtype = key.split("|")
        if system not in AIC_DEVICES or "v2" in kernel:
            continue
        name = {"default": "bf16", "fp4": "nvfp4"}.get(dtype, dtype)
        variant = Variant(
            dtype=recipe_for(name).name, library=backend, version=version, kernel=kernel
        )
        found.append(_rows(system, phase, variant, c, keys == key, names, c["latency_us"]))
    return found


def _sglang(folder: Path) -> list[Rows]:
    found = []
    for kind, kernel in (("ll", "deepep_ll"), ("normal", "deepep_normal")):
        c = _table(folder / f"wideep_deepep_{kind}.parquet")
        campaigns = sorted(set(zip(c["system"], c["version"], c["node_num"].tolist(), strict=True)))
        for system, version, nodes in campaigns:
            if system not in AIC_DEVICES:
                continue
            here = (
                (c["system"] == system) & (c["version"] == version) & (c["node_num"] == nodes)
            ).astype(np.bool_)
            for phase in ("dispatch", "combine"):
                names = {"tokens": "num_token", "hidden": "hidden_size", "topk": "num_topk",
                         "experts": "num_experts"}  # fmt: skip
                if kind == "normal":
                    names["sms"] = f"{phase}_sms"
                micros = c[f"{phase}_{'avg_t' if kind == 'll' else 'transmit'}_us"]
                variant = Variant(library="sglang", version=version, kernel=kernel)
                ranks = (4 if system == "gb200" else 8) * nodes
                found.append(_rows(system, phase, variant, c, here, names, micros, ranks, nodes))
    return found


def _one_sided(folder: Path) -> list[Rows]:
    c = _table(folder / "trtllm_alltoall.parquet")
    names = {"tokens": "num_tokens", "hidden": "hidden_size", "topk": "topk",
             "experts": "num_experts", "ep": "moe_ep_size"}  # fmt: skip
    found = []
    for kernel in sorted(set(c["kernel_source"])):
        for dtype in sorted(set(c["moe_dtype"])):
            for phase in ("dispatch", "combine"):
                here = (
                    (c["kernel_source"] == kernel) & (c["moe_dtype"] == dtype)
                    & (c["op_name"] == f"alltoall_{phase}") & (c["system"] == "gb200")
                ).astype(np.bool_)  # fmt: skip
                if here.any():
                    variant = Variant(dtype=recipe_for(dtype).name, library="trtllm", kernel=kernel)
                    found.append(
                        _rows("gb200", phase, variant, c, here, names, c["latency_us"],
                              few_layers=True)
                    )  # fmt: skip
    return found
