"""Measured runs of language models on a user's own devices, as cases of task inference.

``edge/llamacpp.csv.gz``: a prompt of n tokens ("pp512") is the prefill of a batch of one; n tokens
generated ("tg128") behind so many that are cached are its median decode step. Rows of forks with
other kernels and of publishers' own mixtures are no cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, UNANSWERED, Believed, Case, explained
from lab.scorecard.tables import csv_records
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.workload.models.weight_mix import is_mix

TABLE = "edge/llamacpp.csv.gz"

MODELS: Mapping[str, str] = {
    "gpt-oss 20B": "gpt-oss-20b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss 120B": "gpt-oss-120b",
    "gpt-oss-120b": "gpt-oss-120b",
    "llama 7B": "Llama-2-7B",
    "llama 8B": "Llama-3.1-8B",
    "llama 3.2 3B": "Llama-3.2-3B",
    "llama 3.1 70B": "Llama-3.1-70B",
    "deepseek-r1 distill qwen2 14B": "Qwen2.5-14B",
    "gemma3 4B": "gemma-3-4b",
    "gemma3 12B": "gemma-3-12b",
    "gemma3 27B": "gemma-3-27b",
    "qwen2 7B": "Qwen2.5-7B",
    "qwen2.5 1.5B": "Qwen2.5-1.5B",
    "qwen3moe 30B.A3B": "Qwen3-30B-A3B",
    "qwen35moe 35B.A3B": "Qwen3.5-35B-A3B",
    "deepseek2 16B": "DeepSeek-V2-Lite",
    "Qwen3.5-0.8B": "Qwen3.5-0.8B",
    "Qwen3.5-2B": "Qwen3.5-2B",
    "Qwen3.5-4B": "Qwen3.5-4B",
    "Qwen3.5-9B": "Qwen3.5-9B",
    "Qwen3.6-35B-A3B": "Qwen3.6-35B-A3B",
    "Qwen3.5-122B-A10B": "Qwen3.5-122B-A10B",
    "gemma-4-26B-A4B": "gemma-4-26b-a4b",
    "gemma-4-31B": "gemma-4-31b",
    "Qwen3.6-27B": "Qwen3.5-27B",
    "Qwen3-Coder-Next": "Qwen3-Next-80B-A3B",
    "Qwen/Qwen3-4B-Instruct-2507": "Qwen3-4B",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B",
}
"""As the table writes them -> of the catalog."""
BACKENDS: Mapping[str, str] = {
    "CUDA": "cuda",
    "ROCm": "rocm",
    "Vulkan": "vulkan",
    "Metal": "metal",
    "MTL,BLAS": "metal",
    "CPU": "cpu",
    "Metal (MLX)": "mlx",
}
USUAL_BACKEND: Mapping[str, str] = {"NVIDIA": "cuda", "AMD": "rocm", "Apple": "metal"}
"""Of rows that state none: what builds for such a device take."""
GPU = "GPU (CUDA, ROCm, Vulkan or Metal)"
ENGINES: Sequence[str] = (
    "llama.cpp",
    "llama.cpp or Ollama (see the linked issue)",
    "mlx-lm 0.28.2 / mlx 0.29.2.dev20251008",
)
_DEVICE = re.compile(r"^(?:NVIDIA )?(?:GeForce |Tesla )?(.*?)(?: \(.*\)| PCIe 16GB| 512GB)?$")
_SPELT: Mapping[str, str] = {
    "NVIDIA GeForce RTX 4070 Laptop (8 GB)": "RTX 4070 Laptop",
    "NVIDIA Tesla V100 PCIe 16GB": "V100-PCIE-16GB",
    "Apple M1 Max 10 core - 64GB": "M1 Max",
    "Apple M4 10 core - 32GB": "M4",
    "AMD Radeon Pro W7700": "Radeon PRO W7700",
}
_CORE = {
    "name": "gpu_core",
    "pipes": {
        "fma": {"fp32": 256, "fp16": 256, "bf16": 256},
        "xu": {"fp32": 32},
        "alu": {"int32": 128},
    },
}


def _with_cores(base: str, cores: int, **fields: Any) -> dict[str, Any]:
    """A chip with fewer cores than the catalog's of that name."""
    name = f"{base} with {cores} cores"
    children = [{**_CORE, "count": cores}]
    compute = {"name": "die", "count": 1, "children": children}
    return {"base": base, "name": name, "compute": compute, **fields}


