"""Task ``collective``."""
