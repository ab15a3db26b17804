"""Graphs of operations with open sizes, and the tensors between them."""
