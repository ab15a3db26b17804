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
        instead: what can be asked today, in words; command: the same as one that can be pasted, ""
            = the scenario without the field.
    """

    missing: str
    instead: str
    command: str = ""

    @property
    def hint(self) -> str:
        """In one line."""
        paste = f": `{self.command}`" if self.command else ""
        return f"today: {self.instead}{paste}; see {PAGE}"


_SERVE = "silicast serve --model Llama-3.1-8B --device h100 --concurrency 32"
_INFER = "silicast infer --model Llama-3.1-8B --device h100 --batch 8"

TASKS: Mapping[str, Coming] = {
    "workflow": Coming(
        "workflows over pools", "each stage alone, and pools of one stage as task serving", _SERVE
    ),
    "rag": Coming(
        "retrieval with generation as one workflow",
        "its generation, with the retrieved text as a prefix", f"{_SERVE} --input-len 4096",
    ),
    "agents": Coming("loops of agents", "one turn of them", f"{_SERVE} --input-len 8192"),
    "rlhf": Coming(
        "reinforcement learning from feedback", "its generation and its training apart",
        "silicast train --model Llama-3-8B --device h100 --gpus 8",
    ),
    "diffusion": Coming(
        "pipelines of diffusion as one scenario", "one pass of a network of them",
        "silicast graph BERT-Large --device h100 --batch 8 --seq-len 512",
    ),
}  # fmt: skip
"""Task -> what is missing of it. Words beside the contract's are those that people ask for."""

FIELDS: Mapping[str, Coming] = {
    "speculative": Coming(
        "speculative decoding of this task", "task serving with the same table; without it",
        _INFER,
    ),
    "lora": Coming("low-rank adapters of this task", "task serving or training with it"),
    "colocation": Coming("co-location in this task", "task serving with two pools and colocation"),
    "pools": Coming("several pools in this task", "task serving with the same pools"),
    "links": Coming("links between pools in this task", "task serving with the same pools"),
    "calibration": Coming("calibration of this task", "the scenario without it"),
    "cluster.slow_gpus": Coming("slow devices in this task", "task training with it"),
    "cluster.failures": Coming("failures in this task", "task training with it"),
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
}  # fmt: skip
"""Field -> what is missing of it where a task does not take it."""


def refuse_coming(tree: Mapping[str, Any]) -> None:
    """Refuses a task that is not answered yet before anything else of it is looked at.

    Raises:
        SilicastError: kind "not_yet".

    >>> refuse_coming({"task": "kernel"})
    """
    task = tree.get("task")
    if isinstance(task, str) and task in TASKS:
        raise not_yet_of(TASKS[task], "task")


def not_yet_of(coming: Coming, field: str) -> SilicastError:
    """The error for something that comes later."""
    return unmodelled(f"not yet: {coming.missing}", field, coming.hint)
