"""Launch files of Megatron-LM, of the libraries above it, and of torchtitan."""

from __future__ import annotations

from tests.unit.formats.training_configs.launch_file import LaunchFile

LLAMA = """
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights --vocab-size 128256"""
LINE = " ".join(LLAMA.split())
OF_LLAMA = {"model.num_hidden_layers": 32, "model.num_key_value_heads": 8, "workload.seq_len": 4096}

MEGATRON = {
    "plain": LaunchFile(
        {
            "a.sh": f"torchrun --nproc-per-node=8 --nnodes=2 pretrain_gpt.py {LINE}"
            " --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer\n"
        },
        {**OF_LLAMA, "cluster.gpus": 16, "parallel.dp": 16, "workload.micro_batch": 2},
    ),
    "arrays_and_a_looked_for_script": LaunchFile(
        {
            "b.sh": f"""#!/usr/bin/env bash
set -euo pipefail
ENTRY="${{ENTRY:-pretrain_gpt.py}}"
WORKERS=8
MODEL=({LLAMA}
)
PLAN=( "--tensor-model-parallel-size 4" "--sequence-parallel" )
if [[ ! -f "$ENTRY" ]]; then
  printf 'no %s --tensor-model-parallel-size 1\\n' "$ENTRY" >&2; exit 2
fi
CMD="torchrun --nproc_per_node $WORKERS $ENTRY ${{MODEL[*]}} ${{PLAN[*]}}"
CMD+=" --micro-batch-size 1 --global-batch-size 16 --bf16"
echo "$CMD"
eval "$CMD"
"""
        },
        {**OF_LLAMA, "parallel.tp": 4, "parallel.dp": 2, "parallel.sp": True},
    ),
    "slurm": LaunchFile(
        {
            "c.slurm": f"""#!/bin/bash
#SBATCH --job-name=llama
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
NODES=$SLURM_JOB_NUM_NODES
HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
LAUNCH="torchrun --nproc_per_node 8 --nnodes $NODES --rdzv_endpoint $HEAD:29500"
ARGS=({LLAMA} --micro-batch-size 1 --global-batch-size 256 --bf16
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4)
srun --label bash -lc "$LAUNCH pretrain_gpt.py ${{ARGS[*]}}"
"""
        },
        {**OF_LLAMA, "cluster.gpus": 32, "parallel.pp": 4, "parallel.dp": 4},
    ),
    "fp8_by_a_condition": LaunchFile(
        {
            "d.sh": f"""DTYPE=${{1:-fp8}}
A=({LLAMA} --micro-batch-size 1 --global-batch-size 128 --bf16)
if [ "$DTYPE" = "fp8" ]; then
  A+=("--fp8-format hybrid" "--fp8-recipe tensorwise")
elif [ "$DTYPE" = "mx" ]; then
  A+=(--fp8-format e4m3 --fp8-recipe mxfp8)
fi
python -m torch.distributed.run --nproc-per-node 8 pretrain_gpt.py "${{A[@]}}"
"""
        },
        {**OF_LLAMA, "precision.recipe": "fp8", "parallel.dp": 8},
    ),
    "the_same_by_hand": LaunchFile(
        {
            "d.sh": f"""DTYPE=${{DTYPE:-fp8}}
A=({LLAMA} --micro-batch-size 1 --global-batch-size 128 --bf16)
case "$DTYPE" in
  fp8) A+=("--fp8-format hybrid") ;;
  mx) A+=(--fp8-format e4m3 --fp8-recipe mxfp8) ;;
  *) ;;
esac
torchrun --nproc-per-node 8 pretrain_gpt.py "${{A[@]}}"
"""
        },
        {**OF_LLAMA, "precision.recipe": "mxfp8"},
        variables={"DTYPE": "mx"},
    ),
    "experts": LaunchFile(
        {
            "e.sh": """GPUS=8 NODES=4
MOE="--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-grouped-gemm
 --moe-shared-expert-intermediate-size 2816 --moe-permute-fusion --expert-model-parallel-size 8"
torchrun --nproc_per_node ${GPUS} --nnodes ${NODES} --node_rank $RANK pretrain_gpt.py $MOE \\
  --num-layers 28 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --swiglu \\
  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \\
  --vocab-size 102400 --untie-embeddings-and-output-weights --bf16 --max-position-embeddings 4096 \\
  --micro-batch-size 2 --global-batch-size $((GPUS * NODES * 4)) --use-distributed-optimizer
"""
        },
        {
            "parallel.ep": 8,
            "parallel.dp": 32,
            "workload.global_batch": 128,
            "model.n_routed_experts": 64,
            "model.num_experts_per_tok": 6,
        },
    ),
    "chosen_of_two": LaunchFile(
        {
            "f.sh": f"""B="--micro-batch-size 1 --global-batch-size 32 --bf16"
A="{" ".join(LLAMA.split())}"
torchrun --nproc_per_node 8 pretrain_gpt.py $A $B --tensor-model-parallel-size 2
torchrun --nproc_per_node 8 pretrain_gpt.py $A $B --tensor-model-parallel-size 8
"""
        },
        {**OF_LLAMA, "parallel.tp": 8},
        run="2",
    ),
    "one_value_of_a_loop": LaunchFile(
        {
            "g.sh": f"""for CP in 1 2 4; do
  torchrun --nproc_per_node 8 pretrain_gpt.py {" ".join(LLAMA.split())} --bf16 \\
    --context-parallel-size $CP --micro-batch-size 1 --global-batch-size 32 |& tee log-$CP
done
"""
        },
        {**OF_LLAMA, "parallel.cp": 4, "parallel.dp": 2},
        variables={"CP": "4"},
    ),
    "other_python_before": LaunchFile(
        {
            "h.sh": f"""python tools/preprocess_data.py --input a.json --output-prefix b \\
  --workers 8 --tokenizer-type NullTokenizer --append-eod
[ -n "$NCCL_DEBUG" ] && export NCCL_DEBUG_SUBSYS=ALL
export NCCL_ALGO=Ring
PYTHONPATH=. torchrun --nproc_per_node 4 pretrain_gpt.py {" ".join(LLAMA.split())} --bf16 \\
  --micro-batch-size 1 --global-batch-size 32 --recompute-activations 2>&1 | tee run.log
python tools/checkpoint/convert.py --model-type GPT --target-tensor-parallel-size 2
"""
        },
        {
            **OF_LLAMA,
            "cluster.gpus": 4,
            "workload.recompute": "selective",
            "engine.options.nvls": False,
        },
    ),
    "megatron_deepspeed": LaunchFile(
        {
            "i.sh": """cat <<EOT > ds.json
{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
EOT
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 \\
  --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --fp16 \\
  --micro-batch-size 4 --global-batch-size 256 --deepspeed --deepspeed_config ds.json \\
  --zero-stage 1 --deepspeed-activation-checkpointing --checkpoint-activations
"""
        },
        {
            "cluster.gpus": 16,
            "parallel.zero": 1,
            "workload.recompute": "full",
            "precision.recipe": "fp16",
        },
    ),
    "yaml": LaunchFile(
        {
            "model_config.yaml": """ENV_VARS:
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0
TEST_TYPE: regular
MODEL_ARGS:
  --num-layers: 24
  --hidden-size: 2048
  --num-attention-heads: 16
  --seq-length: 2048
  --max-position-embeddings: 2048
  --micro-batch-size: 1
  --global-batch-size: 64
  --pipeline-model-parallel-size: 4
  --num-layers-per-virtual-pipeline-stage: 2
  --vocab-size: 50257
  --bf16: true
  --deterministic-mode: true
"""
        },
        {
            "parallel.pp": 4,
            "parallel.virtual_stages": 3,
            "parallel.dp": 2,
            "engine.options.deterministic": True,
        },
        devices=8,
    ),
    "yaml_of_two": LaunchFile(
        {
            "model_config.yaml": "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n"
            "  --num-attention-heads: 8\n  --seq-length: 1024\n  --max-position-embeddings: 1024\n"
            "  --micro-batch-size: 2\n  --global-batch-size: 32\n  --vocab-size: 50304\n"
            "MODEL_ARGS_2:\n  --num-layers: 12\n  --hidden-size: 512\n"
            "  --num-attention-heads: 8\n  --seq-length: 1024\n  --max-position-embeddings: 1024\n"
            "  --micro-batch-size: 4\n  --global-batch-size: 32\n  --vocab-size: 50304\n"
        },
        {"parallel.dp": 8, "workload.micro_batch": 4},
        devices=8,
        run="MODEL_ARGS_2",
    ),
}

