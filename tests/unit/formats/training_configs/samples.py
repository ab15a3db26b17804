"""Configurations of other tools, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCRIPT = r"""#!/bin/bash
# starts a run
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-4}
TP=4; PP=2
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES   # nodes
)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope
    --untie-embeddings-and-output-weights --disable-bias-linear
    --max-position-embeddings 8192 --vocab-size 128256
)
TRAINING_ARGS="--micro-batch-size 1 --global-batch-size $((8*16)) --seq-length 8192 \
  --lr 1e-4 --bf16 --use-distributed-optimizer --overlap-grad-reduce"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${TRAINING_ARGS} \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \
    --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel \
    --recompute-granularity selective --data-path $DATA 2>&1 | tee log
"""

JOB = """
[job]
description = "a run"
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "full"
"""

APPLICATION: dict[str, Any] = {
    "name": "small", "hidden": 2048, "attn_heads": 16, "attn_size": 128, "seq_size": 2048,
    "feedforward": 8192, "num_blocks": 24,
}  # fmt: skip
EXECUTION: dict[str, Any] = {
    "num_procs": 16, "tensor_par": 4, "pipeline_par": 2, "data_par": 2, "batch_size": 32,
    "microbatch_size": 1, "datatype": "float16", "activation_recompute": "attn_only",
    "pipeline_interleaving": 3, "optimizer_sharding": True, "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "ring", "data_par_overlap": True, "training": True,
    "weight_offload": True,
}  # fmt: skip
SYSTEM: dict[str, Any] = {
    "matrix": {}, "mem1": {}, "networks": [
        {"bandwidth": 300, "size": 8, "latency": 1e-5},
        {"bandwidth": 25, "size": 65536, "latency": 2e-5},
    ],
}  # fmt: skip
MODEL: dict[str, Any] = {
    "model_type": "moe", "model_name": "tiny-moe", "hidden_size": 2048, "head_num": 16,
    "kv_head_num": 4, "head_size": 128, "intermediate_size": 8192, "layer_num": 16,
    "vocab_size": 64000, "use_swiglu": True, "expert_num": 8, "topk": 2,
    "moe_ffn_hidden_size": 1408,
}  # fmt: skip
STRATEGY: dict[str, Any] = {
    "seq_len": 4096, "micro_batch_size": 1, "micro_batch_num": 8, "dtype": "bf16", "world_size": 16,
    "tp_size": 2, "pp_size": 1, "ep_size": 8, "etp_size": 1, "enable_sequence_parallel": True,
    "zero_state": 1, "enable_recompute": True, "recompute_granularity": "full_block",
    "mem_factor": 0.9,
}  # fmt: skip
SYSTEM_OF_SIMUMAX: dict[str, Any] = {
    "sys_name": "A100_PCIE", "num_per_node": 8, "accelerator": {},
    "networks": {"inter_node": {"bandwidth": {"gbps": 25, "latency_us": 10}}},
}  # fmt: skip


def written(folder: Path, **tables: Any) -> list[Path]:
    """Files of texts (``run_sh``) and tables (``app_json``)."""
    paths = []
    for name, content in tables.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        paths.append(path)
    return paths
