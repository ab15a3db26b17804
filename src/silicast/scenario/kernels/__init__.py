"""Kernel ops of the contract: their tables as ops, and ops as tables."""
