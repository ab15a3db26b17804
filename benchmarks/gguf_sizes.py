"""Sizes of GGUF files from a model's configuration and the name of the format alone.

    python -m benchmarks.gguf_sizes            writes benchmarks/results/gguf_sizes.json

``edge/llamacpp.csv.gz``: each (model, format, size) once, of models of the catalog and formats of
llama.cpp. Files are apart by who made them, as the table states it: by llama.cpp's own rules, in
one format throughout ("Q8_0"), or by publishers who choose the format of each tensor themselves and
keep the name; by a fork, which has other rules and counts a shared table twice; and of another
network than the model of that name (more parameters stated: a head of its own). Nothing is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.scorecard.local_runs import GIB, MODELS
from lab.scorecard.suite import data_folder
from lab.scorecard.tables import csv_records
from silicast.core.files import write_atomically
from silicast.workload.models.counting import parameters, weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.models.weight_mix import is_mix, scheme_named, with_mix
from silicast.workload.transformers.plan import Plan

RESULT = Path(__file__).with_name("results") / "gguf_sizes.json"
TABLE = "edge/llamacpp.csv.gz"
MORE_MODELS: Mapping[str, str] = {
    "llama 1B": "Llama-3.2-1B",
    "llama 3B": "Llama-3.2-3B",
    "phi3 3B": "Phi-3-mini",
    "qwen2 ?B": "Qwen2.5-32B",
    "qwen3moe 30B": "Qwen3-30B-A3B",
    "qwen3moe ?B": "Qwen3-235B-A22B",
    "deepseek2 671B": "DeepSeek-R1",
    "GLM-4.7-Flash": "GLM-4.7-Flash",
    "deepseek2 30B.A3B": "GLM-4.7-Flash",
}
"""Of which no run is scored."""
PLAIN = ("FP32", "FP16", "BF16", "Q8_0", "MXFP4_MOE")
"""Mixes in which no tensor has more bits for its place."""
MIXING = ("provider=bartowski", "provider=unsloth")
OTHER_NETWORK = 0.02
"""Of parameters, from which on they are another network's."""


@dataclass(frozen=True)
class SizedFile:
    """One file of the table.

    Attributes:
        made: "by llama.cpp's rules", "by a publisher", "by a fork" or "of another network".
        error_pct: predicted over stated, less one.
    """

    model: str
    mix: str
    made: str
    stated_gib: float
    predicted_gib: float
    error_pct: float


def size_gib(model: str, mix: str) -> float:
    """Of all weights of a file, norms and routers included."""
    mixed = with_mix(find_model(model), "gguf", mix)
    return weight_bytes(mixed, Plan(), mixed.default_precision) / GIB


def made(row: Mapping[str, Any], model: str, mix: str) -> str:
    """Who chose the formats of the tensors."""
    parameters_stated = float(row["params_b"] or 0) * 1e9
    held = parameters(find_model(model), mtp=False) - find_model(model).encoder_parameters
    if parameters_stated and abs(parameters_stated / held - 1.0) > OTHER_NETWORK:
        return "of another network"
    if mix not in PLAIN and any(each in str(row["other"]) for each in MIXING):
        return "by a publisher"
    if str(row["engine"]).startswith("ik_llama"):
        return "by a fork"
    return "by llama.cpp's rules"


def files(data: Path) -> list[SizedFile]:
    """All files, each once."""
    sized: dict[tuple[str, str, float, str], SizedFile] = {}
    for row in csv_records(data / TABLE):
        model = {**MODELS, **MORE_MODELS}.get(str(row["model"]))
        if model is None or not row["size_gib"] or not is_mix(str(row["quant"])):
            continue
        if row["backend"] == "Metal (MLX)":
            continue
        mix, file_gib = scheme_named("gguf").mix_name(str(row["quant"])), float(row["size_gib"])
        by = made(row, model, mix)
        predicted = size_gib(model, mix)
        sized[model, mix, file_gib, by] = SizedFile(
            model,
            mix,
            by,
            file_gib,
            round(predicted, 3),
            round(100 * (predicted / file_gib - 1), 2),
        )
    return [sized[each] for each in sorted(sized)]


def main() -> None:
    every = files(data_folder())
    groups: dict[str, Any] = {}
    for by in sorted({each.made for each in every}):
        errors = [abs(each.error_pct) for each in every if each.made == by]
        groups[by] = {"files": len(errors), "within_1_pct": sum(each <= 1.0 for each in errors)}
    result = {"groups": groups, "files": [asdict(each) for each in every]}
    write_atomically(RESULT, (json.dumps(result, indent=1) + "\n").encode())
    for each in every:
        off = f"{each.stated_gib:9.2f} {each.error_pct:+6.2f} %"
        print(f"{each.made:22}{each.model:24}{each.mix:10}{off}")
    for by, figures in groups.items():
        print(f"{by}: {figures['within_1_pct']} of {figures['files']} within 1 %")


if __name__ == "__main__":
    main()
