"""Kernels on designs: products, convolutions, attention and experts are mapped; the rest streams.

Importing this package registers them for the execution model ``loop_nest``.
"""

from silicast.accelerator.kernels import attention, conv2d, experts, gemm, others

__all__ = ["attention", "conv2d", "experts", "gemm", "others"]
