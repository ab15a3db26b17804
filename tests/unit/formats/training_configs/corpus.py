"""Launch files as people write them for each tool, in words of this project, and what they mean.

Each is a list of files, what the user states beside them, and fields of the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final


@final
@dataclass(frozen=True)
class LaunchFile:
    """Files of one run, and what they mean: dotted fields of the scenario."""

    files: dict[str, str]
    means: dict[str, Any]
    devices: int = 0
    run: str = ""
    variables: dict[str, str] = field(default_factory=dict)


LLAMA = """
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights --vocab-size 128256"""
OF_LLAMA = {"model.num_hidden_layers": 32, "model.num_key_value_heads": 8, "workload.seq_len": 4096}

MEGATRON = {
    "plain": LaunchFile(
        {"a.sh": f"torchrun --nproc-per-node=8 --nnodes=2 pretrain_gpt.py {' '.join(LLAMA.split())}"
         " --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer\n"},
        {**OF_LLAMA, "cluster.gpus": 16, "parallel.dp": 16, "workload.micro_batch": 2},
    ),
    "arrays_and_a_looked_for_script": LaunchFile(
        {"b.sh": f"""#!/usr/bin/env bash
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
"""},
        {**OF_LLAMA, "parallel.tp": 4, "parallel.dp": 2, "parallel.sp": True},
    ),
    "slurm": LaunchFile(
        {"c.slurm": f"""#!/bin/bash
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
"""},
        {**OF_LLAMA, "cluster.gpus": 32, "parallel.pp": 4, "parallel.dp": 4},
    ),
    "fp8_by_a_condition": LaunchFile(
        {"d.sh": f"""DTYPE=${{1:-fp8}}
A=({LLAMA} --micro-batch-size 1 --global-batch-size 128 --bf16)
if [ "$DTYPE" = "fp8" ]; then
  A+=("--fp8-format hybrid" "--fp8-recipe tensorwise")
elif [ "$DTYPE" = "mx" ]; then
  A+=(--fp8-format e4m3 --fp8-recipe mxfp8)
fi
python -m torch.distributed.run --nproc-per-node 8 pretrain_gpt.py "${{A[@]}}"
"""},
        {**OF_LLAMA, "precision.recipe": "fp8", "parallel.dp": 8},
    ),
    "the_same_by_hand": LaunchFile(
        {"d.sh": f"""DTYPE=${{DTYPE:-fp8}}
A=({LLAMA} --micro-batch-size 1 --global-batch-size 128 --bf16)
case "$DTYPE" in
  fp8) A+=("--fp8-format hybrid") ;;
  mx) A+=(--fp8-format e4m3 --fp8-recipe mxfp8) ;;
  *) ;;
esac
torchrun --nproc-per-node 8 pretrain_gpt.py "${{A[@]}}"
"""},
        {**OF_LLAMA, "precision.recipe": "mxfp8"}, variables={"DTYPE": "mx"},
    ),
    "experts": LaunchFile(
        {"e.sh": """GPUS=8 NODES=4
MOE="--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-grouped-gemm
 --moe-shared-expert-intermediate-size 2816 --moe-permute-fusion --expert-model-parallel-size 8"
torchrun --nproc_per_node ${GPUS} --nnodes ${NODES} --node_rank $RANK pretrain_gpt.py $MOE \\
  --num-layers 28 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --swiglu \\
  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \\
  --vocab-size 102400 --untie-embeddings-and-output-weights --bf16 --max-position-embeddings 4096 \\
  --micro-batch-size 2 --global-batch-size $((GPUS * NODES * 4)) --use-distributed-optimizer
"""},
        {"parallel.ep": 8, "parallel.dp": 32, "workload.global_batch": 128,
         "model.n_routed_experts": 64, "model.num_experts_per_tok": 6},
    ),
    "chosen_of_two": LaunchFile(
        {"f.sh": f"""B="--micro-batch-size 1 --global-batch-size 32 --bf16"
