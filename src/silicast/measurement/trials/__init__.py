"""Tuned configurations timed on the GPU at hand."""
