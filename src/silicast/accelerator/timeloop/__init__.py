"""Files of Timeloop v0.4: processed descriptions, mappings and energy tables are read."""
