"""Megatron-LM (github.com/NVIDIA/Megatron-LM): arguments of a run, in a shell script or alone."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.formats.effects import effects_of
from silicast.formats.fields import Fields
from silicast.formats.source import Source
from silicast.formats.training_configs.decoder_config import DecoderSizes, LatentSizes, config_of
from silicast.formats.training_configs.launcher import LEAST_KNOWN, arguments_of, closed, ranks_of
from silicast.formats.training_configs.megatron_switches import (
    argument_of,
    refuse_contradictions,
    switches,
)
from silicast.formats.training_configs.reader import (
    Stated,
    TrainingConfig,
    Tree,
    parallel_of,
    register,
)

KNOWN = frozenset((
    "tensor-model-parallel-size", "num-layers", "hidden-size", "micro-batch-size",
    "global-batch-size", "num-attention-heads", "seq-length",
))  # fmt: skip
"""Three of these make a run of Megatron-LM."""
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd_momentum", "muon": "muon", "dist_muon": "muon"}
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
FP8 = {"delayed": "fp8", "tensorwise": "fp8", "mxfp8": "mxfp8", "blockwise": "fp8_block"}
POSITIONS = {
    "learned_absolute": "learned",
    "rope": "rope",
    "yarn": "rope",
    "mrope": "rope",
    "none": "rope",
    "relative": "rope",
}
NORMS = {
    "LayerNorm": "layernorm",
    "RMSNorm": "rmsnorm",
    "layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
}
"""Of Megatron-LM, and of Megatron-DeepSpeed."""
MODULES = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts")
"""Of ``--recompute-modules``."""
VOCABULARIES = {"GPT2BPETokenizer": 50_257}
"""Of tokenizers that are the same everywhere."""
_EVERY = re.compile(r"[1-9]\d{0,3}")
_LONGEST_PATTERN = 4000
"""Letters of a pattern of layers."""
HYBRID = ("hybrid-layer-pattern", "hybrid-override-pattern", "is-hybrid-model", "mamba-state-dim")
STEP = 64
"""Widths of gated MLPs that are not stated are multiples of it."""


@register
@final
class Megatron(TrainingConfig):
    """Reads a script that starts a run, or a list of arguments."""

    name: ClassVar[str] = "Megatron-LM"
    files: ClassVar[str] = (
        "a shell script that starts pretrain_gpt.py, a list of its arguments, or a YAML of them"
    )
    numbers: ClassVar[Mapping[str, str]] = {
        "model.num_attention_heads": "num-attention-heads",
        "model.experts": "num-experts",
        "workload.seq_len": "seq-length",
        "workload.global_batch": "global-batch-size",
        "parallel.tp": "tensor-model-parallel-size",
        "parallel.cp": "context-parallel-size",
        "parallel.ep": "expert-model-parallel-size",
    }

    def recognises(self, files: Sequence[Source]) -> bool:
        """Arguments that only Megatron-LM has."""
        if len(files) != 1:
            return False
        table = files[0].table
        if table is not None and (table.keys() & {"trainer", "train"}):
            return False  # of libraries above it
        names = (
            re.findall(r"--([A-Za-z][\w-]*)", files[0].text()) if table is None else _flat(table)
        )
        return len(KNOWN & {name.replace("_", "-") for name in names}) >= LEAST_KNOWN

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        table, file = files[0].table, str(files[0].path)
        if table is None:
            arguments, remarks = arguments_of(files[0].text(), file, stated, KNOWN, "megatron")
        else:
            arguments, remarks = _flat(_one_run(table, file, stated)), []
        scenario, more = scenario_of(arguments, file, stated.devices)
        return scenario, [*remarks, *more]


def scenario_of(
    arguments: Mapping[str, Any], file: str, devices: int = 0, named: str = ""
) -> tuple[Tree, list[str]]:
    """The scenario of a run's arguments and of the variables that libraries read.

    Args:
        arguments: by name with hyphens; file: for errors.
        devices: as :attr:`Stated.devices`.
        named: the model, where the arguments do not describe it.

    Raises:
        SilicastError: see :func:`~silicast.formats.training_configs.reader.read_training_config`.
    """
    remarks: list[str] = []
    resolved = closed(arguments, file, remarks, "megatron")
    fields = Fields(resolved, file=file, loose=True)
    if fields.has("encoder-num-layers"):
        raise unsupported(
            "an encoder and a decoder of other lengths are not modelled in training",
            "encoder-num-layers",
            "a run of one stack: --num-layers",
        )
    for name in HYBRID:
        if fields.has(name):
            raise unsupported("layers of Mamba are not modelled in training", name, "a decoder")
    model: str | dict[str, Any]
    if named:
        model, layers = named, 0
        has_experts = fields.count("expert-model-parallel-size", default=1) > 1
    else:
        model, layers, more = _model(fields)
        remarks += more
        has_experts = fields.has("num-experts")
    options, more = switches(fields, experts=has_experts)
    remarks += more
    ranks = ranks_of(fields, devices)
    refuse_contradictions(fields)
    parallel = _parallel(fields, ranks, layers, remarks, experts=has_experts)
    micro = fields.count("micro-batch-size", default=1)
    scenario: Tree = {
        "model": model,
        "parallel": parallel,
        "engine": {"name": "megatron", "options": options},
        "precision": {"recipe": _recipe(fields)},
        "workload": {
            "seq_len": fields.count("seq-length"),
            "micro_batch": micro,
            "global_batch": _global_batch(fields, micro, parallel, remarks),
            "recompute": _recompute(fields, remarks),
            "optimizer": fields.choice("optimizer", OPTIMIZERS, "adam"),
            "overlap": {
                "gradients": fields.flag("overlap-grad-reduce"),
                "weights": fields.flag("overlap-param-gather"),
                "transfers": not fields.flag("no-overlap-p2p-communication")
                and parallel.get("virtual_stages", 1) > 1,
                "tensor": fields.flag("tp-comm-overlap"),
                "shared_experts": fields.flag("moe-shared-expert-overlap"),
                "experts": fields.flag("overlap-moe-expert-parallel-comm"),
            },
        },
    }
    if ranks:
        gpus, per_node = ranks
        scenario["cluster"] = {"gpus": gpus, **({"gpus_per_node": per_node} if per_node else {})}
    if fields.has("mtp-num-layers"):
        scenario["workload"]["mtp_layers"] = fields.count("mtp-num-layers", least=0)
    if fields.flag("moe-router-force-load-balancing"):
        scenario["workload"]["routing"] = "balanced"
    return scenario, [*remarks, *effects_of("megatron").unused([fields], scenario)]


def _one_run(table: Mapping[str, Any], file: str, stated: Stated) -> Mapping[str, Any]:
    """A YAML file without the runs that are not chosen: tables of arguments side by side."""
    runs = {
        str(name): ""
        for name, value in table.items()
        if isinstance(value, Mapping) and len(KNOWN & _flat(value).keys()) >= LEAST_KNOWN
    }
    if len(runs) < 2:
        return table
    chosen = stated.chosen(runs, file)
    return {name: value for name, value in table.items() if name == chosen or name not in runs}


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a YAML file by name, those in inner tables too; a flag that is false is none."""
    arguments: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            arguments |= _flat(value)
        else:
            key, argument = argument_of(str(name).removeprefix("--").replace("_", "-"), value)
            arguments |= {} if argument is None else {key: argument}
    return arguments


