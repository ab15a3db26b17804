"""Task ``serving``."""
