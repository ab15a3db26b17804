"""Task ``diagnose``."""
