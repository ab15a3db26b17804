"""Measurements, calibrations and imports as tables."""
