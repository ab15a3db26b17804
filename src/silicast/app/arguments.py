"""What each argument of commands and Python functions means, and the field that it sets.

A flag and the keyword of a Python function of the same name are one argument. Its sentence stands
here and nowhere else: :func:`described` puts it into the docstrings of the functions and classes
that take it, from which `--help`, docs/reference/cli.md and docs/reference/python.md are made, and
docs/reference/scenario.md lists all of them. Types and defaults of fields are those of
:mod:`silicast.scenario.schema` and :mod:`silicast.scenario.workloads`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


class Argument(NamedTuple):
    """One argument.

    Attributes:
        path: of the field that it sets; "" = none of a scenario's own.
        text: what it means, as help shows it.
    """

    path: str
    text: str


ARGUMENTS: Mapping[str, Argument] = {
    # what runs on what
    "model": Argument("model", "catalog name, or path to a config.json or GGUF file."),
    "device": Argument("device", "catalog name, or path to a device file."),
    "engine": Argument("engine", "catalog name; left out, the default engine."),
    "train.engine": Argument(
        "engine", "deepspeed, fsdp, maxtext, megatron or megatron-bridge; left out, megatron."
    ),
    "option": Argument(
        "engine.options", "one of the engine's own, as name=value; give it once for each."
    ),
    "dtype": Argument(
        "precision.recipe",
        "format of the matrix products (bf16, fp8, int4_wo, ...); left out, the checkpoint's.",
    ),
    "weights": Argument(
        "precision.weights",
        "format of the stored weights: a mix of the engine's (Q4_K_M, IQ4_XS, 4bit), or a dtype.",
    ),
    "context": Argument("workload.context", "tokens of each user, prompt and answer together."),
    "fits.users": Argument("workload.users", "how many at once, each with a context of its own."),
    "most": Argument("workload.most", "rows of the answer."),
    "least_tokens_per_s": Argument(
        "workload.least_tokens_per_s", "of one user: what is slower is left out."
    ),
    "servers": Argument("workload.servers", "devices with HBM too."),
    "fits.train": Argument(
        "workload.train",
        "which ways of training fit: all weights, LoRA, QLoRA; --users is then the micro-batch.",
    ),
    "fits.gpus": Argument("cluster.gpus", "devices that share a training run, of --train."),
    "fits.engine": Argument("engine", "llama.cpp, mlx or exllamav3; left out, llama.cpp."),
    "fits.device": Argument(
        "device", "catalog name, or path to a device file: which models fit it."
    ),
    "fits.model": Argument(
        "model", "catalog name, or path to a Hugging Face config.json: which devices hold it."
    ),
    "train.dtype": Argument(
        "precision.recipe",
        "format of the matrix products (bf16, fp8, mxfp8, nvfp4); left out, bf16.",
    ),
    "kv_dtype": Argument(
        "precision.kv_cache", "format of the KV cache; left out, that of the activations."
    ),
    "power_w": Argument("limits.power_w", "a power limit below the board's own."),
    "clock_mhz": Argument("limits.clock_mhz", "a limit of the clock below the board's own."),
    "seed": Argument("seed", "of everything that is drawn."),
    "price": Argument(
        "cluster.price_per_gpu_hour",
        "of a device for an hour: 2.5, h100=2.3EUR, or a CSV file of prices.",
    ),
    "price_where": Argument(
        "", "which prices of a file count: provider=lambda,term=spot,region=us-east."
    ),
    # the plan
    "tp": Argument("parallel.tp", "tensor-parallel degree."),
    "pp": Argument("parallel.pp", "pipeline-parallel degree."),
    "train.pp": Argument("parallel.pp", "pipeline stages."),
    "dp": Argument("parallel.dp", "data ranks; left out, what is left of the devices."),
    "cp": Argument("parallel.cp", "context-parallel degree."),
    "serve.ep": Argument(
        "parallel.ep", "ranks that share the experts, a divisor of tp x attention_dp."
    ),
    "ep": Argument("parallel.ep", "ranks that share the experts."),
    "attention_dp": Argument(
        "parallel.attention_dp", "groups of tp ranks that attend to requests of their own."
    ),
    "etp": Argument("parallel.etp", "ranks that share the width of each expert."),
    "zero": Argument("parallel.zero", "ZeRO stage, 0 to 3."),
    "virtual_stages": Argument("parallel.virtual_stages", "chunks of each pipeline rank."),
    "schedule": Argument(
        "parallel.schedule", "of the pipeline (1f1b, interleaved, zb_h1, zbv, dualpipe, ...)."
    ),
    # a static batch
    "batch": Argument("workload.batch", "requests of the batch, all prefilled at once."),
    "input_len": Argument(
        "workload.input_len",
        "prompt tokens of each request; left out, 1024, or what the model is made for.",
    ),
    "input_lens": Argument(
        "workload.input_lens",
        "prompt tokens of each request in turn, in place of batch and input_len.",
    ),
    "cached_len": Argument(
        "workload.cached_len",
        "tokens of each request before its prompt, whose keys and values are cached; left out, 0.",
    ),
    "output_len": Argument(
        "workload.output_len",
        "tokens generated for each request; left out, 128, or none of an encoder.",
    ),
    "serve.output_len": Argument(
        "workload.output_len",
        "tokens generated for each request; left out, 128, or none of an encoder or an engine"
        " that answers in one pass.",
    ),
    # requests under load
    "rate": Argument(
        "workload.arrival.rate_per_s",
        "requests a second that arrive on average, each at its own random time (Poisson).",
    ),
    "concurrency": Argument(
        "workload.arrival.concurrency",
        "clients that each send a request as soon as the last one is answered.",
    ),
    "trace": Argument(
        "workload.arrival.path",
        "a file of requests with their times and lengths: .csv, .jsonl or .parquet.",
    ),
    "skip_bad_rows": Argument(
        "workload.arrival.bad_rows",
        "leave out rows of the trace that are no requests, and say how many.",
    ),
    "from_log": Argument(
        "engine",
        "start-up log of a vLLM, SGLang or TensorRT-LLM server, or its /server_info, whose KV "
        "cache, limits, release and formats are taken.",
    ),
    "from_launch": Argument(
        "engine",
        "what starts the server: a shell script, docker run, docker compose or Kubernetes objects "
        "with vllm serve, sglang.launch_server or trtllm-serve, whose model, degrees, options and "
        "variables are taken.",
    ),
    "requests": Argument(
        "workload.requests",
        "how many; left out, 10 for each client and at least 1,000, or of --rate 1,000 to 8,000, "
        "with an objective from 4,000 on: as many as show its steady state.",
    ),
    "range_ratio": Argument(
        "workload.range_ratio",
        "lengths are drawn evenly from this share of them up to the whole; left out, all are "
        "equal.",
    ),
    "arrival": Argument(
        "workload.arrival.kind", "how requests of --rate come: poisson, or constant for equal gaps."
    ),
    "prefix_share": Argument(
        "workload.prefix.hit_ratio", "share of each prompt that a prefix cache holds already."
    ),
    "speculative": Argument(
        "speculative",
        "how tokens are drafted: method=eagle,k=3,acceptance=0.7; methods draft (with "
        "draft=MODEL), mtp, eagle, ngram.",
    ),
    "lora": Argument("lora", "adapters that requests use in turn: rank=16,adapters=8."),
    "engine_version": Argument(
        "engine.version",
        "release of the engine, such as 0.19; left out, the one that `silicast engines` shows.",
    ),
    "prefill": Argument(
        "pools.prefill.count", "deployments that only prefill, beside those of --decode."
    ),
    "decode": Argument(
        "pools.decode.count", "deployments that only decode, beside those of --prefill."
    ),
    "slo": Argument("workload.slo", "limits such as ttft_p99=1s,tpot_p99=50ms, for goodput."),
    "replicas": Argument(
        "pools.replicas.count",
        "deployments alike that share the requests; left out, those of --from-launch, or one.",
    ),
    # a training step
    "gpus": Argument("cluster.gpus", "devices in all."),
    "gpus_per_node": Argument("cluster.gpus_per_node", "left out, the device's usual node."),
    "network": Argument(
        "cluster.inter_node",
        "between nodes, a name of the catalog (infiniband-ndr); left out, the usual one.",
    ),
    "seq_len": Argument("workload.seq_len", "tokens of a sequence."),
    "global_batch": Argument("workload.global_batch", "sequences of one optimizer step."),
    "micro_batch": Argument(
        "workload.micro_batch", "sequences of one pass; left out, what is best (1 with degrees)."
    ),
    "optimizer": Argument("workload.optimizer", "its update rule."),
    "recompute": Argument(
        "workload.recompute",
        "none, selective, full, or selective:<module>; left out, the least that fits.",
    ),
    "mtbf_hours": Argument(
        "cluster.failures.mtbf_hours_per_gpu", "of one device, between failures."
    ),
    "checkpoint_s": Argument(
        "cluster.failures.checkpoint_s", "for which writing a checkpoint holds up the run."
    ),
    "checkpoint_interval_s": Argument(
        "cluster.failures.checkpoint_interval_s", "between two checkpoints; left out, the best."
    ),
    "restart_s": Argument("cluster.failures.restart_s", "from a failure until the run goes on."),
    "slow_fraction": Argument(
        "cluster.slow_gpus.fraction", "share of the devices that are slower."
    ),
    "slow_factor": Argument("cluster.slow_gpus.slowdown", "how many times as long they take."),
    "offload_optimizer": Argument(
        "workload.offload.optimizer",
        "share of the optimizer's states that the host's memory holds, 0 to 1.",
    ),
    "offload_activations": Argument(
        "workload.offload.activations", "of what is kept for the backward pass."
    ),
    "offload_weights": Argument("workload.offload.weights", "of the weights."),
    "offload_update": Argument(
        "workload.offload.update",
        "by whom weights are updated whose states the host holds: host or device.",
    ),
    "loader_tokens_per_s": Argument(
        "workload.data_loading.tokens_per_s",
        "of all data loaders together, while the step before runs.",
    ),
    "storage_gb_per_s": Argument(
        "workload.checkpoint.storage_gb_per_s",
        "at which checkpoints are written, of all devices together.",
    ),
    "checkpoint_every": Argument(
        "workload.checkpoint.interval_steps",
        "steps between two checkpoints; left out, the best with --mtbf-hours.",
    ),
    "checkpoint_async": Argument(
        "workload.checkpoint.asynchronous",
        "they are written beside the steps that follow, from copies in the memory of the host.",
    ),
    # what every command takes
    "calibration": Argument(
        "calibration", "a file that `silicast calibrate` wrote; give it once for each of several."
    ),
    "strict": Argument(
        "", "refuse what lies outside measured ground instead of widening the interval."
    ),
    "html": Argument(
        "", "a file for the answer as one page, to read without a network or to print."
    ),
    "json": Argument("", "print the answer as JSON instead of tables."),
}
"""Name, with a command before it where that one means another thing -> argument."""


def argument(name: str, command: str = "") -> Argument | None:
    """An argument of a command; None = one that only that command has."""
    return ARGUMENTS.get(f"{command}.{name}") or ARGUMENTS.get(name)


def placed(tree: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario with arguments at the fields that they set; those that are None are left out.

    >>> placed({"task": "inference"}, {"dtype": "fp8", "kv_dtype": None, "power_w": 300.0})
    {'task': 'inference', 'precision': {'recipe': 'fp8'}, 'limits': {'power_w': 300.0}}
    """
    for name, value in given.items():
        if value is not None:
            *tables, field = ARGUMENTS[name].path.split(".")
            position = tree
            for table in tables:
                position = position.setdefault(table, {})
            position[field] = value
    return tree


