"""Searching spaces of designs: the space, methods that propose, the front of the best."""
