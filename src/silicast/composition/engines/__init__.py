"""Engines as data: how they lower a graph, launch kernels and use the host."""
