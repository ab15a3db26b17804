"""T3: GPT-3 175B on 64 A100, 8 x 8 tensor and pipeline ranks, under several schedules."""

import silicast

for schedule in ("gpipe", "1f1b", "interleaved", "zb_h1"):
    chunks = {"virtual_stages": 3} if schedule == "interleaved" else {}
    answer = silicast.predict(
        {
            "task": "training", "device": "A100", "model": "GPT-3 175B",
            "cluster": {"gpus": 64},
            "parallel": {"tp": 8, "pp": 8, "schedule": schedule, **chunks},
            "workload": {
                "seq_len": 2048, "micro_batch": 1, "global_batch": 64, "recompute": "selective",
            },
        }
    ).answer  # fmt: skip
    step, bubble = answer.metrics["step_time_s"].estimate, answer.why["pipeline_bubble"]
    print(f"{schedule:12} {step:5.1f} s, {bubble:4.0%} bubble")
