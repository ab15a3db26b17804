"""Task ``tune``."""