def _model(fields: Fields) -> tuple[dict[str, Any], int, list[str]]:
    remarks: list[str] = []
    layers, hidden = fields.count("num-layers"), fields.count("hidden-size")
    heads, activation = fields.count("num-attention-heads"), fields.text("activation-func")
    gated = fields.flag("swiglu") or activation == "swiglu"
    usual = int(4 * hidden * 2 / 3 / STEP) * STEP if gated else 4 * hidden
    groups = "num-query-groups"
    if fields.has("num-key-value-heads"):  # Megatron-DeepSpeed
        groups = "num-key-value-heads"
    grouped = fields.flag("group-query-attention") or fields.has(groups)
    tp = fields.count("tensor-model-parallel-size", default=1)
    squared = fields.flag("squared-relu") or activation == "squaredrelu"
    position = fields.choice("position-embedding-type", POSITIONS, "learned_absolute")
    position = "rope" if fields.flag("use-rotary-position-embeddings") else position
    width = fields.count("kv-channels", default=0, least=0)
    experts = fields.count("num-experts", default=0, least=0)
    latent = None
    if fields.flag("multi-latent-attention"):
        latent = LatentSizes(
            kv_lora_rank=fields.count("kv-lora-rank", default=32),
            q_lora_rank=fields.count("q-lora-rank", default=0, least=0),
            qk_nope_head_dim=fields.count("qk-head-dim", default=128),
            qk_rope_head_dim=fields.count("qk-pos-emb-head-dim", default=64),
            v_head_dim=fields.count("v-head-dim", default=128),
        )
    ffn = fields.count("ffn-hidden-size", default=usual)
    dense = _dense_layers(fields, layers, remarks) if experts else ()
    at_start = dense == tuple(range(len(dense)))
    model = DecoderSizes(
        layers=layers, hidden=hidden, heads=heads, gated=gated, intermediate=ffn,
        kv_heads=fields.count(groups, default=1) if grouped else heads,
        head_dim=width if width * heads != hidden else 0, vocab=_vocabulary(fields, tp, remarks),
        max_positions=fields.count("max-position-embeddings", default=4096),
        activation="silu" if gated else "relu2" if squared else "gelu",
        norm=fields.choice("normalization", NORMS, "LayerNorm"), position=position,
        tied=not fields.flag("untie-embeddings-and-output-weights"),
        biases=not fields.flag("disable-bias-linear"), qkv_bias=fields.flag("add-qkv-bias"),
        qk_norm=fields.flag("qk-layernorm"), experts=experts,
        topk=fields.count("moe-router-topk", default=2),
        moe_intermediate=fields.count("moe-ffn-hidden-size", default=ffn) if experts else 0,
        shared_intermediate=fields.count(
            "moe-shared-expert-intermediate-size", default=0, least=0
        ),
        dense_first=len(dense) if at_start else 0,
        dense_layers=() if at_start else dense, latent=latent,
        mtp_layers=fields.count("mtp-num-layers", default=0, least=0),
    )  # fmt: skip
    made, more = config_of(model)
    return made, layers, [*remarks, *more]


