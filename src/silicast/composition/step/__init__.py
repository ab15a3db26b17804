"""A step of an engine: its stages, the nodes' times and what runs at once."""