def described(command: str = "", *, paths: bool = False) -> Callable[[T], T]:
    """Completes the docstring of a function or of a class of flags: every argument that its own
    words leave out is described as here.

    Args:
        paths: name the fields of a scenario too.

    >>> @described("train")
    ... def f(pp: int, others: int) -> None:
    ...     '''Do it.'''
    >>> print(f.__doc__)
    Do it.
    <BLANKLINE>
    Args:
        pp: pipeline stages.
    """

    def complete(taker: T) -> T:
        text = inspect.cleandoc(taker.__doc__ or "")
        heading = "Attributes:" if isinstance(taker, type) else "Args:"
        stated = set(_stated(text, heading))
        lines = [
            f"    {name}: {meant.text}"
            + (f" Sets ``{meant.path}``." if paths and meant.path not in ("", name) else "")
            for name in taker.__annotations__
            if name not in stated and (meant := argument(name, command))
        ]
        if lines:
            taker.__doc__ = _with_lines(text, heading, lines)
        return taker

    return complete


def _stated(text: str, heading: str) -> Iterator[str]:
    """Names that a docstring describes itself; one line may have several."""
    _, _, section = text.partition(f"{heading}\n")
    for line in section.partition("\n\n")[0].splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ": " in line:
            yield from line.strip().partition(": ")[0].split(", ")


def _with_lines(text: str, heading: str, lines: list[str]) -> str:
    added = "\n".join(lines)
    if f"{heading}\n" in text:
        return text.replace(f"{heading}\n", f"{heading}\n{added}\n", 1)
    before, blank, after = text.partition("\n\nRaises:")
    return f"{before}\n\n{heading}\n{added}{blank}{after}"
