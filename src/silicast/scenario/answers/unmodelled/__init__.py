"""Tasks that no model answers yet."""
