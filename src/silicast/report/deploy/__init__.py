"""Files that start what was predicted: one writer a target."""
