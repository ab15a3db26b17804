"""Predictions over HTTP: for a page, for other programs, on one's own machine.

A request is a scenario and its answer that of ``silicast run``. Requests are answered in sealed
processes (:mod:`silicast.runner.sealed`), which can be killed; nothing that a request says opens a
file, starts a program or a connection.
"""
