"""Switches of engines that a user may set, under one set of names; engines' own flags are aliases.

============================= ==================== =============================================
option                        values               what it does
============================= ==================== =============================================
``async_scheduling``          true, false          prepares a step while the device runs the last
``cuda_graph``                "full", "piecewise", how decode steps, of a bare framework whole
                              "decode", "off"      passes, reach the device ("off": eager, "decode":
                                                   prefills too); layers but experts in training
``cuda_graph_max_bs``         1 and more           sequences of the largest captured graph
``cudagraph_capture_sizes``   a list               sizes of batches that graphs are captured for
``overlap``                   true, false          second streams (shared experts beside others)
``fused_all_reduce``          true, false          sums over ranks that also add and norm
``cut_rows``                  true, false          devices that share layers share products too
``encoder_parallel``          "weights", "data"    tensor ranks share an encoder of images, or the
                                                   images, which each encodes whole
``custom_all_reduce``         true, false          sums by the engine's kernels, else the usual
``nvls``                      true, false          long sums are made in the NVLink switch
``fused_routing``             true, false          one kernel chooses experts within groups
``fused_latent``              true, false          one product makes both latents of a layer
``fused_attention``           true, false          one kernel, else scores are in memory
``policy``                    a name               the scheduling policy, of another engine too:
                                                   vllm-v1, vllm-v0, sarathi, sglang, trtllm,
                                                   orca, static, lightllm
``http_server``           true, false          requests come over HTTP; false: a benchmark hands
                                                   them to the engine in its own process
``max_num_seqs``              1 and more           most sequences that run at once
``max_num_batched_tokens``    1 and more, -1       most new tokens of a step; -1 = no chunks
``gpu_memory_utilization``    above 0, at most 1   share of memory, of what the engine means by it
``max_model_len``             1 and more           longest sequence, which the cache must hold
``max_mamba_cache_size``      1 and more           places for states of recurrent layers
``mamba_full_memory_ratio``   above 0              memory of those states over the others' cache
``num_gpu_blocks``            1 and more           blocks of the KV cache, as the engine printed
``max_total_tokens``          1 and more           likewise in tokens
``cpu_offload_gb``            0 and more           GiB of weights a device in the host's memory
``n_gpu_layers``              1 and more, "all"    layers on the device, the head among them
``n_cpu_moe``                 0 and more           first layers whose experts the host holds
``block_size``                1 to 1024            tokens of a block of the KV cache
``enable_prefix_caching``     true, false          prompts that begin alike share blocks
``enable_chunked_prefill``    true, false          prompts may be cut over steps
``schedule_policy``           "fcfs", "lpm"        order in which waiting requests are served
``num_redundant_experts``     0 and more           copies of experts in memory, over all ranks
``num_slots``                 1 and more           places for experts and copies, over all ranks
``expandable_segments``       true, false          the allocator loses little between its blocks
``loss_copies``               0 to 4               of the logits in 32 bits that the loss holds
``dropout``                   true, false          of one that trains: layers drop results
``fused_loss``                true, false          one kernel makes the loss of its logits
``fused_gradient_accumulation`` true, false        products add to gradients themselves
``fused_rope``                true, false          one kernel turns queries and keys in training
``deterministic``             true, false          each training step gives the same bits
``wide_workspaces``           true, false          libraries of products hold 32 MiB each
``reshard_after_forward``     true, false          sharded weights are gathered again for backward
``gradient_format``           "bf16", "fp32"       in which data ranks sum gradients
``dispatcher``                all_to_all, kernel   what brings tokens to their experts in training
``compile``                   true, false          of one that trains: a compiler fuses operations
``unpriced``                  a list of names      switches that cost an unknown time: wider
============================= ==================== =============================================

Further switches go to the policy (:data:`POLICY_SWITCHES`): see :mod:`silicast.serving.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from silicast.composition.engines.engine import (
    BoardTable,
    Engine,
    Launch,
    ServingTable,
    StatePoolTable,
)
from silicast.composition.engines.unpriced import less_certain
from silicast.core.errors import SilicastError, unmodelled, unsupported
from silicast.core.naming import near

DISPATCHERS = {"all_to_all": "all_to_all", "kernel": "kernel"}
"""Collectives, or a kernel that sends a token once to each rank or node (DeepEP, HybridEP)."""
EAGER_CAVEAT = (
    "without graphs an engine's own Python runs between kernels; only launches are modelled, "
    "and short steps may take several times as long"
)
MOST = 1 << 40
"""Of a number without an upper limit."""
OF_SWITCHES = ("cut_rows", "encoder_parallel", "fused_attention")
"""Options of engines whose files state a switch that sets them."""
_GRAPHS: Mapping[str, Launch] = {
    "full": "graph", "piecewise": "piecewise", "decode": "graph", "off": "stream",
}  # fmt: skip


def with_options(engine: Engine, options: Mapping[str, Any]) -> Engine:
    """The engine with the given options.

    Raises:
        SilicastError: an option that is not known, or a value of another kind; names the field.

    >>> from silicast.composition.engines.engine import find_engine
    >>> with_options(find_engine("vllm"), {"async_scheduling": False}).host.asynchronous
    False
    """
    requested: dict[str, tuple[str, Any]] = {}
    for name, value in options.items():
        option = ALIASES.get(name, name)
        if option not in _OPTIONS:
            raise unmodelled(
                f"options of engines: {name[:80]!r} is not modelled",
                f"engine.options.{name[:80]}",
                near(name, _OPTIONS, 2, aliases=ALIASES),
            )
        if option in requested:
            raise SilicastError(
                f"{name} and {requested[option][0]} are the same option",
                field=f"engine.options.{name}",
                hint="give one of them",
            )
        if option in OF_SWITCHES and not engine.has_switch_for(option):
            text = f"{engine.name} has no switch for it"
            raise unsupported(text, f"engine.options.{name}", "leave it out")
        requested[option] = name, value
    for option, change in _OPTIONS.items():  # in this order: the size of a block comes first
        if option in requested:
            engine = change(engine, requested[option][1])
    return engine


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SilicastError(
            f"expected true or false, found {value!r:.40}", field=f"engine.options.{name}"
        )
    return value


def _changed(engine: Engine, table: str, **fields: Any) -> Engine:
    """The engine with other fields of one of its tables."""
    changed = msgspec.structs.replace(getattr(engine, table), **fields)
    return msgspec.structs.replace(engine, **{table: changed})


def _in_table(name: str, table: str, field: str) -> Callable[[Engine, Any], Engine]:
    """A field of one of the engine's tables: true or false."""
    return lambda engine, value: _changed(engine, table, **{field: _yes_or_no(name, value)})


