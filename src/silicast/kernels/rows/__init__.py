"""Kernels that work on each row of a tensor: norms, softmax, activations, losses, sampling."""
