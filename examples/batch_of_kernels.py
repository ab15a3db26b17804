"""From which batch size on is a projection bound by arithmetic instead of memory?"""

import silicast

for tokens in (1, 16, 64, 256, 1024, 4096):
    gemm = {"op": "gemm", "m": tokens, "n": 8192, "k": 8192, "dtype": "bf16", "cache": "cold"}
    answer = silicast.predict(task="kernel", device="h100", workload={"kernel": gemm})
    latency = answer["latency_us"]
    reached = answer.why["of_bound"]
    print(
        f"{tokens:5} tokens {latency.estimate:7.1f} us, bound by {answer.why['bound_by']:6} "
        f"({reached:.0%} of the limit)"
    )
