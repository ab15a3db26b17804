"""Task ``graph``."""
