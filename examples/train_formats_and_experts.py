"""T4: a dense model in bf16 and fp8, and experts that are equally popular and that are not."""

from typing import Any

import silicast

DENSE: dict[str, Any] = {
    "task": "training", "device": "H100", "model": "Llama-3-8B", "cluster": {"gpus": 8},
    "workload": {"seq_len": 8192, "micro_batch": 1, "global_batch": 128},
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **DENSE, "model": "Mixtral-8x7B", "cluster": {"gpus": 16}, "parallel": {"ep": 8},
    "workload": {"seq_len": 4096, "micro_batch": 1, "global_batch": 256, "recompute": "full"},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "bf16": DENSE,
    "fp8": {**DENSE, "precision": {"recipe": "fp8"}},
    "balanced experts": EXPERTS,
    "skewed experts": {**EXPERTS, "workload": {**EXPERTS["workload"], "routing": "power_law_1.2"}},
}
for name, case in CASES.items():
    metrics = silicast.predict(case).answer.metrics
    print(f"{name:17} {metrics['tokens_per_s_per_gpu'].estimate:7,.0f} tokens/s a device")
