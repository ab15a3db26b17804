"""Task ``training``."""
