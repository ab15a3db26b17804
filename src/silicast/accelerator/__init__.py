"""Designed accelerators: what a loop nest on a hierarchy of memories moves, takes and costs."""
