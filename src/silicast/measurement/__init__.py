"""Measured times: taking them, reading them from other tools, and what they calibrate."""
