"""Training configurations of each tool as scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.training_configs import is_training_config, read_training_config
from silicast.scenario.decode import decode
from silicast.scenario.resolve import model_of
from silicast.workload.models.model import ModelConfig
from tests.unit.formats.training_configs import samples as s


def understood(tree: dict[str, Any]) -> ModelConfig:
    """The model of a scenario that decodes."""
    model = model_of(decode({"device": "h100", **tree}))
    assert model.assumed == ()
    return model


def test_arguments_of_a_script(tmp_path: Path) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT)
    result, remarks = read_training_config(path)
    assert result["parallel"] == {
        "tp": 4, "pp": 2, "dp": 4, "sp": True, "zero": 1, "virtual_stages": 4,
    }  # fmt: skip
    assert result["cluster"] == {"gpus": 32, "gpus_per_node": 8}
    assert result["precision"] == {"recipe": "bf16"}
    assert result["workload"] == {
        "seq_len": 8192, "micro_batch": 1, "global_batch": 128, "recompute": "selective",
        "optimizer": "adamw",
        "overlap": {
            "gradients": True, "weights": False, "transfers": True, "tensor": False,
            "shared_experts": False, "experts": False,
        },
    }  # fmt: skip
    model = understood(result)
    assert (model.layers, model.hidden, model.kv_heads, model.intermediate) == (32, 4096, 8, 14336)
    assert model.vocab == 128512  # 128,256 padded to a multiple of 4 x 128
    assert model.gated
    assert not model.tied
    assert "not used: lr = 1e-4" in remarks
    assert "--data-path: its value '$DATA' is left to the shell" in remarks
    assert "device: not stated; name it" in remarks


@pytest.mark.parametrize(
    ("more", "place", "value"),
    [
        ("--fp8-format hybrid", ("precision", "recipe"), "fp8"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", ("precision", "recipe"), "mxfp8"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", ("precision", "recipe"), "fp8_block"),
        ("--recompute-granularity full", ("workload", "recompute"), "full"),
        ("--recompute-modules mlp", ("workload", "recompute"), "selective:mlp"),
        ("--tp-comm-overlap", ("workload", "overlap", "tensor"), True),
        ("--overlap-moe-expert-parallel-comm", ("workload", "overlap", "experts"), True),
        (
            "--moe-token-dispatcher-type flex --num-experts 8",
            ("engine", "options", "dispatcher"), "kernel",
        ),
        (
            "--moe-token-dispatcher-type alltoall --num-experts 8",
            ("engine", "options", "dispatcher"), "all_to_all",
        ),
        ("--moe-shared-expert-overlap", ("workload", "overlap", "shared_experts"), True),
        ("--no-overlap-p2p-communication", ("workload", "overlap", "transfers"), False),
        ("--data-parallel-sharding-strategy=optim_grads_params", ("parallel", "zero"), 3),
        (
            "--recompute-modules moe_act layernorm", ("workload", "recompute"),
            "selective:moe_act+layernorm",
        ),
        ("--context-parallel-size 2", ("parallel", "cp"), 2),
        ("--context-parallel-size 2", ("parallel", "dp"), 2),
        ("--optimizer sgd", ("workload", "optimizer"), "sgd_momentum"),
    ],
)  # fmt: skip
def test_an_argument_changes_its_field(
    tmp_path: Path, more: str, place: tuple[str, ...], value: object
) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT.replace("--data-path $DATA", more))
    result, remarks = read_training_config(path)
    for name in place:
        result = result[name]
    assert result == value
    name = more.split(maxsplit=1)[0].partition("=")[0].removeprefix("--")
    assert not any(name in line for line in remarks)


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("--bf16", "deterministic", False),
        ("--deterministic-mode", "deterministic", True),
        ("--no-gradient-accumulation-fusion", "fused_gradient_accumulation", False),
        ("--cross-entropy-loss-fusion", "fused_loss", True),
        ("--bf16", "fused_loss", False),
        ("--bf16", "dropout", True),
        ("--attention-dropout 0.0 --hidden-dropout 0", "dropout", False),
        ("--hidden-dropout 0.0", "dropout", True),
        ("--attention-backend unfused", "attention", "math"),
        ("--transformer-impl local", "attention", "math"),
        ("--transformer-impl local --use-flash-attn", "attention", "fused"),
        ("--transformer-impl transformer_engine", "attention", "fused"),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "cuda_graph", "full"),
        ("--cuda-graph-impl local", "cuda_graph", "piecewise"),
        (
            "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router",
            "cuda_graph",
            "piecewise",
        ),
        ("--delay-wgrad-compute", "unpriced", ["delay-wgrad-compute"]),
        (
            "--cuda-graph-impl local --cuda-graph-scope attn",
            "unpriced",
            ["CUDA graphs of parts of a layer"],
        ),
        (
            "--no-bias-gelu-fusion --check-for-large-grads",
            "unpriced",
            ["no-bias-gelu-fusion", "check-for-large-grads"],
        ),
    ],
)
def test_a_switch_that_costs_time_is_an_option_and_never_unused(
    tmp_path: Path, more: str, option: str, value: object
) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT.replace("--data-path $DATA", more))
    result, remarks = read_training_config(path)
    assert result["engine"]["options"][option] == value
    unused = "".join(each for each in remarks if each.startswith("not used"))
    for word in more.split():
        if word.startswith("--"):
            assert word[2:] not in unused
    if option == "unpriced":
        assert any("widens the interval" in each for each in remarks)


def test_variables_of_libraries_are_read(tmp_path: Path) -> None:
    text = s.SCRIPT.replace("TP=4;", "export NCCL_ALGO=Ring NCCL_PROTO=Simple\nTP=4;")
    result, remarks = read_training_config(*s.written(tmp_path, run_sh=text))
    assert result["engine"]["options"]["nvls"] is False
    assert result["engine"]["options"]["unpriced"] == ["NCCL-PROTO"]
    assert any("CUDA_DEVICE_MAX_CONNECTIONS" in each and "host" in each for each in remarks)
    plain, _ = read_training_config(*s.written(tmp_path, run_sh=s.SCRIPT))
    assert "nvls" not in plain["engine"]["options"]


def test_groups_of_a_sharded_optimizer(tmp_path: Path) -> None:
    text = s.SCRIPT.replace("--data-path $DATA", "--num-distributed-optimizer-instances 2")
    result, _ = read_training_config(*s.written(tmp_path, run_sh=text))
    assert result["parallel"]["shard"] == 2


def test_experts_and_latent_attention(tmp_path: Path) -> None:
    arguments = (
        "--nproc-per-node 8 "
        "--num-layers 8 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --swiglu "
        "--micro-batch-size 1 --global-batch-size 8 --normalization RMSNorm --vocab-size 102400 "
        "--position-embedding-type rope --multi-latent-attention --kv-lora-rank 512 "
        "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 "
        "--moe-shared-expert-intermediate-size 2816 --moe-layer-freq ([0]*1+[1]*7) "
        "--expert-model-parallel-size 8 --untie-embeddings-and-output-weights"
    )
    (path,) = s.written(tmp_path, arguments_txt=arguments)
    result, _ = read_training_config(path)
    assert result["parallel"] == {"ep": 8, "etp": 1, "dp": 8, "zero": 0}
    model = understood(result)
    assert model.mla is not None
    assert model.moe is not None
    assert (model.moe.experts, model.moe.topk, model.moe.intermediate) == (64, 6, 1408)
    assert model.moe.shared_intermediate == 2816


@pytest.mark.parametrize("shared", ["", " --moe-shared-expert-intermediate-size 1408"])
@pytest.mark.parametrize(
    ("frequency", "dense"),
    [
        ("1", ()),
        ("2", (1, 3, 5, 7)),
        ("'([0]+[1]*7)'", (0,)),
        ("[0,1]*4", (0, 2, 4, 6)),
        ("([1,0,1,1]*2)", (1, 5)),
        ("([0]*3)+([1]*5)", (0, 1, 2)),
        ("([0]*1+[1]*1)*4", (0, 2, 4, 6)),
        ("([1]*9)", ()),
    ],
)
def test_layers_with_experts(
    tmp_path: Path, frequency: str, dense: tuple[int, ...], shared: str
) -> None:
    """As Megatron-LM's arguments state them: every how many, or the pattern of all layers."""
    arguments = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py "
        "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --swiglu "
        "--micro-batch-size 1 --global-batch-size 8 --normalization RMSNorm --vocab-size 1000 "
        "--position-embedding-type rope --num-experts 8 --moe-router-topk 2 "
        f"--moe-ffn-hidden-size 128 --untie-embeddings-and-output-weights{shared} "
        f'"--moe-layer-freq {frequency}"'
    )
    (path,) = s.written(tmp_path, run_sh=arguments)
    result, remarks = read_training_config(path)
    model = understood(result)
    assert model.moe is not None
    assert model.moe.dense_layers == dense
    assert any("moe-layer-freq" in remark for remark in remarks) == ("9" in frequency)


