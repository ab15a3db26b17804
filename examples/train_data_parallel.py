"""T1: GPT-2 on 8 A100, data parallel: the step, and what of the sums of gradients is exposed."""

import silicast

answer = silicast.predict(
    {
        "task": "training", "device": "A100", "model": "gpt2-medium", "engine": "fsdp",
        "precision": {"weights": "fp16"}, "cluster": {"gpus": 8}, "parallel": {"dp": 8, "zero": 1},
        "workload": {"seq_len": 1024, "micro_batch": 8, "global_batch": 64},
    }
).answer  # fmt: skip
step = answer.metrics["step_time_s"]
print(f"step {step.estimate * 1e3:.0f} ms ({step.p05 * 1e3:.0f} to {step.p95 * 1e3:.0f})")
print(f"MFU {answer.metrics['mfu'].estimate:.2f}, {answer.metrics['memory_gb'].estimate:.1f} GB")
