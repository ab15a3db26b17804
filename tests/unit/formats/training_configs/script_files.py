"""Shell scripts that hold their arguments in here-documents and functions, or write files."""

from __future__ import annotations

from tests.unit.formats.training_configs.launch_file import LaunchFile

SCRIPTS = {
    "accelerate_yaml_written_by_the_script": LaunchFile(
        {
            "run.sh": """#!/bin/bash
cat >/tmp/fsdp.yaml <<YAML
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 1
num_processes: ${GPUS:-8}
YAML
ARGS=( --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 8192 )
ARGS+=( --per_device_train_batch_size 1 --gradient_accumulation_steps "${GA:-8}" )
ARGS+=( --packing --bf16 )
OMP_NUM_THREADS=8 accelerate launch --config_file /tmp/fsdp.yaml sft.py "${ARGS[@]}" \\
  --attn_implementation flash_attention_2
"""
        },
        {
            "parallel.dp": 8,
            "parallel.zero": 3,
            "workload.global_batch": 64,
            "workload.recompute": "full",
            "engine.name": "fsdp",
        },
    ),
    "deepspeed_json_written_by_the_script": LaunchFile(
        {
            "run.sh": """cat <<EOF | tee ds.json
{ "zero_optimization": {"stage": 2, "overlap_comm": true}, "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $STEPS }
EOF
STEPS=4
cat > ds_zero3.json <<EOF
{ "zero_optimization": {"stage": 3, "overlap_comm": true}, "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $STEPS }
EOF
deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --deepspeed ds_zero3.json \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_max_length 4096 \\
  --bf16 True
"""
        },
        {"parallel.dp": 8, "parallel.zero": 3, "workload.global_batch": 64},
    ),
    "megatron_arguments_in_a_here_document_and_a_function": LaunchFile(
        {
            "run.sh": """WORLD=16
moe_args() {
  echo "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm"
  echo --moe-permute-fusion
}
read -r -d '' MODEL_ARGS <<'EOF' || true
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --seq-length 4096 --max-position-embeddings 32768 --normalization RMSNorm --swiglu
  --disable-bias-linear --untie-embeddings-and-output-weights --group-query-attention
  --num-query-groups 8 --position-embedding-type rope --vocab-size 32000
EOF
PARALLEL=$(cat <<-EOF
	--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
	--expert-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer
	EOF
)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $MODEL_ARGS $(moe_args) $PARALLEL \\
  --micro-batch-size 1 --global-batch-size $((WORLD*8)) --bf16 2>&1 | tee log.txt
"""
        },
        {
            "parallel.tp": 2,
            "parallel.ep": 4,
            "parallel.dp": 4,
            "workload.global_batch": 128,
            "model.num_local_experts": 8,
            "model.vocab_size": 32000,
            "cluster.gpus": 16,
        },
    ),
    "bridge_script_over_a_recipe_of_the_library": LaunchFile(
        {
            "run.py": """from megatron.bridge.recipes.llama import llama3_70b_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain


def main() -> None:
    cfg = llama3_70b_pretrain_config()
    cfg.dataset.sequence_length = 4096
    cfg.model.seq_length = 4096
    cfg.train.global_batch_size = 128
    cfg.model.virtual_pipeline_model_parallel_size = None
    pretrain(config=cfg, forward_step_func=forward_step)


if __name__ == "__main__":
    main()
"""
        },
        {
            "model": "meta-llama/Meta-Llama-3-70B",
            "parallel.tp": 4,
            "parallel.pp": 4,
            "parallel.cp": 2,
            "parallel.dp": 2,
            "parallel.virtual_stages": None,
            "workload.seq_len": 4096,
            "workload.micro_batch": 1,
            "workload.global_batch": 128,
            "workload.recompute": "none",
        },
        devices=64,
    ),
    "bridge_statements_of_a_file": LaunchFile(
        {
            "run.py": """from megatron.bridge.recipes.qwen import qwen3_30b_a3b_pretrain_config
from megatron.bridge.training.pretrain import pretrain

cfg = qwen3_30b_a3b_pretrain_config()
cfg.model.tensor_model_parallel_size = 1
cfg.model.pipeline_model_parallel_size = 1
cfg.model.expert_model_parallel_size = 8
cfg.model.recompute_granularity = None
cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"
pretrain(cfg, None)
"""
        },
        {
            "model": "Qwen/Qwen3-30B-A3B",
            "parallel.tp": None,
            "parallel.ep": 8,
            "precision.recipe": "fp8",
            "workload.recompute": "none",
            "workload.global_batch": 32,
            "workload.micro_batch": 2,
        },
        devices=8,
    ),
}
