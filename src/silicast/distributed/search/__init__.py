"""The best plan of a training step."""
