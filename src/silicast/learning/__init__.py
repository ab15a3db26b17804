"""Efficiency models learned over dimensionless kernel features; empty until one is trained."""
