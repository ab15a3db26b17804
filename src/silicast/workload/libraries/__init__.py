"""Kernel libraries as data."""
