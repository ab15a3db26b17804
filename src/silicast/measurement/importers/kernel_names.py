"""What a GPU kernel's name says: family, library, number format and tile.

Names do not hold sizes; those come from a profiler's record of shapes or from NVTX. The rules are
tried in order, so that special names stand before the general ones that they contain. Sources: the
kernels of cuBLAS, cuDNN, CUTLASS, PyTorch, FlashAttention, FlashInfer, TensorRT-LLM, vLLM, SGLang,
DeepGEMM, Triton, Inductor, DeepEP and NCCL, as profilers show them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class KernelName:
    """What a name says; "" = nothing.

    Attributes:
        family: an op of a scenario ("gemm"), or what no scenario has as an op: "reduction",
            "random", "sort", "gather", "fused" (several elementwise ops), "memcpy", "memset",
            "collective", "scan", "pooling", "layout", "all_reduce".
        library: of :data:`silicast.scenario.kernel_ops.LIBRARIES`.
        dtype: of what is multiplied or streamed.
        tile: of a matrix product, as the name writes it.
    """

    family: str = ""
    library: str = ""
    dtype: str = ""
    tile: str = ""

    @property
    def own_library(self) -> str:
        """The library where it is not one of PyTorch's usual ones."""
        return self.library if self.library not in USUAL else ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.family, self.dtype, self.library, self.tile) if part)


USUAL = ("torch", "cublas", "cudnn")
"""Libraries that PyTorch calls by itself; kernels leave them out, as traced programs do."""

