"""Kernels on CPUs: cores with vector units, some with matrix tiles, over caches and DRAM."""
