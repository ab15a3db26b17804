"""See DESIGN: layer scenario."""
