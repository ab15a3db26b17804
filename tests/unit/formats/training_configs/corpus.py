"""Launch files as people write them for each tool, in words of this project, and what they mean.

Each is a list of files, what the user states beside them, and fields of the scenario.
"""

from __future__ import annotations

from tests.unit.formats.training_configs.launch_file import LaunchFile
from tests.unit.formats.training_configs.pretraining_files import MEGATRON, NVIDIA, TORCHTITAN
from tests.unit.formats.training_configs.script_files import SCRIPTS

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
        {
            "run.sh": """deepspeed --num_gpus=8 --master_port=29501 train.py \\
  --model_name_or_path mistralai/Mistral-7B-v0.1 --data_path d.json --output_dir out \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --model_max_length 2048 \\
  --bf16 True --gradient_checkpointing True --deepspeed ds.json --learning_rate 2e-5
""",
            "ds.json": ZERO3,
        },
        {
            "model": "mistralai/Mistral-7B-v0.1",
            "parallel.dp": 8,
            "parallel.zero": 3,
            "workload.global_batch": 64,
            "workload.seq_len": 2048,
            "workload.recompute": "full",
            "engine.name": "deepspeed",
            "precision.recipe": "bf16",
        },
    ),
    "deepspeed_offload_fp16": LaunchFile(
        {
            "ds.json": """{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
  "fp16": {"enabled": true, "loss_scale": 0}, "optimizer": {"type": "AdamW", "params": {}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}"""
        },
        {
            "precision.recipe": "fp16",
            "parallel.zero": 2,
            "workload.offload.optimizer": 1.0,
            "workload.global_batch": 64,
            "parallel.dp": 8,
        },
        devices=8,
    ),
    "accelerate_fsdp": LaunchFile(
        {
            "fsdp.yaml": FSDP_YAML,
            "go.sh": """accelerate launch --config_file fsdp.yaml sft.py \\
  --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --max_seq_length 4096 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --packing --optim adamw_torch
""",
        },
        {
            "cluster.gpus": 16,
            "parallel.zero": 3,
            "workload.recompute": "full",
            "workload.global_batch": 64,
            "precision.recipe": "bf16",
            "engine.name": "fsdp",
        },
    ),
    "torchrun_fsdp_words": LaunchFile(
        {
            "go.sh": """MODEL=meta-llama/Llama-2-7b-hf
torchrun --nproc_per_node=4 train.py --model_name_or_path $MODEL --bf16 True --tf32 True \\
  --output_dir out --num_train_epochs 3 --per_device_train_batch_size 4 --model_max_length 512 \\
  --gradient_accumulation_steps 8 --evaluation_strategy no --save_strategy steps \\
  --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer
"""
        },
        {
            "model": "meta-llama/Llama-2-7b-hf",
            "parallel.zero": 3,
            "workload.global_batch": 128,
            "workload.recompute": "none",
        },
    ),
    "trl_yaml_lora": LaunchFile(
        {
            "recipe.yaml": """model_name_or_path: meta-llama/Llama-3.1-8B
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
"""
        },
        {
            "workload.task": "lora",
            "precision.weights": "nf4",
            "lora.rank": 16,
            "workload.global_batch": 16,
            "lora.targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
        },
        devices=1,
    ),
    "accelerate_hybrid": LaunchFile(
        {
            "h.yaml": """distributed_type: FSDP
num_machines: 4
num_processes: 32
mixed_precision: bf16
fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: HYBRID_SHARD, fsdp_offload_params: false}
""",
            "args.json": """{"model_name_or_path": "01-ai/Yi-34B",
  "max_seq_length": 4096, "bf16": true, "per_device_train_batch_size": 1,
  "gradient_accumulation_steps": 1, "use_liger_kernel": true}""",
        },
        {
            "parallel.shard": 8,
            "parallel.dp": 32,
            "cluster.gpus_per_node": 8,
            "engine.options.fused_loss": True,
        },
    ),
    "reward": LaunchFile(
        {
            "go.sh": """python -m torch.distributed.run --nproc_per_node 4 reward_modeling.py \\
  --model_name_or_path Qwen/Qwen2-0.5B --per_device_train_batch_size 8 --max_length 2048 --bf16 \\
  --gradient_checkpointing True --num_train_epochs 1 --output_dir out --learning_rate 1e-5
"""
        },
        {
            "parallel.zero": 0,
            "workload.global_batch": 32,
            "workload.recompute": "full",
            "workload.task": "reward",
        },
    ),
    "dpo": LaunchFile(
        {
            "go.sh": """accelerate launch --num_processes 8 dpo.py --beta 0.1 \\
  --model_name_or_path Qwen/Qwen2-0.5B --per_device_train_batch_size 2 --max_length 1024 \\
  --gradient_accumulation_steps 4 --bf16 --deepspeed zero2.json --learning_rate 5e-7
"""
        },
        {"workload.task": "dpo", "parallel.zero": 2, "workload.global_batch": 64},
    ),
}

