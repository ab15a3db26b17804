"""Configurations of kernels: which one is the quickest, files of them, and why a kernel is slow."""