def _cuda_graph(engine: Engine, value: Any) -> Engine:
    chosen = ("full" if value else "off") if isinstance(value, bool) else value
    if not isinstance(chosen, str) or chosen not in _GRAPHS:
        raise SilicastError(
            f"expected one of {', '.join(_GRAPHS)}, found {value!r:.40}",
            field="engine.options.cuda_graph",
        )
    decode = _GRAPHS[chosen]
    prefill = "stream" if chosen in ("decode", "off") else engine.launch.prefill
    if engine.kind != "serving":  # a whole pass is captured
        prefill = decode
    launch = msgspec.structs.replace(engine.launch, decode=decode, prefill=prefill)
    caveats, host = engine.caveats, engine.host
    if chosen in ("decode", "off") and engine.kind == "serving":
        caveats = [*caveats, EAGER_CAVEAT]
        host = msgspec.structs.replace(host, dispatch_us=host.eager_us or host.dispatch_us)
    return msgspec.structs.replace(engine, launch=launch, host=host, caveats=caveats)


def _overlap(engine: Engine, value: Any) -> Engine:
    return engine if _yes_or_no("overlap", value) else msgspec.structs.replace(engine, overlap=[])


def _fused_all_reduce(engine: Engine, value: Any) -> Engine:
    if _yes_or_no("fused_all_reduce", value):
        return engine
    return _changed(engine, "fusion", all_reduce_mb={})


def _custom_all_reduce(engine: Engine, value: Any) -> Engine:
    from silicast.communication.library import usual_library

    if _yes_or_no("custom_all_reduce", value):
        return engine
    return msgspec.structs.replace(_fused_all_reduce(engine, False), collectives=usual_library())