BRIDGE = '''
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common, _peft_common
from megatron.bridge.training.config import ConfigContainer

LONG: int = 16 * 1024


def small_run() -> ConfigContainer:
    """A short one."""
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Llama-3.2-1B").to_megatron_provider()
    cfg.model.seq_length = 4096
    cfg.model.context_parallel_size = 1
    if cfg.model.context_parallel_size > 1:
        cfg.dataset.pad_to = 2 * cfg.model.context_parallel_size
    cfg.train.global_batch_size = 256
    return cfg


def long_run() -> ConfigContainer:
    cfg = small_run()
    cfg.model.seq_length = LONG
    cfg.model.context_parallel_size = 2
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.train.micro_batch_size = 1
    cfg.mixed_precision = "bf16_with_mxfp8_mixed"
    return cfg


def adapters(scheme: str = "lora") -> ConfigContainer:
    cfg = _peft_common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").to_megatron_provider()
    cfg.model.seq_length = 2048
    if isinstance(scheme, str) and scheme.lower() in ["lora", "dora"]:
        cfg.peft = LoRA(dim=16, target_modules=["linear_qkv", "linear_proj"])
    return cfg
'''
NEMO = """
trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
  max_steps: 1000
exp_manager:
  create_wandb_logger: false
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 32
  num_query_groups: 8
  normalization: rmsnorm
  activation: fast-swiglu
  bias: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  activations_checkpoint_granularity: selective
  transformer_engine: true
  fp8: true
  fp8_hybrid: true
  tokenizer:
    library: sentencepiece
    vocab_size: 32000
  optim:
    name: distributed_fused_adam
    lr: 1e-4
    overlap_grad_sync: true
"""
NVIDIA = {
    "nemo_yaml": LaunchFile(
        {"nemo.yaml": NEMO},
        {
            "cluster.gpus": 32,
            "parallel.tp": 4,
            "parallel.pp": 2,
            "parallel.dp": 4,
            "precision.recipe": "fp8",
            "model.intermediate_size": 16384,
            "parallel.zero": 1,
            "workload.overlap.gradients": True,
            "workload.recompute": "selective",
        },
    ),
    "nemo_lora": LaunchFile(
        {
            "tune.yaml": """
trainer: {devices: 8, num_nodes: 1, precision: bf16-mixed}
model:
  restore_from_path: meta-llama/Llama-2-7b-hf
  micro_batch_size: 1
  global_batch_size: 32
  tensor_model_parallel_size: 2
  encoder_seq_length: 2048
  peft:
    peft_scheme: lora
    lora_tuning: {adapter_dim: 16, target_modules: [attention_qkv, mlp_fc1]}
  optim: {name: fused_adam}
"""
        },
        {
            "workload.task": "lora",
            "lora.rank": 16,
            "lora.targets": ["linear_qkv", "linear_fc1"],
            "parallel.dp": 4,
        },
    ),
    "bridge_small": LaunchFile(
        {"recipes.py": BRIDGE},
        {
            "model": "meta-llama/Llama-3.2-1B",
            "parallel.dp": 8,
            "parallel.zero": 1,
            "workload.micro_batch": 2,
            "workload.global_batch": 256,
            "engine.name": "megatron_bridge",
        },
        devices=8,
        run="small_run",
    ),
    "bridge_long": LaunchFile(
        {"recipes.py": BRIDGE},
        {
            "workload.seq_len": 16384,
            "parallel.cp": 2,
            "parallel.tp": 2,
            "parallel.dp": 4,
            "precision.recipe": "mxfp8",
        },
        devices=16,
        run="long_run",
    ),
    "bridge_adapters": LaunchFile(
        {"recipes.py": BRIDGE},
        {"workload.task": "lora", "lora.rank": 16, "model": "Qwen/Qwen3-8B"},
        devices=4,
        run="adapters",
    ),
    "bridge_yaml": LaunchFile(
        {
            "run_config.yaml": """
model: {num_layers: 16, hidden_size: 2048, ffn_hidden_size: 8192, num_attention_heads: 32,
  num_query_groups: 8, gated_linear_unit: true, normalization: RMSNorm, add_bias_linear: false,
  position_embedding_type: rope, share_embeddings_and_output_weights: true, vocab_size: 128256,
  seq_length: 8192, tensor_model_parallel_size: 1, hidden_dropout: 0.0, attention_dropout: 0.0}
train: {global_batch_size: 64, micro_batch_size: 1, train_iters: 100}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
mixed_precision: bf16_mixed
"""
        },
        {
            "model.num_hidden_layers": 16,
            "model.tie_word_embeddings": True,
            "parallel.dp": 8,
            "workload.seq_len": 8192,
        },
        devices=8,
    ),
}

