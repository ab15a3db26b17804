"""Suites: each module lists its ``SUITES``, and the ``SOURCES`` that corrections learn from."""
