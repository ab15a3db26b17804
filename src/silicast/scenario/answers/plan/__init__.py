"""Task ``plan``."""
