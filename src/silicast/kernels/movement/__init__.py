"""Kernels that mostly move data: elementwise work, copies, optimizers."""
