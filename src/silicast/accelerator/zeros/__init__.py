"""Zeros that a design leaves out: densities, formats, skipped work."""
