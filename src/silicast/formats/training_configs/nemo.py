"""NeMo (github.com/NVIDIA/NeMo): the YAML of a run of its language models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields
from silicast.formats.source import Source
from silicast.formats.training_configs.megatron import Megatron, scenario_of
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree, register
from silicast.formats.training_configs.trainer_run import ALL_TARGETS, targets_of

RENAMED = {
    "encoder-seq-length": "seq-length",
    "gradient-as-bucket-view": "",
    "virtual-pipeline-model-parallel-size": "num-virtual-stages-per-pipeline-rank",
    "activations-checkpoint-granularity": "recompute-granularity",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    "ub-tp-comm-overlap": "tp-comm-overlap",
    "num-moe-experts": "num-experts",
    "overlap-p2p-comm": "",
    "transformer-engine": "",
    "mcore-gpt": "",
    "pre-process": "",
    "post-process": "",
}
"""Fields of ``model`` -> arguments of Megatron-LM; "" = of no effect."""
ACTIVATIONS = {"fast-swiglu": "swiglu", "swiglu": "swiglu", "squared-relu": "squared-relu"}
NORMS = {"layernorm": "LayerNorm", "layernorm1p": "LayerNorm", "rmsnorm": "RMSNorm"}
OPTIMIZERS = {
    "distributed_fused_adam": "adam",
    "fused_adam": "adam",
    "adam": "adam",
    "adamw": "adam",
    "mcore_distributed_optim": "adam",
    "megatron_fused_adam": "adam",
    "sgd": "sgd",
}
_REFERENCE = re.compile(r"\$\{([.\w]+)\}")
_PRODUCT = re.compile(r"\$\{multiply:\s*(\d+)\s*,\s*\$\{([.\w]+)\}\s*\}")
TARGETS = {
    "attention_qkv": "linear_qkv",
    "attention_dense": "linear_proj",
    "mlp_fc1": "linear_fc1",
    "mlp_fc2": "linear_fc2",
}


@register
@final
class Nemo(TrainingConfig):
    """Reads a run's file."""

    name: ClassVar[str] = "NeMo"
    files: ClassVar[str] = "the YAML of a run of a language model (trainer, model)"
    numbers: ClassVar[Mapping[str, str]] = {
        name: f"model.{text.replace('-', '_')}" for name, text in Megatron.numbers.items()
    } | {"workload.seq_len": "model.encoder_seq_length"}

    def recognises(self, files: Sequence[Source]) -> bool:
        """A trainer with devices, and a model with degrees."""
        table = files[0].table if len(files) == 1 else None
        model = table.get("model") if table else None
        trainer = table.get("trainer") if table else None
        return (
            isinstance(model, dict)
            and isinstance(trainer, dict)
            and "devices" in trainer
            and ("tensor_model_parallel_size" in model or "micro_batch_size" in model)
        )

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        file, table = str(files[0].path), files[0].table or {}
        remarks: list[str] = []
        model = _resolved(table["model"], table, file)
        arguments, unread = _arguments(model)
        trainer = Fields(table["trainer"], "trainer", file, loose=True)
        for name, to in (("devices", "nproc-per-node"), ("num_nodes", "nnodes")):
            value = trainer.get(name)
            if isinstance(value, int) or str(value).isdigit():
                arguments[to] = str(value)
        precision = trainer.text("precision", default="bf16")
        if not arguments.get("fp8-format"):
            for name in ("16-mixed", "16", "bf16", "bf16-mixed"):
                if precision == name:
                    arguments["bf16" if "bf16" in name else "fp16"] = True
        else:
            arguments["bf16"] = True
        named = str(unread.get("restore_from_path") or unread.get("hf_model_name") or "")
        described = "num-layers" in arguments
        scenario, more = scenario_of(arguments, file, stated.devices, "" if described else named)
        _adapters(unread, scenario, file, remarks)
        return scenario, [*remarks, *more]