A="{' '.join(LLAMA.split())}"
torchrun --nproc_per_node 8 pretrain_gpt.py $A $B --tensor-model-parallel-size 2
torchrun --nproc_per_node 8 pretrain_gpt.py $A $B --tensor-model-parallel-size 8
"""},
        {**OF_LLAMA, "parallel.tp": 8}, run="2",
    ),
    "one_value_of_a_loop": LaunchFile(
        {"g.sh": f"""for CP in 1 2 4; do
  torchrun --nproc_per_node 8 pretrain_gpt.py {' '.join(LLAMA.split())} --bf16 \\
    --context-parallel-size $CP --micro-batch-size 1 --global-batch-size 32 |& tee log-$CP
done
"""},
        {**OF_LLAMA, "parallel.cp": 4, "parallel.dp": 2}, variables={"CP": "4"},
    ),
    "other_python_before": LaunchFile(
        {"h.sh": f"""python tools/preprocess_data.py --input a.json --output-prefix b --workers 8 \\
  --tokenizer-type NullTokenizer --append-eod
[ -n "$NCCL_DEBUG" ] && export NCCL_DEBUG_SUBSYS=ALL
export NCCL_ALGO=Ring
PYTHONPATH=. torchrun --nproc_per_node 4 pretrain_gpt.py {' '.join(LLAMA.split())} --bf16 \\
  --micro-batch-size 1 --global-batch-size 32 --recompute-activations 2>&1 | tee run.log
