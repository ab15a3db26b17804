"""Switches of Megatron-LM that change time or memory, and no size: arguments and the environment.

Each is priced, is part of the host's measured time, or is named as unpriced, which widens the
answer's interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.formats.effects import WIDER
from silicast.formats.fields import Fields

DROPOUT = 0.1
"""Of layers and of attention's scores where nothing is stated."""
OF_THE_HOST = (
    "log-params-norm",
    "log-num-zeros-in-grad",
    "log-timers-to-tensorboard",
    "log-memory-to-tensorboard",
    "CUDA-DEVICE-MAX-CONNECTIONS",
    "CUBLAS-WORKSPACE-CONFIG",
    "NVTE-ALLOW-NONDETERMINISTIC-ALGO",
)
"""The runs that the host's constants were measured on have them."""
UNPRICED = (
    "no-masked-softmax-fusion",
    "no-bias-gelu-fusion",
    "no-bias-swiglu-fusion",
    "no-bias-dropout-fusion",
    "no-persist-layer-norm",
    "check-for-nan-in-loss-and-grad",
    "check-for-spiky-loss",
    "check-for-large-grads",
    "check-weight-hash-across-dp-replicas-interval",
    "batch-invariant-mode",
    "log-straggler",
    "log-max-attention-logit",
    "profile",
    "barrier-with-L1-time",
    "empty-unused-memory-level",
    "defer-embedding-wgrad-compute",
    "use-transformer-engine-op-fuser",
    "overlap-param-gather-with-optimizer-step",
    "CUDA-LAUNCH-BLOCKING",
    "NCCL-PROTO",
)
BESIDE_BATCHES = "overlap-moe-expert-parallel-comm"
"""With it, delayed gradients of weights are part of what runs beside exchanges."""
PIECES = ("attn", "moe_router")
"""Scopes of graphs that leave little but experts to the host."""
RENAMED: Mapping[str, str] = {
    "virtual-pipeline-model-parallel-size": "num-virtual-stages-per-pipeline-rank",
    "moe-router-topk": "moe-router-topk",
    "num-moe-experts": "num-experts",
    "layernorm-epsilon": "norm-epsilon",
    "gated-linear-unit": "swiglu",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
    "sequence-length": "seq-length",
}
"""Fields of a configuration of Megatron-Core -> arguments."""
SWITCHED_OFF: Mapping[str, str] = {
    "apply-rope-fusion": "no-rope-fusion",
    "gradient-accumulation-fusion": "no-gradient-accumulation-fusion",
    "masked-softmax-fusion": "no-masked-softmax-fusion",
    "bias-gelu-fusion": "no-bias-gelu-fusion",
    "bias-swiglu-fusion": "no-bias-swiglu-fusion",
    "bias-activation-fusion": "no-bias-swiglu-fusion",
    "bias-dropout-fusion": "no-bias-dropout-fusion",
    "persist-layer-norm": "no-persist-layer-norm",
    "overlap-p2p-comm": "no-overlap-p2p-communication",
    "add-bias-linear": "disable-bias-linear",
}
"""Fields that Megatron-LM's arguments make true where nothing is stated, and whose false is an
argument (recalled from its training/arguments.py; the wheel of megatron-core does not hold it)."""
FUSED_BY_HAND = ("moe-permute-fusion",)
"""Of experts: without them kernels run that are not priced."""
LOSS_COPIES = {"native": 2, "te": 0}
"""Of the logits in 32 bits: the compiled loss makes its exponentials beside them (megatron-core
0.16.1, fusions/fused_cross_entropy.py), Transformer Engine's overwrites the logits."""
ENVIRONMENT = ("NCCL-", "NVTE-", "CUDA-", "CUBLAS-", "TORCH-", "PYTORCH-")
"""Beginnings of the names of variables that libraries read."""
DISPATCHERS = {"alltoall": "all_to_all", "flex": "kernel"}
"""What brings tokens to experts -> as options of engines call it."""
DEEPEP = "deepep"
"""The kernels that the flexible one runs where nothing else is stated."""
NEVER = frozenset(("", "0", "none", "false"))


