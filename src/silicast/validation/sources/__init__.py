"""Rows to train corrections on; each module lists its ``SOURCES``."""