def _serving(name: str, engine: Engine) -> ServingTable:
    if engine.serving is None:
        raise SilicastError(
            f"{engine.name} serves no requests",
            field=f"engine.options.{name}",
            hint="an engine of kind serving",
        )
    return engine.serving


def _number(name: str, value: Any, least: float, most: float, *, whole: bool = True) -> float:
    """A number within its range, the ends included."""
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        wanted = "a whole number" if whole else "a number"
        upper = f" to {most:g}" if most < MOST else " upward"
        raise SilicastError(
            f"expected {wanted} from {least:g}{upper}, found {value!r:.40}",
            field=f"engine.options.{name}",
        )
    return float(value)


def _offload(name: str, field: str) -> Callable[[Engine, Any], Engine]:
    """A count of layers that stay in the host's memory, or of those that do not."""

    def change(engine: Engine, value: Any) -> Engine:
        if engine.memory.offload is None:
            text = f"{engine.name} keeps no layers in the host's memory"
            raise unsupported(text, f"engine.options.{name}", "leave it out")
        every = field == "device_layers" and str(value) in ("all", "auto", "-1", "-2")
        text = str(value).strip()
        count_or_flag = int(text) if isinstance(value, str) and text.isdigit() else value
        least = 1 if field == "device_layers" else 0  # without any the device is the CPU
        if least and count_or_flag == 0 and not isinstance(count_or_flag, bool):
            raise SilicastError(
                "expected a whole number from 1, or all, found 0",
                field=f"engine.options.{name}",
                hint="without layers the device does nothing: name the host's processor instead",
            )
        count = -1 if every else int(_number(name, count_or_flag, least, MOST))
        offload = msgspec.structs.replace(engine.memory.offload, **{field: count})
        return _changed(engine, "memory", offload=offload)

    return change


def _cpu_offload_gb(engine: Engine, value: Any) -> Engine:
    name = "cpu_offload_gb"
    gib = _number(name, value, 0, MOST, whole=False)
    if engine.memory.host_weights is None:
        text = f"{engine.name} keeps no weights in the host's memory"
        raise unsupported(text, f"engine.options.{name}", "leave it out")
    return msgspec.structs.replace(engine, memory=engine.memory.with_host_weights(gib))


def _served(engine: Engine, name: str, **fields: Any) -> Engine:
    """Fields of the serving table, which no board changes any more."""
    cleared = {each: 0 for each in fields if each in BoardTable.__struct_fields__}
    boards = [msgspec.structs.replace(board, **cleared) for board in _serving(name, engine).boards]
    return _changed(engine, "serving", **({"boards": boards} | fields))


def _count(name: str, field: str, most: int = MOST) -> Callable[[Engine, Any], Engine]:
    """A field of the serving table: a whole number of at least 1."""

    def change(engine: Engine, value: Any) -> Engine:
        return _served(engine, name, **{field: int(_number(name, value, 1, most))})

    return change


def _cuda_graph_max_bs(engine: Engine, value: Any) -> Engine:
    name = "cuda_graph_max_bs"
    most = int(_number(name, value, 1, MOST))
    sizes = engine.launch.graph_batch_sizes
    larger = range(max(sizes, default=0) + 32, most, 32)
    captured = [*(size for size in (*sizes, *larger) if size < most), most]
    return _captured(engine, name, captured, most)


def _cudagraph_capture_sizes(engine: Engine, value: Any) -> Engine:
    name = "cudagraph_capture_sizes"
    if not isinstance(value, list) or not value:
        raise SilicastError(
            f"expected a list of whole numbers, found {value!r:.40}",
            field=f"engine.options.{name}",
            hint="as [1, 2, 4, 8]; cuda_graph = off captures none",
        )
    sizes = sorted({int(_number(name, each, 1, MOST)) for each in value})
    return _captured(engine, name, sizes, 0)


def _captured(engine: Engine, name: str, sizes: list[int], most: int) -> Engine:
    """With graphs of these batch sizes, which boards limit to ``most`` rows (0 = to none)."""
    table = _serving(name, engine)
    boards = [msgspec.structs.replace(board, graph_rows=most) for board in table.boards]
    return _changed(_changed(engine, "serving", boards=boards), "launch", graph_batch_sizes=sizes)


