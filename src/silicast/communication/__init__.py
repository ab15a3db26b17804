"""See DESIGN: layer communication."""