@pytest.mark.parametrize(
    "frequency",
    ["([0]*3+[1]*5", "[0]*3+[2]*5", "[0]*len", "[1]*-8", "(" * 300, "[1]" + "*1" * 9999],
)
def test_patterns_of_layers_that_say_nothing_are_refused(tmp_path: Path, frequency: str) -> None:
    arguments = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py "
        "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --swiglu "
        "--micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 --num-experts 8 "
        f"--moe-router-topk 2 --moe-ffn-hidden-size 128 --moe-layer-freq '{frequency}'"
    )
    with pytest.raises(SilicastError, match="no pattern of layers") as caught:
        read_training_config(*s.written(tmp_path, run_sh=arguments))
    assert "moe-layer-freq" in caught.value.field


def test_a_gpt_of_old(tmp_path: Path) -> None:
    """LayerNorm, learned positions, a plain MLP: what the arguments mean where nothing is said."""
    arguments = (
        "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 1024 "
        "--max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 8 --fp16"
    )
    (path,) = s.written(tmp_path, arguments_txt=arguments)
    result, remarks = read_training_config(path)
    model = understood(result)
    assert (model.norm, model.position, model.gated, model.tied) == (
        "layernorm", "learned", False, True,
    )  # fmt: skip
    assert (model.intermediate, model.vocab) == (8192, 50304)
    assert any("state them: --set cluster.gpus=8" in line for line in remarks)
    assert "vocabulary: not stated; 50257 of GPT-2 are assumed" in remarks
    assert result["precision"] == {"recipe": "fp16"}


