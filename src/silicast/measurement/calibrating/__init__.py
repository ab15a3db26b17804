"""Calibrations fitted to measured rows, and their accuracy."""
