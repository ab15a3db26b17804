"""What a simulation observed: metrics, tables, energy, uncertainty, traces."""
