"""Timing kernels, hosts and collectives within a budget."""
