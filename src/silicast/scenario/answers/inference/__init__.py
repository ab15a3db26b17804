"""Task ``inference``."""
