"""Layer 2: how long one kernel takes. One file a family; each registers itself on import."""