CHANGED: Mapping[str, Mapping[str, Any]] = {
    "Apple M1 Ultra 48 GPU Core 64GB": _with_cores("M1 Ultra", 48),
    "Apple M4 Max (36 GB)": _with_cores(
        "M4 Max", 32, memory={"dram": {"bandwidth_gb_per_s": 410, "capacity_gb": 36}}
    ),
}
"""Chips as the row describes them, or as the maker sells them with that memory."""
DIFFERENT_SIZE = 0.03
"""From which on a file under the same name is another mixture."""
ALL_LAYERS = 99
"""Of "-ngl", from which on all layers are meant."""
UNSTATED = 1.3
"""How many times as fast one row may be as another that states the same."""
SMALL_HOSTS = ("Pi ", "Radxa", "HiFive", "Minisforum MS-R1", "System76 Thelio Astra")
"""Hosts that are no PCs: what drivers of AMD and Intel reach there is another matter."""
FORK = "ik_llama.cpp or llama.cpp"
FORK_SOURCE = "ik_llama.cpp/discussions/562"
"""Rows of a fork whose products on GPUs are those of its origin; they help to fit, and are not
scored: prompts behind many cached tokens."""
MLX_MIX = re.compile(r"^mlx q(\d)( g32)?$")
GIB = float(1 << 30)


@cache
def device_of(name: str) -> Device | None:
    """The device of the catalog; None = it has none."""
    if name in CHANGED:
        from silicast.hardware.catalog import device_from

        return device_from(dict(CHANGED[name]))
    try:
        match = _DEVICE.match(name)
        return find_device(_SPELT.get(name, match.group(1) if match else name))
    except SilicastError:
        return None


def cases(data: Path) -> list[Case]:
    """Rows that a scenario describes.

    Of rows of one source that differ in nothing that they state, those are left out that are much
    slower than the fastest: the source compares drivers and settings that it does not name.
    """
    rows = [(row, case) for row in csv_records(data / TABLE) if (case := _case(row)) is not None]
    best: dict[tuple[str, ...], float] = {}
    for row, _ in rows:
        best[_setting(row)] = max(best.get(_setting(row), 0.0), float(row["tokens_per_s"]))
    return [
        case for row, case in rows if float(row["tokens_per_s"]) * UNSTATED >= best[_setting(row)]
    ]


def _setting(row: Mapping[str, Any]) -> tuple[str, ...]:
    """All that a row states."""
    source = str(row["source"]).partition(":")[0]
    names = ("device", "backend", "model", "quant", "test", "depth", "n_ubatch", "other")
    return source, *(str(row[name]) for name in names)


def _case(row: Mapping[str, Any]) -> Case | None:
    device, model = device_of(str(row["device"])), MODELS.get(str(row["model"]))
    mix = _mix(row)
    backend = _backend(row, device)
    if device is None or model is None or not mix or not backend or not _is_scored(row):
        return None
    kind, tokens = _test(str(row["test"]))
    if not kind:
        return None
    spec: Any = CHANGED.get(str(row["device"]), device.name)
    depth = int(float(row["depth"] or 0))
    fork = row["engine"] == FORK
    if (kind == "pp" and depth > 0) != fork or (fork and _offloaded(row)):
        return None
    workload = {"batch": 1, "input_len": max(depth, 1), "output_len": tokens + 1}
    if kind == "pp":
        workload = {"batch": 1, "input_len": depth + tokens, "output_len": 1}
    engine: dict[str, Any] = {"name": "mlx"}
    if backend != "mlx":
        engine = {"name": "llama.cpp", "options": {"backend": backend}}
        if row["n_ubatch"]:
            engine["options"]["n_ubatch"] = int(float(row["n_ubatch"]))
        engine["options"] |= _offloaded(row)
    seconds = (tokens if kind == "pp" else 1) / float(row["tokens_per_s"])
    metric = "prefill_ms" if kind == "pp" else "decode_step_ms"
    measured = {metric: seconds * 1e3}
    if row["size_gib"] and not fork:
        measured["weights_gb"] = float(row["size_gib"]) * GIB / 1e9
    scenario = {
        "format": 1,
        "task": "inference",
        "device": spec,
        "model": model,
        "engine": engine,
        "precision": {"weights": mix},
        "workload": workload,
    }
    labels = {"device": device.name, "backend": backend, "format": mix, "model": model}
    arm = _host(row).startswith(SMALL_HOSTS) and device.vendor != "NVIDIA"
    labels["host"] = "arm" if arm else "usual"
    labels["kernels"] = "fork" if row["engine"] == FORK else "own"
    labels["half"] = half_of(backend, device.name, model)
    labels["layers"] = "partly on the CPU" if _offloaded(row) else "on the device"
    return Case(scenario, measured, labels, detail=depth)