def test_the_fewest_devices_hold_the_experts_of_an_unstated_number(tmp_path: Path) -> None:
    """ep x etp = 4 x 2 ranks share the experts of a stage of tp = 2: dp = 4, with pp = 2 16."""
    arguments = (
        "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--num-experts 8 --expert-model-parallel-size 4 --tensor-model-parallel-size 2 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 --bf16"
    )
    (path,) = s.written(tmp_path, arguments_txt=arguments)
    result, remarks = read_training_config(path)
    assert (result["parallel"]["dp"], result["parallel"]["etp"]) == (4, 2)
    assert any("16 taken; state them: --set cluster.gpus=16" in line for line in remarks)


def test_names_of_megatron_deepspeed(tmp_path: Path) -> None:
    arguments = (
        "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 1024 "
        "--normalization rmsnorm --num-key-value-heads 4 --micro-batch-size 4 --bf16"
    )
    (path,) = s.written(tmp_path, arguments_txt=arguments)
    model = understood(read_training_config(path)[0])
    assert (model.norm, model.kv_heads) == ("rmsnorm", 4)


def test_a_launch_line_beside_what_it_names(tmp_path: Path) -> None:
    """What TRL's recipes start: accelerate's file, a trainer's arguments, and a line with ranks."""
    paths = s.written(
        tmp_path,
        run_sh="accelerate launch --config_file zero3.yaml --num_processes 4 run_dpo.py full.yaml",
        full_yaml="model_name_or_path: mistralai/Mistral-7B-v0.1\nbf16: true\nmax_length: 1024\n"
        "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\n",
    )
    scenario, _ = read_training_config(*paths)
    assert scenario["workload"]["task"] == "dpo"
    assert (scenario["cluster"]["gpus"], scenario["workload"]["global_batch"]) == (4, 64)


