"""See DESIGN: layer composition."""
