"""Flows on a network of capacitated links: who shares what with whom, and for how long.

:func:`~silicast.communication.flows.simulation.simulate` is the one way in.
"""
