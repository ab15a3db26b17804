"""One file a suite; each registers itself on import."""
