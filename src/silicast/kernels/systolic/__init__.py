"""Kernels on matrix engines fed by software: TPU, Trainium and Inferentia, Gaudi, Ascend."""

from silicast.kernels.systolic import attention, gemm

__all__ = ["attention", "gemm"]
