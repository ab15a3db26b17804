"""T2: Llama-2-13B on 8 H100: tensor parallel over all of them, or over half with two copies."""

import silicast

for parallel in ({"tp": 8}, {"tp": 4, "dp": 2}):
    answer = silicast.predict(
        {
            "task": "training", "device": "H100", "model": "Llama-2-13B",
            "cluster": {"gpus": 8}, "parallel": parallel,
            "workload": {"seq_len": 4096, "micro_batch": 1, "global_batch": 64},
        }
    ).answer  # fmt: skip
    print(parallel, f"{answer.metrics['tokens_per_s_per_gpu'].estimate:,.0f} tokens/s a device")
