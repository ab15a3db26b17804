"""A training step of many devices and its variation."""
