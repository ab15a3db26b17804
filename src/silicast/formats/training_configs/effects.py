"""What a field that is not used would change, by the words of its name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from silicast.formats.fields import Fields, listed_names

NOTHING = re.compile(
    r"(^|[-_.])(lr|learning[-_]rate|decay|warmup|beta\d?|betas|eps|epsilon|momentum|seed|log|logs"
    r"|logger|logging|wandb|swanlab|mlflow|tensorboard|save|saves|eval|evals|test|val|validation"
    r"|validator|data|dataset|datasets|split|tokenizer|merge|path|dir|load|ckpt|init|clip|clipping"
    r"|norm|steps|epochs|epoch|iters|iter|samples|exit|timeout|master|port|rdzv|rank|name"
    r"|description|project|hub|report|template|scheduler|output|folder|file|job|metrics|profiler"
    r"|profiling|print|dump|debug|strict|tokens|prompt|system|special|wall|gc|resume|train[-_]on"
    r"|auto[-_]resume|early|trust|cache[-_]dir|format|checkpoint|monitor|theta|base|alpha"
    r"|dropout|mock|run|experiment|exp|tag|version|workers|shuffle|hf|distributed[-_]backend"
    r"|deepspeed|fsdp|finetuning|do|base[-_]config|loss|trainer|nsys|peft|comm|machine|main"
    r"|downcast|rng|dist|dataloader|nemo|mcore)"
    r"([-_.]|$)"
)
"""Names with such a word are about optimisation, data, files and reports."""
FUSED = re.compile(r"overlap|fused|fusion")
"""Words that decide whatever stands beside them."""
EFFECTS = (
    (
        "how the run is spread",
        re.compile(
            r"parallel|shard|(^|[-_.])zero|degree|mesh|nodes|devices|gpus|nproc|world|stage|"
            r"replica|layout|slices"
        ),
    ),
    ("memory and step time", re.compile(r"recompute|checkpointing|remat|offload|(^|[-_.])ac\b")),
    (
        "formats of numbers",
        re.compile(r"fp8|fp16|bf16|fp4|fp32|mxfp|float|dtype|precision|quant|bits|\dbit|tf32"),
    ),
    ("tokens of a step", re.compile(r"seq|len\b|length|pack|batch|pad")),
    (
        "the model's size",
        re.compile(
            r"layers?([-_.]|$)|hidden|head|expert|vocab|ffn|channel|(^|[-_.])kv|freeze|unfrozen|"
            r"adapter|lora"
        ),
    ),
    (
        "step time",
        re.compile(
            r"overlap|fus|kernel|compile|graph|attention|attn|flash|liger|bucket|nccl|moe|router|"
            r"dispatch|impl|backend|cudnn|prefetch|fast|comm|sync|spike|nan"
        ),
    ),
)
"""What fields change -> words in their names; the first that is there counts."""
ENVIRONMENT = ("NCCL-", "NVTE-", "CUDA-", "CUBLAS-", "TORCH-", "PYTORCH-")
"""Beginnings of the names of variables that libraries read, with hyphens as arguments have them."""
UNKNOWN = "an unknown amount"
HARMLESS = ""


def effect_of(name: str) -> str:
    """What a field changes of a step; "" = nothing, as far as its name says.

    >>> effect_of("lr-warmup-iters"), effect_of("tp-comm-overlap-ag"), effect_of("fp8-margin")
    ('', 'step time', 'formats of numbers')
    """
    if name.startswith(ENVIRONMENT):
        return EFFECTS[-1][0]
    lowered = name.casefold()
    if FUSED.search(lowered):
        return "step time"
    for effect, words in EFFECTS[:5]:
        if words.search(lowered) and not NOTHING.search(lowered):
            return effect
    if NOTHING.search(lowered):
        return HARMLESS
    return next((effect for effect, words in EFFECTS if words.search(lowered)), UNKNOWN)


def remarks_of_unused(tables: Iterable[Fields]) -> list[str]:
    """Remarks that list the fields that nothing asked for, with what they would change."""
    groups: dict[str, list[str]] = {HARMLESS: []}
    for table in tables:
        for line in table.unused():
            groups.setdefault(effect_of(line.partition(" = ")[0]), []).append(line)
    remarks = []
    for effect, names in groups.items():
        if names:
            head = f"not used, would change {effect}" if effect else "not used"
            remarks.append(f"{head}: {listed_names(names)}")
    return remarks
