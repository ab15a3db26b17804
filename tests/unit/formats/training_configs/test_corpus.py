"""Launch files of each tool as scenarios: what they mean, that they run, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from silicast.composition.passes.training_step import UNPRICED
from silicast.core.errors import SilicastError
from silicast.formats.effects import WIDER, effects_of
from silicast.formats.training_configs import missing_of, read_training_config
from silicast.scenario.answers.training.training_runs import prepared
from silicast.scenario.decode import decode
from silicast.scenario.workloads import TrainingWorkload
from tests.unit.formats.training_configs.corpus import CORPUS
from tests.unit.formats.training_configs.launch_file import LaunchFile

BESIDE = {"model": "Llama-3.1-8B", "workload.seq_len": 2048}
"""What a user states where no file does."""


def read(folder: Path, item: LaunchFile) -> tuple[dict[str, Any], list[str]]:
    paths = []
    for name, text in item.files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return read_training_config(
        *paths, devices=item.devices, run=item.run, variables=item.variables
    )


def at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


@pytest.mark.parametrize("name", CORPUS)
def test_a_launch_file_means_its_run(tmp_path: Path, name: str) -> None:
    item = CORPUS[name]
    scenario, remarks = read(tmp_path, item)
    assert {path: at(scenario, path) for path in item.means} == item.means
    while (missing := missing_of({"device": "h100", **scenario})) is not None:
        path, value = missing[0], BESIDE[missing[0]]
        holder = scenario
        for part in path.split(".")[:-1]:
            holder = holder[part]
        holder[path.rpartition(".")[2]] = value
    decoded = decode({"device": "h100", **scenario})
    assert isinstance(decoded.workload, TrainingWorkload)
    run = prepared(decoded, decoded.workload)
    assert run.rank.plan.gpus == at(scenario, "cluster.gpus")
    assert not [line for line in remarks if "would change" in line and "unknown" not in line]


def test_there_are_forty_files() -> None:
    assert len(CORPUS) >= 40


REFUSED = [
    ("megatron-chosen_of_two", "", "", "holds 2 runs: 1 (--tensor-model-parallel-size 2), 2 ("),
    ("megatron-yaml_of_two", "", "", "holds 2 runs: MODEL_ARGS, MODEL_ARGS_2"),
    ("megatron-one_value_of_a_loop", "", "", "--env CP=value"),
    ("nvidia-bridge_small", "", "", "holds 3 runs: small_run, long_run, adapters"),
    ("torchtitan-registry", "", "", "holds 2 runs: qwen3_small, qwen3_float8"),
    ("megatron-plain", "--bf16", "--bf16 --fp16", "bf16: contradicts --fp16"),
    ("megatron-plain", "--bf16", "--bf16 --fp8-recipe mxfp8", "fp8-recipe: needs --fp8-format"),
    ("megatron-plain", "size 64", "size 60", "global-batch-size: 60 does not divide by 32"),
    ("megatron-plain", "--bf16", "--bf16 --tensor-model-parallel-size 3", "16 ranks do not divide"),
    (
        "nvidia-nemo_yaml",
        "num_attention_heads: 32",
        "num_attention_heads: 30",
        "model.num_attention_heads: 30 does not divide by 4",
    ),
    (
        "torchtitan-toml_all_devices",
        "tensor_parallel_degree = 8",
        "tensor_parallel_degree = 24",
        "parallelism.data_parallel_shard_degree: 64 devices do not divide",
    ),
    (
        "torchtitan-toml_all_devices",
        "shard_degree = -1",
        "shard_degree = 2",
        "data_parallel_shard_degree: the degrees take 32 of 64 devices",
    ),
    ("torchtitan-registry", 'model_registry("8B")', "model_registry(size)", "its flavour is no"),
    ("torchtitan-registry", "seq_len=4096", "seq_len=length()", "training.seq_len"),
    (
        "hugging-face-deepspeed_offload_fp16",
        '"fp16": {',
        '"bf16": {"enabled": true}, "fp16": {',
        "fp16.enabled: contradicts bf16",
    ),
    (
        "hugging-face-deepspeed_offload_fp16",
        '"train_batch_size": 64',
        '"train_batch_size": 60',
        "train_batch_size: 60 does not divide by 2 x 8 ranks",
    ),
    (
        "hugging-face-trl_yaml_lora",
        "use_peft: true\n",
        "use_peft: false\nload_in_8bit: true\n",
        "load_in_4bit: contradicts load_in_8bit",
    ),
    (
        "hugging-face-torchrun_fsdp_words",
        "--bf16 True",
        "--bf16 True --deepspeed z.json",
        "fsdp: contradicts deepspeed",
    ),
    ("axolotl-qlora", "adapter: qlora\n", "", "load_in_4bit: weights of few bits"),
    ("axolotl-qlora", "load_in_4bit: true", "load_in_8bit: true", "contradicts adapter: qlora"),
    (
        "axolotl-long_context",
        "sequence_len: 32768",
        "sequence_len: 32770",
        "sequence_len: 32770 does not divide by 8 (context_parallel_size)",
    ),
    ("llama-factory-qlora", "finetuning_type: lora", "finetuning_type: full", "quantization_bit"),
    ("llama-factory-lora_sft", "stage: sft", "stage: ppo", "stage: stage 'ppo' is not read here"),
    ("llama-factory-lora_sft", "target: all", "target: zz", "lora_target: no product 'zz'"),
    (
        "maxtext-yaml",
        "ici_tensor_parallelism: 4",
        "ici_tensor_parallelism: 5",
        "ici_fsdp_parallelism: the axes take 5 of 16 devices",
    ),
    ("maxtext-yaml", "ici_tensor_parallelism: 4", "ici_tensor_parallelism: -1", "are both -1"),
    (
        "maxtext-sizes",
        "per_device_batch_size: 1",
        "per_device_batch_size: 0.3",
        "per_device_batch_size: 0.3 x 8 devices are no whole number",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "words"), REFUSED)
def test_what_contradicts_or_does_not_divide_is_refused_at_its_field(
    tmp_path: Path, name: str, old: str, new: str, words: str
) -> None:
    item = CORPUS[name]
    assert not old or any(old in text for text in item.files.values())
    files = {file: text.replace(old, new) if old else text for file, text in item.files.items()}
    changed = LaunchFile(files, {}, item.devices)
    if old:
        changed = replace(changed, run=item.run, variables=item.variables)
    with pytest.raises(SilicastError) as caught:
        read(tmp_path, changed)
    message = str(caught.value)
    assert words in message
    assert str(tmp_path) in message
    assert "\n" not in message


def test_what_is_not_used_says_what_it_would_change(tmp_path: Path) -> None:
    item = CORPUS["axolotl-qlora"]
    more = "\ntiled_mlp_num_shards: 4\nsome_kernel: true\nlr_groups: x\ndevice: auto\n"
    files = {name: text + more for name, text in item.files.items()}
    scenario, remarks = read(tmp_path, LaunchFile(files, {}, item.devices))
    assert f"not used, would change step time{WIDER}: tiled_mlp_num_shards = 4" in remarks
    assert f"not used, would change an unknown amount{WIDER}: some_kernel = True" in remarks
    assert WIDER in UNPRICED  # a run says the same of them
    assert scenario["engine"]["options"]["unpriced"] == ["tiled_mlp_num_shards", "some_kernel"]
    assert any(line.startswith("not used: ") and "lr_groups" in line for line in remarks)


def test_a_file_that_is_named_and_not_given_is_read_by_its_name(tmp_path: Path) -> None:
    _, remarks = read(tmp_path, CORPUS["axolotl-deepspeed"])
    assert any("zero3_bf16.json is not given; stage 3 by its name" in line for line in remarks)


DEEPSPEED = """deepspeed --num_gpus=8 train.py --deepspeed tr/ds.json --bf16 True \\
  --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1 \\
  --gradient_accumulation_steps 4 --max_seq_length 4096