python tools/checkpoint/convert.py --model-type GPT --target-tensor-parallel-size 2
"""},
        {**OF_LLAMA, "cluster.gpus": 4, "workload.recompute": "selective",
         "engine.options.nvls": False},
    ),
    "megatron_deepspeed": LaunchFile(
        {"i.sh": """cat <<EOT > ds.json
{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
EOT
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 \\
  --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --fp16 \\
  --micro-batch-size 4 --global-batch-size 256 --deepspeed --deepspeed_config ds.json \\
  --zero-stage 1 --deepspeed-activation-checkpointing --checkpoint-activations
"""},
        {"cluster.gpus": 16, "parallel.zero": 1, "workload.recompute": "full",
         "precision.recipe": "fp16"},
    ),
    "yaml": LaunchFile(
        {"model_config.yaml": """ENV_VARS:
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
"""},
        {"parallel.pp": 4, "parallel.virtual_stages": 3, "parallel.dp": 2,
         "engine.options.deterministic": True}, devices=8,
    ),
}  # fmt: skip

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
        {"cluster.gpus": 32, "parallel.tp": 4, "parallel.pp": 2, "parallel.dp": 4,
         "precision.recipe": "fp8", "model.intermediate_size": 16384, "parallel.zero": 1,
         "workload.overlap.gradients": True, "workload.recompute": "selective"},
    ),
    "nemo_lora": LaunchFile(
        {"tune.yaml": """
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
"""},
        {"workload.task": "lora", "lora.rank": 16, "lora.targets": ["linear_qkv", "linear_fc1"],
         "parallel.dp": 4},
    ),
    "bridge_small": LaunchFile(
        {"recipes.py": BRIDGE},
        {"model": "meta-llama/Llama-3.2-1B", "parallel.dp": 8, "parallel.zero": 1,
         "workload.micro_batch": 2, "workload.global_batch": 256, "engine.name": "megatron_bridge"},
        devices=8, run="small_run",
    ),
    "bridge_long": LaunchFile(
        {"recipes.py": BRIDGE},
        {"workload.seq_len": 16384, "parallel.cp": 2, "parallel.tp": 2, "parallel.dp": 4,
         "precision.recipe": "mxfp8"}, devices=16, run="long_run",
    ),
    "bridge_adapters": LaunchFile(
        {"recipes.py": BRIDGE},
        {"workload.task": "lora", "lora.rank": 16, "model": "Qwen/Qwen3-8B"},
        devices=4, run="adapters",
    ),
    "bridge_yaml": LaunchFile(
        {"run_config.yaml": """
model: {num_layers: 16, hidden_size: 2048, ffn_hidden_size: 8192, num_attention_heads: 32,
  num_query_groups: 8, gated_linear_unit: true, normalization: RMSNorm, add_bias_linear: false,
  position_embedding_type: rope, share_embeddings_and_output_weights: true, vocab_size: 128256,
  seq_length: 8192, tensor_model_parallel_size: 1, hidden_dropout: 0.0, attention_dropout: 0.0}
train: {global_batch_size: 64, micro_batch_size: 1, train_iters: 100}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
mixed_precision: bf16_mixed
"""},
        {"model.num_hidden_layers": 16, "model.tie_word_embeddings": True, "parallel.dp": 8,
         "workload.seq_len": 8192}, devices=8,
    ),
}  # fmt: skip

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
        {"job.toml": """[job]
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
"""},
        {"model": "Llama-3.1-70B", "parallel.tp": 8, "parallel.dp": 8, "parallel.shard": 4,
         "workload.global_batch": 16, "workload.recompute": "full"}, devices=64,
    ),
    "toml_of_early_versions": LaunchFile(
        {"job.toml": """[model]
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
"""},
        {"parallel.dp": 8, "workload.global_batch": 8, "parallel.zero": 3}, devices=8,
    ),
    "registry": LaunchFile(
        {"qwen.py": TITAN},
        {"model": "Qwen3-8B", "parallel.tp": 2, "parallel.dp": 4, "workload.global_batch": 16,
         "precision.recipe": "bf16"}, devices=8, run="qwen3_small",
    ),
    "registry_float8": LaunchFile(
        {"qwen.py": TITAN},
        {"precision.recipe": "fp8", "workload.recompute": "full", "workload.micro_batch": 2},
        devices=8, run="qwen3_float8",
    ),
}  # fmt: skip

ZERO3 = """{
  "bf16": {"enabled": "auto"},
  "zero_optimization": {
    "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto"
  },
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"
}"""
FSDP_YAML = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_activation_checkpointing: true
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
FACE = {
    "deepspeed_launcher": LaunchFile(
        {"run.sh": """deepspeed --num_gpus=8 --master_port=29501 train.py \\
  --model_name_or_path mistralai/Mistral-7B-v0.1 --data_path d.json --output_dir out \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --model_max_length 2048 \\
  --bf16 True --gradient_checkpointing True --deepspeed ds.json --learning_rate 2e-5
""", "ds.json": ZERO3},
        {"model": "mistralai/Mistral-7B-v0.1", "parallel.dp": 8, "parallel.zero": 3,
         "workload.global_batch": 64, "workload.seq_len": 2048, "workload.recompute": "full",
         "engine.name": "deepspeed", "precision.recipe": "bf16"},
    ),
    "deepspeed_offload_fp16": LaunchFile(
        {"ds.json": """{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
  "fp16": {"enabled": true, "loss_scale": 0}, "optimizer": {"type": "AdamW", "params": {}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}"""},
        {"precision.recipe": "fp16", "parallel.zero": 2, "workload.offload.optimizer": 1.0,
         "workload.global_batch": 64, "parallel.dp": 8}, devices=8,
    ),
    "accelerate_fsdp": LaunchFile(
        {"fsdp.yaml": FSDP_YAML, "go.sh": """accelerate launch --config_file fsdp.yaml sft.py \\
  --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --max_seq_length 4096 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --packing --optim adamw_torch
"""},
        {"cluster.gpus": 16, "parallel.zero": 3, "workload.recompute": "full",
         "workload.global_batch": 64, "precision.recipe": "bf16", "engine.name": "fsdp"},
    ),
    "torchrun_fsdp_words": LaunchFile(
        {"go.sh": """MODEL=meta-llama/Llama-2-7b-hf
torchrun --nproc_per_node=4 train.py --model_name_or_path $MODEL --bf16 True --tf32 True \\
  --output_dir out --num_train_epochs 3 --per_device_train_batch_size 4 --model_max_length 512 \\
  --gradient_accumulation_steps 8 --evaluation_strategy no --save_strategy steps \\
  --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer
"""},
        {"model": "meta-llama/Llama-2-7b-hf", "parallel.zero": 3, "workload.global_batch": 128,
         "workload.recompute": "none"},
    ),
    "trl_yaml_lora": LaunchFile(
        {"recipe.yaml": """model_name_or_path: meta-llama/Llama-3.1-8B
torch_dtype: bfloat16
bf16: true
attn_implementation: flash_attention_2
use_peft: true
load_in_4bit: true
lora_r: 16
lora_alpha: 16
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
per_device_train_batch_size: 8
gradient_accumulation_steps: 2
gradient_checkpointing: true
max_seq_length: 1024
packing: true
learning_rate: 2.0e-4
optim: paged_adamw_8bit
"""},
        {"workload.task": "lora", "precision.weights": "nf4", "lora.rank": 16,
         "workload.global_batch": 16, "lora.targets": ["q_proj", "k_proj", "v_proj", "o_proj"]},
        devices=1,
    ),
    "accelerate_hybrid": LaunchFile(
        {"h.yaml": """distributed_type: FSDP
num_machines: 4
num_processes: 32
mixed_precision: bf16
fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: HYBRID_SHARD, fsdp_offload_params: false}
""", "args.json": """{"model_name_or_path": "01-ai/Yi-34B", "max_seq_length": 4096, "bf16": true,
  "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, "use_liger_kernel": true}"""},
        {"parallel.shard": 8, "parallel.dp": 32, "cluster.gpus_per_node": 8,
         "engine.options.fused_loss": True},
    ),
    "reward": LaunchFile(
        {"go.sh": """python -m torch.distributed.run --nproc_per_node 4 reward_modeling.py \\
  --model_name_or_path Qwen/Qwen2-0.5B --per_device_train_batch_size 8 --max_length 2048 --bf16 \\
  --gradient_checkpointing True --num_train_epochs 1 --output_dir out --learning_rate 1e-5
"""},
        {"parallel.zero": 0, "workload.global_batch": 32, "workload.recompute": "full",
         "workload.task": "reward"},
    ),
    "dpo": LaunchFile(
        {"go.sh": """accelerate launch --num_processes 8 dpo.py --beta 0.1 \\
  --model_name_or_path Qwen/Qwen2-0.5B --per_device_train_batch_size 2 --max_length 1024 \\
  --gradient_accumulation_steps 4 --bf16 --deepspeed zero2.json --learning_rate 5e-7
"""},
        {"workload.task": "dpo", "parallel.zero": 2, "workload.global_batch": 64},
    ),
}  # fmt: skip

