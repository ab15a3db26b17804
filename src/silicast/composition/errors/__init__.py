"""The error of a sum of kernels, and what assumptions add to it."""
