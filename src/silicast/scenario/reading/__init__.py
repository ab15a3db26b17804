"""Bytes and values as people write them: JSON, durations, series, names of formats, limits."""
