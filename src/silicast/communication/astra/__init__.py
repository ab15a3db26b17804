"""ASTRA-sim's analytical network, to the nanosecond: its files in, its numbers out.

:func:`~silicast.communication.astra.times.astra_time` is the one way in.
"""