"""


def test_a_configuration_that_a_script_names_is_read_where_it_lies_there(tmp_path: Path) -> None:
    script, config = tmp_path / "run.sh", tmp_path / "tr" / "ds.json"
    script.write_text(DEEPSPEED, encoding="utf-8")
    with pytest.raises(
        SilicastError, match=r"name both files: silicast import run\.sh tr/ds\.json"
    ):
        read_training_config(script)
    config.parent.mkdir()
    config.write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    scenario, remarks = read_training_config(script)
    assert scenario["parallel"]["zero"] == 3
    assert scenario["workload"]["global_batch"] == 8 * 4
    assert "deepspeed: tr/ds.json is read, as the run names it" in remarks
    config.write_text("[3]", encoding="utf-8")
    with pytest.raises(SilicastError, match="no configuration of DeepSpeed") as caught:
        read_training_config(script)
    assert caught.value.file == str(config)


def test_a_function_that_is_called_in_a_loop_asks_which_run(tmp_path: Path) -> None:
    sizes = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --bf16"
    script = tmp_path / "run.sh"
    script.write_text(
        "launch() { local nodes=$1; shift; torchrun --nnodes $nodes --nproc_per_node 8 "
        f"pretrain_gpt.py {sizes} --vocab-size 32000 --tensor-model-parallel-size $1 "
        "--micro-batch-size 1 --global-batch-size ${2:?batch}; }\n"
        "for b in 128 256; do launch 2 4 $b; done\n",
        encoding="utf-8",
    )
    with pytest.raises(SilicastError, match="holds 2 runs") as caught:
        read_training_config(script)
    assert caught.value.hint == "--run 1"
    scenario, _ = read_training_config(script, run="2")
    assert scenario["workload"]["global_batch"] == 256
    assert (scenario["parallel"]["tp"], scenario["cluster"]["gpus"]) == (4, 16)


def test_nothing_of_a_python_file_is_run(tmp_path: Path) -> None:
    item = CORPUS["nvidia-bridge_small"]
    mark = tmp_path / "ran"
    files = {"recipes.py": f"open({str(mark)!r}, 'w')\n" + item.files["recipes.py"]}
    read(tmp_path, LaunchFile(files, {}, item.devices, item.run))
    assert not mark.exists()


HOSTILE = {
    "deep.py": "from x import model_registry\ndef f():\n    return " + "-" * 5000 + "1\n",
    "sum.py": "from x import model_registry\nA = " + "+".join(["1"] * 20_000) + "\n",
    "brackets.py": "model_registry" + "(" * 50_000,
    "twice.py": "from x import model_registry\n"
    + "".join(f"def f{n}():\n    a = f{n + 1}()\n    return f{n + 1}()\n" for n in range(15))
    + "def f15():\n    return {'a': 1}\n",
    "spaces.sh": "#SBATCH " + " " * 200_000 + "x\ntorchrun --num-layers 1 --hidden-size 2",
    "pair.sh": 'A="--num-layers'
    + " " * 200_000
    + '2 --bf16"\ntorchrun --hidden-size 2 "$A" --seq-length 1',
    "digits.sh": "if [ "
    + "9" * 6000
    + " -gt 1 ]; then A=1; fi\nrun --num-layers $A --hidden-size 1",
    "stars.sh": "case " + "a" * 5000 + " in " + "*a" * 2000 + "b) A=1;; esac\nrun --num-layers 1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name], encoding="utf-8")
    with pytest.raises(SilicastError) as caught:
        read_training_config(path)
    assert caught.value.kind != "internal"


@pytest.mark.parametrize(
    ("tool", "name", "changes"),
    [
        ("megatron", "seq-length", True),
        ("megatron", "dataset.seq_length", True),
        ("megatron", "lr-warmup-iters", False),
        ("megatron", "model.seed", False),
        ("megatron", "NCCL-DEBUG-SUBSYS", False),
        ("megatron", "NCCL-MIN-NCHANNELS", True),
        ("torchtitan", "metrics.log_freq", False),
        ("torchtitan", "parallelism.new_degree", True),
        ("hugging_face", "zero_optimization.sub_group_size", False),
        ("hugging_face", "zero_optimization.reduce_bucket_size", True),
        ("axolotl", "fsdp_config.state_dict_type", False),
        ("llama_factory", "wandb_project", False),
        ("maxtext", "ici_tensor_parallelism", True),
    ],
)
def test_names_that_are_in_no_table_may_change_a_step(tool: str, name: str, changes: bool) -> None:
    """The path counts before its tables, they before the last name; a beginning ends at a dot."""
    assert effects_of(tool).changes(name) is changes
