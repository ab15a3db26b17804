"""What scenarios may state and no model answers yet, and what can be asked instead.

``docs/road-map.md`` lists the same; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError, unmodelled

PAGE = "docs/road-map.md"


@final
class Coming(msgspec.Struct, frozen=True):
    """Something that is not answered yet.

    Attributes:
        missing: what it is.
        instead: what can be asked today, in words; command: the same as one that can be pasted.
    """

    missing: str
    instead: str
    command: str

    @property
    def hint(self) -> str:
        return f"today: {self.instead}: `{self.command}`; see {PAGE}"


_SERVE = "silicast serve --model Llama-3.1-8B --device h100 --concurrency 32"
_INFER = "silicast infer --model Llama-3.1-8B --device h100 --batch 8"
_TRAIN = "silicast train --model Llama-3-8B --device h100 --gpus 8"

TASKS: Mapping[str, Coming] = {
    "rag": Coming(
        "a task of this name: retrieval with generation is a workflow",
        "task workflow (docs/how-to/predict-a-workflow.md); its generation alone",
        f"{_SERVE} --input-len 4096",
    ),
    "agents": Coming(
        "a task of this name: agents with tools are a workflow",
        "task workflow (docs/how-to/predict-a-workflow.md); one turn alone",
        f"{_SERVE} --input-len 8192",
    ),
    "rlhf": Coming(
        "a task of this name: a step of reinforcement learning is a workflow",
        "task workflow (docs/how-to/predict-a-workflow.md); its training alone",
        _TRAIN,
    ),
    "diffusion": Coming(
        "a task of this name: a pipeline of diffusion is a workflow",
        "task workflow (docs/how-to/predict-a-workflow.md); one pass of a network",
        "silicast graph BERT-Large --device h100 --batch 8 --seq-len 512",
    ),
}
"""Word that people use for a task -> what to ask instead."""

FIELDS: Mapping[str, Coming] = {
    "speculative": Coming(
        "speculative decoding of this task",
        "task serving or inference with the same table; without it",
        _INFER,
    ),
    "lora": Coming(
        "low-rank adapters of this task", "task serving or training with it; without it", _SERVE
    ),
    "colocation": Coming(
        "co-location in this task",
        "task serving with two pools and colocation; one of them",
        _SERVE,
    ),
    "pools": Coming(
        "several pools in this task", "task serving with the same pools; one of them", _SERVE
    ),
    "links": Coming(
        "links between pools in this task", "task serving with the same pools; one of them", _SERVE
    ),
    "calibration": Coming("calibration of this task", "the scenario without it", _INFER),
    "cluster.slow_gpus": Coming(
        "slow devices in this task",
        "task training with it",
        f"{_TRAIN} --tp 1 --slow-fraction 0.05 --slow-factor 1.2",
    ),
    "cluster.gpu_log_sd": Coming(
        "unlike devices in this task", "task training with it", f"{_TRAIN} --tp 1"
    ),
    "cluster.failures": Coming(
        "failures in this task",
        "task training with it",
        f"{_TRAIN} --tp 1 --mtbf-hours 50000 --checkpoint-s 60",
    ),
    "parallel.dp": Coming(
        "data parallelism in inference", "replicas that share requests", f"{_SERVE} --replicas 2"
    ),
    "parallel.virtual_stages": Coming(
        "virtual stages in inference", "pipeline stages", f"{_INFER} --pp 2"
    ),
    "parallel.cp": Coming(
        "context parallelism in inference", "tensor parallelism", f"{_INFER} --tp 2"
    ),
    "parallel.sp": Coming(
        "sequence parallelism in inference", "tensor parallelism", f"{_INFER} --tp 2"
    ),
}
"""Field -> what is missing of it where a task does not take it."""


PARTS: Mapping[str, Coming] = {
    "models": Coming("one traffic over pools of several models", "the traffic of each", _SERVE),
    "drafts": Coming("drafts beside adapters", "either of them; neither", _SERVE),
    "links": Coming(
        "several links between prefill and decode", "one link that joins all pools alike; one pool",
        _SERVE,
    ),
    "colocation": Coming(
        "co-location of models in pipeline stages or roles", "either model alone, with them",
        f"{_SERVE} --pp 2",
    ),
    "serving plans": Coming(
        "plans of static batches", "plans side by side, or workload.training or workload.serving",
        "silicast compare --model Llama-3.1-70B --device h100 --plan tp=2 --plan tp=4 --batch 8",
    ),
    "plan search": Coming(
        "a search with a stated {}", "the search without it; one plan with it",
        f"{_TRAIN} --pp 2 --schedule 1f1b",
    ),
    "power": Coming(
        "power of this device", "another objective",
        "silicast capacity --model Llama-3.1-8B --device h100 --slo ttft_p99=1s",
    ),
    "bound": Coming(
        "{} of tier bound", "another tier: its answer has bounds beside the metrics",
        "silicast capacity --model Llama-3.1-8B --device h100 --slo ttft_p99=1s",
    ),
    "program": Coming(
        "a program on several devices",
        "its collectives as nodes of its graph, or a model of the catalog", f"{_INFER} --tp 2",
    ),
    "optimizer": Coming("the optimizer {}", "one of {}", f"{_TRAIN} --optimizer adamw"),
    "timeline": Coming(
        "a timeline of task {}", "tasks with one are inference, graph, serving, training",
        "silicast explain --model Llama-3.1-8B --device h100 --batch 8 --trace timeline.json",
    ),
}  # fmt: skip
"""Part of what a task takes -> what is missing of it; ``{}`` = what the scenario says."""


def refuse_coming(tree: Mapping[str, Any]) -> None:
    """Refuses a task that is not answered yet before anything else of it is looked at.

    Raises:
        SilicastError: kind "not_yet".

    >>> refuse_coming({"task": "kernel"})
    """
    task = tree.get("task")
    if isinstance(task, str) and task in TASKS:
        raise not_yet_of(TASKS[task], "task")


def not_yet_of(coming: Coming, field: str, *message: str) -> SilicastError:
    """The error for something that comes later.

    Args:
        message: what stands for each ``{}`` of its words, in order.
    """
    missing, hint = coming.missing.format(*message[:1]), coming.hint.format(*message[1:])
    return unmodelled(f"not yet: {missing}", field, hint)
