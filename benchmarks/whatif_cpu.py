"""A trace of this machine's CPU as a prediction of other batch sizes.

    python -m benchmarks.whatif_cpu

Traces a text encoder and a convolutional network in PyTorch at one batch size, has
`silicast whatif --batch` say what others take, and times these: passes of all sizes in turn, the
least CPU time of each on one thread, so that other programs of the machine do not count. What the
trace leaves between operators stays. The device is `measurements/epyc-7003-vm.device.toml` with one
core; nothing is fitted. Writes benchmarks/results/whatif_cpu.json. A minute.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from lab import fitting
from silicast.measurement.what_if.scaled_trace import scaled_trace

OUT = Path(__file__).parent / "results" / "whatif_cpu.json"
DEVICE = Path(__file__).parents[1] / "measurements" / "epyc-7003-vm.device.toml"
TRACED, OTHERS, ROUNDS = 4, (1, 2, 8, 16), 8


def networks() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """By name: a module, and the shape of one input."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    layer = torch.nn.TransformerEncoderLayer(
        384, 6, 1536, dropout=0.0, activation="gelu", batch_first=True
    )
    encoder = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    widths = (3, 32, 64, 128)
    blocks = [
        module
        for inner, outer in itertools.pairwise(widths)
        for module in (torch.nn.Conv2d(inner, outer, 3, stride=2, padding=1), torch.nn.ReLU())
    ]
    return {
        "text encoder": (encoder, (128, 384)),
        "convolutions": (torch.nn.Sequential(*blocks).eval(), (3, 128, 128)),
    }


def main() -> None:
    """Prints and writes each size and the mean error."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        device = Path(folder) / "one-core.device.toml"
        device.write_text(DEVICE.read_text().replace("count = 2", "count = 1"))
        for name, (module, shape) in networks().items():
            rows += scored(name, module, shape, device)
    errors = [abs(row["predicted_ms"] / row["measured_ms"] - 1.0) for row in rows]
    table = {"traced_batch": TRACED, "rows": rows, "mean_error_pct": 100.0 * fmean(errors)}
    print(f"mean error {table['mean_error_pct']:.1f} %, worst {100 * max(errors):.1f} %")
    fitting.write(OUT, table)


def scored(name: str, module: Any, shape: tuple[int, ...], device: Path) -> list[dict[str, Any]]:
    """Predicted and measured passes of one network at all sizes but the traced one."""
    import torch

    sizes = (TRACED, *OTHERS)
    inputs = {size: torch.randn(size, *shape) for size in sizes}
    trace = device.with_name("trace.json")
    least: dict[int, float] = {}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for size in sizes:
                least[size] = min(least.get(size, 1e9), passed(module, inputs[size]))
        profiled = traced(module, inputs[TRACED], trace)
    rows = []
    for size in OTHERS:
        result = scaled_trace(trace, str(device), str(device), batch=f"{TRACED}:{size}")
        between_us = max(1e6 * profiled - result.measured_us, 0.0)
        # the trace's slower pass over the least one, alike at all sizes
        quiet = least[TRACED] / profiled
        rows.append(
            {
                "network": name,
                "batch": size,
                "measured_ms": round(1e3 * least[size], 3),
                "predicted_ms": round(1e-3 * quiet * (result.scaled_us.estimate + between_us), 3),
                "unscaled_share": round(result.unscaled_share, 4),
            }
        )
        print(rows[-1])
    return rows


def passed(module: Any, inputs: Any) -> float:
    """Seconds of its thread that one pass takes."""
    start = time.thread_time()
    module(inputs)
    return time.thread_time() - start


def traced(module: Any, inputs: Any, path: Path) -> float:
    """Seconds of the quickest of some profiled passes, whose trace is written."""
    from torch.profiler import ProfilerActivity, profile

    least = float("inf")
    for _ in range(ROUNDS):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            start = time.perf_counter()
            module(inputs)
            seconds = time.perf_counter() - start
        if seconds < least:
            least = seconds
            profiler.export_chrome_trace(str(path))
    return least


if __name__ == "__main__":
    main()
