"""Whole models measured: programs with random weights, timed as a framework runs them."""