def _dense_layers(fields: Fields, layers: int, remarks: list[str]) -> tuple[int, ...]:
    """Layers without experts, of ``--moe-layer-freq``: every how many layers has them, or a sum of
    lists of zeros and ones, as ``([0]*3+[1]*58)`` or ``[0,1]*12``.
    """
    text = fields.text("moe-layer-freq", default="1").replace(" ", "").strip("'\"")
    every = _EVERY.fullmatch(text)
    has_experts = [layer % int(every[0]) == 0 for layer in range(layers)] if every else None
    if has_experts is None:
        try:
            written = text if len(text) <= _LONGEST_PATTERN else ""
            has_experts = _flags_of(ast.parse(written, mode="eval").body, layers + 1)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise fields.error(
                f"{text[:40]} is no pattern of layers",
                "moe-layer-freq",
                "expected a whole number or lists of 0 and 1, as ([0]*3+[1]*58)",
            ) from None
    if len(has_experts) == layers:
        return tuple(layer for layer, has in enumerate(has_experts) if not has)
    remarks.append(
        f"moe-layer-freq: {text[:40]} is not of {layers} layers; experts in every layer are assumed"
    )
    return ()


def _flags_of(node: ast.expr, most: int) -> list[bool]:
    """Flags of layers, as lists of 0 and 1 with + and * state them, up to so many.

    Raises:
        ValueError: anything else stands there.
    """
    if isinstance(node, ast.List):
        values = [item.value if isinstance(item, ast.Constant) else None for item in node.elts]
        if not all(type(value) is int and value in (0, 1) for value in values):
            raise ValueError
        return [value == 1 for value in values][:most]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_flags_of(node.left, most) + _flags_of(node.right, most))[:most]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        times = node.right.value if isinstance(node.right, ast.Constant) else None
        if type(times) is int and times >= 0:
            return (_flags_of(node.left, most) * min(times, most))[:most]
    raise ValueError


def _vocabulary(fields: Fields, tp: int, remarks: list[str]) -> int:
    """Padded, as Megatron-LM pads it."""
    tokenizer = fields.text("tokenizer-type")
    tokenizer_size = VOCABULARIES.get(tokenizer, 0)
    padded_size = fields.count("padded-vocab-size", default=0, least=0)
    if padded_size:
        return padded_size
    size = fields.count("vocab-size", default=tokenizer_size, least=0)
    if not size:
        size = VOCABULARIES["GPT2BPETokenizer"]
        remarks.append(f"vocabulary: not stated; {size} of GPT-2 are assumed")
    step = fields.count("make-vocab-size-divisible-by", default=128) * tp
    return math.ceil(size / step) * step


