"""Training steps of one to thousands of devices, as published by those who ran them.

Truth is the time of a step, as printed or as the printed tokens a second mean. Of configurations
that were published more than once the newest release counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Case, Metric, RunsScore
from lab.scorecard.suite import Suite
from lab.scorecard.tables import csv_records, read_records
from silicast.core.decode import read_toml

TABLE = "training/training_measured.parquet"
PEER = "training/peer_calculon_scored.csv"
RECIPES_FILE = Path(__file__).parents[1] / "bridge_recipes.toml"
_NODE = 8
_RECIPES = {
    "fp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-ds": "fp8",
    "fp8-sc": "fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
_UNSTATED = ("NVIDIA/Megatron-LM (Megatron-Core r0.8 README", "Llama 3 herd")
"""Sources whose rows lack the micro-batch: reported apart, with one sequence assumed."""
_SOURCES = {
    "mosaicml/llm-foundry": "MosaicML",
    "NVIDIA-NeMo/Megatron-Bridge": "Megatron-Bridge",
    "NVIDIA/Megatron-LM (SC21, arXiv 2104.04473 Table 1)": "SC21",
    "NVIDIA/Megatron-LM README": "SC21",
    "NVIDIA/Megatron-LM (Megatron-Core r0.8 README)": "Megatron-Core",
    "Korthikanti et al. 2022 (arXiv 2205.05198 Table 5)": "Korthikanti",
    "MT-NLG 530B (arXiv 2201.11990 s2.4)": "MT-NLG",
    "Llama 3 herd (arXiv 2407.21783 Table 4)": "Llama 3",
    "MooreThreads/SimuMax B200 release v1.2": "SimuMax",
}
_ENGINES = {"MosaicML": "fsdp", "Megatron-Bridge": "megatron-bridge"}
ATTENTION = "triton"
"""Of MosaicML's configurations of 2023, whose loss is FlashAttention's fused one (from memory)."""
_OLD = ("SC21", "Korthikanti", "MT-NLG")
"""Before fused attention, with the dropouts of Megatron-LM's defaults (0.1), whose masks
Korthikanti et al. count.
"""


def cases(data: Path) -> list[Case]:
    """One case a configuration, sorted by its name."""
    table: dict[str, list[Mapping[str, Any]]] = {}
    for row in read_records(data / TABLE):
        table.setdefault(row["config_id"], []).append(row)
    newest = _newest([rows[0] for rows in table.values()])
    calculon = {row["config_id"]: row for row in csv_records(data / PEER)}
    return [
        case
        for name in sorted(newest)
        if (case := _case(table[name], calculon.get(name))) is not None
    ]


def _newest(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The newest release of each configuration."""
    row_by_key: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    fields = (
        "source", "task", "model", "layers", "seq", "gpu", "n_gpus", "dp", "tp", "pp", "vp", "cp",
        "ep", "etp", "sp", "zero", "micro_batch", "global_batch", "precision", "recompute",
    )  # fmt: skip
    for row in rows:
        key = tuple(_as_usual(row, name) for name in fields)
        if row["source"] != "NVIDIA-NeMo/Megatron-Bridge":
            key = (*key, row["config_id"])
        if key not in row_by_key or _release(row) > _release(row_by_key[key]):
            row_by_key[key] = row
    return {row["config_id"] for row in row_by_key.values()}


def _as_usual(row: Mapping[str, Any], name: str) -> Any:
    """A field of a row: a degree that one release's table leaves out and another states as 1, and
    one name of a format that two tables print differently (MXFP8, FP8-MX).
    """
    value = row[name]
    if name == "precision" and row["precision_family"] == "mxfp8":
        return "MXFP8"
    stages = name == "vp" and (row["pp"] or 1) == 1
    return 1 if stages or (name in ("cp", "ep", "etp") and value is None) else value


def _release(row: Mapping[str, Any]) -> str:
    _, _, text = row["source_ref"].partition("[")
    return str(text).partition(" ")[0]