_RULES: tuple[tuple[str, str, str], ...] = (
    # transfers and collectives
    (r"^\[?(CUDA )?memcpy|^Memcpy ", "memcpy", ""),
    (r"^\[?(CUDA )?memset|^Memset ", "memset", ""),
    (r"^nccl\w*Kernel|^ncclSymk", "collective", "nccl"),
    (r"cross_device_reduce|one_?shot_?all_?reduce|two_?shot_?all_?reduce", "all_reduce", "vllm"),
    (r"allreduce_fusion|lamport|multimem_all_reduce|oneShotAllReduce", "all_reduce", "trtllm"),
    (r"deep_ep::.*dispatch", "dispatch", "deepep"),
    (r"deep_ep::.*combine", "combine", "deepep"),
    (r"deep_ep::", "collective", "deepep"),
    # recurrent mixers
    (r"causal_conv1d|_causal_conv1d", "gdn", ""),
    (r"kda", "kda", "triton"),
    (r"gated_delta_rule|chunk_fwd_kernel_o|recompute_w_u|chunk_scaled_dot_kkt", "gdn", "triton"),
    (
        (r"chunk_scan_fwd|chunk_state_fwd|state_passing_fwd|bmm_chunk_fwd|selective_scan|"
        r"selective_state_update|chunk_cumsum_fwd"),
        "mamba2",
        "triton",
    ),
    # attention
    (r"mqa_logits", "dsa_module", "deepgemm"),
    (r"flash_fwd_splitkv_mla|flash_fwd_mla|FlashMLA|flash_mla|mla_combine_kernel|get_mla_metadata",
     "mla_decode", "flashmla"),
    (r"BatchMLAPaged", "mla_decode", "flashinfer"),
    (r"concat_and_cache_mla", "kv_copy", "vllm"),
    (r"BatchDecodeWithPagedKV|SingleDecodeWithKV", "attention_decode", "flashinfer"),
    (
        (r"BatchPrefillWith|SinglePrefillWith|BatchPrefillPaged|PersistentVariableLengthMerge|"
        r"flashinfer::.*(MergeState|VariableLengthMerge)"),
        "attention_prefill",
        "flashinfer",
    ),
    (r"fmhaSm\d+.*(Generation|Swaps)", "attention_decode", "trtllm"),
    (r"fmhaSm\d+|^fmha_v2_|^_?fmha_v2|FusedMultiHeadAttention", "attention_prefill", "trtllm"),
    (r"masked_multihead_attention|kernel_mha|mmha", "attention_decode", "trtllm"),
    (r"flash_attnflash_fwd|flash_fwd_sm100|FlashAttentionForwardSm1", "attention_prefill", "fa4"),
    (r"FlashAttn\w*Sm90|flash::enable_sm90|FlashAttnFwdCombine", "attention_prefill", "fa3"),
    (r"flash_bwd|fmha_cutlassB|sdpa.*bprop", "attention_backward", ""),
    (r"flash_fwd_splitkv", "attention_decode", "fa2"),
    (r"flash_fwd", "attention_prefill", "fa2"),
    (r"fmha_cutlassF|attention_kernel_batched_impl", "attention_prefill", "torch"),
    (r"cudnn.*sdpa|cudnn.*flash", "attention_prefill", "cudnn"),
    (r"paged_attention_v[12]|paged_attention_ll4mi", "attention_decode", "vllm"),
    (
        (r"kernel_unified_attention|kernel_paged_attention|_fwd_grouped_kernel_stage|"
        r"_fwd_kernel_stage[12]|reduce_segments"),
        "attention_decode",
        "triton",
    ),
    (r"triton_\w*flex_attention|flex_attention|_attn_fwd|^_fwd_kernel$|_fwd_kernel_unified",
     "attention_prefill", "triton"),
    (r"merge_attn_states", "attention_prefill", "vllm"),
    # mixtures of experts
    (r"fused_moe_kernel|fused_moe", "moe", "triton"),
    (r"marlin_moe|moe_wna16", "moe", "marlin"),
    (
        (r"moe_align_block_size|topkGatingSoftmax|topkGating|moe_fused_gate|grouped_topk|"
        r"moe::|moe_sum|expandInputRows|finalizeMoeRouting|routingIndices|moe_permute"),
        "moe",
        "",
    ),
    (r"^bmm_(E4m3|Bfloat16|E2m1|MxE|Fp16)\w*", "moe", "trtllm"),
    (r"grouped_gemm.*deep_gemm|deep_gemm.*group|GroupProblemShape|group_gemm", "moe", "cutlass"),
    # products
    (r"deep_gemm|fp8_gemm_1d[12]d|fp8_gemm_kernel", "gemm", "deepgemm"),
    (r"[Mm]arlin", "gemm", "marlin"),
    (r"nvjet_", "gemm", "cublas"),
    (
        (r"xmma_fprop|xmma_dgrad|xmma_wgrad|implicit_convolve|winograd|cudnn.*conv|conv2d_grouped|"
        r"_fprop|conv_depthwise|implicit_gemm|fft2d_"),
        "conv2d",
        "cudnn",
    ),
    (r"nchwToNhwc|nhwcToNchw|NchwToNhwc|tensorTransform", "layout", "cudnn"),
    (r"xmma_gemm", "gemm", "cublas"),
    (r"cutlass::Kernel2?<\s*cutlass_\d+", "gemm", "cublas"),
    (r"^cutlass_\d+_\w*gemm", "gemm", "cublas"),
    (r"(ampere|volta|turing|hopper|maxwell|kepler|blackwell|sm\d+)_\w*gemm", "gemm", "cublas"),
    (
        (r"cublasLt::splitKreduce|splitKreduce|gemv|gemmk1|gemmSN|cublas|dot_kernel|"
        r"reduce_1Block|trsm"),
        "gemm",
        "cublas",
    ),
    (r"scaled_mm|cutlass_scaled|fp8_blockwise|cutlass.*[Gg]emm|cutlass::device_kernel",
     "gemm", "cutlass"),
    (
        (r"triton_tem_fused_\w*(mm|bmm)|triton_\w*_mm|^_?matmul_kernel|w8a8_block_fp8_matmul|"
        r"^_?w8a8"),
        "gemm",
        "triton",
    ),
    # Inductor
    (r"^triton_(poi|for)_fused", "fused", "triton"),
    (r"^triton_(per|red)_fused\w*rms_?norm|^triton_(per|red)_fused\w*mean\w*rsqrt", "rmsnorm",
     "triton"),
    (r"^triton_(per|red)_fused\w*layer_norm", "layernorm", "triton"),
    (r"^triton_(per|red)_fused\w*softmax", "softmax", "triton"),
    (r"^triton_(per|red)_", "fused", "triton"),
    # rows
    (r"quant.*rms_?norm|rms_?norm.*quant", "rmsnorm", ""),
    (r"vllm::.*rms_?norm|fused_add_rms_norm_kernel", "rmsnorm", "vllm"),
    (r"flashinfer::norm|RMSNormKernel", "rmsnorm", "flashinfer"),
    (r"[Rr][Mm][Ss]_?[Nn]orm|generalRmsNorm", "rmsnorm", ""),
    (r"vectorized_layer_norm|[Ll]ayer_?[Nn]orm|cuApplyLayerNorm|ln_fwd", "layernorm", "torch"),
    (r"RowwiseMoments|batch_norm|bn_fw|group_norm|GroupNorm|BatchNorm", "normalisation", "torch"),
    (r"[Ss]oftmax(?!.*loss)|softmax_warp", "softmax", "torch"),
    (r"silu_and_mul|act_and_mul.*silu|silu_kernel.*act_and_mul|act_and_mul|swiglu|doActivation",
     "silu_mul", ""),
    (r"rotary|RoPE|rope|ApplyRotary", "rope", ""),
    (r"reshape_and_cache|append_paged_kv|updateKVCache|store_kvcache|set_kv_buffer|store_cache",
     "kv_copy", ""),
    (r"quant_kernel|scaled_fp8_quant|per_token_group_quant|quantize|cvt_fp16_to_fp4|_quant_",
     "quantize", ""),
    (r"[Ss]ampling|[Tt]op[KkPp].*Prob|topk_topp|argmax_kernel|apply_penalties|Renorm",
     "sampling", ""),
    # PyTorch
    (r"multi_tensor_apply|FusedAdam|fused_adam|adamw?_kernel|FusedSgd", "optimizer", "torch"),
    (r"nll_loss|cross_entropy|SoftMaxForward.*Loss", "cross_entropy", "torch"),
    (r"indexSelect|embedding_(?!backward)\w*|vectorized_gather|lookup", "embedding", "torch"),
    (
        (r"direct_copy_kernel|CatArrayBatchedCopy|copy_device_to_device|bfloat16_copy|"
        r"float16_copy|LoadWithCast"),
        "elementwise",
        "torch",
    ),
    (r"distribution_elementwise|philox|curand|dropout", "random", "torch"),
    (r"max_pool|avg_pool|upsample|pool2d", "pooling", "torch"),
    (r"index_elementwise|index_put|scatter_gather|gather|scatter|index_copy|masked_", "gather",
     "torch"),
    (r"[Rr]adixSort|[Ss]ort|gatherTopK|bitonic|[Tt]opk|cub::.*(Select|Histogram)", "sort", "torch"),
    (r"[Ss]can|cumsum", "scan", "torch"),
    (r"reduce_kernel|Reduce|reduction", "reduction", "torch"),
    (r"elementwise_kernel|CUDAFunctor|FillFunctor|vectorized_elementwise", "elementwise", "torch"),
)  # fmt: skip

