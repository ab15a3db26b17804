"""See DESIGN: layer app."""
