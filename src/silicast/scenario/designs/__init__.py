"""Designed accelerators under whole models: compiling, searching, comparing."""