def step_s(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Time of a step that the metrics of a configuration mean; None = they do not say."""
    value_by_metric = {row["metric"]: row["value"] for row in rows if not row["is_prediction"]}
    row = rows[0]
    for name in ("step_time", "step_time_derived"):
        if name in value_by_metric:
            return float(value_by_metric[name])
    tokens = (row["global_batch"] or 0) * (row["seq"] or 0)
    if tokens and "tokens_per_s" in value_by_metric:
        return float(tokens / value_by_metric["tokens_per_s"])
    if tokens and "tokens_per_s_per_gpu" in value_by_metric:
        return float(tokens / value_by_metric["tokens_per_s_per_gpu"] / row["n_gpus"])
    return None


def _case(rows: Sequence[Mapping[str, Any]], calculon: Mapping[str, Any] | None) -> Case | None:
    row, measured = rows[0], step_s(rows)
    source = _SOURCES.get(row["source"])
    if measured is None or source is None or not row["dp"] or not row["global_batch"]:
        return None
    single = source == "MosaicML" and row["n_gpus"] == _NODE
    micro = int(row["micro_batch"] or 1)
    peers = {"Calculon": NAN, "SimuMax": NAN}
    if calculon is not None and calculon.get("pred_s"):
        peers["Calculon"] = float(calculon["pred_s"])
    simumax = [r["value"] for r in rows if r["metric"].startswith("peer_pred_step")]
    if simumax:
        peers["SimuMax"] = float(simumax[0])
    return Case(
        scenario=_as_recipe(row, scenario_of(row, source, micro)),
        measured={"step_time_s": measured},
        labels={
            "source": source,
            "device": row["gpu"],
            "model": "experts" if row["n_experts"] or (row["ep"] and row["ep"] > 1) else "dense",
            "split": "fitted" if single else "context" if (row["cp"] or 1) > 1 else "scored",
            "gpus": _band(int(row["n_gpus"])),
            "format": row["precision_family"],
            "recompute": row["recompute"] or "not stated",
            "release": _release(row) or "not stated",
            "name": row["config_id"],
        },
        peers={"step_time_s": peers},
    )


def scenario_of(row: Mapping[str, Any], source: str, micro: int) -> dict[str, Any]:
    """A row as a scenario."""
    degrees = {
        "tp": row["tp"],
        "pp": row["pp"],
        "cp": row["cp"],
        "dp": row["dp"],
        "ep": row["ep"],
        "etp": row["etp"],
        "virtual_stages": row["vp"],
        "zero": row["zero"],
    }
    parallel: dict[str, Any] = {k: int(v) for k, v in degrees.items() if v is not None}
    if row["sp"] is not None or source in _OLD:
        parallel["sp"] = bool(row["sp"])
    work: dict[str, Any] = {
        "seq_len": int(row["seq"]),
        "micro_batch": micro,
        "global_batch": int(row["global_batch"]),
        "optimizer": "decoupled_adamw" if source == "MosaicML" else "adam",
    }
    recompute = {"selective-attn": "selective"}.get(row["recompute"], row["recompute"])
    if recompute in ("none", "selective", "full") or (recompute or "").startswith("selective:"):
        work["recompute"] = recompute
    if row["overlap"] == "none":
        work["overlap"] = False
    elif "tp-comm" in (row["overlap"] or ""):
        work["overlap"] = {"tensor": True}
    elif (row["overlap"] or "").startswith("EP overlap on"):
        work["overlap"] = {"experts": True}
    if row["task"] != "pretrain":
        work["task"] = row["task"]
    engine: dict[str, Any] = {"name": _ENGINES.get(source, "megatron")}
    if source in _OLD:
        engine["options"] = {"attention": "math", "dropout": True}
    if source == "MosaicML":
        engine["options"] = {"attention_library": ATTENTION, "fused_loss": True}
    precision: dict[str, Any] = {"weights": "fp16" if row["precision_family"] == "fp16" else "bf16"}
    recipe = _RECIPES.get(row["precision"].lower()) or _RECIPES.get(row["precision_family"])
    if recipe is not None:
        precision = {"recipe": recipe}
    scenario = {
        "task": "training",
        "device": row["gpu"],
        "model": row["model"],
        "engine": engine,
        "precision": precision,
        "parallel": parallel,
        "workload": work,
        "cluster": {"gpus": int(row["n_gpus"])},
    }
    changed = {"gpt-1.7b": ("layers", "hidden", "ffn", "heads", "vocab")}
    if row["model"] in changed and row["vocab"] != 51200:
        scenario["model"] = {
            "base": "gpt-1.7b",
            "hidden_size": int(row["hidden"]),
            "num_attention_heads": int(row["heads"]),
            "intermediate_size": int(row["ffn"]),
            "vocab_size": int(row["vocab"]),
            "num_hidden_layers": int(row["layers"]),
        }
    if row["task"] == "lora":
        scenario["lora"] = {"rank": 16}
    return scenario


@cache
def recipes() -> dict[str, Any]:
    """What recipes state beyond the tables, by release, device, model and format."""
    return read_toml(RECIPES_FILE)


def _as_recipe(row: Mapping[str, Any], scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario of a row with what its recipe states."""
    name = " ".join((_release(row), row["gpu"], row["model"], row["precision_family"]))
    recipe = recipes().get(name)
    if recipe is None:
        return scenario
    engine = scenario["engine"]
    options = {**engine.get("options", {}), **recipe["options"]}
    workload = {**scenario["workload"], **recipe["workload"]}
    return {**scenario, "engine": {**engine, "options": options}, "workload": workload}


def _band(gpus: int) -> str:
    for most in (8, 64, 512):
        if gpus <= most:
            return f"up to {most}"
    return "more than 512"


SCORE = RunsScore(
    cases,
    [
        Metric(f"{name}_step_time_s", "step_time_s", where)
        for name, where in {
            "dense": {"model": "dense", "split": "scored"},
            "experts": {"model": "experts", "split": "scored"},
            "context": {"split": "context"},
        }.items()
    ],
    hidden=("model", "split", "name"),
)
SUITES = (Suite("training", (TABLE, PEER), SCORE),)
