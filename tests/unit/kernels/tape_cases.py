"""Kernels whose formulas are traced into tapes, and settings that they are tested in.

With a core its loops are tested, on many rows; without one the file that it is made from, on few.
"""

from __future__ import annotations

from typing import Any

from silicast.core import compiled_core
from silicast.kernels.registry import families
from tests.sampling import FULL

COMPILED = compiled_core.runs()
ROWS = (100_000 if FULL else 2_000) if COMPILED else 5
ALONE = 100 if COMPILED else 3
ORDINARY = frozenset(
    ("combine", "conv2d", "dispatch", "gdn", "gru", "kda", "lstm", "mamba2", "quantized_moe", "rnn")
)
"""Families that cannot be traced: they are answered by their formulas."""
TRACED = sorted(set(families()) - ORDINARY)
SETTINGS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("gemm", "A100", "bf16", {}),
    ("gemm", "H100", "fp8", {"flags": (("includes_quantize", True),)}),
    ("gemm", "H100", "bf16", {"launch": "stream", "cache": "cold"}),
    ("gemm", "B200", "nvfp4", {}),
    ("gemm", "L4", "int8", {}),
    ("gemm", "MI300X", "bf16", {}),
    ("gemm", "RTX 4090", "fp16", {"library": "torch"}),
    ("attention_decode", "A100", "bf16", {"kv_dtype": "fp8"}),
    ("attention_prefill", "B200", "bf16", {"library": "trtllm"}),
    ("rmsnorm", "A100", "bf16", {}),
    ("moe", "A100", "bf16", {}),
    ("moe", "B200", "nvfp4", {"library": "trtllm", "flags": (("gated", True), ("uniform", True))}),
    ("moe", "H100", "fp8_block", {"library": "sglang", "flags": (("power_law_1.2_eplb", True),)}),
    ("csa_module", "L40S", "fp32", {"library": "vllm"}),
)
