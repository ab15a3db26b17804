"""What all kernel models share of a device: constants, clock and power, energy, limits, what is
not known.
"""
