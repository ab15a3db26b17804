"""Kernels on devices that are not GPUs: matrix engines, CPUs, and families adapted to them."""
