"""See DESIGN: layer validation."""