def of_environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """Variables that libraries read, under names as arguments have them.

    >>> of_environment({"NCCL_ALGO": "Ring", "TP": "2"})
    {'NCCL-ALGO': 'Ring'}
    """
    named = {name.replace("_", "-"): value for name, value in variables.items()}
    return {
        name: value
        for name, value in named.items()
        if name.startswith(ENVIRONMENT) and isinstance(value, str)
    }


def switches(fields: Fields, *, experts: bool) -> tuple[dict[str, Any], list[str]]:
    """Options of the engine, and remarks: what is part of other numbers, and what is unpriced."""
    options: dict[str, Any] = {
        "attention": "math" if _unfused(fields) else "fused",
        "dropout": _drops(fields),
        "fused_loss": fields.flag("cross-entropy-loss-fusion"),
        "fused_gradient_accumulation": not fields.flag("no-gradient-accumulation-fusion"),
        "deterministic": fields.flag("deterministic-mode"),
    }
    if fields.flag("no-rope-fusion"):
        options["fused_rope"] = False
    if _without_switch(fields):
        options["nvls"] = False
    options |= _of_memory(fields)
    fused = fields.text("cross-entropy-fusion-impl", default="native")
    if options["fused_loss"] and fused in LOSS_COPIES:
        options["loss_copies"] = LOSS_COPIES[fused]
    reduced = {
        "grad-reduce-in-bf16": "bf16",
        "accumulate-allreduce-grads-in-fp32": "fp32",
        "grad-reduce-in-fp32": "fp32",
    }
    for name, stated in reduced.items():
        if fields.flag(name):
            options["gradient_format"] = stated
    fields.get("moe-grouped-gemm")
    options |= _dispatcher(fields, experts=experts)
    unpriced = [name for name in UNPRICED if _is_on(fields, name)]
    if _is_on(fields, "delay-wgrad-compute") and not _is_on(fields, BESIDE_BATCHES):
        unpriced.append("delay-wgrad-compute")
    unpriced += [f"without {n}" for n in FUSED_BY_HAND if experts and not fields.flag(n)]
    unpriced += options.pop("unpriced", [])
    graphs = _graphs(fields)
    if graphs in ("full", "piecewise"):
        options["cuda_graph"] = graphs
    elif graphs:
        unpriced.append(graphs)
    if int(fields.number("timing-log-level", default=0)) > 0:
        unpriced.append("timing-log-level")
    remarks = []
    held = [name for name in OF_THE_HOST if _is_on(fields, name)]
    if held:
        remarks.append(f"part of the host's measured time: {_listed(held)}")
    if unpriced:
        options["unpriced"] = unpriced
        remarks.append(f"not priced, would change step time{WIDER}: {_listed(unpriced)}")
    return options, remarks


def _dispatcher(fields: Fields, *, experts: bool) -> dict[str, Any]:
    """The option of what brings tokens to experts, where one is stated."""
    dispatcher = fields.text("moe-token-dispatcher-type", default="")
    if dispatcher and dispatcher not in DISPATCHERS:
        return {"unpriced": [f"moe-token-dispatcher-type {dispatcher}"]}
    if (
        dispatcher == "flex"
        and fields.text("moe-flex-dispatcher-backend", default=DEEPEP) == DEEPEP
    ):
        fields.get("moe-enable-deepep")
    return {"dispatcher": DISPATCHERS[dispatcher]} if dispatcher and experts else {}


def argument_of(name: str, value: Any) -> tuple[str, Any]:
    """A field of a configuration as an argument; None = it leaves the tool's default.

    >>> argument_of("masked-softmax-fusion", False), argument_of("masked-softmax-fusion", True)
    (('no-masked-softmax-fusion', True), ('masked-softmax-fusion', None))
    """
    name = RENAMED.get(name, name)
    if isinstance(value, bool) and name in SWITCHED_OFF:
        return (name, None) if value else (SWITCHED_OFF[name], True)
    if value is False:
        return name, None
    return name, " ".join(map(str, value)) if isinstance(value, list) else value


