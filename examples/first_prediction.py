"""How long does a batch of requests take, and how sure is the answer?"""

import silicast

times = silicast.infer(model="Llama-3.1-8B", device="h100", batch=8, input_len=1024, output_len=128)

for name in ("prefill_ms", "decode_step_ms", "total_ms", "memory_gb"):
    belief = getattr(times, name)
    print(f"{name:15} {belief.estimate:8.1f}   90 %: {belief.p05:.1f} to {belief.p95:.1f}")
