"""Task ``capacity``."""