TITAN = """
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.qwen3 import model_registry
from torchtitan.trainer import Trainer


def qwen3_small() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        model_spec=spec,
        training=TrainingConfig(local_batch_size=4, seq_len=4096, steps=10),
        parallelism=ParallelismConfig(data_parallel_shard_degree=-1, tensor_parallel_degree=2),
        activation_checkpoint=SelectiveAC.Config(),
        compile=CompileConfig(enable=True),
    )


def qwen3_float8() -> Trainer.Config:
    config = qwen3_small()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    config.activation_checkpoint = FullAC.Config()
    config.training.local_batch_size = 2
    return config
"""
TORCHTITAN = {
    "toml_all_devices": LaunchFile(
        {
            "job.toml": """[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 2
seq_len = 4096
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
[compile]
enable = true
"""
        },
        {
            "model": "Llama-3.1-70B",
            "parallel.tp": 8,
            "parallel.dp": 8,
            "parallel.shard": 4,
            "workload.global_batch": 16,
            "workload.recompute": "full",
        },
        devices=64,
    ),
    "toml_of_early_versions": LaunchFile(
        {
            "job.toml": """[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 1
seq_len = 8192
data_parallel_degree = -1
compile = false
[experimental]
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""
        },
        {"parallel.dp": 8, "workload.global_batch": 8, "parallel.zero": 3},
        devices=8,
    ),
    "registry": LaunchFile(
        {"qwen.py": TITAN},
        {
            "model": "Qwen3-8B",
            "parallel.tp": 2,
            "parallel.dp": 4,
            "workload.global_batch": 16,
            "precision.recipe": "bf16",
        },
        devices=8,
        run="qwen3_small",
    ),
    "registry_float8": LaunchFile(
        {"qwen.py": TITAN},
        {"precision.recipe": "fp8", "workload.recompute": "full", "workload.micro_batch": 2},
        devices=8,
        run="qwen3_float8",
    ),
}
