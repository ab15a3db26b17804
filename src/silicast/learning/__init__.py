"""See DESIGN: layer learning."""
