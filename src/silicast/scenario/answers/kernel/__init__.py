"""Task ``kernel``."""
