"""Kernels on CPUs: cores with vector units, some with matrix tiles, over caches and DRAM."""

from silicast.kernels.vector_cpu import attention, conv2d, gemm

__all__ = ["attention", "conv2d", "gemm"]
