"""Designed accelerators: mappings, layers, searches, dies, drawn and as tables."""
