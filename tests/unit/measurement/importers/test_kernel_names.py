"""Families, libraries and formats of kernels by their names."""

from __future__ import annotations

import pytest

from silicast.measurement.importers.kernel_names import parse_name, rejection_reason
from silicast.workload.libraries.catalog import library_names

# name, family, dtype, library
NAMES = [
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "gemm", "bf16", "cublas"),
    ("ampere_sgemm_128x64_nn", "gemm", "fp32", "cublas"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm", "fp16", "cublas"),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4", "gemm", "tf32", "cublas"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "gemm",
     "bf16", "cublas"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_tn_align8>",
     "gemm", "bf16", "cublas"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>", "gemm", "tf32",
     "cublas"),
    ("nvjet_hsh_128x128_64x6_2x1_v_bz_TNT", "gemm", "fp16", "cublas"),
    ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "gemm", "bf16", "cublas"),
    ("nvjet_qqtst_128x256_128x4_2x1_v_bz_TNT", "gemm", "fp8", "cublas"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u>", "gemm", "fp8", "deepgemm"),
    ("void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1>", "gemm", "bf16", "marlin"),
    ("triton_tem_fused_mm_3", "gemm", "", "triton"),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, cutlass::half_t>>",
     "attention_prefill", "fp16", "fa2"),
    ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>",
     "attention_decode", "bf16", "fa2"),
    ("cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>>",
     "attention_prefill", "bf16", "fa3"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, __half>",
     "attention_decode", "fp16", "flashinfer"),
    ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<__nv_bfloat16>>",
     "attention_prefill", "bf16", "flashinfer"),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128Kv128StaticContext",
     "attention_prefill", "bf16", "trtllm"),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
     "attention_prefill", "bf16", "torch"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
     "attention_prefill", "fp16", "cudnn"),
    ("kernel_unified_attention_2d", "attention_decode", "", "triton"),
    ("void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128, 16>", "attention_decode", "bf16",
     "vllm"),
    ("fused_moe_kernel", "moe", "", "triton"),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x512u2_s6_et64x8_sm100f", "moe", "fp8", "trtllm"),
    ("void vllm::rms_norm_kernel<c10::BFloat16, 8>", "rmsnorm", "bf16", "vllm"),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>", "rmsnorm", "bf16",
     "flashinfer"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
     "layernorm", "fp32", "torch"),
    ("void (anonymous namespace)::softmax_warp_forward<float, c10::BFloat16, 10>", "softmax",
     "bf16", "torch"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", "silu_mul", "bf16", ""),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>", "rope", "bf16", ""),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>", "kv_copy", "bf16",
     ""),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>>",
     "elementwise", "fp16", "torch"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduction", "fp32",
     "torch"),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>",
     "embedding", "bf16", "torch"),
    ("triton_poi_fused_add_mul_silu_3", "fused", "", "triton"),
    ("triton_red_fused__softmax_1", "softmax", "", "triton"),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4",
     "conv2d", "tf32", "cudnn"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective", "",
     "nccl"),
    ("[CUDA memcpy Host-to-Device]", "memcpy", "", ""),
    ("Memset (Device)", "memset", "", ""),
    ("_causal_conv1d_fwd_kernel", "gdn", "", ""),
    ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "gdn", "", "triton"),
    ("_chunk_scan_fwd_kernel", "mamba2", "", "triton"),
    ("void deep_ep::internode_ll::dispatch<true, 3, 7168>", "dispatch", "", "deepep"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
     "optimizer", "", "torch"),
    ("void per_token_group_quant_8bit_kernel<__nv_bfloat16, __nv_fp8_e4m3>", "quantize", "fp8",
     ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "dtype", "library"), NAMES)
def test_names(name: str, family: str, dtype: str, library: str) -> None:
    result = parse_name(name)
    assert (result.family, result.dtype, result.library) == (family, dtype, library)
    assert library in (*library_names().names, "")


def test_an_unknown_name_is_said_so() -> None:
    assert parse_name("somebody_elses_kernel").family == ""
    assert "no kernel that is known" in rejection_reason("somebody_elses_kernel")


def test_tiles_are_of_products() -> None:
    assert parse_name("nvjet_tst_128x256_64x4_2x1_v_bz_TNT").tile == "128x256"
    assert parse_name("fmha_cutlassF_bf16_aligned_64x128_rf_sm80").tile == ""


def test_collectives() -> None:
    assert rejection_reason("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL()").startswith(
        "reduce_scatter (nccl)"
    )
    assert rejection_reason("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)").startswith(
        "send_recv (nccl)"
    )