def _parallel(
    fields: Fields, ranks: tuple[int, int] | None, layers: int, remarks: list[str], *, experts: bool
) -> Tree:
    tp = fields.count("tensor-model-parallel-size", default=1)
    pp = fields.count("pipeline-model-parallel-size", default=1)
    cp = fields.count("context-parallel-size", default=1)
    ep = fields.count("expert-model-parallel-size", default=1)
    dp = 1
    width = fields.count("expert-tensor-parallel-size", default=tp)
    if ranks is None:
        dp = math.lcm(tp * cp, ep * width) // (tp * cp) if experts else 1
        fewest = tp * pp * cp * dp
        remarks.append(
            f"devices: not stated (--nproc-per-node, --nnodes), {fewest} taken; state them: "
            f"--set cluster.gpus={max(fewest, 8)}"
        )
    else:
        dp, remainder = divmod(ranks[0], tp * pp * cp)
        if remainder or not dp:
            raise fields.error(
                f"{ranks[0]} ranks do not divide by {tp} x {pp} x {cp}",
                "tensor-model-parallel-size",
                "change it, another degree, or the number of ranks: --set cluster.gpus",
            )
    zero = int(fields.flag("use-distributed-optimizer"))
    shares = fields.choice("data-parallel-sharding-strategy", SHARDING, "no_shard")
    if shares or fields.flag("use-megatron-fsdp"):
        zero = shares
    if fields.flag("use-torch-fsdp2"):
        zero = 3
    if fields.has("zero-stage"):  # Megatron-DeepSpeed
        zero = fields.count("zero-stage", least=0)
    chunks = fields.count("num-virtual-stages-per-pipeline-rank", default=1)
    if fields.has("num-layers-per-virtual-pipeline-stage"):
        layers_of_virtual_stage = fields.count("num-layers-per-virtual-pipeline-stage")
        if not layers:
            raise fields.error(
                "needs the number of layers, which the model's name stands for",
                "num-layers-per-virtual-pipeline-stage",
                "state how many chunks a rank has: virtual_pipeline_model_parallel_size",
            )
        chunks, remainder = divmod(layers, pp * layers_of_virtual_stage)
        if remainder or not chunks:
            raise fields.error(
                f"{layers} layers on {pp} stages are no chunks of {layers_of_virtual_stage}",
                "num-layers-per-virtual-pipeline-stage",
            )
    parallel = parallel_of(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=dp,
        sp=fields.flag("sequence-parallel") and tp > 1,
        zero=zero,
        virtual_stages=chunks,
    )
    instances = fields.count("num-distributed-optimizer-instances", default=1)
    if instances > 1 and zero:
        parallel["shard"] = dp * cp // instances
    if experts and (width != tp or ep > 1):
        parallel["etp"] = width
    return parallel


def _recipe(fields: Fields) -> str:
    half = "bf16" if fields.flag("bf16") else "fp16" if fields.flag("fp16") else "fp32"
    if fields.has("fp4-format"):
        fields.get("fp4-format", "fp4-recipe")
        return "nvfp4"
    if fields.get("fp8-format", "fp8") is None:
        return half
    return str(fields.choice("fp8-recipe", FP8, "delayed"))


def _global_batch(
    fields: Fields, micro: int, parallel: Mapping[str, Any], remarks: list[str]
) -> int:
    if fields.has("global-batch-size"):
        return fields.count("global-batch-size")
    global_batch = micro * int(parallel.get("dp", 1))
    remarks.append(f"global-batch-size: not stated; {global_batch}, one micro-batch a data rank")
    return global_batch


def _recompute(fields: Fields, remarks: list[str]) -> str:
    kind = fields.text("recompute-granularity", default="")
    for name in ("checkpoint-activations", "deepspeed-activation-checkpointing"):
        kind = "full" if fields.flag(name) else kind  # of older versions
    if fields.flag("recompute-activations"):
        kind = "selective"
    if kind == "full":
        if fields.text("recompute-method", default="uniform") == "block":
            count = fields.text("recompute-num-layers", default="1")
            remarks.append(f"recompute-method block: every layer is taken, not {count} of a stage")
        fields.get("recompute-num-layers")
        return "full"
    if kind != "selective":
        return "none"
    listed = fields.text("recompute-modules", default="core_attn")
    modules = re.findall(r"[a-z_]+", listed)
    unknown = [name for name in modules if name not in MODULES]
    if unknown:
        raise fields.error(
            f"unknown module {unknown[0][:40]!r}", "recompute-modules", ", ".join(MODULES)
        )
    if set(modules) <= {"core_attn"}:
        return "selective"
    return f"selective:{'+'.join(dict.fromkeys(modules))}"