_COMPILED = tuple((re.compile(pattern), family, library) for pattern, family, library in _RULES)

_DTYPES = tuple(
    (re.compile(pattern), dtype)
    for pattern, dtype in (
        (r"e2m1|nvfp4|E2m1|_fp4", "nvfp4"),
        (r"e4m3|e5m2|E4m3|E5m2|fp8|float8|Float8|f8f8", "fp8"),
        (r"nvjet_(sm\d+_)?qq", "fp8"),
        (r"tf32", "tf32"),
        (r"bf16|[Bb][Ff]loat16|nvjet_(sm\d+_)?t", "bf16"),
        (r"half|Half|fp16|_h\d{3,5}gemm|_hgemm|_f16|Fp16|float16|nvjet_(sm\d+_)?h", "fp16"),
        (r"tensorop_s1688gemm|_s1688gemm_1", "tf32"),
        (r"s8s8|i8|int8|_imma|imma_", "int8"),
        (r"double|dgemm|f64", "fp64"),
        (r"sgemm|f32|float|Float32|fp32|nvjet_(sm\d+_)?s", "fp32"),
    )
)
_TILE = re.compile(r"(?<![\dx])\d{2,3}x\d{1,3}(?:x\d{1,3})?(?![\dx])")
_NCCL = (
    ("AllReduce", "all_reduce"), ("AllGather", "all_gather"), ("ReduceScatter", "reduce_scatter"),
    ("AllToAll", "all_to_all"), ("SendRecv", "send_recv"), ("Broadcast", "broadcast"),
)  # fmt: skip


@functools.lru_cache(maxsize=65536)
def parse_name(name: str) -> KernelName:
    """What a kernel's name says.

    >>> print(parse_name("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"))
    gemm bf16 cublas 128x64
    >>> print(parse_name("flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, cutlass::half_t>>"))
    attention_prefill fp16 fa2
    >>> parse_name("somebody_elses").family
    ''
    """
    start = name.removeprefix("void ").strip()
    for pattern, family, library in _COMPILED:
        if pattern.search(start):
            return KernelName(family, library, _dtype(start), _tile(start, family))
    return KernelName()


def unread_reason(name: str) -> str:
    """Why a kernel without sizes is no row, with what its name says.

    >>> unread_reason("nvjet_tst_128x128_64x6_2x1_v_bz_TNT")
    'gemm (bf16 cublas 128x128): its sizes are not in the file'
    """
    found = parse_name(name)
    if not found.family:
        return "no kernel that is known by its name"
    if found.family in ("memcpy", "memset"):
        return f"{found.family}: a transfer, no kernel"
    if found.family == "collective" and (op := collective_of(name)):
        return f"{op} ({found.library}): its size is not in the file"
    details = " ".join(part for part in (found.dtype, found.library, found.tile) if part)
    shown = f"{found.family} ({details})" if details else found.family
    return f"{shown}: its sizes are not in the file"


def collective_of(name: str) -> str:
    """The collective of an NCCL kernel's name, "" if none of a scenario's.

    >>> collective_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'all_reduce'
    """
    return next((op for word, op in _NCCL if word in name), "")


def _dtype(name: str) -> str:
    return next((dtype for pattern, dtype in _DTYPES if pattern.search(name)), "")


def _tile(name: str, family: str) -> str:
    if family not in ("gemm", "moe", "conv2d"):
        return ""
    found = _TILE.search(name)
    return found.group() if found else ""
