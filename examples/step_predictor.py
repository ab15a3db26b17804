"""What the next step of an engine takes, as a simulator of the engine asks for it."""

import tempfile
from pathlib import Path

import numpy as np

import silicast
from silicast.composition.simulators.dynamo import write_perf_data
from silicast.composition.simulators.infer_time import InferTimePredictor
from silicast.composition.simulators.llm_d import settings

step = silicast.step_predictor(
    model="Llama-3.1-8B", device="h100", engine="sglang", parallel={"tp": 1}, load=False
)

# Each sequence is (extend, past): new tokens of this step, tokens that are cached.
print(f"a prompt of 2,048 tokens      {step([(2048, 0)]) * 1e3:6.1f} ms")
print(f"32 sequences decode           {step([(1, 1000)] * 32) * 1e3:6.1f} ms")
print(f"the same beside a chunk       {step([(512, 1536)] + [(1, 1000)] * 32) * 1e3:6.1f} ms")

adapter = InferTimePredictor(step)  # SGLang's simulator
print(f"asked for by the adapter      {adapter.predict_infer_time([(2048, 0)]) * 1e3:6.1f} ms")

with tempfile.TemporaryDirectory() as folder:  # Dynamo's mocker: --planner-profile-data
    path = write_perf_data(step, Path(folder) / "perf_data.npz", resolution=5)
    with np.load(path) as table:
        print("perf_data.npz                ", ", ".join(sorted(table)))

for name, value in settings(step).items():  # llm-d's inference simulator
    print(f"{name:29} {value:6.3g}")