def _resolved(model: Mapping[str, Any], table: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The model's fields with references to others put in."""

    def looked_up(path: str) -> Any:
        value: Any = model if path.startswith(".") else table
        for name in path.strip(".").split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            raise SilicastError(f"nothing is at {path}", file=file, field=f"model: ${{{path}}}")
        return value

    made: dict[str, Any] = {}
    for name, value in model.items():
        made[name] = value
        if isinstance(value, str) and (match := _PRODUCT.fullmatch(value)):
            made[name] = int(match[1]) * int(looked_up(match[2]))
        elif isinstance(value, str) and (match := _REFERENCE.fullmatch(value)):
            made[name] = looked_up(match[1])
    return made


def _arguments(model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of Megatron-LM, and the fields that are tables or of NeMo alone."""
    arguments: dict[str, Any] = {"untie-embeddings-and-output-weights": True}
    unread: dict[str, Any] = {}
    for name, value in model.items():
        key = str(name).replace("_", "-")
        key = RENAMED.get(key, key)
        if isinstance(value, Mapping) or name in ("restore_from_path", "activation", "bias"):
            unread[name] = value
        elif key and value is not None and value is not False:
            arguments[key] = " ".join(map(str, value)) if isinstance(value, list) else value
    _rename_layers(arguments, unread, model)
    optim = unread.get("optim")
    if isinstance(optim, Mapping):
        kind = str(optim.get("name", "adam"))
        arguments["optimizer"] = OPTIMIZERS.get(kind, kind)
        if kind in ("distributed_fused_adam", "mcore_distributed_optim"):
            arguments["use-distributed-optimizer"] = True
        arguments["overlap-grad-reduce"] = bool(optim.get("overlap_grad_sync"))
        arguments["overlap-param-gather"] = bool(optim.get("overlap_param_sync"))
    tokenizer = unread.get("tokenizer")
    if isinstance(tokenizer, Mapping) and tokenizer.get("vocab_size"):
        arguments.setdefault("vocab-size", tokenizer["vocab_size"])
    return arguments, unread


def _rename_layers(
    arguments: dict[str, Any], unread: Mapping[str, Any], model: Mapping[str, Any]
) -> None:
    """Values of the model's fields in Megatron-LM's words."""
    activation = str(unread.get("activation", "gelu"))
    if activation in ACTIVATIONS:
        arguments[ACTIVATIONS[activation]] = True
    if unread.get("bias", True) is False:
        arguments["disable-bias-linear"] = True
    arguments.pop("share-embeddings-and-output-weights", None)
    if model.get("share_embeddings_and_output_weights", True):
        arguments.pop("untie-embeddings-and-output-weights")
    if "num-query-groups" in arguments:
        arguments["group-query-attention"] = True
    norm = str(arguments.get("normalization", "layernorm"))
    arguments["normalization"] = NORMS.get(norm, norm)
    if arguments.get("position-embedding-type") == "learned":
        arguments["position-embedding-type"] = "learned_absolute"
    if arguments.pop("fp8", None):
        arguments["fp8-format"] = "hybrid" if arguments.get("fp8-hybrid") else "e4m3"
    for name in ("fp8-hybrid", "fp8-e4m3", "megatron-amp-O2"):
        arguments.pop(name, None)


def _adapters(unread: Mapping[str, Any], scenario: Tree, file: str, remarks: list[str]) -> None:
    peft = unread.get("peft")
    if not isinstance(peft, Mapping) or str(peft.get("peft_scheme") or "none") == "none":
        return
    scheme = str(peft["peft_scheme"])
    if scheme not in ("lora", "qlora"):
        raise SilicastError(
            f"{scheme[:40]!r} is not read", file=file, field="model.peft.peft_scheme", hint="lora"
        )
    fields = Fields(peft, "model.peft", file, loose=True).table("lora_tuning")
    words = fields.get("target_modules")
    listed = [TARGETS.get(str(w), str(w)) for w in words] if isinstance(words, list) else ["all"]
    both = Fields({"target_modules": listed}, fields.path, file)
    scenario["workload"]["task"] = "lora"
    scenario["lora"] = {
        "rank": fields.count("adapter_dim", default=32),
        "targets": list(targets_of(both, "target_modules", remarks) or ALL_TARGETS),
    }
    if scheme == "qlora":
        scenario["precision"] = {"weights": "nf4"}