@pytest.mark.parametrize(
    ("batches", "devices", "micro", "whole"),
    [
        ('"train_micro_batch_size_per_gpu": "auto"', 8, 8, 64),
        ('"train_batch_size": 256, "train_micro_batch_size_per_gpu": "auto"', 8, 8, 256),
        ('"train_batch_size": 36, "train_micro_batch_size_per_gpu": "auto"', 3, 4, 36),
        ('"train_batch_size": 256, "gradient_accumulation_steps": 2', 8, 16, 256),
        ('"train_batch_size": 256', 8, 32, 256),  # DeepSpeed's own rule: one pass
        ('"train_batch_size": 256', 0, 8, 256),
    ],
)
def test_a_micro_batch_that_no_file_states(
    tmp_path: Path, batches: str, devices: int, micro: int, whole: int
) -> None:
    """Transformers' default divides a batch, which is no single pass; a remark says which is
    taken.
    """
    text = f'{{"zero_optimization": {{"stage": 2}}, "bf16": {{"enabled": true}}, {batches}}}'
    (path,) = s.written(tmp_path, ds_json=text)
    result, remarks = read_training_config(path, devices=devices)
    work = result["workload"]
    assert (work["micro_batch"], work["global_batch"]) == (micro, whole)
    assert [f"not stated; {micro} a device" in each for each in remarks].count(True) == 1


def test_a_job_in_toml(tmp_path: Path) -> None:
    (path,) = s.written(tmp_path, job_toml=s.JOB)
    result, remarks = read_training_config(path)
    assert result["model"] == "Llama-3.1-8B"
    assert result["parallel"] == {"dp": 8, "zero": 3}
    assert result["precision"] == {"recipe": "fp8"}
    assert result["workload"]["global_batch"] == 16
    assert result["workload"]["recompute"] == "full"
    assert "not used: job.description = a run, optimizer.lr = 0.0003" in remarks
    understood(result)


def test_stages_of_a_job(tmp_path: Path) -> None:
    text = s.JOB.replace(
        "data_parallel_shard_degree = 8",
        "data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\npipeline_parallel_degree = 2\n"
        'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_microbatch_size = 1',
    )
    (path,) = s.written(tmp_path, job_toml=text)
    result, _ = read_training_config(path)
    assert result["parallel"] == {
        "tp": 2, "pp": 2, "dp": 4, "sp": True, "zero": 2, "virtual_stages": 2,
        "schedule": "interleaved",
    }  # fmt: skip
    assert result["cluster"] == {"gpus": 16}
    assert result["workload"]["micro_batch"] == 1


def test_copies_of_a_sharded_job(tmp_path: Path) -> None:
    text = s.JOB.replace(
        "data_parallel_shard_degree = 8",
        "data_parallel_shard_degree = 4\ndata_parallel_replicate_degree = 3",
    )
    (path,) = s.written(tmp_path, job_toml=text)
    result, _ = read_training_config(path)
    assert result["parallel"] == {"dp": 12, "zero": 3, "shard": 4}


def test_three_files_of_calculon(tmp_path: Path) -> None:
    paths = s.written(
        tmp_path, app_json=s.APPLICATION, exe_json=s.EXECUTION, a100_80g_json=s.SYSTEM
    )
    result, remarks = read_training_config(*paths)
    assert read_training_config(tmp_path) == (result, remarks)
    assert result["device"] == "A100-SXM-80GB"
    assert result["parallel"] == {
        "tp": 4, "pp": 2, "dp": 2, "sp": True, "zero": 1, "virtual_stages": 3,
    }  # fmt: skip
    assert result["cluster"] == {
        "gpus": 16, "gpus_per_node": 8,
        "inter_node": {"bandwidth_gb_per_s": 25.0, "latency_us": 20.0},
    }  # fmt: skip
    assert result["workload"]["recompute"] == "selective"
    assert result["workload"]["overlap"] == {"gradients": True, "tensor": True}
    assert any("weight_offload = True" in line for line in remarks)
    assert understood(result).intermediate == 8192