def _offloaded(row: Mapping[str, Any]) -> dict[str, int]:
    """Options of a run that left layers, or experts of layers, to the CPU."""
    options = {}
    layers, experts = str(row["ngl"] or ""), re.search(r"offload=(\d+)", str(row["other"]))
    if layers.isdigit() and int(layers) < ALL_LAYERS:
        options["n_gpu_layers"] = int(layers)
    if experts:
        options["n_cpu_moe"] = int(experts.group(1))
    return options


def _is_scored(row: Mapping[str, Any]) -> bool:
    """Whether it ran with kernels that are modelled."""
    flag = str(row["flag"] or "")
    return (
        (row["engine"] in ENGINES or FORK_SOURCE in str(row["source"]))
        and (not flag or flag.startswith("MLX"))
        and not str(row["type_k"] or "").startswith("turbo")
    )


def _mix(row: Mapping[str, Any]) -> str:
    quant = str(row["quant"] or "").replace("MXFP4 or Q4_K_M", "MXFP4")
    if match := MLX_MIX.match(quant):
        return f"{match.group(1)}bit{'-g32' if match.group(2) else ''}"
    quant = "bf16" if quant == "mlx bf16" else quant
    return quant if is_mix(quant) else ""


def _backend(row: Mapping[str, Any], device: Device | None) -> str:
    backend = str(row["backend"] or "")
    if backend == GPU and device is not None:
        return USUAL_BACKEND.get(device.vendor, "")
    return BACKENDS.get(backend, "")


def _host(row: Mapping[str, Any]) -> str:
    match = re.search(r"host=([^;]*)", str(row["other"]))
    return match.group(1) if match else ""


def _test(name: str) -> tuple[str, int]:
    """pp or tg, and how many tokens; "tg" alone generates 128."""
    match = re.fullmatch(r"(pp|tg)(\d*)", name)
    return (match.group(1), int(match.group(2) or 128)) if match else ("", 0)


FITTED: Mapping[str, Sequence[str]] = {
    "cuda": (
        "RTX 2080 Ti",
        "RTX 3080 Ti",
        "RTX 4070",
        "RTX 4070 Ti",
        "RTX 4080",
        "RTX 4090",
        "RTX 5070 Ti",
        "RTX 5090",
        "RTX A4000",
    ),
    "metal": ("M1 Max", "M1 Ultra with 48 cores", "M2 Ultra", "M4"),
    "vulkan": (
        "Arc B580",
        "RTX 2080 Ti",
        "RTX 3080 Ti",
        "RTX 4090",
        "RTX 5090",
        "RX 7600",
        "RX 7900 XTX",
        "Radeon AI PRO R9700",
    ),
}
"""The devices of each back end on which constants are fitted: every other one in alphabetical order
(RTX 5090 on Vulkan has rows of a fork alone); of MLX there is one device, and its dense model is
fitted. With one row on each device ROCm has too few: nothing is fitted."""


def half_of(backend: str, device: str, model: str) -> str:
    """On which half a row lies."""
    fitted = model == "Qwen3-4B" if backend == "mlx" else device in FITTED.get(backend, ())
    return "fitted" if fitted else "held out"


def answered(case: Case) -> dict[str, Believed]:
    """The public answer, and the weights of its memory."""
    result, why = explained(case)
    if result:
        memory = why["memory_gb"]
        weights = memory["weights"] + memory.get("host_weights", 0.0)
        result["weights_gb"] = (weights, weights, weights, NAN)
    return result


def other_mixture(case: Case, answer: Mapping[str, Believed]) -> bool:
    """Whether the file's size shows another mixture than its name."""
    measured = case.measured.get("weights_gb")
    estimate = answer.get("weights_gb", UNANSWERED)[0]
    return measured is not None and abs(estimate / measured - 1.0) > DIFFERENT_SIZE


def settled(data: Path) -> Iterator[Case]:
    """Cases whose file holds the mixture of its name."""
    best: dict[tuple[str, str], float] = {}
    for case in cases(data):
        key = case.labels["model"], case.labels["format"]
        if key not in best:
            best[key] = answered(case).get("weights_gb", UNANSWERED)[0]
        measured = case.measured.get("weights_gb")
        if measured is None or abs(best[key] / measured - 1.0) <= DIFFERENT_SIZE:
            yield case