AXOLOTL = {
    "qlora": LaunchFile(
        {
            "qlora.yml": """base_model: NousResearch/Llama-3.2-1B
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
"""
        },
        {
            "workload.task": "lora",
            "precision.weights": "nf4",
            "lora.rank": 32,
            "workload.global_batch": 8,
            "workload.recompute": "full",
        },
        devices=1,
    ),
    "full_fsdp": LaunchFile(
        {
            "fft.yml": """base_model: meta-llama/Llama-3.1-8B
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
"""
        },
        {
            "parallel.zero": 3,
            "parallel.dp": 8,
            "engine.options.fused_loss": True,
            "workload.task": "sft",
        },
        devices=8,
    ),
    "deepspeed": LaunchFile(
        {
            "ds.yml": """base_model: Qwen/Qwen2.5-32B
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
"""
        },
        {
            "parallel.zero": 3,
            "engine.name": "deepspeed",
            "workload.global_batch": 16,
            "workload.optimizer": "adamw_8bit",
        },
        devices=8,
    ),
    "long_context": LaunchFile(
        {
            "cp.yml": """base_model: meta-llama/Llama-3.1-8B
sequence_len: 32768
micro_batch_size: 1
gradient_accumulation_steps: 1
context_parallel_size: 4
dp_shard_size: 2
bf16: true
gradient_checkpointing: true
optimizer: adamw_torch
"""
        },
        {"parallel.cp": 4, "parallel.dp": 2, "parallel.zero": 3, "workload.global_batch": 2},
        devices=8,
    ),
}

FACTORY = {
    "lora_sft": LaunchFile(
        {
            "lora.yaml": """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
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
"""
        },
        {
            "workload.task": "lora",
            "lora.rank": 8,
            "workload.global_batch": 8,
            "workload.recompute": "full",
            "workload.seq_len": 2048,
        },
        devices=1,
    ),
    "qlora": LaunchFile(
        {
            "q.yaml": """model_name_or_path: Qwen/Qwen3-8B
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
"""
        },
        {"precision.weights": "nf4", "lora.targets": ["q_proj", "v_proj"], "lora.rank": 16},
        devices=1,
    ),
    "full_deepspeed": LaunchFile(
        {
            "full.yaml": """model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
""",
            "ds_z3_config.json": ZERO3,
        },
        {"parallel.zero": 3, "workload.global_batch": 16, "workload.task": "sft"},
        devices=8,
    ),
    "dpo_lora": LaunchFile(
        {
            "dpo.yaml": """model_name_or_path: Qwen/Qwen2.5-7B
stage: dpo
finetuning_type: lora
lora_target: all
pref_beta: 0.1
pref_loss: sigmoid
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
        },
        {"workload.task": "dpo", "lora.rank": 8, "workload.global_batch": 64},
        devices=8,
    ),
}

MAXTEXT = {
    "yaml": LaunchFile(
        {
            "run.yml": """base_config: base.yml
model_name: llama3.1-8b
per_device_batch_size: 4
max_target_length: 8192
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 4
remat_policy: minimal_with_context
steps: 30
dataset_type: synthetic
attention: flash
"""
        },
        {
            "model": "llama3.1-8b",
            "parallel.tp": 4,
            "parallel.dp": 4,
            "parallel.zero": 3,
            "workload.global_batch": 64,
            "workload.micro_batch": 16,
            "workload.recompute": "none",
        },
        devices=16,
    ),
    "two_slices": LaunchFile(
        {
            "run.yml": """model_name: llama2-70b
per_device_batch_size: 2
max_target_length: 4096
dcn_data_parallelism: 2
ici_fsdp_parallelism: 64
ici_data_parallelism: 1
remat_policy: full
quantization: int8
"""
        },
        {
            "parallel.dp": 128,
            "parallel.shard": 64,
            "workload.global_batch": 256,
            "precision.recipe": "int8",
        },
        devices=128,
    ),
    "script": LaunchFile(
        {
            "run.sh": """export XLA_FLAGS="--xla_dump_to=/tmp/x"
BATCH=6
python3 -m maxtext.trainers.pre_train.train maxtext/configs/base.yml run_name=$USER-run \\
  model_name=mixtral-8x7b per_device_batch_size=${BATCH} max_target_length=2048 \\
  ici_fsdp_parallelism=4 ici_expert_parallelism=2 remat_policy=full opt_type=adamw steps=20
"""
        },
        {"model": "mixtral-8x7b", "parallel.ep": 2, "parallel.dp": 8, "workload.global_batch": 48},
        devices=8,
    ),
    "sizes": LaunchFile(
        {
            "run.yml": """base_emb_dim: 4096
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
"""
        },
        {
            "model.num_hidden_layers": 16,
            "model.intermediate_size": 11008,
            "workload.global_batch": 32,
            "workload.recompute": "full",
        },
        devices=8,
    ),
}

CORPUS = {
    f"{tool}-{name}": item
    for tool, items in (
        ("megatron", MEGATRON),
        ("nvidia", NVIDIA),
        ("torchtitan", TORCHTITAN),
        ("hugging-face", FACE),
        ("axolotl", AXOLOTL),
        ("llama-factory", FACTORY),
        ("maxtext", MAXTEXT),
        ("script", SCRIPTS),
    )
    for name, item in items.items()
}