def _listed(names: list[str]) -> str:
    return ", ".join(name.replace("-", "_") if name.isupper() else name for name in names)


def _is_on(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    return value is True or value == "" or str(value).casefold() not in NEVER


def _of_memory(fields: Fields) -> dict[str, Any]:
    """Switches of the allocator and of libraries' workspaces."""
    names = ("PYTORCH-CUDA-ALLOC-CONF", "PYTORCH-ALLOC-CONF")
    allocator = "".join(fields.text(name) for name in names).casefold()
    on = {
        "expandable_segments": "expandable_segments:true" in allocator,
        "wide_workspaces": ":4096:8" in fields.text("CUBLAS-WORKSPACE-CONFIG"),
    }
    return {name: True for name, stated in on.items() if stated}


def _unfused(fields: Fields) -> bool:
    """Whether scores and softmax are kernels of their own."""
    backend = fields.text("attention-backend", default="auto").removeprefix("AttnBackend.")
    layers = fields.text("transformer-impl", default="transformer_engine")
    if fields.flag("use-flash-attn") or backend in ("flash", "fused"):
        return False
    return layers == "local" or backend in ("unfused", "local")


def _drops(fields: Fields) -> bool:
    names = ("attention-dropout", "hidden-dropout")
    return max([fields.number(name, default=DROPOUT) for name in names]) > 0.0


def _without_switch(fields: Fields) -> bool:
    """Whether the collectives' library may not reduce in the switch."""
    algorithm = fields.text("NCCL-ALGO").casefold()
    forbidden = algorithm.startswith("^") and "nvls" in algorithm
    named = bool(algorithm) and not algorithm.startswith("^") and "nvls" not in algorithm
    return forbidden or named or fields.text("NCCL-NVLS-ENABLE", default="1") == "0"


def _graphs(fields: Fields) -> str:
    """What CUDA graphs capture: a whole pass ("full"), layers but for experts ("piecewise"), or
    less; "" = nothing.
    """
    kind = fields.text("cuda-graph-impl", default="none")
    modules = fields.text("cuda-graph-scope", default="") + fields.text(
        "cuda-graph-modules", default=""
    )
    if kind == "none" and not (
        fields.flag("enable-cuda-graph") or fields.flag("external-cuda-graph")
    ):
        return ""
    if "full_iteration" in modules:
        return "full"
    whole = not modules or all(name in modules for name in PIECES)
    return "piecewise" if whole else "CUDA graphs of parts of a layer"


def refuse_contradictions(fields: Fields) -> None:
    """Raises SilicastError where two arguments exclude each other, or one needs another: as the
    tool's own checks of its arguments do.
    """
    both = (
        ("bf16", "fp16"),
        ("fp8-format", "fp4-format"),
        ("fp8", "fp4-format"),
        ("use-torch-fsdp2", "use-distributed-optimizer"),
        ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"),
    )
    for first, second in both:
        if _is_on(fields, first) and _is_on(fields, second):
            raise fields.error(f"contradicts --{second}", first, "keep one of them")
    needs = (
        ("fp8-recipe", ("fp8-format", "fp8"), "products are in 16 bits without it"),
        ("fp8-param-gather", ("fp8-format", "fp8"), "weights are in 16 bits without it"),
        ("fp4-recipe", ("fp4-format",), "products are in 16 bits without it"),
        ("recompute-method", ("recompute-granularity",), "nothing runs again without it"),
    )
    for name, others, why in needs:
        if _is_on(fields, name) and not any(_is_on(fields, other) for other in others):
            raise fields.error(f"needs --{others[0]}: {why}", name, "state both or none")