def test_three_files_of_simumax(tmp_path: Path) -> None:
    paths = s.written(
        tmp_path, m_json=s.MODEL, s_json=s.STRATEGY, x_json=s.SYSTEM_OF_SIMUMAX
    )  # fmt: skip
    result, remarks = read_training_config(*paths)
    assert result["device"] == "A100-PCIE-80GB"
    assert result["parallel"] == {"tp": 2, "ep": 8, "dp": 8, "sp": True, "zero": 1, "etp": 1}
    assert result["workload"] == {
        "seq_len": 4096, "micro_batch": 1, "global_batch": 64, "recompute": "full",
        "routing": "balanced",
    }  # fmt: skip
    assert "not used: mem_factor = 0.9" in remarks
    model = understood(result)
    assert model.moe is not None
    assert (model.moe.experts, model.moe.intermediate, model.kv_heads) == (8, 1408, 4)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"run_sh": s.SCRIPT.replace("--hidden-size 4096", "--hidden-size wide")}, "hidden-size"),
        ({"run_sh": s.SCRIPT.replace("TP=4", "TP=3")}, "32 ranks do not divide by 3 x 2 x 1"),
        ({"run_sh": s.SCRIPT.replace("stage 4", "stage 5")}, "no chunks of 5"),
        ({"job_toml": s.JOB.replace("8B", "9B")}, "unknown model 'llama3' of flavour '9B'"),
        ({"e_json": s.EXECUTION}, "the application is missing"),
        (
            {"a_json": s.APPLICATION, "e_json": {**s.EXECUTION, "num_procs": 3}},
            "3 is not 4 x 2 x 2",
        ),
        ({"m_json": s.MODEL, "s_json": {**s.STRATEGY, "world_size": 3}}, "do not divide"),
        ({"m_json": s.MODEL}, "the strategy is missing"),
        ({"m_json": {**s.MODEL, "head_num": True}, "s_json": s.STRATEGY}, "head_num"),
        ({"x_json": {"a": 1}}, "no training configuration that is known"),
        ({"x_sh": "echo hello"}, "no training configuration that is known"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, tables: dict[str, Any], said: str) -> None:
    paths = s.written(tmp_path, **tables)
    with pytest.raises(SilicastError) as caught:
        read_training_config(*paths)
    assert said in str(caught.value)
    assert paths[0].parent.name in str(caught.value)


def test_what_is_there_at_all(tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="holds no configuration"):
        read_training_config(tmp_path)
    assert not is_training_config(tmp_path / "none.json")


YAML = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 24
  --hidden-size: 2048
  --num-attention-heads: 16
  --group-query-attention: false
  --seq-length: 1024
  --micro-batch-size: 2
  --global-batch-size: 64
  --pipeline-model-parallel-size: 2
  --recompute-granularity: selective
  --recompute-modules: [moe_act, layernorm]
  --vocab-size: 50257
  --tensorboard-dir: ${OUT}/board
  --bf16: true
"""


@pytest.mark.parametrize("text", [YAML, YAML.replace("--", "").replace("-", "_")])
def test_arguments_in_yaml(tmp_path: Path, text: str) -> None:
    """As the tool's own tests write them, flags with true or false."""
    (path,) = s.written(tmp_path, model_yaml=text)
    assert is_training_config(path)
    result, remarks = read_training_config(path, devices=16)
    assert result["parallel"] == {"pp": 2, "dp": 8, "zero": 0}
    assert result["cluster"] == {"gpus": 16}
    assert result["precision"] == {"recipe": "bf16"}
    assert result["workload"]["recompute"] == "selective:moe_act+layernorm"
    assert understood(result).kv_heads == 16
    assert "--tensorboard-dir: its value '${OUT}/board' is left to the shell" in remarks


