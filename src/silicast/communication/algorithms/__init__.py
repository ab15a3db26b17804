"""Collective algorithms, one a file."""