AXOLOTL = {
    "qlora": LaunchFile(
        {"qlora.yml": """base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
strict: false
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
sequence_len: 2048
sample_packing: true
pad_to_sequence_len: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: paged_adamw_32bit
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
flash_attention: true
"""},
        {"workload.task": "lora", "precision.weights": "nf4", "lora.rank": 32,
         "workload.global_batch": 8, "workload.recompute": "full"}, devices=1,
    ),
    "full_fsdp": LaunchFile(
        {"fft.yml": """base_model: meta-llama/Llama-3.1-8B
sequence_len: 8192
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
bf16: true
tf32: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_fused_linear_cross_entropy: true
gradient_checkpointing: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  reshard_after_forward: true
sample_packing: true
"""},
        {"parallel.zero": 3, "parallel.dp": 8, "engine.options.fused_loss": True,
         "workload.task": "sft"}, devices=8,
    ),
    "deepspeed": LaunchFile(
        {"ds.yml": """base_model: Qwen/Qwen2.5-32B
adapter: lora
lora_r: 16
lora_target_modules: [q_proj, v_proj, up_proj, down_proj, gate_proj]
sequence_len: 4096
micro_batch_size: 1
gradient_accumulation_steps: 2
optimizer: adamw_bnb_8bit
bf16: true
gradient_checkpointing: true
deepspeed: deepspeed_configs/zero3_bf16.json
"""},
        {
            "parallel.zero": 3,
            "engine.name": "deepspeed",
            "workload.global_batch": 16,
            "workload.optimizer": "adamw_8bit",
        }, devices=8,
    ),
    "long_context": LaunchFile(
        {"cp.yml": """base_model: meta-llama/Llama-3.1-8B
sequence_len: 32768
micro_batch_size: 1
gradient_accumulation_steps: 1
context_parallel_size: 4
dp_shard_size: 2
bf16: true
gradient_checkpointing: true
optimizer: adamw_torch
"""},
        {"parallel.cp": 4, "parallel.dp": 2, "parallel.zero": 3, "workload.global_batch": 2},
        devices=8,
    ),
}  # fmt: skip

