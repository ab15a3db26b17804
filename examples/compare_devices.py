"""Which device decodes a model fastest, and on which does it fit?"""

import silicast

DEVICES = ("a100", "h100", "h200", "l40s", "rtx 4090")
MODEL = "Qwen3-14B"

rows = []
for device in DEVICES:
    times = silicast.infer(model=MODEL, device=device, batch=16, input_len=512, output_len=64)
    assert times.decode_step_ms is not None
    fits = not any("does not fit" in warning for warning in times.warnings)
    rows.append((times.decode_step_ms.estimate, device, fits))

for step_ms, device, fits in sorted(rows):
    print(f"{device:10} {step_ms:6.1f} ms a step{'' if fits else '   (does not fit)'}")
