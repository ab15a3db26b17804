"""Megatron-Bridge (github.com/NVIDIA-NeMo/Megatron-Bridge): recipes in Python, and their YAML.

What ``_pretrain_common`` and its like set is from megatron-bridge 0.3.1, recipes/common.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from silicast.core.catalog import CATALOG
from silicast.core.decode import read_toml
from silicast.core.errors import unsupported
from silicast.formats.effects import effects_of
from silicast.formats.fields import Fields
from silicast.formats.python_file import CALLED, GIVEN, Setter
from silicast.formats.source import Source
from silicast.formats.training_configs.megatron import Megatron, scenario_of
from silicast.formats.training_configs.megatron_switches import argument_of
from silicast.formats.training_configs.python_recipe import called_in, chosen_recipe, known_values
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree, register
from silicast.formats.training_configs.trainer_run import ALL_TARGETS, targets_of

FILE = CATALOG / "bridge_recipes.toml"
SECTIONS = ("dataset", "model", "train", "ddp", "optimizer", "comm_overlap", "rng", "dist")
"""Of a recipe, whose fields are arguments of Megatron-LM; the later one of two counts."""
_DDP = {
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "use_distributed_optimizer": True,
}
COMMON: Mapping[str, Mapping[str, Any]] = {
    "_pretrain_common": {
        "train": {"global_batch_size": 32, "micro_batch_size": 2},
        "ddp": _DDP,
        "dataset": {"seq_length": 4096},
    },
    "_sft_common": {
        "train": {"global_batch_size": 128, "micro_batch_size": 1},
        "dataset": {"seq_length": 2048},
    },
    "_peft_common": {
        "train": {"global_batch_size": 128, "micro_batch_size": 1},
        "dataset": {"seq_length": 2048},
        "peft": {"dim": 32},
    },
}
"""What these functions, which recipes begin with, set."""
SETTERS = {
    "_with_global_batch_size": Setter(
        "megatron.bridge.perf_recipes", ("cfg", "global_batch_size"), "train.global_batch_size"
    )
}
"""Functions of performance recipes that set a field of one (0.6.2, perf_recipes/*/common.py)."""
TOOL = "megatron"
MIXED = (
    ("mxfp8", {"fp8-format": "hybrid", "fp8-recipe": "mxfp8"}),
    ("nvfp4", {"fp4-format": "e2m1"}),
    ("subchannel", {"fp8-format": "hybrid", "fp8-recipe": "blockwise"}),
    ("current_scaling", {"fp8-format": "hybrid", "fp8-recipe": "tensorwise"}),
    ("fp8", {"fp8-format": "hybrid"}),
)
"""Words in the name of a mixed precision -> arguments; the first counts."""


@register
@final
class MegatronBridge(TrainingConfig):
    """Reads a recipe."""

    name: ClassVar[str] = "Megatron-Bridge"
    files: ClassVar[str] = "a recipe (Python, read and not run), or the YAML of a run"
    numbers: ClassVar[Mapping[str, str]] = {
        name: text.replace("-", "_") for name, text in Megatron.numbers.items()
    } | {"workload.global_batch": "train.global_batch_size"}

    def recognises(self, files: Sequence[Source]) -> bool:
        """A Python file with functions that return a configuration, or a YAML with its sections."""
        if len(files) != 1:
            return False
        file = files[0]
        if file.path.suffix.casefold() == ".py":
            words = ("ConfigContainer", "megatron.bridge", "nemo.collections")
            return any(file.holds(word) for word in words)
        table = file.table
        if table is None or not isinstance(table.get("train"), dict):
            return False
        held = {"global_batch_size", "micro_batch_size"} & set(table["train"])
        return bool(held) and isinstance(table.get("model"), dict)

    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        file = files[0]
        remarks: list[str] = []
        if file.path.suffix.casefold() == ".py":
            tree = _recipe(file, stated, remarks)
        else:
            tree = dict(file.table or {})
        arguments, named = _arguments(tree, str(file.path))
        scenario, more = scenario_of(arguments, str(file.path), stated.devices, named)
        scenario["engine"]["name"] = "megatron_bridge"
        _adapters(tree, scenario, str(file.path), remarks)
        return scenario, [*remarks, *more]


@functools.cache
def library_recipes() -> Mapping[str, Mapping[str, Any]]:
    """Recipes of the library by their functions: what each sets over ``_pretrain_common``."""
    recipes: dict[str, dict[str, Any]] = {}
    for name, stated in read_toml(FILE).items():
        common = COMMON[stated.get("common", "_pretrain_common")]
        recipe: dict[str, Any] = {section: dict(values) for section, values in common.items()}
        for section, values in stated.items():
            if isinstance(values, Mapping):
                recipe[section] = {**recipe.get(section, {}), **values}
            elif section not in ("hf", "common"):
                recipe[section] = values
        model: dict[str, Any] = {CALLED: "from_hf_pretrained", GIVEN: [stated["hf"]]}
        if "expert_model_parallel_size" in stated.get("model", {}):
            model["expert_tensor_parallel_size"] = 1  # in all recipes, where Megatron takes tp
        recipes[name] = recipe | {"model": {**model, **recipe.get("model", {})}}
    return recipes


def _recipe(file: Source, stated: Stated, remarks: list[str]) -> dict[str, Any]:
    """The tree of one recipe of a file.

    Raises:
        SilicastError: it holds several, or one that only running it would give.
    """
    name, python, built, more = chosen_recipe(
        file,
        stated,
        {"model": dict},
        "give the YAML that the run writes (run_config.yaml), or a recipe without arguments",
        effects_of(TOOL),
        library_recipes(),
        COMMON,
        SETTERS,
    )
    remarks += more
    begins = called_in(built.tree, python)
    base = COMMON.get(begins) or library_recipes().get(begins, {})
    if not base and begins != "ConfigContainer":
        raise unsupported(
            f"begins with {begins}, which is not in this file",
            name,
            "give the YAML that the run writes (run_config.yaml)",
            file=str(file.path),
        )
    tree = dict(built.tree)
    for section, values in base.items():
        inner = tree.get(section)
        if isinstance(values, str):
            tree.setdefault(section, values)
        else:
            tree[section] = {**values, **(inner if isinstance(inner, dict) else {})}
    if base and tree.get("peft", {}) is None:
        tree.pop("peft")
    remarks.append(f"recipe: {name}" + (f", over what {begins} sets" if base else ""))
    return tree


def _arguments(tree: Mapping[str, Any], file: str) -> tuple[dict[str, Any], str]:
    """Arguments of Megatron-LM, and the name of the model ("" = they describe it)."""
    arguments: dict[str, Any] = {}
    for section in SECTIONS:
        for name, value in known_values(tree.get(section), section, file, effects_of(TOOL)).items():
            key, argument = argument_of(str(name).replace("_", "-"), value)
            arguments |= {} if argument is None else {key: argument}
    if "recompute-granularity" not in arguments:  # a recipe's method stays where that is None
        arguments.pop("recompute-method", None)
        arguments.pop("recompute-num-layers", None)
    named = _named(tree)
    if named:
        arguments |= {"attention-dropout": 0.0, "hidden-dropout": 0.0}
    else:
        arguments = _described(tree["model"], arguments, file)
    if not arguments.get("use-megatron-fsdp"):
        arguments.pop("data-parallel-sharding-strategy", None)
    return arguments | _formats(tree.get("mixed_precision"), file), named


def _named(tree: Mapping[str, Any]) -> str:
    """The model's name; "" = its sizes describe it."""
    model = tree["model"]
    arguments = model.get(GIVEN) or []
    if str(model.get(CALLED, "")).endswith("from_hf_pretrained"):
        return str(arguments[0]) if arguments and isinstance(arguments[0], str) else ""
    return str(tree.get("hf_path") or model.get("hf_path") or "")


def _described(model: Mapping[str, Any], arguments: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Arguments of a model whose sizes are stated: the library's defaults are other ones.

    Raises:
        SilicastError: none are.
    """
    made = dict(arguments)
    if "num-layers" not in made:
        raise unsupported(
            "states no model by its name or sizes",
            "model",
            "from_hf_pretrained, or num_layers, hidden_size and the like",
            file=file,
        )
    switches = {
        "group-query-attention": bool(model.get("num_query_groups")),
        "swiglu": bool(model.get("gated_linear_unit")),
        "untie-embeddings-and-output-weights": (
            model.get("share_embeddings_and_output_weights") is False
        ),
    }
    made.pop("share-embeddings-and-output-weights", None)
    return made | {name: True for name, on in switches.items() if on}


def _formats(value: Any, file: str) -> dict[str, Any]:
    """Arguments that a mixed precision stands for."""
    known_values({"mixed_precision": value}, "", file, effects_of(TOOL))
    if isinstance(value, Mapping):
        if isinstance(value.get("bf16"), bool) or "fp8_recipe" in value:  # its fields one by one
            switches = {name: value.get(name) for name in ("bf16", "fp16")}
            made: dict[str, Any] = {name: True for name, on in switches.items() if on is True}
            if value.get("fp8"):
                made |= {"fp8-format": value["fp8"]}
                recipe = value.get("fp8_recipe")
                made |= {"fp8-recipe": recipe} if recipe else {}
            return made or {"bf16": True}
        arguments = value.get(GIVEN) or [value.get(CALLED, "")]
        value = arguments[0] if isinstance(arguments, list) else arguments
    word = str(value or "bf16_mixed").rpartition(".")[2]
    half = "fp16" if word.startswith("fp16") else "bf16"
    return {half: True} | next((dict(made) for name, made in MIXED if name in word), {})


def _adapters(tree: Mapping[str, Any], scenario: Tree, file: str, remarks: list[str]) -> None:
    """Adds adapters to a scenario that trains them."""
    peft = tree.get("peft")
    if isinstance(peft, str):
        peft = {CALLED: peft}
    if not isinstance(peft, Mapping):
        return
    kind = str((peft.get(GIVEN) or [peft.get(CALLED) or peft.get("_target_") or "lora"])[0])
    if "lora" not in kind.casefold() and "common" not in kind:
        raise unsupported(f"{kind[:40]} is not read", "peft", "LoRA", file=file)
    fields = Fields(peft, "peft", file, loose=True)
    targets = targets_of(fields, "target_modules", remarks) if fields.has("target_modules") else ()
    scenario["workload"]["task"] = "lora"
    scenario["lora"] = {
        "rank": fields.count("dim", default=32),
        "targets": list(targets or ALL_TARGETS),
    }
