"""The clock that a power limit holds, and the energy of whole work."""
