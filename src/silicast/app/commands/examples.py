"""`silicast examples`."""

from __future__ import annotations

from silicast.app import status
from silicast.app.console import show

QUESTIONS = (
    ("Does it fit, and how quick is it?", "infer --model Llama-3.1-8B --device h100 --batch 8"),
    (
        "Which GPU costs least for that?",
        "compare --model Llama-3.1-8B --device h100,l40s --batch 8 --price h100=2.5,l40s=0.9",
    ),
    (
        "How long do 4 requests a second wait?",
        "serve --model Llama-3.1-8B --device h100 --rate 4 --output-len 16",
    ),
    (
        "How much load keeps a limit?",
        "capacity --model Llama-3.1-8B --device h100 --slo tpot_p99=20ms --output-len 16",
    ),
    ("How many GPUs do 200 users need?", "compare --model Llama-3.1-8B --device h100 --users 200"),
    ("What does a training step take?", "train --model Llama-3.1-8B --device h100 --gpus 8 --tp 2"),
    (
        "How long is a run, and at what cost?",
        "train --model Llama-3.2-1B --device h100 --gpus 8 --dp 8 --tokens 1T --price 2.5",
    ),
    ("Where does the time go?", "explain --model Llama-3.1-8B --device h100 --batch 8"),
    ("How quick is one kernel?", "kernel gemm m=4096 n=4096 k=4096 --device h100"),
    ("What does a collective take?", "collective all_reduce --bytes 64MiB --device h100 --gpus 8"),
)
"""Questions, each with the command that answers it, without `silicast`."""


def examples() -> int:
    """Ten questions, each with the command that answers it."""
    for question, command in QUESTIONS:
        show(f"{question}\n  silicast {command}")
    return status.ANSWERED
