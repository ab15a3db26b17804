"""What the catalog holds, as tables."""
