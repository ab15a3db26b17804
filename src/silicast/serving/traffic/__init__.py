"""Requests: arrivals, lengths, sessions, traces."""
