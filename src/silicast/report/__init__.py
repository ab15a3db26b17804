"""See DESIGN: layer report."""