def _max_num_batched_tokens(engine: Engine, value: Any) -> Engine:
    name = "max_num_batched_tokens"
    tokens = 0 if value == -1 else int(_number(name, value, 1, MOST))
    engine = _served(engine, name, step_tokens=tokens, launch=None)
    return _changed(engine, "memory", prefill_chunk_tokens=tokens)


def _gpu_memory_utilization(engine: Engine, value: Any) -> Engine:
    name = "gpu_memory_utilization"
    share = _number(name, value, 0.01, 1.0, whole=False)
    return _changed(_served(engine, name, set_aside=None), "memory", usable_fraction=share)


def _max_mamba_cache_size(engine: Engine, value: Any) -> Engine:
    _pool(engine, "max_mamba_cache_size")
    return _count("max_mamba_cache_size", "states")(engine, value)


def _mamba_full_memory_ratio(engine: Engine, value: Any) -> Engine:
    name = "mamba_full_memory_ratio"
    ratio = _number(name, value, 0.001, 1000.0, whole=False)
    pool = msgspec.structs.replace(_pool(engine, name), ratio=ratio)
    return _served(engine, name, state_pool=pool)


def _pool(engine: Engine, name: str) -> StatePoolTable:
    pool = _serving(name, engine).state_pool
    if pool is None:
        raise SilicastError(
            f"{engine.name} keeps states of recurrent layers in blocks of its KV cache",
            field=f"engine.options.{name}",
            hint="an engine that keeps them in a pool of their own",
        )
    return pool