def test_devices_that_the_user_states_win_over_those_of_a_script(tmp_path: Path) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT)
    result, _ = read_training_config(path, devices=64)
    assert result["cluster"] == {"gpus": 64, "gpus_per_node": 8}
    assert result["parallel"]["dp"] == 64 // 8


@pytest.mark.parametrize("nodes", ["0", "-1", "1e3", "two"])
def test_a_number_of_nodes_that_is_none_is_refused(tmp_path: Path, nodes: str) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT.replace("--nnodes $NNODES", f"--nnodes {nodes}"))
    with pytest.raises(SilicastError, match="number of nodes") as caught:
        read_training_config(path)
    assert caught.value.field == "nnodes"
    assert read_training_config(path, devices=64)[0]["cluster"]["gpus"] == 64


def test_a_script_whose_arguments_stand_apart_holds_no_run(tmp_path: Path) -> None:
    text = "python3\n-m\nmaxtext.train\nper_device_batch_size=6\nmax_target_length=2048\n"
    (path,) = s.written(tmp_path, run_sh=text)
    with pytest.raises(SilicastError, match="holds no command that starts a run"):
        read_training_config(path)


SHARDED = s.JOB.replace("shard_degree = 8", "shard_degree = -1\ntensor_parallel_degree = 2")


def test_a_job_over_all_devices_has_the_ranks_that_are_left(tmp_path: Path) -> None:
    (path,) = s.written(tmp_path, job_toml=SHARDED)
    result, remarks = read_training_config(path, devices=16)
    assert result["parallel"] == {"tp": 2, "dp": 8, "sp": True, "zero": 3}
    assert result["workload"]["global_batch"] == 16  # two on each data rank
    assert not any("data_parallel_shard_degree" in line for line in remarks)
    with pytest.raises(SilicastError, match="7 devices do not divide") as caught:
        read_training_config(path, devices=7)
    assert caught.value.field == "parallelism.data_parallel_shard_degree"
    _, remarks = read_training_config(path)
    assert any("--set cluster.gpus=8" in line for line in remarks)


def test_a_job_of_an_early_version_has_its_degrees_elsewhere(tmp_path: Path) -> None:
    job = s.JOB.replace("[parallelism]\n", "").replace("local_batch_size", "batch_size")
    (path,) = s.written(tmp_path, job_toml=f"{job}[experimental]\ncontext_parallel_degree = 2\n")
    result, _ = read_training_config(path)
    assert result["parallel"] == {"cp": 2, "dp": 8, "zero": 3}


@pytest.mark.parametrize(
    ("lines", "recompute", "remark"),
    [
        ('mode = "none"', "none", ""),
        ('mode = "selective"\nselective_ac_option = "op"', "selective:mlp", "whole MLP"),
        ('mode = "selective"\nselective_ac_option = "2"', "full:2", ""),
        ('mode = "memory_budget"', "selective", "memory_budget is not modelled"),
    ],
)
def test_what_a_job_computes_again(tmp_path: Path, lines: str, recompute: str, remark: str) -> None:
    (path,) = s.written(tmp_path, job_toml=s.JOB.replace('mode = "full"', lines))
    result, remarks = read_training_config(path)
    assert result["workload"]["recompute"] == recompute
    assert any(remark in line for line in remarks)


def test_a_variable_that_nothing_reads_and_a_file_given_twice_are_refused(tmp_path: Path) -> None:
    (path,) = s.written(tmp_path, run_sh=s.SCRIPT)
    assert read_training_config(path, variables={"DATA": "here", "NCCL_ALGO": "Ring"})[0]
    with pytest.raises(SilicastError, match="no file reads this variable") as caught:
        read_training_config(path, variables={"DATE": "here"})
    assert caught.value.field == "--env DATE"
    with pytest.raises(SilicastError, match="is given twice"):
        read_training_config(path, path)
