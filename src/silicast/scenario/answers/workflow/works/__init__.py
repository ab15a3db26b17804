"""What stages do: one file a kind, named like it."""
