"""Silicast: how fast will it run, before anybody buys, rents or builds it?"""

__version__ = "0.1.0"