FACTORY = {
    "lora_sft": LaunchFile(
        {"lora.yaml": """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000
output_dir: saves/x
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
"""},
        {"workload.task": "lora", "lora.rank": 8, "workload.global_batch": 8,
         "workload.recompute": "full", "workload.seq_len": 2048}, devices=1,
    ),
    "qlora": LaunchFile(
        {"q.yaml": """model_name_or_path: Qwen/Qwen3-8B
stage: sft
finetuning_type: lora
quantization_bit: 4
quantization_method: bnb
lora_rank: 16
lora_target: q_proj,v_proj
cutoff_len: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
fp16: true
"""},
        {"precision.weights": "nf4", "lora.targets": ["q_proj", "v_proj"], "lora.rank": 16},
        devices=1,
    ),
    "full_deepspeed": LaunchFile(
        {"full.yaml": """model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
""", "ds_z3_config.json": ZERO3},
        {"parallel.zero": 3, "workload.global_batch": 16, "workload.task": "sft"}, devices=8,
    ),
    "dpo_lora": LaunchFile(
        {"dpo.yaml": """model_name_or_path: Qwen/Qwen2.5-7B
stage: dpo
finetuning_type: lora
lora_target: all
pref_beta: 0.1
pref_loss: sigmoid
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""},
        {"workload.task": "dpo", "lora.rank": 8, "workload.global_batch": 64}, devices=8,
    ),
}  # fmt: skip

MAXTEXT = {
    "yaml": LaunchFile(
        {"run.yml": """base_config: base.yml
model_name: llama3.1-8b
per_device_batch_size: 4
max_target_length: 8192
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 4
remat_policy: minimal_with_context
steps: 30
dataset_type: synthetic
attention: flash
"""},
        {"model": "llama3.1-8b", "parallel.tp": 4, "parallel.dp": 4, "parallel.zero": 3,
         "workload.global_batch": 64, "workload.micro_batch": 16, "workload.recompute": "none"},
        devices=16,
    ),
    "two_slices": LaunchFile(
        {"run.yml": """model_name: llama2-70b
per_device_batch_size: 2
max_target_length: 4096
dcn_data_parallelism: 2
ici_fsdp_parallelism: 64
ici_data_parallelism: 1
remat_policy: full
quantization: int8
"""},
        {"parallel.dp": 128, "parallel.shard": 64, "workload.global_batch": 256,
         "precision.recipe": "int8"}, devices=128,
    ),
    "script": LaunchFile(
        {"run.sh": """export XLA_FLAGS="--xla_dump_to=/tmp/x"
BATCH=6
python3 -m maxtext.trainers.pre_train.train maxtext/configs/base.yml run_name=$USER-run \\
  model_name=mixtral-8x7b per_device_batch_size=${BATCH} max_target_length=2048 \\
  ici_fsdp_parallelism=4 ici_expert_parallelism=2 remat_policy=full opt_type=adamw steps=20
"""},
        {"model": "mixtral-8x7b", "parallel.ep": 2, "parallel.dp": 8, "workload.global_batch": 48},
        devices=8,
    ),
    "sizes": LaunchFile(
        {"run.yml": """base_emb_dim: 4096
base_num_query_heads: 32
base_num_kv_heads: 8
base_num_decoder_layers: 16
base_mlp_dim: 11008
head_dim: 128
vocab_size: 32000
per_device_batch_size: 1
max_target_length: 4096
ici_fsdp_parallelism: 8
dcn_data_parallelism: 1
gradient_accumulation_steps: 4
"""},
        {"model.num_hidden_layers": 16, "model.intermediate_size": 11008,
         "workload.global_batch": 32, "workload.recompute": "full"}, devices=8,
    ),
}  # fmt: skip

CORPUS = {
    f"{tool}-{name}": item
    for tool, items in (
        ("megatron", MEGATRON), ("nvidia", NVIDIA), ("torchtitan", TORCHTITAN),
        ("hugging-face", FACE), ("axolotl", AXOLOTL), ("llama-factory", FACTORY),
        ("maxtext", MAXTEXT),
    )
    for name, item in items.items()
}  # fmt: skip
