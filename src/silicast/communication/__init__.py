"""Communication between devices: topologies, collective algorithms, protocols and libraries.

:func:`~silicast.communication.collective.collective_times` is the one way in.
"""