def _max_total_tokens(engine: Engine, value: Any) -> Engine:
    tokens = int(_number("max_total_tokens", value, 1, MOST))
    blocks = max(tokens // max(engine.memory.page_tokens, 1), 1)
    return _served(engine, "max_total_tokens", blocks=blocks)


def _block_size(engine: Engine, value: Any) -> Engine:
    tokens = int(_number("block_size", value, 1, 1024))
    _serving("block_size", engine)
    return _changed(engine, "memory", page_tokens=tokens)


def _num_redundant_experts(engine: Engine, value: Any) -> Engine:
    copies = int(_number("num_redundant_experts", value, 0, MOST_EXPERTS))
    return _changed(engine, "parallel", expert_copies=copies, expert_places=0)


def _num_slots(engine: Engine, value: Any) -> Engine:
    places = int(_number("num_slots", value, 1, MOST_EXPERTS))
    return _changed(engine, "parallel", expert_places=places)


def _training_switch(name: str) -> Callable[[Engine, Any], Engine]:
    """A switch of an engine that trains: true or false."""
    return lambda engine, value: _trained(engine, name, _yes_or_no(name, value))


def _loss_copies(engine: Engine, value: Any) -> Engine:
    if type(value) is not int or not 0 <= value <= MOST_COPIES:
        raise SilicastError(
            f"expected a whole number from 0 to {MOST_COPIES}, found {value!r:.40}",
            field="engine.options.loss_copies",
        )
    return _trained(engine, "loss_copies", value)


def _unpriced(engine: Engine, value: Any) -> Engine:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        problem = f"expected a list of names, found {value!r:.40}"
        raise SilicastError(problem, field="engine.options.unpriced")
    if engine.kind != "serving":
        return _trained(engine, "unpriced", value)
    return less_certain(engine, len(value))


def _one_of(name: str, field: str, values: Mapping[str, Any]) -> Callable[[Engine, Any], Engine]:
    """A field of the parallel table by one of its words."""

    def change(engine: Engine, value: Any) -> Engine:
        if not isinstance(value, str) or value not in values:
            problem = f"expected one of {', '.join(values)}, found {value!r:.40}"
            raise SilicastError(problem, field=f"engine.options.{name}")
        return _changed(engine, "parallel", **{field: values[value]})

    return change


def _compile(engine: Engine, value: Any) -> Engine:
    """Compiled layers run no model code between their kernels."""
    chosen = _yes_or_no("compile", value)
    if engine.kind != "training":
        raise SilicastError(
            f"{engine.name} does not train",
            field="engine.options.compile",
            hint="an engine of kind training; of bare frameworks the compiled one",
        )
    if chosen and not engine.compiles:
        engine = _changed(engine, "training", fused_loss=True)
        engine = _changed(engine, "host", between_us=0.0)
    return msgspec.structs.replace(engine, compiles=chosen)


def _trained(engine: Engine, name: str, value: Any) -> Engine:
    """A field of the training table.

    Raises:
        SilicastError: the engine trains nothing, or has no such kernel to leave out.
    """
    if engine.kind == "serving":
        raise SilicastError(
            f"{engine.name} trains nothing",
            field=f"engine.options.{name}",
            hint="an engine of kind training",
        )
    if name == "fused_rope" and not engine.fused_layers:
        raise SilicastError(
            f"means nothing for {engine.name}, whose layers are those of the model's code",
            field=f"engine.options.{name}",
            hint="leave it out, or an engine whose layers are a training library's",
        )
    return _changed(engine, "training", **{name: value})


def _policy(engine: Engine, value: Any) -> Engine:
    if not isinstance(value, str):
        raise SilicastError(f"expected a name, found {value!r:.40}", field="engine.options.policy")
    return _served(engine, "policy", policy=value.casefold().replace("_", "-"))


def _http_server(engine: Engine, value: Any) -> Engine:
    if _yes_or_no("http_server", value):
        return engine
    return _served(engine, "http_server", front_us=0.0, front_token_us=0.0, back_us=0.0)


def _switch(name: str) -> Callable[[Engine, Any], Engine]:
    """A switch of the policy: true, false, a number or a word."""

    def change(engine: Engine, value: Any) -> Engine:
        if not isinstance(value, (bool, int, float, str)):
            raise SilicastError(
                f"expected a number or a word, found {value!r:.40}", field=f"engine.options.{name}"
            )
        if not isinstance(value, str):
            number = int(value) if isinstance(value, bool) else value
            value = _number(name, number, 0, MOST, whole=False)
        options = _serving(name, engine).options | {name: value}
        return _served(engine, name, options=options)

    return change


MOST_TOKENS = 1 << 24
MOST_COPIES = 4
MOST_EXPERTS = 1 << 16

TRAINING_SWITCHES = (
    *("expandable_segments", "dropout", "fused_loss", "fused_gradient_accumulation", "fused_rope"),
    *("deterministic", "reshard_after_forward", "wide_workspaces"),
)

POLICY_SWITCHES = (
    "enable_chunked_prefill",
    "schedule_policy",
    "schedule_conservativeness",
    "enable_mixed_chunk",
    "ignore_eos",
    "capacity_scheduler_policy",
    "enable_balance",
    "timeout_iters",
    "scheduler_recv_interval",
    "long_prefill_token_threshold",
    "reserve_full_isl",
    "watermark",
    "max_wait_tokens",
    "preferred_batch_size",
    "max_queue_delay_us",
    "instance_count",
    "preemption_mode",
    "swap_space",
    "kv_offloading_size",
    "enable_hierarchical_cache",
    "hicache_ratio",
    "hicache_size",
    "hicache_write_policy",
)
"""Switches that the scheduling policies read, as they are."""

ALIASES: Mapping[str, str] = {
    "scheduler": "policy",
    "chunk_tokens": "max_num_batched_tokens",
    "max_cudagraph_capture_size": "cuda_graph_max_bs",
    "cuda_graph_config.max_batch_size": "cuda_graph_max_bs",
    "compilation_config.cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "cuda_graph_config.batch_sizes": "cudagraph_capture_sizes",
    "cuda_graph_bs": "cudagraph_capture_sizes",
    "max_running_requests": "max_num_seqs",
    "max_batch_size": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_num_tokens": "max_num_batched_tokens",
    "n_ubatch": "max_num_batched_tokens",
    "ubatch_size": "max_num_batched_tokens",
    "parallel": "max_num_seqs",
    "ctx_size": "max_model_len",
    "ngl": "n_gpu_layers",
    "gpu_layers": "n_gpu_layers",
    "ncmoe": "n_cpu_moe",
    "mem_fraction_static": "gpu_memory_utilization",
    "free_gpu_memory_fraction": "gpu_memory_utilization",
    "num_gpu_blocks_override": "num_gpu_blocks",
    "context_length": "max_model_len",
    "max_seq_len": "max_model_len",
    "page_size": "block_size",
    "tokens_per_block": "block_size",
    "enable_block_reuse": "enable_prefix_caching",
    "scheduler_reserve_full_isl": "reserve_full_isl",
    "enable_hicache": "enable_hierarchical_cache",
    "ep_num_redundant_experts": "num_redundant_experts",
    "kv_cache_config.free_gpu_memory_fraction": "gpu_memory_utilization",
    "kv_cache_config.enable_block_reuse": "enable_prefix_caching",
    "kv_cache_config.tokens_per_block": "block_size",
    "kv_cache_config.max_tokens": "max_total_tokens",
    "scheduler_config.capacity_scheduler_policy": "capacity_scheduler_policy",
    "attention_dp_config.enable_balance": "enable_balance",
    "attention_dp_config.timeout_iters": "timeout_iters",
}
"""Engines' own names of an option -> the one here."""

_OPTIONS: Mapping[str, Callable[[Engine, Any], Engine]] = {
    "loss_copies": _loss_copies,
    "async_scheduling": _in_table("async_scheduling", "host", "asynchronous"),
    "cuda_graph": _cuda_graph,
    "cudagraph_capture_sizes": _cudagraph_capture_sizes,
    "cuda_graph_max_bs": _cuda_graph_max_bs,
    "overlap": _overlap,
    "fused_all_reduce": _fused_all_reduce,
    "custom_all_reduce": _custom_all_reduce,
    "nvls": lambda engine, yes: msgspec.structs.replace(engine, nvls=_yes_or_no("nvls", yes)),
    "fused_routing": _in_table("fused_routing", "experts", "one_kernel"),
    "fused_latent": _in_table("fused_latent", "fusion", "latent"),
    "fused_attention": _in_table("fused_attention", "fusion", "scores"),
    "cut_rows": _in_table("cut_rows", "parallel", "rows"),
    "encoder_parallel": _one_of(
        "encoder_parallel", "encoder", {"weights": "weights", "data": "data"}
    ),
    "policy": _policy,
    "http_server": _http_server,
    "max_num_seqs": _count("max_num_seqs", "max_sequences"),
    "max_num_batched_tokens": _max_num_batched_tokens,
    "gpu_memory_utilization": _gpu_memory_utilization,
    "max_model_len": _count("max_model_len", "model_tokens", MOST_TOKENS),
    "max_mamba_cache_size": _max_mamba_cache_size,
    "mamba_full_memory_ratio": _mamba_full_memory_ratio,
    "num_gpu_blocks": _count("num_gpu_blocks", "blocks"),
    "block_size": _block_size,
    "cpu_offload_gb": _cpu_offload_gb,
    "n_gpu_layers": _offload("n_gpu_layers", "device_layers"),
    "n_cpu_moe": _offload("n_cpu_moe", "expert_layers"),
    "max_total_tokens": _max_total_tokens,
    "enable_prefix_caching": lambda engine, yes: _served(
        engine, name := "enable_prefix_caching", prefix_caching=_yes_or_no(name, yes)
    ),
    "num_redundant_experts": _num_redundant_experts,
    "num_slots": _num_slots,
    "compile": _compile,  # what is stated of its kernels comes after it
    **{name: _training_switch(name) for name in TRAINING_SWITCHES},
    "unpriced": _unpriced,
    "gradient_format": _one_of("gradient_format", "gradient_bits", {"bf16": 16, "fp32": 32}),
    "dispatcher": _one_of("dispatcher", "dispatch", DISPATCHERS),
    **{name: _switch(name) for name in POLICY_SWITCHES},
}

QUEUE_OPTIONS = (
    *(
        "policy",
        "http_server",
        "max_num_seqs",
        "max_model_len",
        "num_gpu_blocks",
        "max_total_tokens",
        "enable_prefix_caching",
    ),
    *POLICY_SWITCHES,
)
"""Options that mean something where requests queue alone."""

OPTIONS = (
    *("async_scheduling", "cuda_graph", "overlap", "fused_all_reduce", "nvls", "fused_routing"),
    *("fused_latent", "fused_attention", "custom_all_reduce"),
)
"""Switches of how a step runs."""
